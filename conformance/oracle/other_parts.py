"""Variations that are slips of a kernel which reduces the keys in parts, and puts the parts together."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from conformance.oracle.other_tiles import BLOCKS
from conformance.oracle.pipeline import Step, Steps, insert_after, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import StepsMap, Variation, more_keys_than, unbounded_row
from conformance.spec.problem import Array


def _parts(length: int, part: int) -> Array:
    """Where each part begins."""
    return np.arange(0, length, part)


def _spread(per_part: Array, length: int, part: int) -> Array:
    """What holds for a part (..., parts), for each of its keys (..., seq_len_k)."""
    return np.asarray(np.repeat(per_part, part, axis=-1)[..., :length])


def _always(part: int) -> Callable[[int], int]:
    return lambda _: part


def _shared(parts: int) -> Callable[[int], int]:
    """How many keys each of so many devices or splits has, the last having the rest."""
    return lambda length: -(-length // parts)


def _reweighed(part_of: Callable[[int], int], weights: Callable[[State, int], Array]) -> StepsMap:
    """Other weights meet the values where there is more than one part; part_of: seq_len_k -> keys of a part."""

    def apply(steps: Steps, _: str) -> Steps:
        def settle(state: State) -> State:
            done, length = ordinary(state), state.logits.shape[-1]
            part = part_of(length)
            if length <= part:
                return done
            probs = weights(done, part)
            return done.but(probs=np.where(state.dead[..., None], done.probs, probs))

        ordinary = next(step.apply for step in steps if step.name == "dead_rows")
        return replace_step(steps, "dead_rows", settle)

    return apply


def _by_maxima(state: State, part: int) -> Array:
    """Each part is normalised by itself, and counts as much as the exponential of its maximum."""
    tops = np.maximum.reduceat(state.logits, _parts(state.logits.shape[-1], part), axis=-1)
    return _combined(state, part, np.exp(tops - state.logits.max(axis=-1, keepdims=True)))


def _by_power(power: float) -> Callable[[State, int], Array]:
    """Each part is normalised by itself, and counts as much as its sum of exponentials to a power."""

    def weights(state: State, part: int) -> Array:
        sums = np.add.reduceat(state.probs, _parts(state.probs.shape[-1], part), axis=-1)
        # of sums that another variation has left unnormalised
        return _combined(state, part, sums**power)

    return weights


def _combined(state: State, part: int, counts: Array) -> Array:
    """The mean of parts that are normalised by themselves, in which each has its count (..., parts)."""
    length = state.probs.shape[-1]
    sums = _spread(np.add.reduceat(state.probs, _parts(length, part), axis=-1), length, part)
    alone = np.where(sums == 0.0, 0.0, state.probs / np.where(sums == 0.0, 1.0, sums))
    return np.asarray(alone * _spread(counts / counts.sum(axis=-1, keepdims=True), length, part))


def _alike(state: State, part: int) -> Array:
    """Each part is normalised by itself, and counts as much as any other; one that is masked whole is zero."""
    starts, length = _parts(state.logits.shape[-1], part), state.logits.shape[-1]
    tops = _spread(np.maximum.reduceat(state.logits, starts, axis=-1), length, part)
    own = np.exp(state.logits - np.where(tops == -np.inf, 0.0, tops))
    sums = _spread(np.add.reduceat(own, starts, axis=-1), length, part)
    return np.asarray(own / np.where(sums == 0.0, 1.0, sums) / len(starts))


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


def _kept_from_head_to_head(steps: Steps, _: str) -> Steps:
    """Maximum, sum and weighted values of a row go on with the next head, where they had to begin anew."""
    return insert_after(steps, "weigh", Step("carried", lambda state: state.but(context=_carried(state))))


def _carried(state: State) -> Array:
    """(batch, num_heads, seq_len_q, value_dim), each head with the exponentials of those before it."""
    tops = np.maximum.accumulate(state.logits.max(axis=-1, keepdims=True), axis=1)
    anchors = np.where(np.isfinite(tops), tops, 0.0)
    context = np.empty_like(state.context)
    total, values = np.zeros_like(tops[:, 0]), np.zeros_like(state.context[:, 0])
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
        yield unbounded_row(
            decision, f"{name}_{part}", told, "", _reweighed(_always(part), weights), more_keys_than(part)
        )


ROWS: tuple[Variation, ...] = (
    *_of_parts(
        "online_softmax",
        "parts_by_maxima",
        "normalises parts of N keys on their own, and combines them by their maxima without their sums",
        _by_maxima,
    ),
    *_of_parts(
        "online_softmax",
        "parts_by_exp_of_log2",
        "normalises parts of N keys on their own, and combines them by exp of logsumexps in base 2",
        _by_power(1.0 / math.log(2.0)),
    ),
    *_of_parts(
        "online_softmax",
        "parts_by_exp2_of_log",
        "normalises parts of N keys on their own, and combines them by exp2 of logsumexps in base e",
        _by_power(math.log(2.0)),
    ),
    *_of_parts(
        "online_softmax",
        "parts_alike",
        "normalises parts of N keys on their own, and returns the mean of the parts, whatever their sums",
        _alike,
    ),
    *_of_parts(
        "online_softmax",
        "hidden_parts_count",
        "counts a part of N keys that is masked whole as one more key, with a logit of zero and a value of zeros",
        _hidden_parts_count,
    ),
    *(
        unbounded_row(
            "online_softmax",
            name,
            f"counts a {what} of the keys that is masked whole as one more key, with a logit of zero "
            "and a value of zeros",
            "",
            _reweighed(_shared(parts), _hidden_parts_count),
            more_keys_than(1),
        )
        for name, what, parts in (("hidden_halves_count", "half", 2), ("hidden_quarters_count", "quarter", 4))
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
    unbounded_row(
        "head_result",
        "kept_from_head_to_head",
        "goes on with the sums of the head before, where those of a head begin anew",
        "call once for each head",
        _kept_from_head_to_head,
    ),
)
