"""
Localisation of unexplained failures: in which calls, outputs, rows and columns they occur.

A deviation without a name in the table still shows in some places and not in others; the report states these instead.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from conformance.deviations.positions import named_rows
from conformance.deviations.tiles import BLOCKS
from conformance.diagnosis.conditions import Condition, condition_text
from conformance.diagnosis.evidence import Evidence
from conformance.spec.problem import SCORES, Array
from conformance.spec.texts import counted
from conformance.verdicts.compare import beyond

# Maximum share of the conforming calls, or of the correct rows, for which an informative statement may hold.
INFORMATIVE = 0.5

# Number of axes of an array of rows: batch, num_heads, seq_len_q.
AXES = 3

# Outputs that have a row for each query.
WITH_ROWS = ("output", "weights", "weights_mean", *SCORES)

# Minimum number of wrong elements for which a common factor is reported; with fewer it may be chance.
MIN_NUMBERS = 8
# Maximum relative distance of a factor to an integer, or to one over it, for which it is rounded to that.
NEAR = 1e-3

# Expected values, actual values and tolerances of the wrong elements.
PartOfReply = tuple[Array, Array, Array]

# Returns a mask of columns, (value_dim,). Arguments: value_dim, head_dim.
Columns = Callable[[int, int], Array]


@dataclass(frozen=True)
class Localisation:
    """
    What failing calls have in common.

    conditions: hold in all failing calls, the simplest first. conforming: the number of conforming calls in which they
    hold as well. outputs: the only wrong outputs, if other outputs were requested too. rows: the rows that contain
    everything wrong, in words. exact: whether these rows contain nothing right. columns: the columns that contain
    exactly what is wrong, for outputs of heads. amount: the one factor that gives every wrong number.
    """

    conditions: tuple[Condition, ...] = ()
    conforming: int = 0
    outputs: tuple[str, ...] = ()
    rows: str = ""
    exact: bool = False
    columns: str = ""
    amount: str = ""

    @property
    def words(self) -> str:
        """All findings in words; "" if there are none."""
        calls = condition_text(self.conditions) if self.conditions else ""
        if calls and self.conforming:
            calls += f" (but {counted(self.conforming, 'such call')} conform{'s' if self.conforming == 1 else ''})"
        outputs = f"with errors only in {' and '.join(self.outputs)}" if self.outputs else ""
        rows = self._row_words if self.rows else ""
        columns = f"in exactly the columns {self.columns}" if self.columns else ""
        amount = f"every wrong number is {self.amount}" if self.amount else ""
        return ", ".join(each for each in (calls, outputs, rows, columns, amount) if each)

    @property
    def _row_words(self) -> str:
        return f"in exactly the rows {self.rows}" if self.exact else f"only in some of the rows {self.rows}"


def localise(cells: Sequence[Evidence], conditions: tuple[Condition, ...], conforming: int) -> Localisation:
    """Localise failing cells, given the conditions that hold in all of them."""
    wrong = [wrong_elements(cell) for cell in cells]
    if not cells or any(each is None for each in wrong):  # a wrong shape says more than any position
        return Localisation(conditions, conforming)
    found = [each for each in wrong if each is not None]
    if not any(each.any() for some in found for each in some.values()):  # only the root mean square is too large
        return Localisation(conditions, conforming)
    rows, exact = _rows(cells, found)
    numbers = [(cell, bad) for cell, bad in zip(cells, found, strict=True) if _is_finite(cell)]
    columns, amount = _columns(numbers), proportion(_wrong_parts(numbers))
    return Localisation(conditions, conforming, _outputs(found), rows, exact, columns, amount)


def _is_finite(cell: Evidence) -> bool:
    """Whether all outputs are finite; NaN spread, so their positions and sizes say nothing."""
    return all(np.isfinite(each.float64()).all() for each in (cell.actual or {}).values())


def _wrong_parts(cells: Iterable[tuple[Evidence, dict[str, Array]]]) -> Iterator[PartOfReply]:
    """The expected values, actual values and tolerances of all wrong elements."""
    for cell, some in cells:
        for name, bad in some.items():
            expected, bound = cell.declared.reply[name].values, cell.declared.bounds[name]
            actual = (cell.actual or {})[name].float64()
            yield expected[bad], actual[bad], np.broadcast_to(bound.tolerance, expected.shape)[bad]


def _columns(cells: Sequence[tuple[Evidence, dict[str, Array]]]) -> str:
    """The named columns that are exactly the wrong columns in every cell; "" if there are none."""
    if any(cell.problem.operator == "mha" or set(some) != {"output"} for cell, some in cells):
        return ""
    bad = [np.any(some["output"], axis=(0, 1, 2)) for _, some in cells]
    if all(each.all() for each in bad):
        return ""
    for words, columns in named_columns():
        meant = (columns(cell.problem.value_dim, cell.problem.head_dim) for cell, _ in cells)
        if all(np.array_equal(one, other) for one, other in zip(bad, meant, strict=True)):
            return words
    return ""


def _outputs(wrong: Iterable[dict[str, Array]]) -> tuple[str, ...]:
    """The wrong outputs, if every cell also has an output that is never wrong."""
    cells = [({name for name, each in cell.items() if each.any()}, set(cell)) for cell in wrong]
    ever = set().union(*(names for names, _ in cells))
    return tuple(sorted(ever)) if all(requested - ever for _, requested in cells) else ()


def _rows(cells: Sequence[Evidence], wrong: Sequence[dict[str, Array]]) -> tuple[str, bool]:
    """The smallest named set of rows that contains everything wrong, and whether it contains nothing right."""
    if any(each.any() and name not in WITH_ROWS for some in wrong for name, each in some.items()):
        return "", False
    merged = [are_merged(cell) for cell in cells]
    bad = [wrong_rows(some, merged=each) for some, each in zip(wrong, merged, strict=True)]
    attended = [np.broadcast_to(cell.problem.attended(), cell.problem.logits_shape) for cell in cells]
    best, fewest = "", int(INFORMATIVE * sum(int(np.sum(~each)) for each in bad))
    for words, rows in named_rows():
        named = [joined(rows(mask), merged=each) for mask, each in zip(attended, merged, strict=True)]
        if any(np.any(one & ~other) for one, other in zip(bad, named, strict=True)):
            continue
        others = sum(int(np.sum(other & ~one)) for one, other in zip(bad, named, strict=True))
        if others < fewest:
            best, fewest = words, others
    return best, bool(best) and fewest == 0


def wrong_elements(cell: Evidence) -> dict[str, Array] | None:
    """The elements of each output that are beyond the bound; None if an output has a wrong shape or dtype."""
    actual = cell.actual or {}
    found = {
        name: beyond(expected, actual[name], cell.declared.bounds[name])
        for name, expected in cell.declared.reply.items()
    }
    wrong = {name: each for name, each in found.items() if each is not None}
    return wrong if len(wrong) == len(found) else None


def are_merged(cell: Evidence) -> bool:
    """Whether some output merges the heads, so that rows are not distinguished by head."""
    return cell.problem.operator == "mha" or "weights_mean" in cell.declared.reply


def wrong_rows(wrong: Mapping[str, Array], *, merged: bool) -> Array:
    """Rows with a wrong element in any output, (batch, num_heads, seq_len_q), or (batch, seq_len_q) if merged."""
    rows = [np.any(each, axis=-1) for name, each in wrong.items() if name in WITH_ROWS]
    return np.asarray(np.logical_or.reduce([joined(each, merged=merged) for each in rows]))


def joined(rows: Array, *, merged: bool) -> Array:
    """The rows, combined over the heads if some output merges the heads."""
    return np.asarray(np.any(rows, axis=1)) if merged and rows.ndim == AXES else rows


def named_columns() -> Iterator[tuple[str, Columns]]:
    """All named sets of columns, the simplest first."""
    yield "at the first position", _placed(lambda index, *_: index == 0)
    yield "at the last position", _placed(lambda index, count, _: index == count - 1)
    yield "from index head_dim on", _placed(lambda index, _, head_dim: index >= head_dim)
    for block in BLOCKS:
        yield f"after the first {block}", _placed(lambda index, *_, n=block: index >= n)
        yield f"of the first {block}", _placed(lambda index, *_, n=block: index < n)
        yield f"after the last full block of {block}", _placed(lambda index, count, _, n=block: index >= count // n * n)
        yield (
            f"of the last {block} that lie in a full block of {block}",
            _placed(lambda index, count, _, n=block: (index >= count - n) & (index < count // n * n)),
        )
    yield "at every second position", _placed(lambda index, *_: index % 2 == 1)
    yield "at every second position, starting with the first", _placed(lambda index, *_: index % 2 == 0)


def _placed(chosen: Callable[..., Array]) -> Columns:
    return lambda value_dim, head_dim: chosen(np.arange(value_dim), value_dim, head_dim)


def proportion(parts: Iterable[PartOfReply]) -> str:
    """The one factor that gives every wrong number, such as "2 times the expected number"; "" if there is none."""
    every = [np.concatenate([np.ravel(array) for array in arrays]) for arrays in zip(*parts, strict=True)]
    if not every or every[0].size < MIN_NUMBERS or not all(np.isfinite(array).all() for array in every):
        return ""
    expected, actual, tolerance = every
    largest = int(np.argmax(np.abs(expected)))
    if expected[largest] == 0.0:
        return ""
    factor = _plain(float(actual[largest] / expected[largest]))
    if (np.abs(actual - factor * expected) > max(1.0, abs(factor)) * tolerance).any():
        return ""
    return _words(factor)


def _plain(factor: float) -> float:
    """The factor, rounded to an integer or to one over an integer if it is near to it."""
    if abs(factor) < NEAR:
        return 0.0
    whole = round(factor) if abs(factor) >= 1.0 else 1.0 / round(1.0 / factor)
    return float(whole) if abs(factor - whole) <= NEAR * abs(whole) else factor


def _words(factor: float) -> str:
    if factor == 0.0:
        return "zero"
    if factor == -1.0:
        return "the expected number with the opposite sign"
    return f"{factor:.4g} times the expected number"
