"""Programs for both sides of a port: each runs on its own, and all of one operator give the same output."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conformance.report.port_code import LINES, NoCodeError, before_and_after, program

SUBJECTS = {
    "sdpa": ("torch.sdpa", "jax.sdpa", "keras.sdpa[jax]", "ort.attention"),
    "mha": ("torch.mha", "keras.mha[torch]", "keras.mha[tensorflow]", "flax.mha"),
}


def expected(operator: str) -> np.ndarray:
    """Return the output of the same call, written out in NumPy in float64."""
    names: dict[str, np.ndarray] = {}
    exec(program(SUBJECTS[operator][0]).partition("import torch")[0], names)  # noqa: S102 - our own inputs
    q, k, v = (names[name].astype(np.float64) for name in ("query", "key", "value"))
    if operator == "mha":
        q, k, v = (
            (x @ names[f"w{n}"] + names[f"b{n}"]).reshape(2, 5, 3, 8).transpose(0, 2, 1, 3)
            for x, n in ((q, "q"), (k, "k"), (v, "v"))
        )
    seen = np.tri(5, dtype=bool) & names["attend"][:, None, None, :]
    raised = np.where(seen, np.exp(q @ k.swapaxes(-1, -2) / np.sqrt(8)), 0.0)
    output = raised / raised.sum(axis=-1, keepdims=True) @ v
    if operator == "sdpa":
        return np.asarray(output)
    return np.asarray(output.transpose(0, 2, 1, 3).reshape(2, 5, 24) @ names["wo"] + names["bo"])


@pytest.mark.frameworks
@pytest.mark.parametrize(("operator", "name"), [(each, name) for each in SUBJECTS for name in SUBJECTS[each]])
def test_every_program_runs_by_itself_and_makes_the_same_call(tmp_path: Path, operator: str, name: str) -> None:
    (tmp_path / "call.py").write_text(program(name), encoding="utf-8")
    command = [sys.executable, "-P", "call.py", "out.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected(operator), rtol=0, atol=5e-6)


def test_there_is_a_program_for_every_subject_that_is_tested() -> None:
    assert {name.partition("[")[0] for names in SUBJECTS.values() for name in names} == set(LINES)
    assert "import conformance" not in "".join(map(program, LINES))


def test_what_has_no_program_is_told() -> None:
    with pytest.raises(NoCodeError, match=r"there is no program for equinox.mha, only for torch.sdpa, jax.sdpa, "):
        program("equinox.mha")
    with pytest.raises(NoCodeError, match=r"torch.sdpa and torch.mha compute different operators: sdpa and mha"):
        before_and_after("torch.sdpa", "torch.mha")
