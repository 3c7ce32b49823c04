"""Rules that explain weights in wrong proportions; a rule is reported only if it gives every weight."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from conformance.deviations.positions import named_positions
from conformance.deviations.tiles import BLOCKS
from conformance.diagnosis.attention_matrix import FREEDOM, WeightPattern
from conformance.spec.problem import Array

# Maximum relative distance to a number with a name for which that number is tried.
NEAR = 1e-3

# Maximum number of numbers that are fitted to one pattern.
MAX_NUMBERS = 128

# Maximum factor that is considered; larger ones are not plausible.
MAX_FACTOR = 1e3

LEFT_OUT = "indices of head_dim were left out of the product of query and key"


def wrong_proportions(pattern: WeightPattern) -> list[str]:
    """Facts about wrong proportions, as phrases that follow "the weights"; empty if no rule gives every weight."""
    if pattern.follows(np.zeros(pattern.expected.shape)):
        return []
    return next((found for rule in RULES if (found := list(rule(pattern)))), [])


def _multiplied(pattern: WeightPattern) -> Iterator[str]:
    """The logits, the logits without the bias, or the bias are multiplied by one number everywhere."""
    for what, values in _added(pattern):
        if (times := _times(pattern, values)) is not None:
            yield f"look as if {what} were multiplied by {times}" if times != "0" else f"look as if {what} were all 0"


def _multiplied_somewhere(pattern: WeightPattern) -> Iterator[str]:
    """The logits at named positions are multiplied by one number, or those of each block by a growing power."""
    (_, values), *_ = _added(pattern)
    for names, positions in _distinct_positions(pattern):
        if (times := _times(pattern, np.where(positions, values, 0.0))) is not None:
            yield from (f"look as if the logits of {name} were multiplied by {times}" for name in names)
    yield from _multiplied_by_block(pattern)


def _multiplied_by_block(pattern: WeightPattern) -> Iterator[str]:
    """The logits of each block of keys are multiplied once more than those of the preceding block."""
    (_, logits), *_ = _added(pattern)
    keys = np.arange(logits.shape[-1])
    for block in (each for each in BLOCKS if each < len(keys)):
        second = replace(pattern, tolerance=np.where(keys // block == 1, pattern.tolerance, np.inf))
        slope = second.slope(logits)
        for words, times in (
            _near(1.0 + slope, _known(pattern)) if slope is not None and abs(slope) < MAX_FACTOR else ()
        ):
            if pattern.follows((times ** (keys // block) - 1.0) * logits):
                start = f"look as if the logits in the n-th block of {block} keys (n = 0, 1, ...)"
                yield f"{start} were multiplied by the n-th power of {words}"
                break


def _counted(pattern: WeightPattern) -> Iterator[str]:
    """Named positions count several times in the softmax."""
    for names, positions in _distinct_positions(pattern):
        value = np.where(positions, 1.0, 0.0)
        slope = pattern.slope(value)
        if slope is None or not abs(slope) < math.log(MAX_FACTOR):
            continue
        near = _near(math.exp(slope), {})
        times = next((words for words, number in near if number and pattern.follows(value * math.log(number))), "")
        yield from (f"look as if {name} counted {times} times in the softmax" for name in names if times)


def _added(pattern: WeightPattern) -> Iterator[tuple[str, Array]]:
    """The parts of the logits, with finite values: all, then without the bias, then the bias."""
    logits = np.where(np.isfinite(pattern.logits), pattern.logits, 0.0)
    yield "the logits", logits
    if (bias := pattern.problem.bias()) is not None:
        bias = np.broadcast_to(np.where(np.isfinite(bias), bias, 0.0), logits.shape)
        yield "the logits before the bias", np.where(np.isfinite(pattern.logits), logits - bias, 0.0)
        yield "the bias", bias


def _times(pattern: WeightPattern, values: Array) -> str | None:
    """The factor, in words, of this part of the logits that gives every weight; None if there is none."""
    slope = pattern.slope(values)
    if slope is None or not abs(slope) < MAX_FACTOR:
        return None
    for words, times in _near(1.0 + slope, _known(pattern)):
        if pattern.follows((times - 1.0) * values, abs(times)):
            return words
    return None


def _known(pattern: WeightPattern) -> dict[float, str]:
    """Factors that implementations plausibly apply once too often."""
    scale = pattern.problem.applied_scale
    names = {scale: "the scale", 1.0 / scale if scale else 0.0: "one over the scale"}
    return names | {math.log(2.0): "ln 2", 1.0 / math.log(2.0): "log2(e)"}


def _near(number: float, names: dict[float, str]) -> Iterator[tuple[str, float]]:
    """Readings of a number: as an integer, a named number, one over an integer, then to three digits."""
    whole = float(round(number))
    if abs(number - whole) < NEAR * max(1.0, abs(number)):
        yield f"{whole:g}", whole
    for named, name in names.items():
        if abs(number - named) < NEAR * abs(named):
            yield f"{name} ({named:.3g})", named
    if 0.0 < abs(number) < 1.0 and abs(1.0 / number - round(1.0 / number)) < NEAR / abs(number):
        yield f"1/{round(1.0 / number)}", 1.0 / round(1.0 / number)
    yield f"{number:.3g}", number


def _distinct_positions(pattern: WeightPattern) -> Iterable[tuple[list[str], Array]]:
    """Named positions with all their names; each distinct set of informative positions once."""
    attended = pattern.expected > 0.0
    seen: dict[bytes, tuple[list[str], Array]] = {}
    for name, positions in named_positions():
        found = np.broadcast_to(positions(attended), attended.shape)
        names, _ = seen.setdefault(np.packbits(found & pattern.clear).tobytes(), ([], found))
        names.append(name)
    return seen.values()


def _some_features(pattern: WeightPattern) -> Iterator[str]:
    """The product of query and key uses only some of the features."""
    query, key = pattern.state.query, pattern.state.key[..., : pattern.expected.shape[-1], :]
    if pattern.problem.softcap is not None or not (np.isfinite(query).all() and np.isfinite(key).all()):
        return
    parts = [pattern.state.scale * query[..., n, None] * key[..., None, :, n] for n in range(query.shape[-1])]
    added = _added_parts(pattern, parts)
    if added is None:
        return
    counts = added > -1 / 2  # a feature is used or is ignored
    left_out = [each for each, is_used in zip(parts, counts, strict=True) if not is_used]
    if left_out and pattern.follows(-np.sum(left_out, axis=0)):
        yield _features(counts)


def _features(counts: Array) -> str:
    """Describe which features are ignored; counts: whether each of the head_dim features is used."""
    missing, total = int(np.sum(~counts)), len(counts)
    for which, ignored in (("last", ~counts[total - missing :]), ("first", ~counts[:missing])):
        if ignored.all():
            return f"look as if the {which} {missing} of {total} {LEFT_OUT}"
    return f"look as if {missing} of {total} {LEFT_OUT}"


def _within_blocks(pattern: WeightPattern) -> Iterator[str]:
    """The proportions are right within each block of keys and wrong between blocks."""
    keys = pattern.expected.shape[-1]
    for block in sorted((each for each in BLOCKS if each < keys), reverse=True):
        added = np.zeros(pattern.expected.shape)
        groups = 0
        for first in range(0, keys, block):
            keys_of_block = (..., slice(first, first + block))
            trust = pattern.trust[keys_of_block].sum(axis=-1, keepdims=True)
            mean = (pattern.trust[keys_of_block] * pattern.change[keys_of_block]).sum(axis=-1, keepdims=True)
            added[keys_of_block] = mean / np.where(trust > 0.0, trust, 1.0)
            groups += int(np.sum(trust > 0.0))
        if np.sum(pattern.clear) >= 2 * groups + FREEDOM and pattern.follows(added):
            yield f"are in the right proportion within each block of {block} keys, but not between blocks"


def _biased(pattern: WeightPattern) -> Iterator[str]:
    """A multiple of the key position, or a number that depends only on a position, was added to the logits."""
    _, heads, queries, keys = pattern.expected.shape
    head, query, key = np.arange(heads)[:, None, None], np.arange(queries)[:, None], np.arange(keys)
    distances = range(1 - queries, keys)
    of_keys, of_distances = [key == n for n in key], [key - query == n for n in distances]
    every_head = [head == n for n in head.ravel()]
    for what, parts in (
        ("{:.3g} times the key position", [key]),
        ("a multiple of the key position, another for each head,", [key * own for own in every_head]),
        ("a number that depends only on the key position", of_keys),
        (
            "a number that depends only on the head and the key position",
            [own & at for own in every_head for at in of_keys],
        ),
        ("a number that depends only on the distance of key and query", of_distances),
        (
            "a number that depends only on the head and the distance of key and query",
            [own & at for own in every_head for at in of_distances],
        ),
    ):
        if len(parts) > MAX_NUMBERS:
            continue
        factors = _added_parts(pattern, parts)
        if factors is not None and pattern.follows(_combined(factors, parts)):
            yield f"look as if {what.format(factors[0])} were added to the logits"


def _added_parts(pattern: WeightPattern, parts: Sequence[Array]) -> Array | None:
    """The factors with which these parts are added to the logits, up to a constant per row; None if undetermined."""
    freedom = np.sum(pattern.clear) - np.sum(pattern.clear.any(axis=-1))
    if freedom < len(parts) + FREEDOM:
        return None
    weight = np.sqrt(pattern.trust).ravel()
    shape = pattern.expected.shape
    columns = np.stack([weight * pattern.centred(np.broadcast_to(each, shape)).ravel() for each in parts], axis=-1)
    target = weight * pattern.centred(pattern.change).ravel()
    if not (np.isfinite(columns).all() and np.isfinite(target).all()):
        return None
    return np.asarray(np.linalg.lstsq(columns.T @ columns, columns.T @ target, rcond=None)[0])


def _combined(factors: Array, parts: Sequence[Array]) -> Array:
    """The sum of all parts, each times its factor."""
    return np.asarray(sum(factor * part for factor, part in zip(factors, parts, strict=True)))


Rule = Callable[[WeightPattern], Iterator[str]]
# The rules in the order in which they are tried.
RULES: tuple[Rule, ...] = (
    _multiplied,
    _counted,
    _some_features,
    _multiplied_somewhere,
    _biased,
    _within_blocks,
)
