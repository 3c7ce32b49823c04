"""Deviations of kernels that take the keys in blocks: not rescaled, combined wrongly, or filled up with zeros."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from conformance.deviations.deviation import Deviation, HeadsMap, more_keys_than
from conformance.deviations.tiles import BLOCKS
from conformance.reference.pipeline import StepsMap, following, wrapping
from conformance.reference.steps import State
from conformance.spec.problem import Array, Problem

# The maximum of every block of keys (blocks, ...) -> the logarithm of how much too large its weights are kept.
Kept = Callable[[Array], Array]

# A rise of the maximum up to which a kernel that saves work does not rescale: 8 in units of log2.
LAZY = 8 * math.log(2.0)


def _risen(tops: Array) -> Array:
    """How far the maximum rises after each block."""
    return np.asarray(tops.max(axis=0) - np.maximum.accumulate(tops))


def _risen_next(tops: Array) -> Array:
    """How far it rises with the block that comes next."""
    return np.diff(np.maximum.accumulate(tops), axis=0, append=tops.max(axis=0)[None])


def _risen_in_small_steps(tops: Array) -> Array:
    """How far it rises after each block, of the rises that are at most LAZY alone."""
    steps = _risen_next(tops)
    small = np.where(steps <= LAZY, steps, 0.0)
    return np.asarray(np.flip(np.cumsum(np.flip(small, axis=0), axis=0), axis=0))


def _below_all(tops: Array) -> Array:
    """How far the maximum of each block lies below that of all."""
    return np.asarray(tops.max(axis=0) - tops)


def _unrescaled(kept: Kept, *, output: bool, total: bool) -> Callable[[int], StepsMap]:
    """Online softmax in which what was summed keeps its scale though the maximum rises."""

    def of_block(block: int) -> StepsMap:
        def weigh(state: State, ordinary: HeadsMap) -> State:
            if state.logits.shape[-1] <= block:
                return ordinary(state)
            # a weight of zero times a maximum that rose beyond all numbers
            grown = state.probs * _grown(state.logits, block, kept)
            probs = grown if output else state.probs
            if total:
                probs = probs / np.where(state.fully_masked[..., None], 1.0, grown.sum(axis=-1, keepdims=True))
            return ordinary(state.but(probs=probs)).but(probs=state.probs)

        return wrapping("weigh", weigh)

    return of_block


def _grown(logits: Array, block: int, kept: Kept) -> Array:
    """By how much too large the weight of a key is for what is kept of its block."""
    tops = np.stack([logits[..., start : start + block].max(axis=-1) for start in range(0, logits.shape[-1], block)])
    grown = np.exp(np.nan_to_num(kept(tops), nan=0.0, posinf=0.0, neginf=0.0))
    return _spread(np.moveaxis(grown, 0, -1), logits.shape[-1], block)


def _spread(per_block: Array, length: int, block: int) -> Array:
    """What holds for a block (..., blocks), for each of its keys (..., seq_len_k)."""
    return np.asarray(np.repeat(per_block, block, axis=-1)[..., :length])


def _combined_by(power: float) -> Callable[[int], StepsMap]:
    """Each block is normalised by itself, and counts as much as its sum of exponentials to a power."""

    def of_block(block: int) -> StepsMap:
        def settle(state: State, ordinary: HeadsMap) -> State:
            done, length = ordinary(state), state.logits.shape[-1]
            if length <= block:
                return done
            sums = np.add.reduceat(done.probs, np.arange(0, length, block), axis=-1)
            spread = _spread(sums, length, block)
            alone = np.where(spread == 0.0, 0.0, done.probs / np.where(spread == 0.0, 1.0, spread))
            counts = sums**power  # of sums that another deviation has left unnormalised
            probs = alone * _spread(counts / counts.sum(axis=-1, keepdims=True), length, block)
            return done.but(probs=np.where(state.fully_masked[..., None], done.probs, probs))

        return wrapping("dead_rows", settle)

    return of_block


def _leading_nan(block: int) -> StepsMap:
    """-inf - -inf is no number: a row that has seen nothing after its first block stays NaN."""

    def blind(state: State) -> State:
        unseen = np.all(state.logits[..., :block] == -np.inf, axis=-1) & ~state.fully_masked
        return state.but(probs=np.where(unseen[..., None], np.nan, state.probs)) if unseen.any() else state

    return following("softmax", "leading_masked_keys", blind)


def _filled_up(block: int) -> StepsMap:
    """Keys and values are filled up with zeros to whole blocks; each has a logit of zero, and takes weight."""

    def softmax(state: State, ordinary: HeadsMap) -> State:
        keys = state.logits.shape[-1]
        if keys % block == 0:
            return ordinary(state)
        zeros = np.zeros((*state.logits.shape[:-1], -keys % block))
        filled = ordinary(state.but(logits=np.concatenate([state.logits, zeros], axis=-1)))
        return filled.but(logits=state.logits, probs=filled.probs[..., :keys])

    return wrapping("softmax", softmax)


def _not_in_blocks(block: int) -> Callable[[Problem], bool]:
    return lambda problem: problem.weights_shape[-1] % block > 0


def _of_blocks(
    decision: str,
    name: str,
    steps: Callable[[int], StepsMap],
    concerns: Callable[[int], Callable[[Problem], bool]] = more_keys_than,
) -> Iterator[Deviation]:
    """One deviation for each length of a block."""
    for block in BLOCKS:
        yield Deviation(decision, f"{name}_{block}", steps=steps(block), bounded=False, concerns=concerns(block))


ROWS: tuple[Deviation, ...] = (
    *_of_blocks("online_softmax", "not_rescaled", _unrescaled(_risen, output=True, total=False)),
    *_of_blocks("online_softmax", "block_not_rescaled", _unrescaled(_risen_next, output=True, total=False)),
    *_of_blocks("online_softmax", "total_not_rescaled", _unrescaled(_risen, output=False, total=True)),
    *_of_blocks("online_softmax", "nothing_rescaled", _unrescaled(_risen, output=True, total=True)),
    *_of_blocks("online_softmax", "lazily_rescaled", _unrescaled(_risen_in_small_steps, output=True, total=True)),
    *_of_blocks("online_softmax", "parts_without_maxima", _unrescaled(_below_all, output=True, total=True)),
    *_of_blocks("online_softmax", "parts_by_exp_of_log2", _combined_by(1.0 / math.log(2.0))),
    *_of_blocks("online_softmax", "parts_by_exp2_of_log", _combined_by(math.log(2.0))),
    *_of_blocks("leading_masked_keys", "nan", _leading_nan),
    *_of_blocks("key_tail", "zeros", _filled_up, _not_in_blocks),
)
