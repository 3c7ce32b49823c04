"""Importing conformance loads no framework and no adapter, and this check can fail. No file name occurs twice."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "jaxlib", "flax", "onnx", "onnxruntime", "onnxscript", "ml_dtypes")

IMPORT_ALL = """
import importlib, pkgutil, conformance
for module in pkgutil.walk_packages(conformance.__path__, "conformance."):
    if not module.name.endswith("__main__") and "._data" not in module.name:
        importlib.import_module(module.name)
"""

BRIDGE = "import conformance.bridge.worker"


def loaded(code: str, *folders: Path) -> set[str]:
    """Return the top-level modules that a fresh interpreter has loaded after it ran `code`."""
    return {name.partition(".")[0] for name in modules(code, *folders)}


def modules(code: str, *folders: Path) -> set[str]:
    """Return all modules that a fresh interpreter has loaded after it ran `code`."""
    tell = f"import sys; sys.path[:0] = {[str(folder) for folder in folders]}; {{}}\nprint(*sys.modules)"
    source = tell.format(f"exec({code!r})")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60)
    return {*done.stdout.split()}


ROOT = Path(__file__).parent.parent


def test_importing_us_loads_no_framework() -> None:
    found = loaded(IMPORT_ALL, ROOT)
    assert "conformance" in found
    assert not found & {*FRAMEWORKS, "adapters"}


def test_the_bridge_loads_nothing_but_numpy_and_the_standard_library() -> None:
    beyond = loaded(BRIDGE, ROOT) - loaded("import numpy") - {"conformance"} - set(sys.stdlib_module_names)
    assert not beyond


def test_what_only_judging_needs_is_imported_after_the_inspection_has_begun() -> None:
    judging = {"conformance.diagnosis.explanation", "conformance.report"}
    assert not judging & modules("import conformance.cli, conformance.cli.command_check", ROOT)
    assert judging <= modules("import conformance.cli, conformance.cli.function_judging", ROOT)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_check_sees_a_framework(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").touch()
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "__init__.py").touch()
    (tmp_path / "conformance" / "guilty.py").write_text(f"import {name}\n", encoding="utf-8")
    assert name in loaded(IMPORT_ALL, tmp_path)


def test_no_file_name_occurs_twice() -> None:
    """Except names that have a meaning for Python or pytest."""
    root = Path(__file__).parents[1]
    folders = ("conformance", "adapters", "benchmarks", "tests")
    names = Counter(path.name for folder in folders for path in (root / folder).rglob("*.py"))
    assert {name for name, count in names.items() if count > 1} == {"__init__.py", "conftest.py"}
