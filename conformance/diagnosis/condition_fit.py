"""The fewest conditions, of those that known deviations use, that hold wherever a cause shows and nowhere else."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Protocol

import numpy as np

from conformance.bridge.contract import Facts
from conformance.diagnosis.conditions import DIMENSIONS, Condition, always
from conformance.diagnosis.cost import of_condition
from conformance.spec.problem import GRADIENT, GRADIENTS, Array, Problem
from conformance.spec.texts import counted

HALF = ["float16", "bfloat16"]
CONTIGUOUS = "contiguous"
# Dimensions of the same kind, which may or may not be the same.
PAIRS = (
    ("seq_len_q", "seq_len_k"),
    ("head_dim", "value_dim"),
    ("num_heads", "num_kv_heads"),
    ("query_dim", "kdim"),
    ("kdim", "vdim"),
    ("query_dim", "output_dim"),
)

# Dimensions of other kinds that code takes for one another: where they are the same it runs, and is wrong.
MISTAKEN = (
    ("batch", "num_heads"),
    ("num_heads", "seq_len_q"),
    ("num_heads", "seq_len_k"),
    ("batch", "seq_len_q"),
    ("seq_len_k", "head_dim"),
)

# Dimensions that code squeezes where they are 1.
ONES = ("batch", "seq_len_q", "seq_len_k", "num_heads", "num_kv_heads", "head_dim")

MASKS = (
    "masks",
    "kinds",
    "without_kinds",
    "slots",
    "without_slots",
    "elements",
    "verbatim",
    "mask_dims",
    "without_mask_dims",
)

LONG = ("seq_len_q", "seq_len_k", "head_dim", "value_dim", "num_heads", "batch")
# Sizes at which kernels change their ways, and of which they want multiples.
BLOCKS = (8, 16, 32, 64, 128)

# So many are taken at once, or share the heads and positions out between them, where that leaves none over.
PAIR = 2


class Asked(Protocol):
    """A call that was made, whatever it came to."""

    @property
    def facts(self) -> Facts:
        """What is known of the call but its values."""

    @property
    def problem(self) -> Problem:
        """The arrays, routed."""


def conditions(cells: Iterable[Asked]) -> Iterator[Condition]:
    """Every single condition that could tell these cells apart, the plainest first."""
    facts = [cell.facts for cell in cells]
    for dtype in dict.fromkeys(fact.dtype for fact in facts):
        yield Condition(dtype=[dtype])
    yield from (Condition(dtype=HALF), Condition(dtype=["float32", "float64"]))
    yield from (Condition(operator="sdpa"), Condition(operator="mha"))
    yield from (
        Condition(masks=True),
        Condition(masks=False),
        Condition(fully_masked_row=True),
        Condition(fully_masked_row=False),
    )
    for kind in dict.fromkeys(kind for fact in facts for mask in fact.masks for kind in mask.kinds):
        yield from (Condition(kinds=[kind]), Condition(without_kinds=[kind]))
    asked = (GRADIENTS if output.startswith(GRADIENT) else output for fact in facts for output in fact.outputs)
    for output in dict.fromkeys(asked):
        yield from (Condition(outputs=[output]), Condition(without_outputs=[output]))
    yield Condition(without_outputs=["weights", "weights_mean"])
    for alias in dict.fromkeys(fact.alias for fact in facts):
        yield Condition(alias=[alias])
    yield from _about_layouts(dict.fromkeys(fact.layout for fact in facts))
    for name in ONES:
        yield Condition(sizes={name: 1})
    for pair in PAIRS:
        yield from (Condition(sizes_equal=[pair]), Condition(sizes_differ=[pair]))
    yield from (Condition(sizes_equal=[pair]) for pair in MISTAKEN)
    yield from (Condition(scaled=True), Condition(scaled=False))
    for slot, element in dict.fromkeys((mask.slot, mask.element) for fact in facts for mask in fact.masks):
        yield from (Condition(slots=[slot]), Condition(without_slots=[slot]))
        yield Condition.model_validate({"elements": {slot: element}})
    yield from (Condition(verbatim=True), Condition(verbatim=False))
    for dimension in DIMENSIONS:
        yield from (Condition(mask_dims=[dimension]), Condition(without_mask_dims=[dimension]))
    yield from _about_blocks()


def _about_layouts(layouts: Iterable[str]) -> Iterator[Condition]:
    """One of them, then several that are not the ordinary one: code looks at strides, which have no name."""
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


# So many guards that are alike are looked at: where there are more, the cells do not tell the condition.
MAX_GUARDS = 20


@dataclass(frozen=True)
class Fit:
    """
    Guards that fit equally well, the plainest first and denials last, and what one of them costs in bits.

    No guard where none fits. shows: the cells in which they hold, of those in which they should.
    """

    guards: tuple[Condition, ...] = ()
    bits: float = 0.0
    shows: tuple[int, ...] = ()


class Guards:
    """Which conditions hold in which cells, looked up once for all of a subject's cells."""

    def __init__(self, cells: Sequence[Asked]) -> None:
        """Take the cells of one subject, in an order to which `search` refers."""
        self._cells = cells

    @cached_property
    def _table(self) -> tuple[list[Condition], Array]:
        """
        Conditions that tell some of the cells apart, and whether each holds (condition, cell).

        Of those that are about the same and that no cell tells apart, only the plainest is there. What is not there
        says less than what is: it comes last.
        """
        found: dict[tuple[object, ...], tuple[Condition, list[bool]]] = {}
        for condition in sorted(conditions(self._cells), key=_is_denial):
            row = [condition.holds(cell.facts, cell.problem) for cell in self._cells]
            if any(row) and not all(row):
                found.setdefault((_about(condition), *row), (condition, row))
        rows = [row for _, row in found.values()]
        return [condition for condition, _ in found.values()], np.array(rows, dtype=bool).reshape(
            len(rows), len(self._cells)
        )

    @cached_property
    def _denials(self) -> Array:
        """Of the conditions in the table, which are denials."""
        return np.array([_is_denial(condition) for condition in self._table[0]], dtype=bool)

    def search(self, shows: Sequence[int], not_there: Sequence[int]) -> Fit:
        """
        Every smallest guard that holds in as many as possible of `shows` and in none of `not_there`.

        Without anything to keep out it is the condition that always holds; a second condition must gain cells.
        """
        if not not_there:
            return Fit((always(),), 0.0, tuple(shows))
        named, holds = self._table
        seen, kept = holds[:, np.array(shows)], holds[:, np.array(not_there)]
        best = Fit()
        for depth, (all_ones, all_others) in enumerate((_alone(len(named)), _in_twos(self._denials)), 1):
            apart = ~(kept[all_ones] & kept[all_others]).any(axis=1)
            one, other = all_ones[apart], all_others[apart]
            reach = (seen[one] & seen[other]).sum(axis=1)
            if reach.max(initial=0) <= len(best.shows) or reach.max(initial=0) < depth:
                continue
            first = np.flatnonzero(reach == reach.max())[:MAX_GUARDS]
            inside = seen[one[first[0]]] & seen[other[first[0]]]
            same = [n for n in first if np.array_equal(seen[one[n]] & seen[other[n]], inside)]
            guards = (
                named[a] if a == b else named[a].and_also(named[b]) for a, b in zip(one[same], other[same], strict=True)
            )
            there = tuple(n for n, holds_there in zip(shows, inside, strict=True) if holds_there)
            best = Fit(tuple(guards), of_condition(depth, len(named)), there)
        return best

    def around(self, shows: Sequence[int], conforming: Sequence[int]) -> tuple[tuple[Condition, ...], int]:
        """
        Every smallest guard that holds in all of `shows` and in as few as possible of `conforming`; in how many.

        A second condition must keep some more out.
        """
        named, holds = self._table
        always_there = np.flatnonzero(holds[:, np.array(shows)].all(axis=1))
        kept = holds[always_there][:, np.array(conforming, dtype=int)]
        best: tuple[tuple[Condition, ...], int] = ((), len(conforming))
        for all_ones, all_others in (_alone(len(always_there)), _in_twos(self._denials[always_there])):
            left = (kept[all_ones] & kept[all_others]).sum(axis=1)
            if left.min(initial=best[1]) >= best[1]:
                continue
            first = np.flatnonzero(left == left.min())[:MAX_GUARDS]
            pairs = zip(always_there[all_ones[first]], always_there[all_others[first]], strict=True)
            best = tuple(named[a] if a == b else named[a].and_also(named[b]) for a, b in pairs), int(left.min())
        return best


