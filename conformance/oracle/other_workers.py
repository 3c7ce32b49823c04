"""Variations that are slips of a kernel whose workers take one tile of queries after another."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.other_tiles import BLOCKS
from conformance.oracle.pipeline import Step, insert_after
from conformance.oracle.state import State
from conformance.oracle.variation import StepsMap, Variation, unbounded_row
from conformance.spec.problem import Array, Problem

WORKERS = {1: "the next", 2: "the next but one"}
"""How many take tiles in turn -> which tile follows one."""


def _state_kept(tile: int, workers: int) -> StepsMap:
    """Maximum and sum go on from tile to tile, of the same head or another; the weighted values begin anew."""

    def keep(state: State) -> State:
        own = _logsumexp(state.logits)
        share = np.exp(own - _summed_in_turn(own, tile, workers))
        probs = state.probs * share[..., None]
        return state.but(probs=np.where(state.dead[..., None], state.probs, probs))

    return lambda steps, _: insert_after(steps, "dead_rows", Step("state_kept", keep))


def _logsumexp(logits: Array) -> Array:
    """Of every row, (batch, num_heads, seq_len_q); -inf where nothing is attended."""
    top = logits.max(axis=-1)
    total = np.exp(logits - np.where(top == -np.inf, 0.0, top)[..., None]).sum(axis=-1)
    return np.asarray(np.log(total) + top)


def _summed_in_turn(logarithms: Array, tile: int, workers: int) -> Array:
    """What each row of a worker's tiles has summed so far, with the same row of its tiles before."""
    batch, heads, queries = logarithms.shape
    width = [(0, 0), (0, 0), (0, -queries % tile)]
    tiles = np.pad(logarithms, width, constant_values=-np.inf).reshape(-1, tile)
    sums = np.empty_like(tiles)
    for worker in range(workers):
        sums[worker::workers] = np.logaddexp.accumulate(tiles[worker::workers], axis=0)
    return np.asarray(sums.reshape(batch, heads, -1)[..., :queries])


def _more_tiles_than(workers: int, tile: int) -> Callable[[Problem], bool]:
    return lambda problem: problem.batch * problem.num_heads * -(-problem.seq_len_q // tile) > workers


ROWS: tuple[Variation, ...] = tuple(
    unbounded_row(
        "head_result",
        f"sum_kept_{tile}x{workers}",
        f"keeps maximum and sum, but no values, from a tile of {tile} queries to {following}, of any head or item",
        "call once for each head, of no more queries",
        _state_kept(tile, workers),
        _more_tiles_than(workers, tile),
    )
    for workers, following in WORKERS.items()
    for tile in BLOCKS
)
