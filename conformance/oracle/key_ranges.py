"""
Variations in which keys are attended only up to, or only from, a number that is another one than that of the keys.

What the number is, and how it is rounded to whole tiles, makes several hundred of them. So they have no rows in the
table: they are found by name, and looked for only where nothing else explains what fails.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from conformance.oracle.other_packing import left_by_padding
from conformance.oracle.other_tails import TAIL
from conformance.oracle.variation import Family, Variation, problem_row
from conformance.spec.problem import Array, Group, Problem

DECISION = "key_range"
LENGTHS = (2, 4, 8, 16, 32, 64, 128)
CONSTANTS = (1, 2, 4, 8, 16, 32, 64, 128)

Number = Callable[[Problem], Array | int]
"""One number for all items, or one for each, shape (batch,)."""


def _padding(problem: Problem) -> Array:
    """Which keys the padding leaves, shape (batch, seq_len_k); all where there is none."""
    kept = left_by_padding(problem)
    left = np.ones(problem.seq_len_k, dtype=bool) if kept is None else kept.reshape(-1, problem.seq_len_k)
    return np.broadcast_to(left, (problem.batch, problem.seq_len_k))


def _lengths(problem: Problem) -> Array:
    return np.asarray(_padding(problem).sum(axis=-1))


SIZES: Mapping[str, tuple[str, Number]] = {
    "queries": ("there are queries", lambda problem: problem.seq_len_q),
    "items": ("there are items", lambda problem: problem.batch),
    "heads": ("there are heads", lambda problem: problem.num_heads),
    "head_dim": ("a head is wide", lambda problem: problem.head_dim),
    "half": ("make half of them, rounded down", lambda problem: problem.seq_len_k // 2),
    "most": ("make half of them, rounded up", lambda problem: -(-problem.seq_len_k // 2)),
}
PADDED: Mapping[str, tuple[str, Number]] = {
    "first_item": ("padding leaves the first item", lambda problem: _lengths(problem)[:1]),
    "last_item": ("padding leaves the last item", lambda problem: _lengths(problem)[-1:]),
    "next_item": ("padding leaves the next item", lambda problem: np.roll(_lengths(problem), -1)),
    "item_before": ("padding leaves the item before", lambda problem: np.roll(_lengths(problem), 1)),
    "shortest": ("padding leaves the item that has the fewest", lambda problem: _lengths(problem).min()),
    "longest": ("padding leaves the item that has the most", lambda problem: _lengths(problem).max()),
    "mean": (
        "padding leaves the items on average, rounded down",
        lambda problem: _lengths(problem).sum() // problem.batch,
    ),
}
NUMBERS = {**SIZES, **PADDED}
"""What the number of keys is taken from -> in words, after "as many as", and the number."""


@dataclass(frozen=True)
class KeyRange:
    """
    The keys that are attended as far as masks show them.

    number: one of NUMBERS, or how many there are. block, up: it is rounded to whole tiles, up or down. behind: the keys
    after so many, not the first. left: of the keys that padding leaves, which are counted alone.
    """

    number: str | int
    block: int = 1
    up: bool = True
    behind: bool = False
    left: bool = False

    @property
    def kind(self) -> str:
        """Ranges that differ in their rounding alone are of one kind."""
        return f"{'behind' if self.behind else 'first'}_{self.number}{'_left' if self.left else ''}"

    @property
    def name(self) -> str:
        """As it is written after `key_range=`."""
        return self.kind + (f"_{'up' if self.up else 'down'}_{self.block}" if self.block > 1 else "")

    @property
    def sentence(self) -> str:
        """What it does, after "it"."""
        many = f"{self.number}" if isinstance(self.number, int) else f"as many as {NUMBERS[self.number][0]}"
        rounded = f", rounded {'up' if self.up else 'down'} to whole tiles of {self.block}" if self.block > 1 else ""
        counted = " of those that padding leaves" if self.left else ""
        which = "none of the first keys" if self.behind else "only the first keys"
        return f"attends {which}{counted}: {many}{rounded}"

    def seen(self, problem: Problem) -> Array:
        """Which keys are attended as far as masks show them, shape (batch or 1, seq_len_k)."""
        number = self.number if isinstance(self.number, int) else NUMBERS[self.number][1](problem)
        tiles = np.asarray(number) + (self.block - 1 if self.up else 0)
        count = (tiles // self.block * self.block).reshape(-1, 1)
        places = np.cumsum(_padding(problem), axis=-1) - 1 if self.left else np.arange(problem.seq_len_k)[None]
        return np.asarray(places >= count if self.behind else places < count)


def key_ranges() -> Iterator[KeyRange]:
    """Every such range, the plainest first."""
    yield from (KeyRange(number) for number in CONSTANTS)
    for behind in (False, True):
        for block, up in ((1, True), *((block, up) for block in LENGTHS for up in (True, False))):
            yield from (KeyRange(number, block, up, behind) for number in NUMBERS)
            yield from (KeyRange(number, block, up, behind, left=True) for number in PADDED)


def key_range(each: KeyRange) -> Variation:
    """The range as a variation of every call in which it hides a key that is attended."""

    def cut(problem: Problem) -> Problem:
        seen = each.seen(problem)[:, None, None]
        if not (problem.attended() & ~seen).any():
            return problem
        return problem.but(groups=(*problem.groups, Group(TAIL, (TAIL,), "bool", seen)))

    return problem_row(DECISION, each.name, each.sentence, "", cut)


FAMILY = Family(
    DECISION, "a range", KeyRange("queries", 8).name, {each.name: partial(key_range, each) for each in key_ranges()}
)
