"""
Where the failures lie that nothing explains: in which calls, in which outputs, in which rows.

A decision that has no name in the table still shows somewhere and not elsewhere; that is said in its place.
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

# What holds for a larger part of the calls that conform, or of the rows that are right, tells nothing.
INFORMATIVE = 0.5

# Of rows: batch, num_heads, seq_len_q.
AXES = 3

# Outputs that have a row for each query.
WITH_ROWS = ("output", "weights", "weights_mean", *SCORES)

# Of fewer numbers a factor may be chance.
MIN_NUMBERS = 8
# A factor that is so near to a whole number, or to one over it, is meant to be that.
NEAR = 1e-3

# Of the elements that are wrong: what is expected, what was returned, the tolerance.
PartOfReply = tuple[Array, Array, Array]

# Which columns are meant (value_dim), by value_dim and head_dim.
Columns = Callable[[int, int], Array]


@dataclass(frozen=True)
class Localisation:
    """
    What failing calls have in common.

    conditions: each holds in all of them, the plainest first; conforming: in so many others as well that conform.
    outputs: the only ones that are wrong, where others were asked for too. rows: where all that is wrong lies, in
    words; exact: and nothing that is right. columns: the columns in which just everything is wrong, of outputs of
    heads. amount: by what one factor all that is wrong is.
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
        """All of it, "" where nothing is known."""
        calls = condition_text(self.conditions) if self.conditions else ""
        if calls and self.conforming:
            calls += f" (where {counted(self.conforming, 'call')} conform{'s' if self.conforming == 1 else ''})"
        outputs = f"only in {' and '.join(self.outputs)}" if self.outputs else ""
        rows = f"{'in exactly' if self.exact else 'within'} the rows {self.rows}" if self.rows else ""
        columns = f"in exactly the columns {self.columns}" if self.columns else ""
        amount = f"every wrong number is {self.amount}" if self.amount else ""
        return ", ".join(each for each in (calls, outputs, rows, columns, amount) if each)


def localise(cells: Sequence[Evidence], conditions: tuple[Condition, ...], conforming: int) -> Localisation:
    """What these failing cells have in common, beside the conditions that hold in all of them."""
    wrong = [wrong_elements(cell) for cell in cells]
    if not cells or any(each is None for each in wrong):  # of another shape: that says more than any place
        return Localisation(conditions, conforming)
    found = [each for each in wrong if each is not None]
    rows, exact = _rows(cells, found)
    numbers = [(cell, some) for cell, some in zip(cells, found, strict=True) if _is_finite(cell)]
    columns, amount = _columns(numbers), proportion(_sides(numbers))
    return Localisation(conditions, conforming, _outputs(found), rows, exact, columns, amount)


def _is_finite(cell: Evidence) -> bool:
    """NaN, which spread, have no place and no size."""
    return all(np.isfinite(each.float64()).all() for each in (cell.actual or {}).values())


def _sides(cells: Iterable[tuple[Evidence, dict[str, Array]]]) -> Iterator[PartOfReply]:
    """What was expected and returned of everything that is wrong."""
    for cell, some in cells:
        for name, bad in some.items():
            expected, bound = cell.declared.reply[name].values, cell.declared.bounds[name]
            actual = (cell.actual or {})[name].float64()
            yield expected[bad], actual[bad], np.broadcast_to(bound.tolerance, expected.shape)[bad]


def _columns(cells: Sequence[tuple[Evidence, dict[str, Array]]]) -> str:
    """The columns with a name in which everything that is wrong lies, and which are wrong in every cell."""
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
    """The outputs that are wrong, if another is right wherever they are."""
    cells = [({name for name, each in cell.items() if each.any()}, set(cell)) for cell in wrong]
    ever = set().union(*(names for names, _ in cells))
    return tuple(sorted(ever)) if all(asked - ever for _, asked in cells) else ()


