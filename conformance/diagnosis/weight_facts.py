"""Certain facts about wrong weights that no candidate explains, read from the effective attention matrix."""

import re
from collections.abc import Callable, Iterator
from itertools import islice, product

import numpy as np

from conformance.deviations.catalogue import CANONICAL
from conformance.deviations.deviation import Dialect
from conformance.deviations.positions import PositionsOf, Rows, mask_tiles, named_positions, named_rows, plain_positions
from conformance.deviations.tiles import BLOCKS
from conformance.diagnosis.attention_matrix import FREEDOM, SLACK, WeightPattern
from conformance.diagnosis.weight_proportions import wrong_proportions
from conformance.spec.problem import AXES, Array, Problem

# Axis of the pattern -> name of one entry along it, in the order in which the axes are examined.
NAMES = {"num_heads": "head", "batch": "batch element", "seq_len_q": "query", "seq_len_k": "key"}

# Maximum length of an axis that is examined for index remaps.
MAX_LENGTH = 64


def remapped(pattern: WeightPattern) -> Iterator[str]:
    """Every index remap that gives all weights, as phrases that follow "the weights are"; none if all are zero."""
    if not pattern.actual.any():
        return
    for name, what in NAMES.items():
        axis = list(AXES.values()).index(name)
        if 1 < pattern.expected.shape[axis] <= MAX_LENGTH:
            yield from _remapped_along(pattern, axis, what, name)
    if _is_mixture(pattern):
        yield "for each head a mixture of its own weights and those of the preceding heads"


def other_values(pattern: WeightPattern, output: Array, tolerance: Array) -> Iterator[str]:
    """
    Every index remap of the values that gives the output: values of another batch element, head or key.

    output, tolerance: the actual output and its tolerance, (batch, num_heads, seq_len_q, value_dim).
    """
    value = pattern.state.value
    for axis, name in enumerate(("batch", "num_heads", "seq_len_k")):
        length = value.shape[axis]
        if not 1 < length <= MAX_LENGTH:
            continue
        for words, other in _orders(NAMES[name], name, length):
            product = pattern.expected @ np.take(value, [other(index) for index in range(length)], axis=axis)
            if np.all(np.abs(output - product) <= SLACK * tolerance):
                yield words


def _remapped_along(pattern: WeightPattern, axis: int, what: str, name: str) -> Iterator[str]:
    length = pattern.expected.shape[axis]
    expected, actual, tolerance = (
        np.moveaxis(each, axis, 0) for each in (pattern.expected, pattern.actual, pattern.tolerance)
    )

    def has(index: int, other: int) -> bool:
        allowed = SLACK * np.maximum(tolerance[index], tolerance[other])
        return bool(np.all(np.abs(actual[index] - expected[other]) <= allowed))

    for words, other in _orders(what, name, length):
        if all(has(index, other(index)) for index in range(length)):
            yield words


def _orders(what: str, name: str, length: int) -> Iterator[tuple[str, Callable[[int], int]]]:
    """Every index remap that has a name, in words and as a function."""
    letter = what[0]
    yield f"those of the first {what} for every {what}", lambda _: 0
    yield f"those of {what} {name} - 1 - {letter} for {what} {letter}", lambda index: length - 1 - index
    for step in range(1, length):
        sign, by = ("+", step) if step <= length // 2 else ("-", length - step)
        words = f"those of {what} ({letter} {sign} {by}) mod {name} for {what} {letter}"
        yield words, _moved(step, length)


def _moved(step: int, length: int) -> Callable[[int], int]:
    return lambda index: (index + step) % length


def _is_mixture(pattern: WeightPattern) -> bool:
    """Whether the weights of each head are a mixture of its own and those of the preceding heads."""
    heads = pattern.expected.shape[1]
    enough = pattern.clear[:, 1:].sum(axis=-1) >= heads + FREEDOM
    is_empty = ~np.any(pattern.actual, axis=(0, 2, 3))
    if np.any(pattern.wrong[:, 0]) or not enough.any() or is_empty.any():
        return False
    return all(_is_mixed(pattern, head) for head in range(1, heads))


def _is_mixed(pattern: WeightPattern, head: int) -> bool:
    """Whether the rows of one head are such a mixture, each with its own proportions."""
    parts = np.moveaxis(pattern.expected[:, : head + 1], 1, -1)  # (batch, seq_len_q, seq_len_k, heads)
    actual = pattern.actual[:, head]
    shares = np.asarray(np.linalg.pinv(parts) @ actual[..., None])
    found = (parts @ shares)[..., 0]
    allowed: Array = SLACK * (
        np.abs(shares[..., 0]).sum(axis=-1)[..., None] * pattern.tolerance[:, : head + 1].max(axis=1)
    )
    return bool(np.all(np.abs(found - actual) <= np.maximum(allowed, pattern.tolerance[:, head])))


