"""Variations that are slips of a kernel which takes keys, queries or a head in pieces."""

import numpy as np

from conformance.oracle.steps import State, Step, Steps, insert_after, replace_step
from conformance.oracle.variation import ProblemMap, StepsMap, Variation
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


def _not_rescaled(block: int) -> StepsMap:
    """Online softmax in which the sum so far keeps its scale when the maximum rises."""

    def apply(steps: Steps, _: str) -> Steps:
        def weigh(state: State) -> State:
            if state.logits.shape[-1] <= block:
                return ordinary(state)
            with np.errstate(invalid="ignore"):  # a weight of zero times a maximum that rose beyond all numbers
                probs = state.probs * _risen(state.logits, block)
            return ordinary(state.but(probs=probs)).but(probs=state.probs)

        ordinary = next(step.apply for step in steps if step.name == "weigh")
        return replace_step(steps, "weigh", weigh)

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
        Variation(
            "key_tail",
            f"dropped_{block}",
            f"drops the keys after the last whole block of {block}",
            "pad the keys, masked, to whole blocks",
            "problem",
            problem=_tail_dropped(block),
        )
        for block in BLOCKS
    ),
    *(
        Variation(
            "online_softmax",
            f"not_rescaled_{block}",
            f"does not rescale the sum so far when the maximum rises after a block of {block} keys",
            "",
            "steps",
            steps=_not_rescaled(block),
            bounded=False,
        )
        for block in BLOCKS
    ),
    Variation(
        "head_dim",
        "cut_64",
        "reads no more than 64 numbers of a head in the product of query and key",
        "keep heads at 64 or less",
        "problem",
        problem=_cut(64),
    ),
    Variation(
        "query_tail", "zero", "leaves the last query at zero", "", "steps", steps=_last_query_zero, bounded=False
    ),
    Variation(
        "head_result",
        "first",
        "returns the result of the first head for every head",
        "",
        "steps",
        steps=_first_head,
        bounded=False,
    ),
)
