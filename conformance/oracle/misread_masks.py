"""What a mask argument can be misread as: variations that are made for the name of an argument."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from conformance.oracle.misread_axes import axis_variations, on_slot
from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.steps import whole_rows, widened
from conformance.oracle.variation import Variation
from conformance.spec.problem import Array, Group, Problem
from conformance.spec.rounding import largest, round_to

WEIGHTS = ("weights", "weights_mean")
HALF = 0.5


def _inverted(_: Problem, group: Group) -> Group:
    if group.element in ("float", "flag"):
        return group
    return replace(group, element="bool", values=group.values == 0)


def _float_as_bool(_: Problem, group: Group) -> Group:
    if group.element != "float":
        return group
    return replace(group, element="bool", values=group.values != 0)


def _float_above_half(_: Problem, group: Group) -> Group:
    if group.element != "float":
        return group
    return replace(group, element="bool", values=group.values > HALF)


def _float_subtracted(_: Problem, group: Group) -> Group:
    return replace(group, values=-group.values) if group.element == "float" else group


def _number_added(_: Problem, group: Group) -> Group:
    if group.element not in ("int", "bool"):
        return group
    return replace(group, element="float", values=group.values.astype(np.float64))


def _penalty(_: Problem, group: Group) -> Group:
    """Lengths are a flag, too; a causal flag and a window have an anchor of their own."""
    if group.element == "float" or (group.element == "flag" and group.ordered):
        return group
    return replace(group, element="float", values=np.where(group.values != 0, 0.0, -1e4))


def _ignored(_: Problem, __: Group) -> None:
    return None


def _ignored_beside_others(problem: Problem, group: Group) -> Group | None:
    return None if len(problem.groups) > 1 else group


def _ignored_with_weights(problem: Problem, group: Group) -> Group | None:
    return None if any(name in problem.outputs for name in WEIGHTS) else group


def _one_minus(slot: str) -> Callable[[Steps, str], Steps]:
    """Add (1 - mask) * -1e9 in place of a float mask, in the score dtype."""

    def apply(steps: Steps, score: str) -> Steps:
        def add(state: State) -> State:
            bias = _bias_one_minus(state.problem, slot, max(-1e9, -largest(score)))
            if bias is None:
                return ordinary(state)
            extra = state.scaled.shape[-1] - state.problem.seq_len_k
            bias = widened(whole_rows(bias, state.problem.seq_len_k), extra, fill=0.0)
            logits = round_to(state.capped + bias, score)
            return state.but(bias=bias, logits=logits, absorbed=_swallowed(state.capped, bias, score))

        ordinary = next(step.apply for step in steps if step.name == "bias")
        return replace_step(steps, "bias", add)

    return apply


def _swallowed(scaled: Array, bias: Array, score: str) -> Array:
    """Rows that a bias leaves with one number as their logits, even if those were twice as large, of either sign."""
    kept = [(round_to(bias + factor * scaled, score) == bias).all(axis=-1) for factor in (-2.0, 2.0)]
    finite = np.isfinite(bias)
    lowest, highest = np.where(finite, bias, np.inf).min(axis=-1), np.where(finite, bias, -np.inf).max(axis=-1)
    return np.asarray(kept[0] & kept[1] & (lowest == highest))


def _bias_one_minus(problem: Problem, slot: str, amount: float) -> Array | None:
    """The sum of all that is added, or None where `slot` is no float mask; broadcastable to the logits."""
    if not any(group.slot == slot and group.element == "float" for group in problem.groups):
        return None
    added = [
        (1.0 - group.values) * amount if group.slot == slot else group.values
        for group in problem.groups
        if group.element == "float"
    ]
    return np.asarray(sum(added[1:], start=added[0]))


@cache
def slot_variations(slot: str) -> tuple[Variation, ...]:
    """Every way in which the argument `slot` of a call can be misread."""

    def row(family: str, name: str, sentence: str, remedy: str, change: Callable[..., Group | None]) -> Variation:
        return Variation(f"{family}[{slot}]", name, sentence, remedy, "problem", problem=on_slot(slot, change))

    return (
        row("polarity", "ignore", f"reads True in {slot} as: ignore this key", f"pass ~{slot}", _inverted),
        row(
            "float_mask",
            "cast_to_bool",
            f"casts a float {slot} to bool, so that 0 ignores and anything else attends",
            f"pass a boolean {slot}",
            _float_as_bool,
        ),
        row(
            "float_mask",
            "above_half",
            f"compares a float {slot} with 0.5, so that 0 and -inf both ignore",
            f"pass a boolean {slot}",
            _float_above_half,
        ),
        Variation(
            f"float_mask[{slot}]",
            "one_minus",
            f"takes 1 in a float {slot} for attend and adds (1 - {slot}) * -1e9 to the logits",
            f"pass {slot} as 1 = attend and 0 = ignore",
            "steps",
            steps=_one_minus(slot),
            bounded=False,
        ),
        row(
            "float_mask",
            "subtracted",
            f"subtracts a float {slot} from the logits",
            f"pass -{slot}",
            _float_subtracted,
        ),
        row(
            "number_mask",
            "added",
            f"adds the numbers of an integer or boolean {slot} to the logits",
            f"pass {slot} as 0 and -inf",
            _number_added,
        ),
        row(
            "penalty",
            "minus_1e4",
            f"adds -1e4 where a boolean or integer {slot} masks: a large logit still wins",
            "keep logits small",
            _penalty,
        ),
        row("use", "ignored", f"ignores {slot}", f"do not rely on {slot}", _ignored),
        row(
            "use",
            "ignored_beside_others",
            f"ignores {slot} when another mask is given",
            "fold all masks into one",
            _ignored_beside_others,
        ),
        row(
            "use",
            "ignored_with_weights",
            f"ignores {slot} when weights are asked for",
            "do not ask for weights",
            _ignored_with_weights,
        ),
        *axis_variations(slot),
    )