# Maximum number of extra keys that is reported; more are not plausible.
MAX_KEYS = 1e4


def wrong_sums(pattern: WeightPattern) -> list[str]:
    """Facts about the sums of the rows, as phrases that follow "the weights", the simplest first."""
    expected, actual = pattern.expected.sum(axis=-1), pattern.sums
    allowed = pattern.tolerance.sum(axis=-1)
    off = np.abs(actual - expected) > allowed
    if not off.any() or not np.all(np.abs(expected[off] - 1.0) <= allowed[off]):
        return []
    words = _amount(actual[off], allowed[off])
    named = [f"{words}{where}" for where in _where(pattern, off)]
    if not pattern.follows(np.zeros(pattern.expected.shape)):
        return named
    more = [f"{each}{end}" for end in _further_terms(pattern, off) for each in named]
    blocks = [f"{words}{end}" for end in _blocks_as_keys(pattern)]
    return more + blocks + [f"{each}, in the right proportions" for each in named]


def _amount(sums: Array, allowed: Array) -> str:
    middle = float(np.median(sums))
    if np.all(np.abs(sums - middle) <= allowed):
        return f"sum to {middle:.3g}"
    if np.all(sums < 1.0):
        return "sum to less than 1"
    return "sum to more than 1" if np.all(sums > 1.0) else "do not sum to 1"


def _where(pattern: WeightPattern, off: Array) -> list[str]:
    """The rows, in all names that fit; "" if they are all rows that attend something."""
    attended = pattern.expected > 0.0
    attending = attended.any(axis=-1)
    if np.array_equal(off, attending):
        return [""]
    names = [
        f" in exactly the rows {words}" for words, rows in _rows() if np.array_equal(rows(attended) & attending, off)
    ]
    return names or [f" in {np.sum(off)} of {np.sum(attending)} rows"]


def _rows() -> Iterator[tuple[str, Rows]]:
    yield from named_rows()
    for block in BLOCKS:
        yield f"in which a block of {block} keys is fully masked", _with_a_masked_block(block)


def _with_a_masked_block(block: int) -> Rows:
    return lambda attended: hidden_blocks(attended, block) > 0


def hidden_blocks(attended: Array, block: int) -> Array:
    """The number of fully masked blocks of keys in each row, (batch, num_heads, seq_len_q)."""
    starts = np.arange(0, attended.shape[-1], block)
    return np.asarray(np.sum(~np.logical_or.reduceat(attended, starts, axis=-1), axis=-1))


def _further_terms(pattern: WeightPattern, off: Array) -> Iterator[str]:
    """The number of extra terms of 1 in the sum of exponentials that gives the sums of these rows."""
    total = _total(pattern)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = (1.0 / pattern.sums - 1.0) * total
    middle = float(np.median(terms[off]))
    number = round(middle) if 0.0 < middle < MAX_KEYS else 0
    if number > 0 and _adds_up(pattern, total, off * number):
        yield f", as if {number} more key{'s' * (number > 1)} had logit 0 and value 0"


def _blocks_as_keys(pattern: WeightPattern) -> Iterator[str]:
    """The same, with one extra term for each fully masked block."""
    for block in BLOCKS:
        if _adds_up(pattern, _total(pattern), hidden_blocks(pattern.expected > 0.0, block)):
            yield f", as if each fully masked block of {block} keys were one more key of logit 0 and value 0"


