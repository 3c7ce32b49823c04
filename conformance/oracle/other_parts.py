"""Variations that are slips of a kernel which reduces the keys in parts, and puts the parts together."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from conformance.oracle.other_tiles import BLOCKS
from conformance.oracle.pipeline import Steps, replace_step
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
)
