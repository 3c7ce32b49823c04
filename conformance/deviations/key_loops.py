"""
Deviations of how far a loop over tiles of keys goes under a causal flag, for each tile of queries.

Tiles of every length, bounds and roundings make more than a thousand of them. So they have no rows in the table: they
are found by name, and looked for only where a causal flag fails and nothing else explains it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from conformance.deviations.deviation import Deviation, each_group
from conformance.deviations.names import Words
from conformance.deviations.tiles import changed
from conformance.spec.problem import Array, Group, Problem

DECISION = "causal_loop"
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)

BOUNDS = {
    "last": "the causal limit of its last query",
    "whole": "the causal limit that its last query would have if the tile were full",
    "short": "one key before the causal limit of its last query",
    "first": "the causal limit of its first query",
    "own": "the position of its first query, exclusive",
}
"""Where the loop stops for a tile of queries -> in words."""

ALONE = {"last": "its causal limit", "short": "one key before its causal limit", "own": "its own position, exclusive"}
"""The same for one query."""

COUNT = "count"
"""As many tiles of keys as there are of queries so far, theirs included: right where both are of one length."""

MASKS = {
    "masked": "",
    "last_masked": ", and the causal mask is applied in the last of these tiles only",
    "unmasked": ", and the causal mask is applied in none of these tiles",
}
"""In which tiles of the loop the flag is applied -> in words."""


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

    def seen(self, problem: Problem, group: Group) -> Array:
        """What is attended under it, of what a flag shows (1, 1, seq_len_q, seq_len_k)."""
        first = (np.arange(problem.seq_len_q) // self.queries * self.queries)[:, None]
        whole = first + self.queries
        last, count = np.minimum(whole, problem.seq_len_q), whole // self.queries * self.keys
        end = {"short": last - 1, "own": first, "first": first + 1, "last": last, "whole": whole, COUNT: count}[
            self.bound
        ]
        end = end + ((group.offset or 0) if self.anchored else 0)
        tiles = -(-end // self.keys) if self.up else end // self.keys
        reach = np.minimum(tiles, -(-problem.seq_len_k // self.keys)) * self.keys
        places = np.arange(problem.seq_len_k)[None]
        shown = np.asarray(group.values) != 0
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


def is_flag(group: Group) -> bool:
    """Whether it is a causal flag, of which a loop can take the end."""
    return group.offset is not None and group.element == "flag"


def key_loop(loop: KeyLoop) -> Deviation:
    """The loop as a deviation of every causal flag."""

    def cut(problem: Problem, group: Group) -> Group:
        return changed(group, loop.seen(problem, group)) if is_flag(group) else group

    said = Words("kernel", loop.sentence, "pass the mask")
    return Deviation(DECISION, loop.name, problem=each_group(cut), said=said)


_LOOPS = {loop.name: loop for loop in key_loops()}


def find_key_loop(name: str) -> Deviation:
    """
    The loop of that name.

    Raises:
        KeyError: none is called that.
    """
    if name not in _LOOPS:
        raise KeyError(f"no deviation {DECISION}={name}: a loop has a name such as {KeyLoop(8, 4, 'first').name}")
    return key_loop(_LOOPS[name])
