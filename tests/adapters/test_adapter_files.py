"""Rules for every adapter file, checked without importing one."""

import ast
import importlib.util
import re
import sys
from pathlib import Path

import pytest

from conformance.engine.adapters import read_adapter, read_adapters, subjects_of

FOLDER = Path(__file__).parents[2] / "adapters"
FILES = sorted(FOLDER.glob("[!_]*.py"))
HELPERS = sorted(FOLDER.glob("_*.py"))
FORBIDDEN = {"seed", "manual_seed", "retry", "tolerance", "allclose", "nan_to_num", "isnan", "warnings"}
LONGEST = 160


def names(tree: ast.AST) -> set[str]:
    """Return every identifier, attribute and keyword of a file."""
    found: set[str] = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                found.add(value)
    return found


def test_there_are_forty_subjects_of_eight_frameworks() -> None:
    adapters = read_adapters([FOLDER])
    subjects = subjects_of(adapters)
    assert len({subject.name for subject in subjects if not subject.dense}) >= 40
    assert {adapter.framework for adapter in adapters} >= {
        "numpy",
        "torch",
        "keras",
        "tf_keras",
        "jax",
        "flax",
        "onnx",
        "ort",
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_facts_are_literal_and_complete(file: Path) -> None:
    adapter = read_adapter(file)
    assert adapter.name.replace(".", "_") == file.stem


@pytest.mark.parametrize("file", [*FILES, *HELPERS], ids=lambda file: file.stem)
def test_nothing_is_caught_repaired_or_seeded(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Try)]
    assert not names(tree) & FORBIDDEN


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_docstring_lists_what_is_translated(file: Path) -> None:
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    assert docstring is not None
    assert "\nWhat this adapter translates, and nothing else:\n* " in docstring


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_framework_is_called_once_and_marked(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    marked = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.With) and "framework_call" in names(ast.Module(body=[node], type_ignores=[]))
    ]
    assert len(marked) == 1


@pytest.mark.parametrize("file", [*FILES, *HELPERS], ids=lambda file: file.stem)
def test_a_file_is_small(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_file_can_stand_in_for_a_module(file: Path) -> None:
    assert importlib.util.find_spec(file.stem) is None


def imported(path: Path) -> set[str]:
    """Return the top-level modules that an adapter and its helpers import."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found |= imported(path.parent / f"{node.module}.py")
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_what_asks_for_numpy_alone_imports_nothing_else() -> None:
    alone = [file for file in FILES if read_adapter(file).requires == (("numpy",),)]
    assert {"numpy_mha", "numpy_sdpa", "published_bert_numpy"} <= {file.stem for file in alone}
    for file in alone:
        assert imported(file) - set(sys.stdlib_module_names) <= {"numpy", "conformance"}, file.name


def test_imports_of_helpers_are_seen() -> None:
    assert "ml_dtypes" in imported(FOLDER / "published_tf_mha.py")


# Frameworks that require ml_dtypes themselves.
BRING_ML_DTYPES = {"jax", "keras", "tensorflow", "tf_keras", "flax", "equinox"}


def test_what_imports_ml_dtypes_asks_for_it_or_for_a_framework_that_brings_it() -> None:
    asked = {
        file.stem: {re.split(r"[<>=!~]", name)[0] for every in read_adapter(file).requires for name in every}
        for file in FILES
        if "ml_dtypes" in imported(file)
    }
    assert {"openvino_sdpa", "ort_attention", "jax_sdpa"} <= asked.keys()
    assert [stem for stem, names in asked.items() if not names & (BRING_ML_DTYPES | {"ml_dtypes"})] == []
