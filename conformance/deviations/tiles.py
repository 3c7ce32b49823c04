"""Deviations of kernels that work on tiles of queries and keys: what a tile sees of a mask, and where its loop ends."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from conformance.deviations.deviation import Deviation, ProblemMap, each_operand
from conformance.deviations.edges import each_causal_argument
from conformance.deviations.names import Words
from conformance.spec.problem import Array, MaskOperand, Problem

# Keys, or queries, that are taken at once.
BLOCKS = (4, 8, 16, 32, 64, 128)

# Places 0, 1, 2, ..., the length of a tile and how many places there are -> the places that are taken for them.
PositionMap = Callable[[Array, int, int], Array]


def of_each_block(
    decision: str, name: str, problem: Callable[[int], ProblemMap], blocks: tuple[int, ...] = BLOCKS
) -> Iterator[Deviation]:
    """One deviation for each length of a block."""
    return (Deviation(decision, f"{name}_{block}", problem=problem(block)) for block in blocks)


def changed(operand: MaskOperand, values: Array) -> MaskOperand:
    """The group with other values; the same group where they are no others."""
    return operand if np.array_equal(values, operand.values) else replace(operand, values=values)


def _first_of_tile(places: Array, tile: int, _: int) -> Array:
    return np.asarray(places // tile * tile)


def _last_of_tile(places: Array, tile: int, length: int) -> Array:
    """The last place of the same tile, which the end may cut off."""
    return np.asarray(np.minimum(places // tile * tile + tile, length) - 1)


def _end_of_tile(places: Array, tile: int, _: int) -> Array:
    """Where the same tile would end if nothing cut it off."""
    return np.asarray(places // tile * tile + tile - 1)


def _in_tile(places: Array, tile: int, _: int) -> Array:
    return np.asarray(places % tile)


def _queries_at(places: PositionMap) -> Callable[[int], ProblemMap]:
    """A causal flag that compares other places of the queries, be there such a query or not."""

    def of_tile(tile: int) -> ProblemMap:
        def moved(problem: Problem, operand: MaskOperand, offset: int) -> MaskOperand:
            rows = places(np.arange(problem.seq_len_q), tile, problem.seq_len_q)
            return changed(operand, (np.arange(problem.seq_len_k) <= rows[:, None] + offset)[None, None])

        return each_causal_argument(moved)

    return of_tile


def _keys_at(places: PositionMap) -> Callable[[int], ProblemMap]:
    """A causal flag that shows a key where it shows another, and hides it where there is none."""

    def of_tile(tile: int) -> ProblemMap:
        def moved(problem: Problem, operand: MaskOperand, _: int) -> MaskOperand:
            keys = places(np.arange(problem.seq_len_k), tile, problem.seq_len_k)
            there = keys < problem.seq_len_k
            return changed(operand, operand.values[..., np.where(there, keys, 0)] & there)

        return each_causal_argument(moved)

    return of_tile


def _broadcast_to_first(axis: int) -> Callable[[int], ProblemMap]:
    """A mask with one row for all queries, or one column for all keys, holds for the first of them alone."""

    def of_tile(tile: int) -> ProblemMap:
        def cut(problem: Problem, operand: MaskOperand) -> MaskOperand:
            if operand.element == "flag" or operand.values.shape[axis] > 1:
                return operand
            late = np.arange(problem.logits_shape[axis]) >= tile
            late = late[:, None] if axis == _QUERIES else late
            open_ = operand.element != "float"
            return replace(operand, values=np.where(late, open_, operand.values)) if late.any() else operand

        return each_operand(cut)

    return of_tile


_QUERIES, _KEYS = 2, 3


def _row_of_first(tile: int) -> ProblemMap:
    """A mask with rows of its own for queries begins again with its first row in every tile of queries."""

    def again(problem: Problem, operand: MaskOperand) -> MaskOperand:
        queries = problem.seq_len_q
        if operand.element == "flag" or operand.values.shape[2] == 1 or queries <= tile:
            return operand
        return changed(operand, operand.values[:, :, np.arange(queries) % tile])

    return each_operand(again)


ROWS: tuple[Deviation, ...] = (
    *of_each_block("causal_query_tile", "first", _queries_at(_first_of_tile)),
    *of_each_block("causal_query_tile", "last", _queries_at(_last_of_tile)),
    *of_each_block("causal_query_tile", "restarts", _queries_at(_in_tile)),
    *of_each_block("causal_key_tile", "shown", _keys_at(_first_of_tile)),
    *of_each_block("causal_key_tile", "hidden", _keys_at(_end_of_tile)),
    Deviation(
        "mask_rows", "first_1", problem=_broadcast_to_first(_QUERIES)(1), concerns=lambda problem: problem.seq_len_q > 1
    ),
    *of_each_block("mask_rows", "first", _broadcast_to_first(_QUERIES), BLOCKS[:5]),
    *of_each_block("mask_rows", "again", _row_of_first, BLOCKS[:5]),
    Deviation(
        "mask_columns", "first_1", problem=_broadcast_to_first(_KEYS)(1), concerns=lambda problem: problem.seq_len_k > 1
    ),
)


DECISION = "causal_loop"
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)

# Where the loop stops for a tile of queries -> in words.
BOUNDS = {
    "last": "the causal limit of its last query",
    "whole": "the causal limit that its last query would have if the tile were full",
    "short": "one key before the causal limit of its last query",
    "first": "the causal limit of its first query",
    "own": "the position of its first query, exclusive",
}

# The same for one query.
ALONE = {"last": "its causal limit", "short": "one key before its causal limit", "own": "its own position, exclusive"}

# As many tiles of keys as there are of queries so far, theirs included: right where both are of one length.
COUNT = "count"

# In which tiles of the loop the flag is applied -> in words.
MASKS = {
    "masked": "",
    "last_masked": ", and the causal mask is applied in the last of these tiles only",
    "unmasked": ", and the causal mask is applied in none of these tiles",
}


@dataclass(frozen=True)
class KeyLoop:
    """
    A loop over tiles of keys for each tile of queries.

    queries, keys: the lengths of the tiles. bound: how far it goes, one of BOUNDS or COUNT, and not behind the tile
    with the last key; anchored: counted under the offset of the flag, else from the first key. up: whole tiles are
    rounded up, else down. masks: one of MASKS.
    """

    queries: int
    keys: int
    bound: str
    anchored: bool = True
    up: bool = True
    masks: str = "masked"

    @property
    def kind(self) -> str:
        """Loops over the same tiles are of one kind."""
        return f"{self.queries}x{self.keys}"

    @property
    def name(self) -> str:
        """As it is written after `causal_loop=`."""
        anchor = "" if self.anchored else "_from_first_key"
        return f"{self.kind}_{self.bound}{anchor}_{'up' if self.up else 'down'}_{self.masks}"

    @property
    def sentence(self) -> str:
        """What it does, after "it"."""
        tiles = f"tiles of {self.keys} keys" if self.keys > 1 else "keys"
        who = f"each tile of {self.queries} queries" if self.queries > 1 else "each query"
        anchor = "" if self.anchored else ", counted from the first key whatever the alignment is"
        return f"loops over {tiles}: {who} {self._reach}{anchor}{MASKS[self.masks]}"

    @property
    def _reach(self) -> str:
        if self.bound == COUNT:
            queries = f"tiles of {self.queries} queries" if self.queries > 1 else "queries"
            return f"visits only as many of them as there are {queries} so far"
        rounded = "" if self.keys == 1 else f", rounded {'up' if self.up else 'down'} to full tiles"
        return f"stops at {(BOUNDS if self.queries > 1 else ALONE)[self.bound]}{rounded}"

    def seen(self, problem: Problem, operand: MaskOperand) -> Array:
        """What is attended under it, of what a flag shows (1, 1, seq_len_q, seq_len_k)."""
        first = (np.arange(problem.seq_len_q) // self.queries * self.queries)[:, None]
        whole = first + self.queries
        last, count = np.minimum(whole, problem.seq_len_q), whole // self.queries * self.keys
        end = {"short": last - 1, "own": first, "first": first + 1, "last": last, "whole": whole, COUNT: count}[
            self.bound
        ]
        end = end + ((operand.offset or 0) if self.anchored else 0)
        tiles = -(-end // self.keys) if self.up else end // self.keys
        reach = np.minimum(tiles, -(-problem.seq_len_k // self.keys)) * self.keys
        places = np.arange(problem.seq_len_k)[None]
        shown = np.asarray(operand.values) != 0
        if self.masks == "last_masked":
            shown = shown | (places < reach - self.keys)
        elif self.masks == "unmasked":
            shown = np.ones_like(shown)
        return np.asarray(shown & (places < reach))


def key_loops() -> Iterator[KeyLoop]:
    """Every such loop, the plainest first."""
    for queries, keys in sorted(product(LENGTHS, LENGTHS), key=lambda pair: (pair[0] != pair[1], max(pair), pair)):
        for masks, anchored in product(MASKS, (True, False)):
            for bound, up in product(BOUNDS if queries > 1 else ALONE, (True, False) if keys > 1 else (True,)):
                yield KeyLoop(queries, keys, bound, anchored, up, masks)
            if queries != keys:
                yield KeyLoop(queries, keys, COUNT, anchored, masks=masks)


def is_causal_argument(operand: MaskOperand) -> bool:
    """Whether it is a causal flag, of which a loop can take the end."""
    return operand.offset is not None and operand.element == "flag"


def key_loop(loop: KeyLoop) -> Deviation:
    """The loop as a deviation of every causal flag."""

    def cut(problem: Problem, operand: MaskOperand) -> MaskOperand:
        return changed(operand, loop.seen(problem, operand)) if is_causal_argument(operand) else operand

    said = Words("kernel", loop.sentence, "pass the mask")
    return Deviation(DECISION, loop.name, problem=each_operand(cut), said=said)


_LOOPS = {loop.name: loop for loop in key_loops()}


def find_key_loop(name: str) -> Deviation:
    """
    The loop of that name.

    Raises:
        KeyError: none is called that.
    """
    if name not in _LOOPS:
        raise KeyError(f"no deviation {DECISION}={name}: the name of a loop looks like {KeyLoop(8, 4, 'first').name}")
    return key_loop(_LOOPS[name])
