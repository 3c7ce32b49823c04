"""Variations that are slips of a kernel which takes keys, queries, heads or one of them in pieces."""

import math
from collections.abc import Callable

import numpy as np

from conformance.oracle.other_tiles import BLOCKS
from conformance.oracle.pipeline import Step, Steps, insert_after, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import (
    StepsMap,
    Variation,
    more_keys_than,
    unbounded_row,
)
from conformance.spec.problem import Array

Kept = Callable[[Array], Array]
"""The maximum of every block of keys (blocks, ...) -> the logarithm of how much too large its weights are kept."""

LAZY = 8 * math.log(2.0)
"""A rise of the maximum up to which a kernel that saves work does not rescale: 8 in units of log2."""

BOTH = "the weighted values and the sum of exponentials"


def _unrescaled(block: int, kept: Kept, *, output: bool, total: bool) -> StepsMap:
    """Online softmax in which what was summed keeps its scale though the maximum rises."""

    def apply(steps: Steps, _: str) -> Steps:
        def weigh(state: State) -> State:
            if state.logits.shape[-1] <= block:
                return ordinary(state)
            # a weight of zero times a maximum that rose beyond all numbers
            grown = state.probs * _grown(state.logits, block, kept)
            probs = grown if output else state.probs
            if total:
                probs = probs / np.where(state.dead[..., None], 1.0, grown.sum(axis=-1, keepdims=True))
            return ordinary(state.but(probs=probs)).but(probs=state.probs)

        ordinary = next(step.apply for step in steps if step.name == "weigh")
        return replace_step(steps, "weigh", weigh)

    return apply


def _grown(logits: Array, block: int, kept: Kept) -> Array:
    """By how much too large the weight of a key is for what is kept of its block."""
    tops = np.stack([logits[..., start : start + block].max(axis=-1) for start in range(0, logits.shape[-1], block)])
    grown = np.exp(np.nan_to_num(kept(tops), nan=0.0, posinf=0.0, neginf=0.0))
    return np.asarray(np.repeat(np.moveaxis(grown, 0, -1), block, axis=-1)[..., : logits.shape[-1]])


def _risen(tops: Array) -> Array:
    """How far the maximum rises after each block."""
    return np.asarray(tops.max(axis=0) - np.maximum.accumulate(tops))


def _risen_next(tops: Array) -> Array:
    """How far it rises with the block that comes next."""
    return np.diff(np.maximum.accumulate(tops), axis=0, append=tops.max(axis=0)[None])


def _risen_in_small_steps(most: float) -> Kept:
    """The same, of the rises after blocks that are at most so large alone."""

    def kept(tops: Array) -> Array:
        steps = _risen_next(tops)
        small = np.where(steps <= most, steps, 0.0)
        return np.asarray(np.flip(np.cumsum(np.flip(small, axis=0), axis=0), axis=0))

    return kept


def _below_all(tops: Array) -> Array:
    """How far the maximum of each block lies below that of all."""
    return np.asarray(tops.max(axis=0) - tops)


def _leading_nan(block: int) -> StepsMap:
    """-inf - -inf is no number: a row that has seen nothing after its first block stays NaN."""

    def blind(state: State) -> State:
        unseen = np.all(state.logits[..., :block] == -np.inf, axis=-1) & ~state.dead
        return state.but(probs=np.where(unseen[..., None], np.nan, state.probs)) if unseen.any() else state

    return lambda steps, _: insert_after(steps, "softmax", Step("leading_masked_keys", blind))


def _last_query_zero(steps: Steps, _: str) -> Steps:
    def zero(state: State) -> State:
        queries = state.context.shape[-2]
        last = np.arange(queries) == queries - 1
        return state.but(context=np.where(last[:, None], 0.0, state.context))

    return insert_after(steps, "weigh", Step("query_tail", zero))


def _first_head(steps: Steps, _: str) -> Steps:
    def first(state: State) -> State:
        return state.but(context=np.broadcast_to(state.context[:, :1], state.context.shape))

    return insert_after(steps, "weigh", Step("head_result", first))


ROWS: tuple[Variation, ...] = (
    *(
        unbounded_row(
            "online_softmax",
            f"{name}_{block}",
            f"does not rescale {what} after a block of {block} keys",
            "",
            _unrescaled(block, kept, output=output, total=total),
            more_keys_than(block),
        )
        for name, what, kept, output, total in (
            ("not_rescaled", "the weighted values so far when the maximum rises", _risen, True, False),
            (
                "block_not_rescaled",
                "the weighted values of the block before when the maximum rises",
                _risen_next,
                True,
                False,
            ),
            ("total_not_rescaled", "the sum of exponentials so far when the maximum rises", _risen, False, True),
            ("nothing_rescaled", f"{BOTH} so far when the maximum rises", _risen, True, True),
            (
                "lazily_rescaled",
                f"{BOTH} so far when the maximum rises by {LAZY:.3g} at most",
                _risen_in_small_steps(LAZY),
                True,
                True,
            ),
        )
        for block in BLOCKS
    ),
    *(
        unbounded_row(
            "online_softmax",
            f"parts_without_maxima_{block}",
            f"reduces parts of {block} keys on their own, and combines them by their sums without their maxima",
            "",
            _unrescaled(block, _below_all, output=True, total=True),
            more_keys_than(block),
        )
        for block in BLOCKS
    ),
    *(
        unbounded_row(
            "leading_masked_keys",
            f"nan_{block}",
            f"returns NaN for a query whose first {block} keys are all masked, though later ones are not",
            "",
            _leading_nan(block),
            more_keys_than(block),
        )
        for block in BLOCKS
    ),
    unbounded_row("query_tail", "zero", "leaves the last query at zero", "", _last_query_zero),
    unbounded_row("head_result", "first", "returns the result of the first head for every head", "", _first_head),
)
