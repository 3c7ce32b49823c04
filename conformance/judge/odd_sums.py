"""Rows of weights that do not add up to one, and by what."""

from collections.abc import Iterator

import numpy as np

from conformance.deviations.positions import Rows, named_rows
from conformance.deviations.tiles import BLOCKS
from conformance.judge.pattern import SLACK, Pattern
from conformance.spec.problem import Array

MOST = 1e4
"""So many keys are not there by mistake."""


def odd_sums(pattern: Pattern) -> list[str]:
    """What rows add up to, all that is true in words that follow "the weights", the plainest first."""
    due, found = pattern.expected.sum(axis=-1), pattern.sums
    allowed = pattern.tolerance.sum(axis=-1)
    off = np.abs(found - due) > allowed
    if not off.any() or not np.all(np.abs(due[off] - 1.0) <= allowed[off]):
        return []
    words = f"sum to {_amount(found[off], allowed[off])}"
    named = [f"{words}{where}" for where in _where(pattern, off)]
    if not pattern.follows(np.zeros(pattern.expected.shape)):
        return named
    more = [f"{each}{end}" for end in _further_terms(pattern, off) for each in named]
    blocks = [f"{words}{end}" for end in _blocks_as_keys(pattern)]
    return more + blocks + [f"{each}, in the right proportions" for each in named]


def _amount(sums: Array, allowed: Array) -> str:
    middle = float(np.median(sums))
    if np.all(np.abs(sums - middle) <= allowed):
        return f"{middle:.3g}"
    if np.all(sums < 1.0):
        return "less than one"
    return "more than one" if np.all(sums > 1.0) else "not one"


def _where(pattern: Pattern, off: Array) -> list[str]:
    """The rows by every name, where not all are meant that attend something."""
    attended = pattern.expected > 0.0
    some = attended.any(axis=-1)
    if np.array_equal(off, some):
        return [""]
    names = [f" in exactly the rows {words}" for words, rows in _rows() if np.array_equal(rows(attended) & some, off)]
    return names or [f" in {np.sum(off)} of {np.sum(some)} rows"]


def _rows() -> Iterator[tuple[str, Rows]]:
    yield from named_rows()
    for block in BLOCKS:
        yield f"in which a block of {block} keys is fully masked", _a_block_hidden(block)


def _a_block_hidden(block: int) -> Rows:
    return lambda attended: hidden_blocks(attended, block) > 0


def hidden_blocks(attended: Array, block: int) -> Array:
    """How many blocks of keys a row attends nothing of, (batch, num_heads, seq_len_q)."""
    starts = np.arange(0, attended.shape[-1], block)
    return np.asarray(np.sum(~np.logical_or.reduceat(attended, starts, axis=-1), axis=-1))


def _further_terms(pattern: Pattern, off: Array) -> Iterator[str]:
    """As if the sum of the exponentials had so many further terms of one, in these rows."""
    total = _total(pattern)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = (1.0 / pattern.sums - 1.0) * total
    middle = float(np.median(terms[off]))
    number = round(middle) if 0.0 < middle < MOST else 0
    if number > 0 and _adds_up(pattern, total, off * number):
        yield f", as if {number} more key{'s' * (number > 1)} had logit 0 and value 0"


def _blocks_as_keys(pattern: Pattern) -> Iterator[str]:
    """The same, as many as there are blocks that are hidden."""
    for block in BLOCKS:
        if _adds_up(pattern, _total(pattern), hidden_blocks(pattern.expected > 0.0, block)):
            yield f", as if each fully masked block of {block} keys were one more key of logit 0 and value 0"


def _total(pattern: Pattern) -> Array:
    """The sum of the exponentials of each row."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(pattern.logits).sum(axis=-1))


def _adds_up(pattern: Pattern, total: Array, terms: Array) -> bool:
    """Whether every row with something to attend adds up to total / (total + terms)."""
    some = total > 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        due = total / (total + terms)
    near = np.abs(pattern.sums - due) <= SLACK * pattern.tolerance.sum(axis=-1)
    return bool(np.all(near[some]))
