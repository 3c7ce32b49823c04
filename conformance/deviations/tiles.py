"""Deviations of kernels that work on tiles of queries and keys: masks read per tile, and loops that end wrongly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product

import numpy as np

from conformance.deviations.deviation import Deviation, ProblemMap, each_operand
from conformance.deviations.edges import each_causal_argument
from conformance.deviations.names import Words
from conformance.spec.problem import Array, MaskOperand, Problem

# Block lengths, in keys or queries.
BLOCKS = (4, 8, 16, 32, 64, 128)

# The same for the last block of keys, of loops in Python too, whose blocks are longer.
TAIL_BLOCKS = (*BLOCKS, 256, 512, 1024)

# Positions 0, 1, 2, ..., the length of a tile, the number of positions -> the positions that are used instead.
PositionMap = Callable[[Array, int, int], Array]


def of_each_block(
    decision: str, name: str, problem: Callable[[int], ProblemMap], blocks: tuple[int, ...] = BLOCKS
) -> Iterator[Deviation]:
    """Yield one deviation for each block length."""
    return (Deviation(decision, f"{name}_{block}", problem=problem(block)) for block in blocks)


def changed(operand: MaskOperand, values: Array) -> MaskOperand:
    """Replace the values of a mask operand; the same object if they are equal."""
    return operand if np.array_equal(values, operand.values) else replace(operand, values=values)


def _first_of_tile(positions: Array, tile: int, _: int) -> Array:
    return np.asarray(positions // tile * tile)


def _last_of_tile(positions: Array, tile: int, length: int) -> Array:
    """Return the last existing position of the same tile."""
    return np.asarray(np.minimum(positions // tile * tile + tile, length) - 1)


def _end_of_tile(positions: Array, tile: int, _: int) -> Array:
    """Return the last position of the same tile if it were full."""
    return np.asarray(positions // tile * tile + tile - 1)


def _in_tile(positions: Array, tile: int, _: int) -> Array:
    return np.asarray(positions % tile)


def _queries_at(position_map: PositionMap, tile: int) -> ProblemMap:
    """Let causal arguments compare other query positions, whether or not such a query exists."""

    def moved(problem: Problem, operand: MaskOperand, offset: int) -> MaskOperand:
        rows = position_map(np.arange(problem.seq_len_q), tile, problem.seq_len_q)
        return changed(operand, (np.arange(problem.seq_len_k) <= rows[:, None] + offset)[None, None])

    return each_causal_argument(moved)


def _keys_at(position_map: PositionMap, tile: int) -> ProblemMap:
    """Let causal arguments treat a key like another one; mask it if the other does not exist."""

    def moved(problem: Problem, operand: MaskOperand, _: int) -> MaskOperand:
        keys = position_map(np.arange(problem.seq_len_k), tile, problem.seq_len_k)
        exists = keys < problem.seq_len_k
        return changed(operand, operand.values[..., np.where(exists, keys, 0)] & exists)

    return each_causal_argument(moved)


def _broadcast_to_first(axis: int, tile: int) -> ProblemMap:
    """Apply a mask with one row for all queries, or one column for all keys, to the first `tile` of them only."""

    def cut(problem: Problem, operand: MaskOperand) -> MaskOperand:
        if operand.element == "flag" or operand.values.shape[axis] > 1:
            return operand
        late = np.arange(problem.logits_shape[axis]) >= tile
        late = late[:, None] if axis == _QUERIES else late
        unmasked = operand.element != "float"
        return replace(operand, values=np.where(late, unmasked, operand.values)) if late.any() else operand

    return each_operand(cut)


_QUERIES, _KEYS = 2, 3


def _row_of_first(tile: int) -> ProblemMap:
    """Restart a mask with a row per query at its first row in every tile of queries."""

    def restart(problem: Problem, operand: MaskOperand) -> MaskOperand:
        queries = problem.seq_len_q
        if operand.element == "flag" or operand.values.shape[2] == 1 or queries <= tile:
            return operand
        return changed(operand, operand.values[:, :, np.arange(queries) % tile])

    return each_operand(restart)


ROWS: tuple[Deviation, ...] = (
    *of_each_block("causal_query_tile", "first", partial(_queries_at, _first_of_tile)),
    *of_each_block("causal_query_tile", "last", partial(_queries_at, _last_of_tile)),
    *of_each_block("causal_query_tile", "restarts", partial(_queries_at, _in_tile)),
    *of_each_block("causal_key_tile", "shown", partial(_keys_at, _first_of_tile)),
    *of_each_block("causal_key_tile", "hidden", partial(_keys_at, _end_of_tile)),
    *of_each_block("causal_key_tile", "restarts", partial(_keys_at, _in_tile)),
    Deviation(
        "mask_rows", "first_1", problem=_broadcast_to_first(_QUERIES, 1), concerns=lambda problem: problem.seq_len_q > 1
    ),
    *of_each_block("mask_rows", "first", partial(_broadcast_to_first, _QUERIES), BLOCKS[:5]),
    *of_each_block("mask_rows", "again", _row_of_first, BLOCKS[:5]),
    Deviation(
        "mask_columns", "first_1", problem=_broadcast_to_first(_KEYS, 1), concerns=lambda problem: problem.seq_len_k > 1
    ),
)


DECISION = "causal_loop"
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)

# Where the loop stops for a tile of queries -> its description.
BOUNDS = {
    "last": "the causal limit of its last query",
    "whole": "the causal limit that its last query would have if the tile were full",
    "short": "one key before the causal limit of its last query",
    "first": "the causal limit of its first query",
    "own": "the position of its first query, exclusive",
}

# The same for one query.
ALONE = {"last": "its causal limit", "short": "one key before its causal limit", "own": "its own position, exclusive"}

# Visit as many key tiles as there are query tiles so far, including the current one: right if both lengths are equal.
COUNT = "count"

# In which tiles of the loop the causal mask is applied -> its description.
MASKS = {
    "masked": "",
    "last_masked": ", and the causal mask is applied in the last of these tiles only",
    "unmasked": ", and the causal mask is applied in none of these tiles",
}


@dataclass(frozen=True)
class KeyLoop:
    """
    A loop over tiles of keys for each tile of queries.

    queries, keys: lengths of the tiles. bound: where the loop stops, one of BOUNDS or COUNT; it never goes beyond the
    tile with the last key. anchored: whether the bound includes the offset of the causal argument, or is counted from
    the first key. up: whether the bound is rounded up to full tiles, or down. masks: one of MASKS.
    """

    queries: int
    keys: int
    bound: str
    anchored: bool = True
    up: bool = True
    masks: str = "masked"

    @property
    def kind(self) -> str:
        """The tile lengths as text; loops over the same tiles have the same kind."""
        return f"{self.queries}x{self.keys}"

    @property
    def name(self) -> str:
        """The name of the deviation, after `causal_loop=`."""
        anchor = "" if self.anchored else "_from_first_key"
        return f"{self.kind}_{self.bound}{anchor}_{'up' if self.up else 'down'}_{self.masks}"

    @property
    def sentence(self) -> str:
        """What it does, after "it"."""
        tiles = f"tiles of {self.keys} keys" if self.keys > 1 else "keys"
        unit = f"each tile of {self.queries} queries" if self.queries > 1 else "each query"
        anchor = "" if self.anchored else ", counted from the first key whatever the alignment is"
        return f"loops over {tiles}: {unit} {self._reach}{anchor}{MASKS[self.masks]}"

    @property
    def _reach(self) -> str:
        if self.bound == COUNT:
            queries = f"tiles of {self.queries} queries" if self.queries > 1 else "queries"
            return f"visits only the first n of them, where n is the number of {queries} so far"
        rounded = "" if self.keys == 1 else f", rounded {'up' if self.up else 'down'} to full tiles"
        return f"stops at {(BOUNDS if self.queries > 1 else ALONE)[self.bound]}{rounded}"

    def seen(self, problem: Problem, operand: MaskOperand) -> Array:
        """Return the positions attended under a causal argument with this loop, (1, 1, seq_len_q, seq_len_k)."""
        first = (np.arange(problem.seq_len_q) // self.queries * self.queries)[:, None]
        whole = first + self.queries
        last, count = np.minimum(whole, problem.seq_len_q), whole // self.queries * self.keys
        end = {"short": last - 1, "own": first, "first": first + 1, "last": last, "whole": whole, COUNT: count}[
            self.bound
        ]
        end = end + ((operand.offset or 0) if self.anchored else 0)
        tiles = -(-end // self.keys) if self.up else end // self.keys
        reach = np.minimum(tiles, -(-problem.seq_len_k // self.keys)) * self.keys
        positions = np.arange(problem.seq_len_k)[None]
        shown = np.asarray(operand.values) != 0
        if self.masks == "last_masked":
            shown = shown | (positions < reach - self.keys)
        elif self.masks == "unmasked":
            shown = np.ones_like(shown)
        return np.asarray(shown & (positions < reach))


def key_loops() -> Iterator[KeyLoop]:
    """Yield all loops, the simplest first."""
    for queries, keys in sorted(product(LENGTHS, LENGTHS), key=lambda pair: (pair[0] != pair[1], max(pair), pair)):
        for masks, anchored in product(MASKS, (True, False)):
            for bound, up in product(BOUNDS if queries > 1 else ALONE, (True, False) if keys > 1 else (True,)):
                yield KeyLoop(queries, keys, bound, anchored, up, masks)
            if queries != keys:
                yield KeyLoop(queries, keys, COUNT, anchored, masks=masks)


def is_causal_argument(operand: MaskOperand) -> bool:
    """Whether the operand is a causal argument, whose offset a loop can use."""
    return operand.offset is not None and operand.element == "flag"


def key_loop(loop: KeyLoop) -> Deviation:
    """Make the deviation of all causal arguments that uses this loop."""

    def cut(problem: Problem, operand: MaskOperand) -> MaskOperand:
        return changed(operand, loop.seen(problem, operand)) if is_causal_argument(operand) else operand

    wording = Words("kernel", loop.sentence, "pass an attention mask instead of the causal argument")
    return Deviation(DECISION, loop.name, problem=each_operand(cut), wording=wording)


@cache
def _loops() -> dict[str, KeyLoop]:
    """All loops by name, made when they are first needed: there are thousands."""
    return {loop.name: loop for loop in key_loops()}


def find_key_loop(name: str) -> Deviation:
    """
    Find a loop by name.

    Raises:
        KeyError: there is no loop of that name.
    """
    if name not in _loops():
        raise KeyError(f"no deviation {DECISION}={name}: the name of a loop looks like {KeyLoop(8, 4, 'first').name}")
    return key_loop(_loops()[name])
