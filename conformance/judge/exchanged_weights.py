"""Weights that are those of another head, item, query or key, or of several heads together; values that are others."""

from collections.abc import Callable, Iterator

import numpy as np

from conformance.judge.pattern import FREEDOM, SLACK, Pattern
from conformance.spec.problem import AXES, Array

NAMES = {"num_heads": "head", "batch": "batch element", "seq_len_q": "query", "seq_len_k": "key"}
"""Axis of the pattern -> what lies along it, in the order in which they are asked."""

MOST = 64
"""Along a longer axis nothing is looked for."""


def exchanged(pattern: Pattern) -> Iterator[str]:
    """In words that follow "the weights are", all that is true; nothing where no exchange gives every weight."""
    for name, what in NAMES.items():
        axis = list(AXES.values()).index(name)
        if 1 < pattern.expected.shape[axis] <= MOST:
            yield from _exchanged_along(pattern, axis, what, name)
    if _is_mixture(pattern):
        yield "for each head a mixture of its own weights and those of the preceding heads"


def other_values(pattern: Pattern, output: Array, tolerance: Array) -> Iterator[str]:
    """
    Which values the weights met, all that is true, in words: those of another item, head or key.

    output, tolerance: what was returned (batch, num_heads, seq_len_q, value_dim), and how far it may be off.
    """
    value = pattern.state.value
    for axis, name in enumerate(("batch", "num_heads", "seq_len_k")):
        length = value.shape[axis]
        if not 1 < length <= MOST:
            continue
        for words, other in _orders(NAMES[name], name, length):
            met = pattern.expected @ np.take(value, [other(place) for place in range(length)], axis=axis)
            if np.all(np.abs(output - met) <= SLACK * tolerance):
                yield words


def _exchanged_along(pattern: Pattern, axis: int, what: str, name: str) -> Iterator[str]:
    length = pattern.expected.shape[axis]
    expected, actual, tolerance = (
        np.moveaxis(each, axis, 0) for each in (pattern.expected, pattern.actual, pattern.tolerance)
    )

    def has(place: int, other: int) -> bool:
        allowed = SLACK * np.maximum(tolerance[place], tolerance[other])
        return bool(np.all(np.abs(actual[place] - expected[other]) <= allowed))

    for words, other in _orders(what, name, length):
        if all(has(place, other(place)) for place in range(length)):
            yield words


def _orders(what: str, name: str, length: int) -> Iterator[tuple[str, Callable[[int], int]]]:
    """Every order that has a name."""
    letter = what[0]
    yield f"those of the first {what} for every {what}", lambda _: 0
    yield f"those of {what} {name} - 1 - {letter} for {what} {letter}", lambda place: length - 1 - place
    for step in range(1, length):
        sign, by = ("+", step) if step <= length // 2 else ("-", length - step)
        words = f"those of {what} ({letter} {sign} {by}) mod {name} for {what} {letter}"
        yield words, _moved(step, length)


def _moved(step: int, length: int) -> Callable[[int], int]:
    return lambda place: (place + step) % length


def _is_mixture(pattern: Pattern) -> bool:
    """Whether each head has its own weights and those of the heads before it, in some proportion."""
    heads = pattern.expected.shape[1]
    enough = pattern.clear[:, 1:].sum(axis=-1) >= heads + FREEDOM
    if np.any(pattern.wrong[:, 0]) or not enough.any():
        return False
    return all(_is_mixed(pattern, head) for head in range(1, heads))


def _is_mixed(pattern: Pattern, head: int) -> bool:
    """Row by row."""
    parts = np.moveaxis(pattern.expected[:, : head + 1], 1, -1)  # (batch, seq_len_q, seq_len_k, heads)
    actual = pattern.actual[:, head]
    shares = np.asarray(np.linalg.pinv(parts) @ actual[..., None])
    found = (parts @ shares)[..., 0]
    allowed: Array = SLACK * (
        np.abs(shares[..., 0]).sum(axis=-1)[..., None] * pattern.tolerance[:, : head + 1].max(axis=1)
    )
    return bool(np.all(np.abs(found - actual) <= np.maximum(allowed, pattern.tolerance[:, head])))