def _alone(count: int) -> tuple[Array, Array]:
    return np.arange(count), np.arange(count)


def _in_twos(denials: Array) -> tuple[Array, Array]:
    """Every two conditions, those with fewer denials first."""
    one, other = np.triu_indices(len(denials), 1)
    order = np.argsort(denials[one].astype(int) + denials[other], kind="stable")
    return one[order], other[order]


def _is_denial(condition: Condition) -> bool:
    """Whether it is about a kind of mask, an argument or an output that is not there."""
    return bool(condition.without_kinds or condition.without_slots or condition.without_outputs)


def _about(condition: Condition) -> object:
    """What a condition is about: of those that no cell tells apart, one for each is enough."""
    ((name, value),) = condition.record().items()
    if name.startswith("sizes"):
        return name, tuple(value) if isinstance(value, dict) else str(value)
    return "masks" if name in MASKS else "outputs" if "outputs" in name else name


def condition_of(shows: Sequence[Asked], others: Sequence[Asked]) -> str:
    """
    The plainest condition, in words, that holds in every call of `shows` and in none of `others`.

    One that holds in a few of `others` says so; "" where no condition keeps half of them out.
    """
    guards, left = Guards([*shows, *others]).around(range(len(shows)), range(len(shows), len(shows) + len(others)))
    if not guards or 2 * left > len(others):
        return ""
    exceptions = f" (where {counted(left, 'call')} have a reply)" if left else ""
    return f"only {guards[0].words}{exceptions}"
