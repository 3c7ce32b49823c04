"""Targets of check: FILE:FUNCTION and function objects."""

import functools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from conformance.checking.target import INIT, CheckError, parse_target, target_of


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


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in the current folder, which raises if it is imported."""
    folder = tmp_path / "mine" / "layers"
    folder.mkdir(parents=True)
    (folder.parent / INIT).write_text("from .layers.plain import *\nraise SystemExit\n", encoding="utf-8")
    (folder / INIT).write_text("def own(q, k, v): ...\n", encoding="utf-8")
    (folder / "plain.py").write_text("def f(q, k, v): ...\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "file", "module", "name"),
    [
        ("mine.layers.plain:f", "mine/layers/plain.py", "mine.layers.plain", "plain.f"),
        ("mine.layers:own", f"mine/layers/{INIT}", "mine.layers", "layers.own"),
        ("mine:anything_of_a_star", f"mine/{INIT}", "mine", "mine.anything_of_a_star"),
    ],
)
def test_a_module_of_the_current_folder_is_found_without_import(
    package: Path, given: str, file: str, module: str, name: str
) -> None:
    target = parse_target(given)
    assert (target.path, target.package, target.name) == (package / file, (package, module), name)
    assert target.is_imported
    by_file = parse_target(f"{file}:{target.function}")
    assert (by_file.package, by_file.name) == ((package, module), name)


def test_a_module_of_an_installed_package_needs_no_folder() -> None:
    target = parse_target("numpy.linalg:norm")
    assert (target.package, target.name, target.path.name) == ((None, "numpy.linalg"), "linalg.norm", INIT)
    assert target.path.is_relative_to(Path(np.__file__).parent)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mine.no_layers:f", "there is no file and no module mine.no_layers; expected FILE:FUNCTION, such as mine.py:"),
        ("nothing_here:f", "there is no file and no module nothing_here; expected"),
        ("unspecified:f", "there is no file and no module unspecified; expected"),
        ("bare:f", "bare is a folder without __init__.py; expected FILE:FUNCTION"),
        ("mine/plain:f", "there is no file mine/plain; expected"),
        ("mine:", "expected FILE:FUNCTION, such as mine:attention; it defines none"),
        (".:f", ". is a folder; expected FILE:FUNCTION, such as mine.py:attention, or MODULE:FUNCTION"),
        ("math:sqrt", "the module math is not written in Python: write a function that calls it, and check that"),
        ("mine.layers.plain:g", "mine.layers.plain defines no function g at its top level; it defines f"),
    ],
)
def test_a_module_that_cannot_be_checked_is_told(
    package: Path, given: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (package / "bare").mkdir()
    monkeypatch.setitem(sys.modules, "unspecified", ModuleType("unspecified"))
    with pytest.raises(CheckError, match=f"^{re.escape(said)}"):
        parse_target(given)


def test_a_name_may_be_defined_under_a_condition(tmp_path: Path) -> None:
    text = "try:\n    from fast import f\nexcept ImportError:\n    def f(q, k, v): ...\nif f:\n    g = f\n"
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    assert [parse_target(f"{tmp_path / 'mine.py'}:{name}").function for name in "fg"] == ["f", "g"]


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
