"""Variations that read keys or values where they do not lie: with the stride of another array, with axes exchanged."""

from collections.abc import Callable

import numpy as np

from conformance.oracle.other_tiles import BLOCKS
from conformance.oracle.state import State
from conformance.oracle.variation import HeadsMap, ProblemMap, Variation
from conformance.spec.problem import Array, Problem


def _at_stride_of_queries(*names: str) -> HeadsMap:
    """An item begins seq_len_q positions after the one before, where it should be seq_len_k, in these arrays."""

    def apply(state: State) -> State:
        if not _other_stride(state.problem):
            return state
        length = state.problem.seq_len_q
        by_position = state.problem.operator == "mha"
        return state.but(**{name: _reread(getattr(state, name), length, by_position=by_position) for name in names})

    return apply


def _other_stride(problem: Problem) -> bool:
    return problem.batch > 1 and problem.seq_len_q != problem.seq_len_k


def _reread(heads: Array, length: int, *, by_position: bool) -> Array:
    """
    (batch, heads, seq_len, dim) with every item read from the place where it would begin if it had `length` positions.

    by_position: the heads of a position lie side by side, as projections do. What would lie behind the last number is
    that number.
    """
    rows = heads.swapaxes(1, 2) if by_position else heads
    inside = rows[0].size
    begins = np.arange(rows.shape[0]) * (inside // heads.shape[2] * length)
    places = begins[:, None] + np.arange(inside)
    read = np.take(np.ascontiguousarray(rows).reshape(-1), places, mode="clip").reshape(rows.shape)
    return np.asarray(read.swapaxes(1, 2) if by_position else read)


def _square(problem: Problem) -> bool:
    return problem.seq_len_k == problem.head_dim


def _square_key_kept(state: State) -> State:
    """A key (seq_len_k, head_dim) that is square passes for (head_dim, seq_len_k), which it should be made."""
    return state.but(key=state.key.swapaxes(-1, -2)) if _square(state.problem) else state


def _stride_row(name: str, what: str, *names: str) -> Variation:
    return Variation(
        "arguments",
        f"{name}_at_stride_of_query",
        f"takes the items of {what} to lie seq_len_q positions apart in memory, where seq_len_k do",
        "call once per item",
        "heads",
        heads=_at_stride_of_queries(*names),
        bounded=False,
        concerns=_other_stride,
    )


def _values_of_block_before(block: int) -> HeadsMap:
    """(batch, heads, seq_len_k, value_dim) of which every block but the first is that before it."""

    def apply(state: State) -> State:
        places = np.arange(state.value.shape[-2])
        late = np.where(places >= block, places - block, places)
        return state.but(value=state.value[..., late, :])

    return apply


EXCHANGED = {"transposed": (-2, -3), "column_major": (-1, -2)}
"""Layout -> the axes that are exchanged in memory; in the others numbers lie in the order of the axes."""


def _in_memory_order(*names: str) -> ProblemMap:
    """These arrays are taken to lie densely: the numbers of one axis are read along the other."""

    def read(problem: Problem) -> Problem:
        if not _axes_exchanged(problem):
            return problem
        axes = EXCHANGED[problem.layout]
        arrays = {name: getattr(problem, name) for name in names}
        return problem.but(**{name: array.swapaxes(*axes).reshape(array.shape) for name, array in arrays.items()})

    return read


def _axes_exchanged(problem: Problem) -> bool:
    return problem.layout in EXCHANGED


def _longer_than(block: int) -> Callable[[Problem], bool]:
    return lambda problem: problem.seq_len_k > block


ROWS: tuple[Variation, ...] = (
    _stride_row("value", "the value", "value"),
    _stride_row("key", "the key", "key"),
    _stride_row("key_and_value", "key and value", "key", "value"),
    Variation(
        "arguments",
        "key_transposed_when_square",
        "takes a key of as many positions as head_dim for one that is transposed already",
        "append a key, masked",
        "heads",
        heads=_square_key_kept,
        bounded=False,
        concerns=_square,
    ),
    *(
        Variation(
            "arguments",
            f"{name}in_memory_order",
            f"reads {what} in the order in which their numbers lie in memory, whatever their strides are",
            "hand over contiguous arrays",
            "problem",
            problem=_in_memory_order(*names),
            concerns=_axes_exchanged,
        )
        for name, what, names in (
            ("", "query, key and value", ("query", "key", "value")),
            ("queries_", "queries", ("query",)),
            ("keys_", "keys", ("key",)),
            ("values_", "values", ("value",)),
            ("keys_and_values_", "keys and values", ("key", "value")),
        )
    ),
    *(
        Variation(
            "value_path",
            f"block_before_{block}",
            f"weighs, after the first {block} keys, the values of the block of {block} before",
            "",
            "heads",
            heads=_values_of_block_before(block),
            concerns=_longer_than(block),
        )
        for block in BLOCKS
    ),
)