def _total(pattern: WeightPattern) -> Array:
    """The sum of the exponentials of each row's logits."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(pattern.logits).sum(axis=-1))


def _adds_up(pattern: WeightPattern, total: Array, terms: Array) -> bool:
    """Whether every row that attends something sums to total / (total + terms)."""
    attending = total > 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        expected = total / (total + terms)
    near = np.abs(pattern.sums - expected) <= SLACK * pattern.tolerance.sum(axis=-1)
    return bool(np.all(near[attending]))


# A place in a fact, or a figure that depends on it -> what is said without it.
OF_ROWS = r"(?: in (?:exactly the|\d+ of \d+) rows.*?)?(?=, as if |, in the right proportions|$)"
PLACES = (
    (re.compile(r"sum to 0\.\d+"), "sum to less than 1"),
    (re.compile(rf"sum to (1|less than 1|more than 1)(?!\.){OF_ROWS}"), r"sum to \1 in some rows"),
    (re.compile(r"are (NaN|not finite) in .*"), r"are \1 in some rows"),
    (re.compile(r"wrongly (zero|nonzero) (?:for|at) .*?(?=, and are wrongly |$)"), r"wrongly \1 at some positions"),
    (re.compile(r", as if .*? value 0"), ", in the right proportions"),
)


def without_places(fact: str) -> str:
    """A fact about a call without the places, which may differ from call to call."""
    for place, instead in PLACES:
        fact = place.sub(instead, fact)
    return fact


# Maximum number of facts that are reported; very many hold for a small pattern.
MAX_FACTS = 60


def weight_facts(
    problem: Problem,
    expected: Array,
    actual: Array,
    tolerance: Array,
    dialect: Dialect = CANONICAL,
    output: tuple[Array, Array] | None = None,
) -> tuple[str, ...]:
    """
    Facts about wrong weights: phrases that follow "the weights", all of them true, the simplest first.

    expected, actual, tolerance: weights under the dialect, (batch, num_heads, seq_len_q, seq_len_k). output: if it is
    wrong, the output of the call with its own values (batch, num_heads, seq_len_q, value_dim), and its tolerance. The
    result is empty if nothing is certain.
    """
    if not np.isfinite(expected).all():
        return ()
    if not np.isfinite(actual).all():
        return _not_finite(expected, actual)
    pattern = WeightPattern(problem, dialect, expected, actual, np.where(np.isfinite(tolerance), tolerance, 1.0))
    if not pattern.wrong.any():
        remaps = () if output is None else other_values(pattern, *output)
        named = tuple(f"are right, but are multiplied by the wrong values: {each}" for each in remaps)
        return named or ("are right; the error arises in or after the product with V",)
    # weights may be far off, and a rule may give no finite numbers
    with np.errstate(over="ignore", invalid="ignore"):
        return tuple(f"are {each}" for each in remapped(pattern)) or tuple(islice(_facts(pattern), MAX_FACTS))


def _facts(pattern: WeightPattern) -> Iterator[str]:
    """Facts about lost and leaked weights; if there are none, about row sums and proportions."""
    misplaced = [each for each in (_lost(pattern), _leaked(pattern)) if each]
    kinds = misplaced or [each for each in (wrong_sums(pattern), wrong_proportions(pattern)) if each]
    if kinds:
        yield from (", and ".join(each) for each in product(*kinds))


def _lost(pattern: WeightPattern) -> list[str]:
    possible = pattern.expected > pattern.tolerance
    return [f"are wrongly zero {name}" for name in _names(pattern, pattern.lost, possible)]


def _leaked(pattern: WeightPattern) -> list[str]:
    return [f"are wrongly nonzero {name}" for name in _names(pattern, pattern.leaked, pattern.masked)]


def _names(pattern: WeightPattern, affected: Array, possible: Array) -> list[str]:
    """Names that, among the possible positions, fit exactly the affected ones; else the number of these."""
    if not affected.any():
        return []
    attended = pattern.expected > 0.0
    names = [
        f"for {words}"
        for words, positions in _all_positions()
        if np.array_equal(positions(attended) & possible, affected)
    ]
    return names[:MAX_FACTS] or [f"at {np.sum(affected)} of {np.sum(possible)} positions"]


def _all_positions() -> Iterator[tuple[str, PositionsOf]]:
    """Named positions, named positions in some rows only, and tiles."""
    yield from named_positions()
    for words, positions in plain_positions():
        for which, rows in named_rows():
            yield f"{words} in rows {which}", _of_rows(positions, rows)
    yield from mask_tiles()


def _of_rows(positions: PositionsOf, rows: Rows) -> PositionsOf:
    """The positions that lie in these rows."""
    return lambda attended: positions(attended) & rows(attended)[..., None]


def _not_finite(expected: Array, actual: Array) -> tuple[str, ...]:
    """Facts about weights that are NaN or infinite and must be finite."""
    rows = ~np.isfinite(actual).all(axis=-1)
    attended = expected > 0.0
    what = "NaN" if np.isnan(actual[~np.isfinite(actual)]).all() else "not finite"
    if rows.all():
        return (f"are {what} in every row",)
    names = [words for words, named in named_rows() if np.array_equal(named(attended), rows)]
    return tuple(f"are {what} in exactly the rows {words}" for words in names) or (
        f"are {what} in {np.sum(rows)} of {rows.size} rows",
    )
