"""An interpreter is examined once; one that cannot be used gives a record, not an exception."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.engine.environments import (
    Environment,
    Unusable,
    distributions_of,
    examine,
    missing,
    our_own,
    parse_environments,
)


@dataclass
class Needs:
    requires: tuple[tuple[str, ...], ...]


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_our_own_interpreter() -> None:
    assert our_own().python == sys.executable
    assert our_own().name == "default"
    assert {"numpy", "packaging", "pytest"} <= set(our_own().distributions)


def test_another_interpreter_is_asked_for_its_distributions() -> None:
    found = examine("mine", sys.executable)
    assert isinstance(found, Environment)
    assert (found.name, found.python) == ("mine", sys.executable)
    assert found.version == ".".join(map(str, sys.version_info[:3]))
    assert found.distributions == our_own().distributions


def test_a_virtual_environment_may_be_named_by_its_folder(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    found = examine("venv", str(tmp_path))
    assert found.python == str(tmp_path / "bin" / "python")


ANSWERS = {
    'echo \'{"python": [3, 9, 18], "distributions": {"numpy": "2.0"}}\'': (
        "is Python 3.9.18, which is too old: create the environment with 3.10 or later"
    ),
    'echo \'{"python": [3, 11, 0], "distributions": {"NumPy": "1.25.2"}}\'': (
        "it has NumPy 1.25.2, but workers need NumPy 1.26 or later: "
    ),
    'echo \'{"python": [3, 11, 0], "distributions": {}}\'': "python -m pip install 'numpy>=1.26'",
    "echo hello": "did not answer like a Python interpreter (exit code 0)",
    "echo '[]'": "did not answer like a Python interpreter",
    "echo first >&2; echo no such module >&2; exit 3": (
        "did not answer like a Python interpreter (exit code 3); its stderr ends with: no such module"
    ),
    "kill -9 $$": "(exit code -9)",
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_interpreter_that_cannot_serve_is_told_with_its_reason(tmp_path: Path, answer: str) -> None:
    found = examine("odd", script(tmp_path, answer))
    assert isinstance(found, Unusable)
    assert ANSWERS[answer] in found.reason


def test_an_interpreter_that_only_makes_environments_needs_no_numpy(tmp_path: Path) -> None:
    bare = script(tmp_path, 'echo \'{"python": [3, 13, 0], "distributions": {"pip": "25.0"}}\'')
    assert examine("default", bare, judges=False) == Environment("default", bare, "3.13.0", {"pip": "25.0"})


def test_what_cannot_be_run_is_told(tmp_path: Path) -> None:
    nowhere = examine("odd", str(tmp_path / "nowhere"))
    assert nowhere == Unusable(
        "odd",
        str(tmp_path / "nowhere"),
        f"{tmp_path}/nowhere cannot be run: No such file or directory; "
        "specify an interpreter, such as .venv/bin/python, or the folder of a virtual environment",
    )
    (tmp_path / "text").write_text("no program", encoding="utf-8")
    forbidden = examine("odd", str(tmp_path / "text"))
    assert isinstance(forbidden, Unusable)
    assert "cannot be run: Permission denied" in forbidden.reason


def test_an_interpreter_is_asked_once(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    python = script(tmp_path, f'echo x >> {asked}; echo \'{{"python": [3, 11, 0], "distributions": {{}}}}\'')
    assert examine("one", python) == examine("one", python)
    assert asked.read_text(encoding="utf-8") == "x\n"


def test_an_interpreter_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.engine.environments._PATIENCE", 0.2)
    found = examine("odd", script(tmp_path, "exec sleep 60"))
    assert isinstance(found, Unusable)
    assert found.reason.endswith("did not answer within 0.2 s")


def test_arguments() -> None:
    given = ["old=/opt/python", "new.2=a=b", "default=mine"]
    assert parse_environments(given) == [("old", "/opt/python"), ("new.2", "a=b"), ("default", "mine")]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["old"], "expected NAME=PYTHON"),
        (["old="], "expected NAME=PYTHON"),
        (["=python"], "expected NAME=PYTHON"),
        (["a b=python"], "expected NAME=PYTHON"),
        (["a=p", "a=q"], "the name 'a' is used twice"),
    ],
)
def test_arguments_of_another_form_are_wrong_usage(given: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_environments(given)


@pytest.mark.parametrize(
    ("requires", "lacking"),
    [
        ((), ()),
        ((("keras",), ("Tensor_Flow",)), ()),
        ((("keras>=3",),), ()),
        ((("keras>=3.9",),), ("keras>=3.9 (3.5.1 is installed)",)),
        ((("keras>=3,<3.5", "jax"),), ("keras>=3,<3.5 (3.5.1 is installed) or jax",)),
        ((("keras>=4", "tensor-flow"),), ()),
        ((("torch", "pytorch"), ("jax",), ("keras",)), ("torch or pytorch", "jax")),
        ((("nightly>=2",),), ()),
        ((("broken",),), ("broken (unknown is installed)",)),
    ],
)
def test_what_is_missing(requires: tuple[tuple[str, ...], ...], lacking: tuple[str, ...]) -> None:
    installed = {"keras": "3.5.1", "tensor-flow": "2.0", "nightly": "2.1.dev3", "broken": "unknown"}
    assert missing(Needs(requires), Environment("e", "python", "3.11", installed)) == lacking


def test_distributions_of_a_requirement() -> None:
    assert distributions_of(Needs((("keras>=3", "keras-nightly"), ("jax[cpu]", "keras")))) == (
        "keras",
        "keras-nightly",
        "jax",
    )
