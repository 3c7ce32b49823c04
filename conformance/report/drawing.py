"""Masks as small pictures of text: a row for each query, a character for each key."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from conformance.spec.problem import Array

ATTENDS, IGNORES, RAISES, LOWERS = "#.+-"
LEGEND = f"{ATTENDS} attends, {IGNORES} does not"
LEGEND_OF_NUMBERS = f"{ATTENDS} adds 0, {IGNORES} adds -inf, {RAISES} and {LOWERS} add a number"

MOST_PICTURES, MOST_QUERIES, MOST_KEYS = 4, 12, 64
"""What is more than that is cut, and said to be."""


def draw(values: Array) -> Iterator[str]:
    """
    Draw a mask, a line at a time.

    values: (batch, num_heads, seq_len_q, seq_len_k), where an axis of size one is one that the mask does not span; bool
    (True = attend) or float (added to the logits).
    """
    signs = _signs(values)
    items, heads, queries, keys = values.shape
    places = list(product(range(items), range(heads)))
    for item, head in places[:MOST_PICTURES]:
        names = [f"{word} {i}" for word, i, size in (("item", item, items), ("head", head, heads)) if size > 1]
        label = ", ".join(names)
        for number, row in enumerate(signs[item, head, :MOST_QUERIES, :MOST_KEYS]):
            yield f"{label if number == 0 else '':{len(label)}}  {''.join(row)}".rstrip()
    if rest := _rest(len(places), queries, keys):
        yield f"cut: {rest}"


def _rest(pictures: int, queries: int, keys: int) -> str:
    sizes = (
        ("items and heads", pictures, MOST_PICTURES),
        ("queries", queries, MOST_QUERIES),
        ("keys", keys, MOST_KEYS),
    )
    return ", ".join(f"{most} of {size} {name}" for name, size, most in sizes if size > most)


def _signs(values: Array) -> Array:
    if values.dtype == bool:
        return np.where(values, ATTENDS, IGNORES)
    return np.select([values == 0, values == -np.inf, values > 0], [ATTENDS, IGNORES, RAISES], LOWERS)
