"""Variations that are slips of a kernel which reduces the keys in parts, and puts the parts together."""

from collections.abc import Callable, Iterator

import numpy as np

from conformance.oracle.other_tiles import BLOCKS
from conformance.oracle.steps import State, Step, Steps, insert_after, replace_step
from conformance.oracle.variation import (
    HeadsMap,
    ProblemMap,
    StepsMap,
    Variation,
    more_keys_than,
    problem_row,
    unbounded_row,
)
from conformance.spec.problem import Array, Problem

UNROLLED = (4, 8, 16)
"""Numbers of a head that are multiplied at once."""


def _parts(length: int, part: int) -> Array:
    """Where each part begins."""
    return np.arange(0, length, part)


def _spread(per_part: Array, length: int, part: int) -> Array:
    """What holds for a part (..., parts), for each of its keys (..., seq_len_k)."""
    return np.asarray(np.repeat(per_part, part, axis=-1)[..., :length])


def _reweighed(part: int, weights: Callable[[State, int], Array]) -> StepsMap:
    """Other weights meet the values where there is more than one part of so many keys."""

    def apply(steps: Steps, _: str) -> Steps:
        def settle(state: State) -> State:
            done = ordinary(state)
            if state.logits.shape[-1] <= part:
                return done
            with np.errstate(invalid="ignore", divide="ignore"):
                probs = weights(done, part)
            return done.but(probs=np.where(state.dead[..., None], done.probs, probs))

        ordinary = next(step.apply for step in steps if step.name == "dead_rows")
        return replace_step(steps, "dead_rows", settle)

    return apply


def _by_maxima(state: State, part: int) -> Array:
    """Each part is normalised by itself, and counts as much as the exponential of its maximum."""
    length = state.logits.shape[-1]
    sums = _spread(np.add.reduceat(state.probs, _parts(length, part), axis=-1), length, part)
    tops = _spread(np.maximum.reduceat(state.logits, _parts(length, part), axis=-1), length, part)
    alone = np.where(sums == 0.0, 0.0, state.probs / np.where(sums == 0.0, 1.0, sums))
    counts = np.exp(tops - state.logits.max(axis=-1, keepdims=True))
    total = counts[..., ::part].sum(axis=-1, keepdims=True)
    return np.asarray(alone * counts / total)


def _hidden_parts_count(state: State, part: int) -> Array:
    """A part in which nothing is attended has a sum of zero, of which the logarithm is taken for zero: it counts 1."""
    hidden = np.logical_and.reduceat(state.logits == -np.inf, _parts(state.logits.shape[-1], part), axis=-1)
    more = hidden.sum(axis=-1, keepdims=True)
    top = np.maximum(state.logits.max(axis=-1, keepdims=True), np.where(more, 0.0, -np.inf))
    attended = np.exp(state.logits - top)
    total = attended.sum(axis=-1, keepdims=True) + more * np.exp(np.where(more, -top, 0.0))
    return np.asarray(attended / total)


