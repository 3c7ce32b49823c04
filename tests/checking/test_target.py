"""Targets of check: FILE:FUNCTION and function objects."""

import functools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conformance.checking.target import CheckError, parse_target, target_of


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "my-file.py"
    path.write_text("def attention(q, k, v, mask): ...\n\n\ndef other(): ...\n", encoding="utf-8")
    return path


def test_a_function_is_found_without_running_its_file(mine: Path) -> None:
    mine.write_text("raise SystemExit\n" + mine.read_text(encoding="utf-8"), encoding="utf-8")
    target = parse_target(f"{mine}:attention")
    assert (target.function, target.name) == ("attention", "my_file.attention")
    assert target.package == (mine.parent, "my-file")


def test_a_module_in_a_package_is_imported_from_its_root(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner / "module.py").write_text("def f(q, k, v): ...\n", encoding="utf-8")
    assert parse_target(f"{inner / 'module.py'}:f").package == (tmp_path, "outer.inner.module")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        (":attenton", "defines no function attenton at its top level; did you mean attention?"),
        (":zzz", "defines no function zzz at its top level; it defines attention, other"),
        ("", ":attention; it defines attention, other"),
        (":", ":attention; it defines attention, other"),
    ],
)
def test_what_is_not_there_names_what_is(mine: Path, rest: str, said: str) -> None:
    with pytest.raises(CheckError, match=f"{re.escape(said)}$"):
        parse_target(f"{mine}{rest}")


def test_of_many_functions_the_first_public_ones_are_offered(tmp_path: Path) -> None:
    names = ["_helper", *(f"attention_{n}" for n in range(13))]
    (tmp_path / "many.py").write_text("".join(f"def {name}(q, k, v): ...\n" for name in names), encoding="utf-8")
    with pytest.raises(CheckError) as refused:
        parse_target(f"{tmp_path / 'many.py'}")
    assert "many.py:attention_0; it defines attention_0, attention_1, " in str(refused.value)
    assert str(refused.value).endswith("attention_9, and 3 more")


def test_a_file_that_is_not_there_or_no_python(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"there is no file nowhere\.py; expected FILE:FUNCTION"):
        parse_target("nowhere.py:attention")
    (tmp_path / "bad.py").write_text("x = 1\ndef (:\n", encoding="utf-8")
    with pytest.raises(CheckError, match=r"bad\.py:2: not valid Python"):
        parse_target(f"{tmp_path / 'bad.py'}:f")


def test_a_function_is_known_by_its_file() -> None:
    assert target_of(test_a_function_is_known_by_its_file).path == Path(__file__)


@pytest.mark.parametrize("function", [lambda: None, np.dot, functools.partial(print), str.upper])
def test_what_a_worker_cannot_load_is_refused(function: object) -> None:
    with pytest.raises(CheckError, match="must be defined with def at the top level of a file"):
        target_of(function)  # type: ignore[arg-type]


class Attention:
    def __call__(self) -> None: ...

    def attend(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Attention(), "an instance of Attention was given: give the class instead, so that check can build an"),
        (Attention().attend, "the method attend of an instance of Attention was given: give the class instead"),
    ],
)
def test_of_an_instance_the_class_is_asked_for(given: Callable[..., object], said: str) -> None:
    with pytest.raises(CheckError, match=f"^{said}"):
        target_of(given)
