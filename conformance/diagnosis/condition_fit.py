"""Fits the smallest condition that holds wherever a cause shows and nowhere else; known deviations use the same."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import inf, lgamma, log
from typing import Protocol

import numpy as np

from conformance.bridge.contract import Facts
from conformance.diagnosis.conditions import DIMENSIONS, OF_MASKS, Condition, always
from conformance.diagnosis.explanation import LIMIT_BITS, UNEXPLAINED, of_condition
from conformance.spec.materialise import HALF
from conformance.spec.problem import GRADIENT, GRADIENTS, Array, Problem
from conformance.spec.texts import counted

CONTIGUOUS = "contiguous"
# Dimensions of the same kind, which may be equal or differ.
PAIRS = (
    ("seq_len_q", "seq_len_k"),
    ("head_dim", "value_dim"),
    ("num_heads", "num_kv_heads"),
    ("query_dim", "kdim"),
    ("kdim", "vdim"),
    ("query_dim", "output_dim"),
)

# Dimensions of which either may be the smaller one.
ORDERED = (("seq_len_q", "seq_len_k"), ("seq_len_k", "seq_len_q"))

# Dimensions of different kinds that code confuses: if they are equal, it runs and is wrong.
MISTAKEN = (
    ("batch", "num_heads"),
    ("num_heads", "seq_len_q"),
    ("num_heads", "seq_len_k"),
    ("batch", "seq_len_q"),
    ("seq_len_k", "head_dim"),
)

# Dimensions that code may squeeze if they are 1.
ONES = ("batch", "seq_len_q", "seq_len_k", "num_heads", "num_kv_heads", "head_dim")

# The fields of a condition that are about masks.
MASKS = OF_MASKS | {"mask_dims", "without_mask_dims"}

# Requirements that conditions on the scale, the sizes or the layout already cover.
IN_OTHER_CONDITIONS = frozenset({"scale", "grouped_heads", "value_dim", "kdim", "query_dim", "output_dim", "layout"})

LONG = ("seq_len_q", "seq_len_k", "head_dim", "value_dim", "num_heads", "batch")
# Dimensions whose exact sizes are conditions; those that mostly equal another one are left out.
EXACT = ("batch", "num_heads", "seq_len_q", "seq_len_k", "head_dim")
# Sizes at which kernels switch algorithms, and whose multiples they require.
BLOCKS = (8, 16, 32, 64, 128)

# Number of heads or positions that kernels process together, or of units that share them.
PAIR = 2


class MadeCall(Protocol):
    """A call that was made, whatever its result."""

    @property
    def facts(self) -> Facts:
        """The properties of the call apart from its values."""

    @property
    def problem(self) -> Problem:
        """The problem with its arrays, routed."""


def conditions(cells: Iterable[MadeCall]) -> Iterator[Condition]:
    """All single conditions that could distinguish these cells, the simplest first."""
    facts = [cell.facts for cell in cells]
    for dtype in dict.fromkeys(fact.dtype for fact in facts):
        yield Condition(dtype=[dtype])
    yield from (Condition(dtype=[*HALF]), Condition(dtype=["float32", "float64"]))
    yield from (Condition(operator="sdpa"), Condition(operator="mha"))
    yield from (
        Condition(masks=True),
        Condition(masks=False),
        Condition(fully_masked_row=True),
        Condition(fully_masked_row=False),
    )
    yield from _about_kinds(dict.fromkeys(kind for fact in facts for mask in fact.masks for kind in mask.kinds))
    outputs = (GRADIENTS if output.startswith(GRADIENT) else output for fact in facts for output in fact.outputs)
    for output in dict.fromkeys(outputs):
        yield from (Condition(outputs=[output]), Condition(without_outputs=[output]))
    yield Condition(without_outputs=["weights", "weights_mean"])
    for alias in dict.fromkeys(fact.alias for fact in facts):
        yield Condition(alias=[alias])
    yield from _about_layouts(dict.fromkeys(fact.layout for fact in facts))
    for name in ONES:
        yield Condition(sizes={name: 1})
    for pair in PAIRS:
        yield from (Condition(sizes_equal=[pair]), Condition(sizes_differ=[pair]))
    yield from (Condition(sizes_less=[pair]) for pair in ORDERED)
    yield from (Condition(scaled=True), Condition(scaled=False))
    for name in dict.fromkeys(name for fact in facts for name in fact.requirements if name not in IN_OTHER_CONDITIONS):
        yield from (Condition(requirements=[name]), Condition(without_requirements=[name]))
    for slot, element in dict.fromkeys((mask.slot, mask.element) for fact in facts for mask in fact.masks):
        yield from (Condition(slots=[slot]), Condition(without_slots=[slot]))
        yield Condition.model_validate({"elements": {slot: element}})
    yield from (Condition(verbatim=True), Condition(verbatim=False))
    for dimension in DIMENSIONS:
        yield from (Condition(mask_dims=[dimension]), Condition(without_mask_dims=[dimension]))
    yield from _about_blocks()
    yield from (Condition(sizes_equal=[pair]) for pair in MISTAKEN)


def exact_sizes(cells: Iterable[MadeCall]) -> Iterator[Condition]:
    """A condition for each size of each dimension: code may have a branch for head_dim = 64."""
    sizes = dict.fromkeys((name, cell.facts.sizes.get(name, 1)) for cell in cells for name in EXACT)
    yield from (Condition(sizes={name: value}) for name, value in sizes if value > 1)


def _about_kinds(kinds: Iterable[str]) -> Iterator[Condition]:
    for kind in kinds:
        yield from (Condition(kinds=[kind]), Condition(without_kinds=[kind]))


def _about_layouts(layouts: Iterable[str]) -> Iterator[Condition]:
    """Each single layout, then combinations of non-contiguous ones: code examines strides, not layout names."""
    yield from (Condition(layout=[layout]) for layout in layouts)
    others = [layout for layout in layouts if layout != CONTIGUOUS]
    for count in range(2, len(others) + 1):
        yield from (Condition(layout=list(some)) for some in combinations(others, count))


def _about_blocks() -> Iterator[Condition]:
    for name in ONES:
        yield Condition(sizes_above={name: 1})
    for block in BLOCKS:
        for name in LONG:
            yield from (Condition(sizes_above={name: block}), Condition(sizes_up_to={name: block}))
    for block in BLOCKS:
        for name in LONG[:4]:
            yield from (Condition(sizes_not_multiple={name: block}), Condition(sizes_multiple={name: block}))
    for name in ("num_heads", *LONG[:2]):
        yield from (Condition(sizes_not_multiple={name: PAIR}), Condition(sizes_multiple={name: PAIR}))


# Maximum number of equivalent guards that are kept; if there are more, the cells do not determine the condition.
MAX_GUARDS = 20


@dataclass(frozen=True)
class ConditionFit:
    """
    Guards that fit equally well, the simplest first and denials last.

    guards: empty if none fits. bits: the cost of one guard. shows: the cells in which the guards hold, of those in
    which they should hold.
    """

    guards: tuple[Condition, ...] = ()
    bits: float = 0.0
    shows: tuple[int, ...] = ()


class Guards:
    """A table of which conditions hold in which cells of a subject, computed once."""

    def __init__(self, cells: Sequence[MadeCall]) -> None:
        """Take the cells of one subject; the other methods refer to them by index."""
        self._cells = cells

    @cached_property
    def _table(self) -> tuple[list[Condition], Array]:
        """
        Conditions that distinguish some of the cells, and whether each holds: (condition, cell).

        Of conditions about the same property that no cell distinguishes, only the simplest is kept. Denials say less
        than other conditions, so they come after them. Exact sizes come last.
        """
        found: dict[tuple[object, ...], tuple[Condition, list[bool]]] = {}
        for condition in (*sorted(conditions(self._cells), key=_is_denial), *exact_sizes(self._cells)):
            row = [condition.holds(cell.facts, cell.problem) for cell in self._cells]
            if any(row) and not all(row):
                found.setdefault((_about(condition), *row), (condition, row))
        rows = [row for _, row in found.values()]
        return [condition for condition, _ in found.values()], np.array(rows, dtype=bool).reshape(
            len(rows), len(self._cells)
        )

    @cached_property
    def _denials(self) -> Array:
        """Whether each condition of the table is a denial."""
        return np.array([_is_denial(condition) for condition in self._table[0]], dtype=bool)

    @cached_property
    def _limits(self) -> Array:
        """Whether each condition of the table compares a dimension with a number, or with one of another kind."""
        return np.array([_is_limit(condition) for condition in self._table[0]], dtype=int)

    def _attempts(self, among: Array) -> Iterator[tuple[int, int, Array, Array]]:
        """
        What is tried, each only if it is better than what was tried before: among the conditions with these indices.

        Each attempt has its number of terms, the least number of cells that it must be about, and the indices of the
        first and of the second condition, which are equal for one term. Some exact size fits any single call, so it
        needs two calls.
        """
        exact = np.array([_is_exact(self._table[0][n]) for n in among], dtype=bool)
        ordinary, sizes = among[~exact], among[exact]
        yield 1, 1, ordinary, ordinary
        yield 1, 2, sizes, sizes
        one, other = _in_twos(self._denials[ordinary])
        yield 2, 2, ordinary[one], ordinary[other]

    def search(self, shows: Sequence[int], excluded: Sequence[int]) -> ConditionFit:
        """
        The guards that hold in none of `excluded` and save the most bits on the cells of `shows` in which they hold.

        If nothing is excluded, the result is the condition that always holds.
        """
        if not excluded:
            return ConditionFit((always(),), 0.0, tuple(shows))
        named, holds = self._table
        seen, kept = holds[:, np.array(shows)], holds[:, np.array(excluded)]
        best, most = ConditionFit(), -inf
        for terms, least, firsts, seconds in self._attempts(np.arange(len(named))):
            fits = ~(kept[firsts] & kept[seconds]).any(axis=1)
            one, other = firsts[fits], seconds[fits]
            reach = (seen[one] & seen[other]).sum(axis=1)
            limits = self._limits[one] + (self._limits[other] if terms > 1 else 0)
            worth = -of_condition(terms, len(named)) + np.where(
                reach >= least, UNEXPLAINED * reach - LIMIT_BITS * limits, -inf
            )
            if worth.max(initial=-inf) <= most:
                continue
            first = np.flatnonzero(worth == worth.max())[:MAX_GUARDS]
            inside = seen[one[first[0]]] & seen[other[first[0]]]
            same = [n for n in first if np.array_equal(seen[one[n]] & seen[other[n]], inside)]
            guards = self._together(one[same], other[same])
            covered = tuple(n for n, is_inside in zip(shows, inside, strict=True) if is_inside)
            most = float(worth.max())
            best = ConditionFit(guards, of_condition(terms, len(named), int(limits[first[0]])), covered)
        return best

    def around(self, shows: Sequence[int], conforming: Sequence[int]) -> tuple[tuple[Condition, ...], int]:
        """
        The smallest guards that hold in all of `shows` and in as few as possible of `conforming`, and that number.

        A second condition must pay for itself: it costs bits, and saves bits of the list that says which of the calls
        in which the condition holds are in `shows`. Otherwise it holds in a few calls by chance.
        """
        named, holds = self._table
        everywhere = np.flatnonzero(holds[:, np.array(shows)].all(axis=1))
        kept = holds[:, np.array(conforming, dtype=int)]
        best: tuple[tuple[Condition, ...], int] = ((), len(conforming))
        for terms, least, firsts, seconds in self._attempts(everywhere):
            left = (kept[firsts] & kept[seconds]).sum(axis=1)
            fewest = left.min(initial=best[1])
            if fewest >= best[1] or (terms == 1 and len(shows) < least):
                continue
            saves = _bits_of_choice(len(shows), best[1]) - _bits_of_choice(len(shows), fewest)
            if terms > 1 and saves < of_condition(terms - bool(best[0]), len(named)):
                continue
            first = np.flatnonzero(left == left.min())[:MAX_GUARDS]
            best = self._together(firsts[first], seconds[first]), int(left.min())
        return best

    def _together(self, firsts: Array, seconds: Array) -> tuple[Condition, ...]:
        """Each first condition and its second one, as one; two equal indices are one condition."""
        named, _ = self._table
        pairs = zip(firsts, seconds, strict=True)
        return _narrowest([named[a] if a == b else named[a].and_also(named[b]) for a, b in pairs])


def _narrowest(guards: Sequence[Condition]) -> tuple[Condition, ...]:
    """
    The guards without those that name more dtypes or layouts than another one and otherwise equal it.

    No call shows the cause in the others: where a result in float32 is expected, returning float32 is no mistake.
    """
    return tuple(each for each in guards if not any(_names_fewer(other, each) for other in guards))


def _names_fewer(one: Condition, other: Condition) -> bool:
    """Whether a condition names fewer dtypes or layouts than another, all of them among the other's."""
    for name in ("dtype", "layout"):
        some, more = set(getattr(one, name) or ()), set(getattr(other, name) or ())
        if some and some < more:
            return one.model_copy(update={name: None}) == other.model_copy(update={name: None})
    return False


