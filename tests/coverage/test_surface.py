"""surface.yaml matches the installed releases, and adapters decline the same calls on them as on stand-ins."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from . import pairs
from .surface import all_packages, installed, stored

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).parents[2]
# The packages that the test session installs; `nox -s coverage` installs the others, too.
HERE = ("torch", "keras", "tf_keras", "jax", "flax", "onnx", "onnxruntime")
QUIET = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "torch", "JAX_PLATFORMS": "cpu"}
READ = "import json, sys; from tests.coverage.surface import surface; print(json.dumps(surface(sys.argv[1:])))"
REFUSING = "ort.contrib_attention", "ort.contrib_gqa", "flax.mha"


def python(*words: str) -> Any:
    """Return the last line that a fresh interpreter prints, parsed from JSON: this process imports no framework."""
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
        env=os.environ | QUIET,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_package_of_the_session_is_there() -> None:
    assert [name for name in HERE if installed(name) is None] == []


def test_what_is_stored_is_what_the_installed_releases_offer() -> None:
    """This fails if a release adds an argument, output or layer: run `nox -s coverage`, and state what fills it."""
    there = [name for name in all_packages() if installed(name) is not None]
    found, kept = python("-c", READ, *there), stored()
    assert found["versions"] == {name: kept["versions"][name] for name in found["versions"]}
    assert found["entry_points"] == {name: kept["entry_points"][name] for name in found["entry_points"]}
    assert found["exported"] == {name: kept["exported"][name] for name in found["exported"]}


@pytest.mark.parametrize("name", REFUSING)
def test_an_adapter_declines_on_its_framework_what_it_declines_on_stand_ins(name: str) -> None:
    found = python("-m", "tests.coverage.on_frameworks", name)
    assert found["asked"] > 0
    assert found["declined"] == sorted(pairs.declined(name))
    assert found["declined"]
