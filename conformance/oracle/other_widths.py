"""Variations that take a head for wider or narrower than it is: filled up, cut off, read in whole pieces."""

from collections.abc import Callable, Mapping

import numpy as np

from conformance.oracle.state import State
from conformance.oracle.variation import HeadsMap, ProblemMap, Variation, problem_row
from conformance.spec.problem import Array, Problem

WIDTHS = (8, 16, 32, 64, 128)
"""Multiples to which heads are widened for alignment."""

UNROLLED = (4, 8, 16)
"""Numbers of a head that are multiplied at once."""

LEAST = 16
"""A matrix product of hardware takes no fewer numbers."""


def _widened(width: Callable[[int], int]) -> ProblemMap:
    """The default scale is that of a wider head."""

    def apply(problem: Problem) -> Problem:
        wide = width(problem.head_dim)
        return problem if problem.scale is not None or wide == problem.head_dim else problem.but(scale=wide**-0.5)

    return apply


def _query_width_per_head(problem: Problem) -> Problem:
    """The default scale is that of heads which are as wide together as the query is before its projection."""
    if problem.operator != "mha" or problem.scale is not None:
        return problem
    wide = problem.query.shape[-1] / problem.num_heads
    return problem if wide == problem.head_dim else problem.but(scale=wide**-0.5)


def _multiple(of: int) -> Callable[[int], int]:
    return lambda dim: -(-dim // of) * of


def _power_of_two(dim: int) -> int:
    return 1 << (dim - 1).bit_length()


def _power_of_two_from_least(dim: int) -> int:
    return max(LEAST, _power_of_two(dim))


def _whole_parts_of_head(part: int) -> ProblemMap:
    """What is left of a head after its last whole part does not meet in the product, if there is a whole one."""

    def apply(problem: Problem) -> Problem:
        whole = problem.head_dim // part * part
        return problem if whole in (0, problem.head_dim) else _first_numbers(problem, whole)

    return apply


def _no_more_than_whole_parts(part: int) -> ProblemMap:
    """The same, and of a head without a whole part nothing meets."""

    def apply(problem: Problem) -> Problem:
        whole = problem.head_dim // part * part
        return problem if whole == problem.head_dim else _first_numbers(problem, whole)

    return apply


def _cut(width: int) -> ProblemMap:
    """Only the first numbers of a head meet in the product."""
    return lambda problem: problem if problem.head_dim <= width else _first_numbers(problem, width)


def _first_numbers(problem: Problem, width: int) -> Problem:
    """Only so many numbers of a head meet in the product."""
    kept = np.arange(problem.head_dim) < width
    if problem.operator == "sdpa":
        return problem.but(query=problem.query * kept)
    return problem.but(params=_kept_columns(problem.params, ("wq", "bq"), np.tile(kept, problem.num_heads)))


def _values_as_wide_as_keys(problem: Problem) -> Problem:
    """What a value has behind head_dim is not read, and the output is zero there."""
    if problem.value_dim <= problem.head_dim:
        return problem
    kept = np.arange(problem.value_dim) < problem.head_dim
    if problem.operator == "sdpa":
        return problem.but(value=np.where(kept, problem.value, 0.0))
    columns = np.tile(kept, problem.num_kv_heads)
    return problem.but(params=_kept_columns(problem.params, ("wv", "bv", "bias_v"), columns))


def _kept_columns(params: Mapping[str, Array], names: tuple[str, ...], columns: Array) -> dict[str, Array]:
    """The parameters with zeros in other columns of those that are there of `names`."""
    return {**params, **{name: params[name] * columns for name in names if name in params}}


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


ROWS: tuple[Variation, ...] = (
    *(
        problem_row(
            "scale",
            f"head_dim_padded_{width}",
            f"scales by the width of a head that is filled up to a multiple of {width}",
            "give the scale",
            _widened(_multiple(width)),
        )
        for width in WIDTHS
    ),
    problem_row(
        "scale",
        "head_dim_power_of_two",
        "scales by the width of a head that is filled up to a power of two",
        "give the scale",
        _widened(_power_of_two),
    ),
    problem_row(
        "scale",
        f"head_dim_power_of_two_from_{LEAST}",
        f"scales by the width of a head that is filled up to a power of two of at least {LEAST}",
        "give the scale",
        _widened(_power_of_two_from_least),
    ),
    problem_row(
        "scale",
        "query_width_per_head",
        "scales by the width of the query divided by num_heads, whatever head_dim is",
        "give the scale",
        _query_width_per_head,
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
        problem_row(
            "head_dim",
            f"whole_parts_{part}",
            f"multiplies query and key in whole blocks of {part} numbers alone: below {part}, all logits are zero",
            f"fill heads up with zeros to a multiple of {part}, and give the scale",
            _no_more_than_whole_parts(part),
        )
        for part in UNROLLED
    ),
    problem_row(
        "head_dim",
        "cut_64",
        "reads no more than 64 numbers of a head in the product of query and key",
        "keep heads at 64 or less",
        _cut(64),
    ),
    problem_row(
        "value_dim",
        "of_keys",
        "reads no more than head_dim numbers of a value, and leaves the output behind them at zero",
        "fill query and key up with zeros to value_dim, and give the scale",
        _values_as_wide_as_keys,
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
)
