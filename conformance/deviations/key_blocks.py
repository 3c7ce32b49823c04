"""Deviations of kernels that process keys in blocks: not rescaled, combined wrongly, or padded with zeros."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from conformance.deviations.deviation import Deviation, HeadsMap, more_keys_than
from conformance.deviations.tiles import BLOCKS, TAIL_BLOCKS
from conformance.reference.pipeline import StepsMap, following, wrapping
from conformance.reference.steps import State
from conformance.spec.problem import Array, Problem

# The maximum of every block of keys (blocks, ...) -> the logarithm of the factor by which its weights are too large.
Excess = Callable[[Array], Array]

# Maximum rise for which a lazily rescaling kernel does not rescale: 8 in units of log2, as FlashAttention-4 has it.
LAZY = 8 * math.log(2.0)

# Other such limits, in units of the logits.
LIMITS = (1, 2, 4, 8, 16)

# Block lengths of loops that carry a maximum. Parts of one key would all weigh the same.
SMALL_BLOCKS = (1, 2, *BLOCKS)

# Logarithm of a factor above which a weight may have become 0.
FAR = 300.0


def _risen(tops: Array) -> Array:
    """Return how far the running maximum rises after each block."""
    return np.asarray(tops.max(axis=0) - np.maximum.accumulate(tops))


def _risen_next(tops: Array) -> Array:
    """Return how far the running maximum rises with the following block."""
    return np.diff(np.maximum.accumulate(tops), axis=0, append=tops.max(axis=0)[None])


def _risen_in_small_steps(tops: Array, limit: float) -> Array:
    """Return how far the running maximum rises after each block, counting only rises of at most `limit`."""
    steps = _risen_next(tops)
    small = np.where(steps <= limit, steps, 0.0)
    return np.asarray(np.flip(np.cumsum(np.flip(small, axis=0), axis=0), axis=0))


def _below_all(tops: Array) -> Array:
    """Return how far the maximum of each block is below the overall maximum."""
    return np.asarray(tops.max(axis=0) - tops)


def _unrescaled(excess: Excess, block: int, *, output: bool, total: bool) -> StepsMap:
    """Online softmax that does not rescale the accumulated output or total when the maximum rises."""

    def weigh(state: State, ordinary: HeadsMap) -> State:
        if state.logits.shape[-1] <= block:
            return ordinary(state)
        grown = _grown(state, _log_factor(state.logits, block, excess))
        probs = grown if output else state.probs
        if total:
            probs = probs / np.where(state.fully_masked[..., None], 1.0, grown.sum(axis=-1, keepdims=True))
        return ordinary(state.but(probs=probs)).but(probs=state.probs)

    return wrapping("weigh", weigh)


def _log_factor(logits: Array, block: int, excess: Excess) -> Array:
    """Return the logarithm of the factor by which the weight of each key is too large."""
    tops = np.stack([logits[..., start : start + block].max(axis=-1) for start in range(0, logits.shape[-1], block)])
    grown = np.nan_to_num(excess(tops), nan=0.0, posinf=0.0, neginf=0.0)
    return _spread(np.moveaxis(grown, 0, -1), logits.shape[-1], block)


def _grown(state: State, log_factor: Array) -> Array:
    """Return the weights times their factors; a weight that is 0 after the maximum rose was not 0 before."""
    grown = state.probs * np.exp(np.minimum(log_factor, FAR))
    if not (log_factor > FAR).any():
        return grown
    top = state.logits.max(axis=-1, keepdims=True)
    total = np.log(np.exp(state.logits - top).sum(axis=-1, keepdims=True))
    return np.where(log_factor > FAR, np.exp(state.logits - top - total + log_factor), grown)


def _spread(per_block: Array, length: int, block: int) -> Array:
    """Repeat a value per block (..., blocks) for each of its keys (..., seq_len_k)."""
    return np.asarray(np.repeat(per_block, block, axis=-1)[..., :length])


def _combined_by(power: float, block: int) -> StepsMap:
    """Normalise each block separately and weight it by a power of its sum of exponentials."""

    def settle(state: State, ordinary: HeadsMap) -> State:
        done, length = ordinary(state), state.logits.shape[-1]
        if length <= block:
            return done
        sums = np.add.reduceat(done.probs, np.arange(0, length, block), axis=-1)
        spread = _spread(sums, length, block)
        within = np.where(spread == 0.0, 0.0, done.probs / np.where(spread == 0.0, 1.0, spread))
        shares = sums**power  # another deviation may have left the sums unnormalised
        probs = within * _spread(shares / shares.sum(axis=-1, keepdims=True), length, block)
        return done.but(probs=np.where(state.fully_masked[..., None], done.probs, probs))

    return wrapping("fully_masked_rows", settle)


def _nan_where(is_masked: Callable[[Array], Array], block: int) -> StepsMap:
    """-inf - -inf is NaN: a row whose keys are all masked in a block becomes NaN; `is_masked`: in which blocks."""

    def blind(state: State) -> State:
        starts = np.arange(0, state.logits.shape[-1], block)
        masked = np.logical_and.reduceat(state.logits == -np.inf, starts, axis=-1)
        unseen = is_masked(masked) & ~state.fully_masked
        return state.but(probs=np.where(unseen[..., None], np.nan, state.probs)) if unseen.any() else state

    return following("softmax", "masked_blocks", blind)


def _padded_with_zeros(block: int) -> StepsMap:
    """Pad keys and values with zeros to full blocks; each padding key has a logit of zero and gets weight."""

    def softmax(state: State, ordinary: HeadsMap) -> State:
        keys = state.logits.shape[-1]
        if keys % block == 0:
            return ordinary(state)
        zeros = np.zeros((*state.logits.shape[:-1], -keys % block))
        padded = ordinary(state.but(logits=np.concatenate([state.logits, zeros], axis=-1)))
        return padded.but(logits=state.logits, probs=padded.probs[..., :keys])

    return wrapping("softmax", softmax)


def _repeated(block: int) -> StepsMap:
    """Move the last block back so that it is full: its keys that are in the block before as well count twice."""

    def softmax(state: State, ordinary: HeadsMap) -> State:
        keys = state.logits.shape[-1]
        whole = keys // block * block
        if whole in (0, keys):
            return ordinary(state)
        number = np.arange(keys)
        more = np.where((number >= keys - block) & (number < whole), math.log(2.0), 0.0)
        return ordinary(state.but(logits=state.logits + more)).but(logits=state.logits)

    return wrapping("softmax", softmax)


def _ended(block: int) -> StepsMap:
    """Stop at the first tile of queries and keys in which every key is masked."""

    def softmax(state: State, ordinary: HeadsMap) -> State:
        queries, keys = state.logits.shape[-2:]
        hidden = state.logits == -np.inf
        for axis, length in ((-2, queries), (-1, keys)):
            hidden = np.logical_and.reduceat(hidden, np.arange(0, length, block), axis=axis)
        ended = np.logical_or.accumulate(hidden, axis=-1)
        ended = np.repeat(np.repeat(ended, block, axis=-2), block, axis=-1)[..., :queries, :keys]
        return ordinary(state.but(logits=np.where(ended, -np.inf, state.logits))).but(logits=state.logits)

    return wrapping("softmax", softmax)


def _not_in_blocks(block: int) -> Callable[[Problem], bool]:
    return lambda problem: problem.weights_shape[-1] % block > 0


def _of_blocks(
    decision: str,
    name: str,
    steps: Callable[[int], StepsMap],
    concerns: Callable[[int], Callable[[Problem], bool]] = more_keys_than,
    blocks: tuple[int, ...] = BLOCKS,
) -> Iterator[Deviation]:
    """Yield one deviation for each block length."""
    for block in blocks:
        yield Deviation(decision, f"{name}_{block}", steps=steps(block), bounded=False, concerns=concerns(block))


def _online(name: str, steps: Callable[[int], StepsMap], blocks: tuple[int, ...] = SMALL_BLOCKS) -> Iterator[Deviation]:
    """Yield one deviation of a running maximum for each block length; a loop over single keys has blocks of 1."""
    return _of_blocks("online_softmax", name, steps, blocks=blocks)


def _lazily(name: str, limit: float) -> Iterator[Deviation]:
    """Yield one deviation for each block length that does not rescale if the maximum rises by at most `limit`."""
    excess = partial(_risen_in_small_steps, limit=limit)
    return _online(name, partial(_unrescaled, excess, output=True, total=True), BLOCKS)


def _times(factor: float) -> Excess:
    """Return a factor of how far the running maximum rises after each block."""
    return lambda tops: factor * _risen(tops)


ROWS: tuple[Deviation, ...] = (
    *_online("not_rescaled", partial(_unrescaled, _risen, output=True, total=False)),
    *_online("block_not_rescaled", partial(_unrescaled, _risen_next, output=True, total=False)),
    *_online("total_not_rescaled", partial(_unrescaled, _risen, output=False, total=True)),
    *_online("nothing_rescaled", partial(_unrescaled, _risen, output=True, total=True)),
    *_online(
        "rescaled_by_exp_of_log2", partial(_unrescaled, _times(1.0 - 1.0 / math.log(2.0)), output=True, total=True)
    ),
    *_online("rescaled_by_exp2_of_log", partial(_unrescaled, _times(1.0 - math.log(2.0)), output=True, total=True)),
    *_lazily("lazily_rescaled", LAZY),
    *(deviation for limit in LIMITS for deviation in _lazily(f"lazily_rescaled_up_to_{limit}", limit)),
    *_online("parts_without_maxima", partial(_unrescaled, _below_all, output=True, total=True), BLOCKS),
    *_online("parts_by_exp_of_log2", partial(_combined_by, 1.0 / math.log(2.0)), BLOCKS),
    *_online("parts_by_exp2_of_log", partial(_combined_by, math.log(2.0)), BLOCKS),
    *_of_blocks("leading_masked_keys", "nan", partial(_nan_where, lambda masked: masked[..., 0]), blocks=SMALL_BLOCKS),
    *_of_blocks("masked_block", "nan", partial(_nan_where, lambda masked: np.asarray(masked.any(axis=-1)))),
    *_of_blocks("masked_block", "ends", _ended),
    *_of_blocks("key_tail", "zeros", _padded_with_zeros, _not_in_blocks, TAIL_BLOCKS),
    *_of_blocks("key_tail", "repeated", _repeated, _not_in_blocks, TAIL_BLOCKS),
)
