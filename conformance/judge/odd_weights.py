"""
What is odd about weights that nothing explains, read off the effective pattern: only what is certain.

A rule is told if it gives every weight of the pattern within the tolerance; places, if they are exactly those that are
wrong. Without such a rule or name it is told how many are wrong, or nothing.
"""

from collections.abc import Iterator
from itertools import islice, product

import numpy as np

from conformance.deviations.deviation import Dialect
from conformance.deviations.positions import Places, Rows, mask_tiles, named_places, named_rows, plain_places
from conformance.judge.exchanged_weights import exchanged, other_values
from conformance.judge.odd_proportions import odd_proportions
from conformance.judge.odd_sums import odd_sums
from conformance.judge.pattern import Pattern
from conformance.oracle.evaluate import CANONICAL
from conformance.spec.problem import Array, Problem

MOST = 60
"""Of small patterns very much is true: so many phrases are told."""


def odd_weights(
    problem: Problem,
    expected: Array,
    actual: Array,
    tolerance: Array,
    dialect: Dialect = CANONICAL,
    output: tuple[Array, Array] | None = None,
) -> tuple[str, ...]:
    """
    What is odd about them: phrases that follow "the weights", each of them true, the plainest first.

    expected, actual, tolerance: weights under the dialect, (batch, num_heads, seq_len_q, seq_len_k). output: what the
    call returned with values of its own (batch, num_heads, seq_len_q, value_dim), and its tolerance, if it is wrong.
    Empty where nothing is certain.
    """
    if not np.isfinite(expected).all():
        return ()
    if not np.isfinite(actual).all():
        return _not_finite(expected, actual)
    pattern = Pattern(problem, dialect, expected, actual, np.where(np.isfinite(tolerance), tolerance, 1.0))
    if not pattern.wrong.any():
        met = () if output is None else other_values(pattern, *output)
        named = tuple(f"are right, but meet other values: {each}" for each in met)
        return named or ("are right; the error arises in or after the product with V",)
    with np.errstate(
        over="ignore", invalid="ignore"
    ):  # weights that are far off; a rule that gives no numbers gives none of them
        return tuple(f"are {each}" for each in exchanged(pattern)) or tuple(islice(_told(pattern), MOST))


def _told(pattern: Pattern) -> Iterator[str]:
    """Weights that are lost or leaked; else rows that do not add up, and wrong proportions."""
    moved = [each for each in (_lost(pattern), _leaked(pattern)) if each]
    kinds = moved or [each for each in (odd_sums(pattern), odd_proportions(pattern)) if each]
    if kinds:
        yield from (", and ".join(each) for each in product(*kinds))


def _lost(pattern: Pattern) -> list[str]:
    could = pattern.expected > pattern.tolerance
    return [f"are zero where attended, {name}" for name in _names(pattern, pattern.lost, could)]


def _leaked(pattern: Pattern) -> list[str]:
    return [f"are not zero where masked, {name}" for name in _names(pattern, pattern.leaked, pattern.masked)]


def _names(pattern: Pattern, meant: Array, could: Array) -> list[str]:
    """Names that hold, of the places that could be meant, for exactly those that are; else how many these are."""
    if not meant.any():
        return []
    attended = pattern.expected > 0.0
    names = [f"for {words}" for words, places in _all_places() if np.array_equal(places(attended) & could, meant)]
    return names[:MOST] or [f"at {np.sum(meant)} of {np.sum(could)} positions"]


def _all_places() -> Iterator[tuple[str, Places]]:
    """Places, places of some rows alone, tiles."""
    yield from named_places()
    for words, places in plain_places():
        for which, rows in named_rows():
            yield f"{words} in rows {which}", _of_rows(places, rows)
    yield from mask_tiles()


def _of_rows(places: Places, rows: Rows) -> Places:
    """These places in those rows alone."""
    return lambda attended: places(attended) & rows(attended)[..., None]


def _not_finite(expected: Array, actual: Array) -> tuple[str, ...]:
    """NaN or infinite, where they must be numbers."""
    rows = ~np.isfinite(actual).all(axis=-1)
    attended = expected > 0.0
    what = "NaN" if np.isnan(actual[~np.isfinite(actual)]).all() else "not finite"
    if rows.all():
        return (f"are {what} in every row",)
    names = [words for words, places in named_rows() if np.array_equal(places(attended), rows)]
    return tuple(f"are {what} in exactly the rows {words}" for words in names) or (
        f"are {what} in {np.sum(rows)} of {rows.size} rows",
    )
