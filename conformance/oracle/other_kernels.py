"""Variations that are slips of a kernel which takes keys, queries, heads or one of them in pieces."""

import math
from collections.abc import Callable

import numpy as np

from conformance.oracle.other_tiles import BLOCKS, over_runs
from conformance.oracle.pipeline import Step, Steps, insert_after, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import (
    StepsMap,
    Variation,
    asks_for_weights,
    more_keys_than,
    unbounded_row,
)
from conformance.spec.problem import Array, Problem

Kept = Callable[[Array], Array]
"""The maximum of every block of keys (blocks, ...) -> the logarithm of how much too large its weights are kept."""

LAZY = {"lazily_rescaled": 8 * math.log(2.0), "lazily_rescaled_by_e": 8.0}
"""A rise of the maximum up to which a kernel that saves work does not rescale: 8 in units of log2, or of logits."""

LESS_LAZY = {"lazily_rescaled_to_4": 4.0}
"""A rise that is forgotten by each query for itself alone, in units of logits."""

TOGETHER = tuple((queries, keys) for queries in (16, 32, 64, 128) for keys in (16, 32, 64, 128))
"""Queries that are rescaled, or not, together, and the keys of a block: what a warp or a thread block takes at once."""

BOTH = "the weighted values and the sum of exponentials"


def _weights_of_more_keys_than(count: int) -> Callable[[Problem], bool]:
    return lambda problem: asks_for_weights(problem) and more_keys_than(count)(problem)


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


def _weights_of_running_maximum(block: int) -> StepsMap:
    """What is returned keeps the maximum of its time, and is divided by the last sum."""

    def apply(steps: Steps, _: str) -> Steps:
        def answer(state: State) -> State:
            done = ordinary(state)
            if state.logits.shape[-1] <= block:
                return done
            return done.but(weights=done.weights * _grown(state.logits, block, _risen))

        ordinary = next(step.apply for step in steps if step.name == "weights")
        return replace_step(steps, "weights", answer)

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


def _risen_in_small_steps(most: float, queries: int = 1) -> Kept:
    """The same, of the rises after blocks that are at most so large alone, for each of so many queries."""

    def kept(tops: Array) -> Array:
        steps = _risen_next(tops)
        followed = over_runs(steps > most, queries, np.logical_or, axis=-1)
        small = np.where((steps <= most) & ~followed, steps, 0.0)
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


def _members_first(steps: Steps, _: str) -> Steps:
    """Results (num_kv_heads, members of a group) are stored as (members, num_kv_heads)."""

    def stored(state: State) -> State:
        heads, shared = state.problem.num_heads, state.problem.num_kv_heads
        return state.but(context=state.context[:, np.arange(heads).reshape(shared, -1).T.ravel()])

    return insert_after(steps, "weigh", Step("head_result", stored))


def _has_several_groups(problem: Problem) -> bool:
    return 1 < problem.num_kv_heads < problem.num_heads


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
            *(
                (
                    name,
                    f"{BOTH} so far when the maximum rises by {most:.3g} at most",
                    _risen_in_small_steps(most),
                    True,
                    True,
                )
                for name, most in (LESS_LAZY | LAZY).items()
            ),
        )
        for block in BLOCKS
    ),
    *(
        unbounded_row(
            "online_softmax",
            f"{name}_{queries}x{block}",
            f"does not rescale {BOTH} so far after a block of {block} keys "
            f"when the maximum rises by {most:.3g} at most for each of {queries} queries",
            "",
            _unrescaled(block, _risen_in_small_steps(most, queries), output=True, total=True),
            more_keys_than(block),
        )
        for name, most in LAZY.items()
        for queries, block in TOGETHER
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
            "returned_weights",
            f"running_maximum_{block}",
            f"returns weights under the maximum that was known after their block of {block} keys",
            "",
            _weights_of_running_maximum(block),
            _weights_of_more_keys_than(block),
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
    unbounded_row(
        "head_result",
        "members_first",
        "stores the results of grouped heads in the order (member, group), not (group, member)",
        "permute the heads of the output, in a layer the rows of wo",
        _members_first,
        _has_several_groups,
    ),
)
