"""An adapter finds its helpers and shadows no other module."""

import os
import py_compile
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.bridge.loading import digest, sources

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "numpy.py": "from ._shared import ANSWER\nfrom . import _more\nimport numpy\nREAL = 'ndarray' in dir(numpy)\n",
        "_shared.py": "from ._deep import ANSWER\n",
        "_deep.py": "ANSWER = 42\n",
        "_more.py": "import sys\nfrom collections import _OrderedDictKeysView\n",
        "_unused.py": "raise SystemExit\n",
        "other.py": "from .numpy import ANSWER\n",
        "absolute.py": "from _shared import ANSWER\n",
        "shadowed.py": "import colorsys\nTHEIRS = hasattr(colorsys, 'rgb_to_hsv')\n",
        "colorsys.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def loaded(path: Path, expression: str) -> str:
    code = f"from conformance.bridge.loading import load; m = load(Path({str(path)!r})); print({expression})"
    command = [sys.executable, "-c", f"import sys; sys.path[0] = {str(ROOT)!r}; from pathlib import Path; {code}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_helpers_beside_an_adapter_are_found(folder: Path) -> None:
    assert loaded(folder / "numpy.py", "m.ANSWER, m._more.__name__") == "42 _conformance_adapter._more"


def test_an_adapter_named_like_its_framework_does_not_shadow_it(folder: Path) -> None:
    assert loaded(folder / "numpy.py", "m.REAL, m.__name__") == "True _conformance_adapter.numpy"
    assert loaded(folder / "shadowed.py", "m.THEIRS") == "True"
    assert loaded(folder / "shadowed.py", f"{str(folder)!r} in sys.path") == "False"


def test_an_adapter_is_no_helper(folder: Path) -> None:
    assert loaded(folder / "other.py", "m") == "ModuleNotFoundError: No module named '_conformance_adapter.numpy'"
    assert loaded(folder / "absolute.py", "m") == "ModuleNotFoundError: No module named '_shared'"


def test_a_file_is_compiled_as_it_is_now(folder: Path) -> None:
    """Python checks bytecode by mtime in seconds and by size, so it misses an edit of two letters within a second."""
    adapter, helper = folder / "absolute.py", folder / "_deep.py"
    adapter.write_text("from ._deep import ANSWER\nMINE = 17\n", encoding="utf-8")
    py_compile.compile(str(adapter))
    py_compile.compile(str(helper))
    for file, edit in ((adapter, ("17", "19")), (helper, ("42", "23"))):
        written = file.stat()
        file.write_text(file.read_text(encoding="utf-8").replace(*edit), encoding="utf-8")
        os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert loaded(adapter, "m.MINE, m.ANSWER") == "19 23"
    (folder / "__pycache__").rename(folder / "gone")
    assert loaded(adapter, "m.MINE, m.ANSWER") == "19 23"
    assert not (folder / "__pycache__").exists()


def test_what_is_no_python_source_is_refused(folder: Path) -> None:
    (folder / "notes.txt").write_text("none", encoding="utf-8")
    assert "notes.txt is not a Python source file" in loaded(folder / "notes.txt", "m")


def test_the_digest_covers_what_is_imported_and_nothing_else(folder: Path) -> None:
    adapter = folder / "numpy.py"
    assert [file.name for file in sources(adapter)] == ["numpy.py", "_deep.py", "_more.py", "_shared.py"]
    before = digest(adapter)
    (folder / "_unused.py").write_text("", encoding="utf-8")
    assert digest(adapter) == before
    (folder / "_deep.py").write_text("ANSWER = 43\n", encoding="utf-8")
    after = digest(adapter)
    assert after != before
    (folder / "_deep.py").write_text("ANSWER = 42\n", encoding="utf-8")
    assert digest(adapter) == before
