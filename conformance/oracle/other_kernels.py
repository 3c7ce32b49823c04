"""Variations that are slips of a kernel which takes keys, queries or a head in pieces."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import causal, each_group
from conformance.oracle.steps import State, Step, Steps, insert_after, replace_step
from conformance.oracle.variation import ProblemMap, StepsMap, Variation, problem_row, unbounded_row
from conformance.spec.problem import Array, Group, Problem

BLOCKS = (16, 32, 64)
"""Keys that are taken at once."""

TAIL = "tail"
"""What stands for the argument of a mask that nobody gave."""


def _tail_dropped(block: int) -> ProblemMap:
    """Keys after the last whole block are not attended, if there is a whole one."""

    def apply(problem: Problem) -> Problem:
        keys = problem.seq_len_k
        whole = keys // block * block
        if whole in (0, keys):
            return problem
        seen = (np.arange(keys) < whole)[None, None, None]
        return problem.but(groups=(*problem.groups, Group(TAIL, (TAIL,), "bool", seen)))

    return apply


def _unrescaled(block: int, *, output: bool, total: bool) -> StepsMap:
    """Online softmax in which what was summed so far keeps its scale when the maximum rises."""

    def apply(steps: Steps, _: str) -> Steps:
        def weigh(state: State) -> State:
            if state.logits.shape[-1] <= block:
                return ordinary(state)
            with np.errstate(invalid="ignore"):  # a weight of zero times a maximum that rose beyond all numbers
                grown = state.probs * _risen(state.logits, block)
                probs = grown if output else state.probs
                if total:
                    probs = probs / np.where(state.dead[..., None], 1.0, grown.sum(axis=-1, keepdims=True))
            return ordinary(state.but(probs=probs)).but(probs=state.probs)

        ordinary = next(step.apply for step in steps if step.name == "weigh")
        return replace_step(steps, "weigh", weigh)

    return apply


def _zeros_attended(block: int) -> StepsMap:
    """Keys and values are filled up with zeros to whole blocks: each has a logit of zero, and takes weight."""

    def apply(steps: Steps, _: str) -> Steps:
        def softmax(state: State) -> State:
            keys = state.logits.shape[-1]
            if keys % block == 0:
                return ordinary(state)
            zeros = np.zeros((*state.logits.shape[:-1], -keys % block))
            filled = ordinary(state.but(logits=np.concatenate([state.logits, zeros], axis=-1)))
            return filled.but(logits=state.logits, probs=filled.probs[..., :keys])

        ordinary = next(step.apply for step in steps if step.name == "softmax")
        return replace_step(steps, "softmax", softmax)

    return apply


def _risen(logits: Array, block: int) -> Array:
    """By how much too large the weight of a key is: the exponential of what the maximum rose after its block."""
    peaks = np.maximum.accumulate(
        [logits[..., : start + block].max(axis=-1) for start in range(0, logits.shape[-1], block)]
    )
    with np.errstate(invalid="ignore", over="ignore"):
        grown = np.exp(np.where(np.isfinite(peaks), peaks[-1] - peaks, 0.0))
    return np.asarray(np.repeat(np.moveaxis(grown, 0, -1), block, axis=-1)[..., : logits.shape[-1]])


def _cut(width: int) -> ProblemMap:
    """Only the first numbers of a head meet in the product."""

    def apply(problem: Problem) -> Problem:
        dim = problem.head_dim
        if dim <= width:
            return problem
        kept = np.arange(dim) < width
        if problem.operator == "sdpa":
            return problem.but(query=problem.query * kept)
        columns = np.tile(kept, problem.num_heads)
        params = {name: problem.params[name] * columns for name in ("wq", "bq") if name in problem.params}
        return problem.but(params={**problem.params, **params})

    return apply


def _place_in_block(block: int) -> ProblemMap:
    """A causal flag of which every block of keys is the first."""

    def folded(problem: Problem, group: Group) -> Group:
        if group.offset is None or problem.seq_len_k <= block:
            return group
        first = causal(problem.seq_len_q, block, group.offset)
        blocks = -(-problem.seq_len_k // block)
        return replace(group, values=np.tile(first, blocks)[..., : problem.seq_len_k])

    return each_group(folded)


def _packed(position: Callable[[Array, Problem], Array]) -> ProblemMap:
    """
    A causal flag for the queries of a group in one tall matrix, head after head.

    position: that of a query, from its row (num_heads // num_kv_heads, seq_len_q) in that matrix.
    """

    def misplaced(problem: Problem, group: Group) -> Group:
        heads, shared = problem.num_heads, problem.num_kv_heads
        if group.offset is None or shared == heads:
            return group
        rows = np.arange(heads // shared * problem.seq_len_q).reshape(heads // shared, problem.seq_len_q)
        places = np.tile(position(rows, problem) + group.offset, (shared, 1))
        return replace(group, values=(np.arange(problem.seq_len_k) <= places[..., None])[None], offset=None)

    return each_group(misplaced)


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
        problem_row(
            "key_tail",
            f"dropped_{block}",
            f"drops the keys after the last whole block of {block}",
            "pad the keys, masked, to whole blocks",
            _tail_dropped(block),
        )
        for block in BLOCKS
    ),
    *(
        unbounded_row(
            "key_tail",
            f"zeros_{block}",
            f"fills the keys up with zeros to whole blocks of {block}, and does not mask them",
            "pad the keys, masked, to whole blocks",
            _zeros_attended(block),
        )
        for block in BLOCKS
    ),
    *(
        unbounded_row(
            "online_softmax",
            f"{name}_{block}",
            f"does not rescale {what} so far when the maximum rises after a block of {block} keys",
            "",
            _unrescaled(block, output=output, total=total),
        )
        for name, what, output, total in (
            ("not_rescaled", "the weighted values", True, False),
            ("total_not_rescaled", "the sum of exponentials", False, True),
            ("nothing_rescaled", "the weighted values and the sum of exponentials", True, True),
        )
        for block in BLOCKS
    ),
    problem_row(
        "head_dim",
        "cut_64",
        "reads no more than 64 numbers of a head in the product of query and key",
        "keep heads at 64 or less",
        _cut(64),
    ),
    *(
        problem_row(
            "causal_alignment",
            f"key_in_block_{block}",
            f"compares the query with the place of a key in its block of {block}: later blocks show their future",
            "pass the mask",
            _place_in_block(block),
        )
        for block in BLOCKS
    ),
    *(
        problem_row(
            "causal_alignment",
            name,
            f"packs the queries of heads that share a key, head after head, and counts their positions {how}",
            "pass the mask",
            _packed(position),
        )
        for name, how, position in (
            (
                "packed_by_position",
                "for the causal flag as if they lay position after position",
                lambda rows, problem: rows // (problem.num_heads // problem.num_kv_heads),
            ),
            ("packed_rows", "on from head to head for the causal flag", lambda rows, _: rows),
        )
    ),
    unbounded_row("query_tail", "zero", "leaves the last query at zero", "", _last_query_zero),
    unbounded_row("head_result", "first", "returns the result of the first head for every head", "", _first_head),
)
