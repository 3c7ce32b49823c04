"""A check loads the function once: the process that inspects it also serves the judged calls."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.checking.function_check import Checked

from .door_tables import DOORS

Check = Callable[..., Checked]

FEW = ("masks/key_padding/trailing*",)

COUNTING = """
import sys
from pathlib import Path

sys.path.append({folder!r})
{imports}

with Path({loads!r}).open("a") as file:
    file.write("loaded\\n")


def attend(query, key, value, mask=None):
    return right(query, key, value, mask)
"""


NUMPY = "from checked_sdpa import right"
JAX = "import jax\nfrom doors.jax_functions import einsum as right"


def loads(checked: Check, folder: Path, imports: str = NUMPY) -> int:
    """Check a function whose file counts how often it is loaded, and return the count."""
    counted = folder / "loads"
    text = COUNTING.format(folder=str(DOORS.parent), imports=imports, loads=str(counted))
    (folder / "mine.py").write_text(text, encoding="utf-8")
    done = checked(f"{folder / 'mine.py'}:attend", *FEW)
    assert done.decision.conforms, done.lines()
    return len(counted.read_text(encoding="utf-8").splitlines())


def test_a_function_is_loaded_once(checked: Check, tmp_path: Path) -> None:
    assert loads(checked, tmp_path) == 1


def test_a_package_is_loaded_once(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    assert loads(checked, tmp_path) == 1


@pytest.mark.frameworks
def test_what_jax_compiles_is_kept_in_the_same_folder_from_the_start(checked: Check, tmp_path: Path) -> None:
    assert loads(checked, tmp_path, JAX) == 1