def _rows(cells: Sequence[Evidence], wrong: Sequence[dict[str, Array]]) -> tuple[str, bool]:
    """The fewest rows, of those that have a name, in which everything lies that is wrong; and if nothing else does."""
    if any(each.any() and name not in WITH_ROWS for some in wrong for name, each in some.items()):
        return "", False
    merged = [are_merged(cell) for cell in cells]
    bad = [wrong_rows(some, merged=each) for some, each in zip(wrong, merged, strict=True)]
    attended = [np.broadcast_to(cell.problem.attended(), cell.problem.logits_shape) for cell in cells]
    best, fewest = "", int(INFORMATIVE * sum(int(np.sum(~each)) for each in bad))
    for words, rows in named_rows():
        meant = [joined(rows(there), merged=each) for there, each in zip(attended, merged, strict=True)]
        if any(np.any(one & ~other) for one, other in zip(bad, meant, strict=True)):
            continue
        others = sum(int(np.sum(other & ~one)) for one, other in zip(bad, meant, strict=True))
        if others < fewest:
            best, fewest = words, others
    return best, bool(best) and fewest == 0


def wrong_elements(cell: Evidence) -> dict[str, Array] | None:
    """Which elements of each output lie beyond the bound; None where one has another shape or dtype."""
    actual = cell.actual or {}
    found = {
        name: beyond(expected, actual[name], cell.declared.bounds[name])
        for name, expected in cell.declared.reply.items()
    }
    wrong = {name: each for name, each in found.items() if each is not None}
    return wrong if len(wrong) == len(found) else None


def are_merged(cell: Evidence) -> bool:
    """Whether some output has merged the heads, so that rows are those of any head."""
    return cell.problem.operator == "mha" or "weights_mean" in cell.declared.reply


def wrong_rows(wrong: Mapping[str, Array], *, merged: bool) -> Array:
    """Rows with an element that is wrong in any output, (batch, num_heads, seq_len_q), or without heads if merged."""
    rows = [np.any(each, axis=-1) for name, each in wrong.items() if name in WITH_ROWS]
    return np.asarray(np.logical_or.reduce([joined(each, merged=merged) for each in rows]))


def joined(rows: Array, *, merged: bool) -> Array:
    """Rows of heads as those of any head, where some output has merged the heads."""
    return np.asarray(np.any(rows, axis=1)) if merged and rows.ndim == AXES else rows


def named_columns() -> Iterator[tuple[str, Columns]]:
    """Every name with its columns, the plainest first."""
    yield "at the first position", _placed(lambda place, *_: place == 0)
    yield "at the last position", _placed(lambda place, count, _: place == count - 1)
    yield "after head_dim", _placed(lambda place, _, head_dim: place >= head_dim)
    for block in BLOCKS:
        yield f"after the first {block}", _placed(lambda place, *_, n=block: place >= n)
        yield f"of the first {block}", _placed(lambda place, *_, n=block: place < n)
        yield f"after the last full {block}", _placed(lambda place, count, _, n=block: place >= count // n * n)
        yield (
            f"of the last {block} that are also in a full {block}",
            _placed(lambda place, count, _, n=block: (place >= count - n) & (place < count // n * n)),
        )
    yield "at every second position", _placed(lambda place, *_: place % 2 == 1)
    yield "at every second position, starting with the first", _placed(lambda place, *_: place % 2 == 0)


def _placed(chosen: Callable[..., Array]) -> Columns:
    return lambda value_dim, head_dim: chosen(np.arange(value_dim), value_dim, head_dim)


def proportion(sides: Iterable[PartOfReply]) -> str:
    """In words, "" where no one factor gives every number within its tolerance: "2 times the expected number"."""
    every = [np.concatenate([np.ravel(side) for side in some]) for some in zip(*sides, strict=True)]
    if not every or every[0].size < MIN_NUMBERS or not all(np.isfinite(side).all() for side in every):
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
    """The factor, or the whole number or one over it that it is near to."""
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
