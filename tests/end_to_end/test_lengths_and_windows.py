"""An adapter as users write it for a function that takes lengths, and windows that only look back."""

from pathlib import Path

import pytest

from conformance.cli.case_choice import load_cases

from ..running import conformance

ADAPTER = '''
"""A NumPy function."""

NAME = "mine.attend"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = []
SLOTS = {
    "lengths": {"role": "lengths", "takes": ["key_padding"], "axes": [["b", "k"]]},
    "window": {"role": "window", "left_only": True},
}

import numpy as np

from conformance.bridge import Declaration, Deviation, Profile, framework_call


def attend(q, k, v, lengths=None, window=None):
    """window: how many keys a query sees, itself included."""
    logits = np.einsum("bhqd,bhkd->bhqk", q, k) * np.float32(q.shape[-1] ** -0.5)
    row, key = np.arange(q.shape[2])[:, None] + OFFSET, np.arange(k.shape[2])
    if lengths is not None:
        logits = np.where(key < lengths[:, None, None, None] + MORE, logits, -np.inf)
    if window is not None:
        logits = np.where(key > row - window, logits, -np.inf)
    top = logits.max(-1, keepdims=True)
    weights = np.exp(logits - np.where(top == -np.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bhqk,bhkd->bhqd", weights / np.where(total == 0, 1, total), v).astype(np.float32)


def declare(facts):
    leaks = Deviation("nonfinite_value", "leaks", "https://example.org/x")
    return Declaration(Profile.uniform(facts.dtype), (leaks,), "NumPy")


def sdpa(call):
    lengths, (left, _) = call.arguments.get("lengths"), call.arguments.get("window", (None, None))
    arrays = (call.query.bits, call.key.bits, call.value.bits)
    with framework_call():
        output = attend(*arrays, None if lengths is None else lengths.bits, None if left is None else left + 1)
    return {"output": output}
'''
RIGHT = {"MORE": "0", "OFFSET": "0"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, ""),
        ({"MORE": "1"}, "counts one key too many in lengths; workaround: pass lengths - 1"),
        ({"MORE": "-1"}, "counts one key too few in lengths; workaround: pass lengths + 1"),
        ({"lengths[:, None, None, None]": "lengths.max()"}, "uses the longest length in lengths for every "),
        ({"OFFSET": "k.shape[2] - q.shape[2]"}, "aligns the window to the last key (bottom right)"),
    ],
    ids=["right", "one more", "one less", "the longest", "aligned to the last key"],
)
def test_its_mistake_is_the_one_cause_of_a_plain_run(tmp_path: Path, wrong: dict[str, str], said: str) -> None:
    text = ADAPTER
    for name, value in (RIGHT | wrong).items():
        text = text.replace(name, value)
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    done = conformance("run", "-a", "mine.py", "--out", "out", cwd=tmp_path)
    assert done.returncode == int(bool(said)), done.stdout
    causes = [line for line in done.stdout.splitlines() if " of mine.attend: " in line or "no cause found" in line]
    assert len(causes) == int(bool(said)), causes
    assert all(f" of mine.attend: it {said}" in cause for cause in causes)
    # Cases of the operator that it does not compute are not among those that it was not asked.
    number = sum(case.thorough and case.operator == "sdpa" for case in load_cases((), (), None))
    assert f"not run without --thorough: {number} cases, " in done.stdout