def _bits_of_choice(some: int, others: int) -> float:
    """The bits that say which calls are the given ones, of `some` given and `others` other calls."""
    return (lgamma(some + others + 1) - lgamma(some + 1) - lgamma(others + 1)) / log(2.0)


def _in_twos(denials: Array) -> tuple[Array, Array]:
    """All pairs of conditions, those with fewer denials first."""
    one, other = np.triu_indices(len(denials), 1)
    order = np.argsort(denials[one].astype(int) + denials[other], kind="stable")
    return one[order], other[order]


def _is_exact(condition: Condition) -> bool:
    """Whether the condition requires a size other than 1."""
    return any(size > 1 for size in condition.sizes.values())


def _is_limit(condition: Condition) -> bool:
    """Whether the condition compares a dimension with a number other than 1, or with one of another kind."""
    if any(pair in MISTAKEN for pair in condition.sizes_equal):
        return True
    compared = (condition.sizes_above, condition.sizes_up_to, condition.sizes_multiple, condition.sizes_not_multiple)
    return any(size > 1 for sizes in (condition.sizes, *compared) for size in sizes.values())


def _is_denial(condition: Condition) -> bool:
    """Whether the condition requires that a kind of mask, an argument, an output or a requirement is absent."""
    return bool(
        condition.without_kinds
        or condition.without_slots
        or condition.without_outputs
        or condition.without_requirements
    )


def _about(condition: Condition) -> object:
    """The property that a condition is about; of equivalent conditions about one property, one is enough."""
    ((name, value),) = condition.record().items()
    if name.startswith("sizes"):
        return name, tuple(value) if isinstance(value, dict) else str(value)
    if name.endswith("requirements"):
        return "requirements", *value
    return "masks" if name in MASKS else "outputs" if "outputs" in name else name


def condition_of(shows: Sequence[MadeCall], others: Sequence[MadeCall]) -> str:
    """
    The simplest condition, in words, that holds in every call of `shows` and in none of `others`.

    If it holds in some of `others`, the text says in how many. It is "" if no condition excludes at least half of them.
    """
    guards, left = Guards([*shows, *others]).around(range(len(shows)), range(len(shows), len(shows) + len(others)))
    if not guards or 2 * left > len(others):
        return ""
    exceptions = f" (where {counted(left, 'call')} {'has' if left == 1 else 'have'} a reply)" if left else ""
    return f"only {guards[0].words}{exceptions}"
