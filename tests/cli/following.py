"""Helpers to follow the advice of `conformance port`: load the cases of a record, call a layer, compare outputs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from conformance.bridge.profile import Profile
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.verdicts.expectation import expect

ROOT = Path(__file__).parents[2] / "cases"
CASES = {case.id: case for case in load([ROOT], ROOT)}


@dataclass(frozen=True)
class Trial:
    """
    One piece of advice, followed.

    before, after: whether the new side returns what the old side returns, before and after the change. The outputs may
    differ by the sum of the oracle's rounding bounds for the two sides.
    """

    direction: str
    decision: str
    before: bool
    after: bool


def in_torch(problem: Problem, *, weights: bool = False, **masks: Any) -> Array:
    """The output of torch.nn.MultiheadAttention in eval mode."""
    params = {name: torch.tensor(array, dtype=torch.float32) for name, array in problem.params.items()}
    width = problem.num_heads * problem.head_dim
    layer = torch.nn.MultiheadAttention(width, problem.num_heads, batch_first=True).eval()
    layer.load_state_dict(
        {
            "in_proj_weight": torch.cat([params[name].T for name in ("wq", "wk", "wv")]),
            "in_proj_bias": torch.cat([params[name] for name in ("bq", "bk", "bv")]),
            "out_proj.weight": params["wo"].T,
            "out_proj.bias": params["bo"],
        }
    )
    inputs = [torch.tensor(each, dtype=torch.float32) for each in (problem.query, problem.key, problem.value)]
    given = {name: torch.tensor(mask) if isinstance(mask, np.ndarray) else mask for name, mask in masks.items()}
    with torch.no_grad():
        return np.asarray(layer(*inputs, need_weights=weights, **given)[0].numpy(), dtype=np.float64)


def booleans(problem: Problem, kind: str) -> Array:
    """The mask of this kind in the case, as booleans: (seq_len_q, seq_len_k) or (batch, seq_len_k)."""
    values = next(group.values for group in problem.mask_operands if kind in group.kinds) != 0
    return np.asarray(values[:, 0, 0] if kind == "key_padding" else values[0, 0])


def agrees(problem: Problem, allowed: Array, old: Array, new: Array) -> bool:
    """Whether two outputs differ by at most twice the tolerance; allowed: a broadcastable mask, True means attend."""
    meant = problem.but(mask_operands=(MaskOperand("mask", ("attention",), "bool", np.asarray(allowed)),))
    tolerance = expect(meant, {}, Profile.uniform("float32")).bounds["output"].tolerance
    return bool(np.all(np.abs(old - new) <= 2 * tolerance))


def told(direction: str, decision: str, problem: Problem, allowed: Array, replies: tuple[Array, Array, Array]) -> Trial:
    """Return a Trial; replies: outputs of the old side, and of the new side before the change and after it."""
    old, before, after = replies
    return Trial(direction, decision, agrees(problem, allowed, old, before), agrees(problem, allowed, old, after))


def overwritten(output: Array, problem: Problem, dead: Array) -> Array:
    """Return the output with the output projection bias in fully masked rows; dead marks them, (batch, seq_len_q)."""
    changed = output.copy()
    changed[dead] = problem.params["bo"]
    return changed


def shown(path: str) -> dict[str, Problem]:
    """Decision of the old side -> the case of the record that shows it."""
    record = json.loads(Path(path).read_text(encoding="utf-8"))
    return {each["decision"]["from"]: materialise(CASES[each["case"]]) for each in record["differences"]}


def printed(trials: Sequence[Trial]) -> str:
    """Return the trials as the JSON that the tests read."""
    return json.dumps([asdict(trial) for trial in trials])