def _last_part_moved_back(state: State, part: int) -> Array:
    """The last part is moved back to end with the last key: what it shares with the one before counts twice."""
    length = state.logits.shape[-1]
    places = np.arange(length)
    twice = (places >= length - part) & (places < length // part * part) & (length % part > 0)
    counted = state.probs * np.where(twice, 2.0, 1.0)
    return np.asarray(counted / counted.sum(axis=-1, keepdims=True))


def _scaled_in_every_part(part: int) -> StepsMap:
    """The query is scaled in place, once more before each part of the keys."""

    def apply(steps: Steps, _: str) -> Steps:
        def scale(state: State) -> State:
            times = np.arange(state.products.shape[-1]) // part
            done = ordinary(state)
            return done.but(scaled=done.scaled * state.scale**times) if times.any() else done

        ordinary = next(step.apply for step in steps if step.name == "scale")
        return replace_step(steps, "scale", scale)

    return apply


def _whole_parts_of_head(part: int) -> ProblemMap:
    """What is left of a head after its last whole part does not meet in the product, if there is a whole one."""

    def apply(problem: Problem) -> Problem:
        whole = problem.head_dim // part * part
        return problem if whole in (0, problem.head_dim) else first_numbers(problem, whole)

    return apply


def first_numbers(problem: Problem, width: int) -> Problem:
    """Only so many numbers of a head meet in the product."""
    kept = np.arange(problem.head_dim) < width
    if problem.operator == "sdpa":
        return problem.but(query=problem.query * kept)
    columns = np.tile(kept, problem.num_heads)
    params = {name: problem.params[name] * columns for name in ("wq", "bq") if name in problem.params}
    return problem.but(params={**problem.params, **params})


def _overlaps(part: int) -> Callable[[Problem], bool]:
    """Whether values are wider than a part, and no multiple of it."""
    return lambda problem: problem.value_dim > part and problem.value_dim % part > 0


def _columns_moved_back(part: int) -> HeadsMap:
    """The last part of a head's output is moved back to end with it: what it shares with the one before is doubled."""

    def apply(state: State) -> State:
        if not _overlaps(part)(state.problem):
            return state
        width = state.value.shape[-1]
        columns = np.arange(width)
        twice = (columns >= width - part) & (columns < width // part * part)
        return state.but(value=state.value * np.where(twice, 2.0, 1.0))

    return apply


def _kept_from_head_to_head(steps: Steps, _: str) -> Steps:
    """Maximum, sum and weighted values of a row go on with the next head, where they had to begin anew."""
    return insert_after(steps, "weigh", Step("carried", lambda state: state.but(context=_carried(state))))


def _carried(state: State) -> Array:
    """(batch, num_heads, seq_len_q, value_dim), each head with the exponentials of those before it."""
    tops = np.maximum.accumulate(state.logits.max(axis=-1, keepdims=True), axis=1)
    anchors = np.where(np.isfinite(tops), tops, 0.0)
    context = np.empty_like(state.context)
    total, values = np.zeros_like(tops[:, 0]), np.zeros_like(state.context[:, 0])
    with np.errstate(invalid="ignore", over="ignore"):
        weights = np.exp(state.logits - anchors)
        shrinks = np.exp(np.concatenate([tops[:, :1], tops[:, :-1]], axis=1) - anchors)
        for head in range(context.shape[1]):
            total = total * shrinks[:, head] + weights[:, head].sum(axis=-1, keepdims=True)
            values = values * shrinks[:, head] + weights[:, head] @ state.value[:, head]
            context[:, head] = values / np.where(total == 0.0, 1.0, total)
    return context


def _of_parts(decision: str, name: str, sentence: str, weights: Callable[[State, int], Array]) -> Iterator[Variation]:
    """One row for each length of a part, which stands for N in the sentence."""
    for part in BLOCKS:
        told = sentence.replace("N", str(part))
        yield unbounded_row(decision, f"{name}_{part}", told, "", _reweighed(part, weights), more_keys_than(part))


ROWS: tuple[Variation, ...] = (
    *_of_parts(
        "online_softmax",
        "parts_by_maxima",
        "normalises parts of N keys on their own, and combines them by their maxima without their sums",
        _by_maxima,
    ),
    *_of_parts(
        "online_softmax",
        "hidden_parts_count",
        "counts a part of N keys that is masked whole as one more key, with a logit of zero and a value of zeros",
        _hidden_parts_count,
    ),
    *_of_parts(
        "key_tail",
        "moved_back",
        "moves the last block of N keys back to end with the last key, and counts those twice that it shares",
        _last_part_moved_back,
    ),
    *(
        unbounded_row(
            "scale",
            f"again_after_{part}",
            f"applies the scale once more after every {part} keys",
            "multiply the query, in a layer wq and bq, by the scale, and give a scale of 1",
            _scaled_in_every_part(part),
            more_keys_than(part),
        )
        for part in BLOCKS
    ),
    *(
        problem_row(
            "head_dim",
            f"tail_dropped_{part}",
            f"leaves out the numbers of a head after its last whole {part} in the product of query and key",
            f"fill heads up with zeros to a multiple of {part}, and give the scale",
            _whole_parts_of_head(part),
        )
        for part in UNROLLED
    ),
    *(
        Variation(
            "value_dim",
            f"moved_back_{part}",
            f"adds up {part} numbers of a head's output at a time, and moves the last {part} back to end with it: "
            "those that were there already are doubled",
            f"fill values up with zeros to a multiple of {part}",
            "heads",
            heads=_columns_moved_back(part),
            bounded=False,
            concerns=_overlaps(part),
        )
        for part in UNROLLED
    ),
    unbounded_row(
        "head_result",
        "kept_from_head_to_head",
        "goes on with the sums of the head before, where those of a head begin anew",
        "call once for each head",
        _kept_from_head_to_head,
    ),
)
