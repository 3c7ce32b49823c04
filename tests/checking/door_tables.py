"""The tables of functions as users write them, and the cases on which each is checked."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

DOORS = Path(__file__).parent / "doors"

# Frameworks get fewer cases: JAX compiles each operator for each shape, which takes up to a second for each call.
# tests/everyday shows, with NumPy, that all cases together name one cause.
FEW = (
    "shapes/self_attention/one_tensor*",
    "shapes/self_attention/three*",
    "shapes/cross_attention/three*",
    "masks/key_padding/trailing*",
    "masks/attention_2d/*",
)
# Additional cases for functions with arguments for a causal mask and for grouped heads.
WITH_ARGUMENTS = (*FEW, "causal/square/*", "parameters/grouped_heads/two_groups*")

# Functions of each table of a framework that `nox -s tests` checks; `nox -s measurements` checks the others.
FIRST = 1

# Wrong functions are wrong in every dtype, and layers compile for each.
ONE_DTYPE = ("float32",)


def table(name: str, files: str = "*_*") -> Iterator[Any]:
    """The entries of RIGHT or WRONG in the files that match a glob: FILE:FUNCTION and, for WRONG, the expected text."""
    for path in sorted(DOORS.glob(f"{files}.py")):
        framework = path.stem.partition("_")[0]
        marks = [] if framework == "numpy" else [pytest.mark.frameworks]
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
                value = ast.literal_eval(node.value)
                for number, function in enumerate(value):
                    said = (value[function],) if isinstance(value, dict) else ()
                    later = [pytest.mark.measurement] if marks and number >= FIRST else []
                    yield pytest.param(f"{path}:{function}", *said, id=f"{path.stem}:{function}", marks=marks + later)


def assert_it_conforms(done: Any) -> None:
    """Assert that the function conforms and that the first line gives the number of judged calls."""
    assert done.decision.conforms, done.lines()
    assert re.search(r"conforms: \d+ calls judged; (\d+ calls? left out .*; )?\d+ % of the cases", done.lines()[0])


def assert_it_is_named(done: Any, said: str) -> None:
    """Assert that the function is rejected and that its first cause is explained by a sentence that matches said."""
    assert not done.decision.conforms
    assert done.causes[0].explained
    assert re.search(said, str(done.causes[0]))
