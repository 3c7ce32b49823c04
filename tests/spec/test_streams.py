"""Streams give the same bytes everywhere, differ between tensors, and have the magnitude stated in docs/cases.md."""

import subprocess
import sys
from hashlib import sha256
from math import prod, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.spec import streams

Array = np.ndarray[Any, Any]

SEEDS = st.integers(0, 2**63 - 1)
SHAPES = st.lists(st.integers(1, 5), min_size=2, max_size=4).map(tuple)
NAMES = st.sampled_from(["query", "key", "masks.0", "wq"])
DISTRIBUTIONS = st.sampled_from(streams.DISTRIBUTIONS)

GOLDEN = {
    "bell": "d94a7cb091aaaf55",
    "uniform": "719a9dfc92354d5a",
    "large": "d64d1eb92afc9cf5",
    "equal": "4a8948aed8136874",
    "wide": "b4ec34805dc3b1d5",
    "alternating": "a24d0eb04ebb0723",
    "ramp": "229a30bf2a80adad",
}


def digest(array: Array) -> str:
    return sha256(array.astype("<f8").tobytes()).hexdigest()[:16]


def plain_splitmix(key: int, count: int) -> list[int]:
    """Return numbers of SplitMix64 in Python integers, as published by its authors."""
    found = []
    for _ in range(count):
        key = (key + 0x9E3779B97F4A7C15) % 2**64
        z = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        found.append(z ^ (z >> 31))
    return found


def test_the_mixing_function_gives_the_published_numbers() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [int(word) for word in streams.splitmix(1234567, 4)] == published


@settings(deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 50))
def test_wrapping_is_that_of_64_bits(key: int, count: int) -> None:
    assert [int(word) for word in streams.splitmix(key, count)] == plain_splitmix(key, count)


@pytest.mark.parametrize("distribution", streams.DISTRIBUTIONS)
def test_bytes_never_move(distribution: str) -> None:
    drawn = streams.draw(distribution, 7, "key", (2, 3, 5, 4), axis=-2)
    assert digest(drawn) == GOLDEN[distribution]


def test_parameters_never_move() -> None:
    assert digest(streams.parameter(7, "wq", (6, 8))) == "9e92a4142b77f37c"


def test_a_stream_needs_numpy_alone() -> None:
    script = "import sys; import conformance.spec.patterns; print(sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "numpy" in loaded
    assert "pydantic" not in loaded
    assert "yaml" not in loaded


@settings(deadline=None)
@given(SEEDS, NAMES, st.integers(0, 40), st.integers(0, 40))
def test_a_longer_stream_begins_with_the_shorter(seed: int, name: str, first: int, second: int) -> None:
    short, long = sorted((first, second))
    np.testing.assert_array_equal(streams.words(seed, name, long)[:short], streams.words(seed, name, short))
    np.testing.assert_array_equal(streams.bell(seed, name, (long,))[:short], streams.bell(seed, name, (short,)))


@settings(deadline=None)
@given(DISTRIBUTIONS, SEEDS, NAMES, SHAPES)
def test_drawing_twice_gives_the_same(distribution: str, seed: int, name: str, shape: tuple[int, ...]) -> None:
    once, again = (streams.draw(distribution, seed, name, shape, axis=-2) for _ in range(2))
    assert once.shape == shape
    assert once.tobytes() == again.tobytes()
    assert np.abs(once).max() <= streams.BOUNDS[distribution]


@settings(deadline=None)
@given(SEEDS, SEEDS)
def test_tensors_and_seeds_have_streams_of_their_own(seed: int, other: int) -> None:
    words = [set(streams.words(seed, name, 64).tolist()) for name in ("query", "key", "value", "query/own")]
    if other != seed:
        words.append(set(streams.words(other, "query", 64).tolist()))
    assert len(set.union(*words)) == 64 * len(words)


def test_tensors_are_not_correlated() -> None:
    drawn = np.stack([streams.bell(0, name, (20_000,)) for name in ("query", "key", "value", "masks.0")])
    correlation = np.corrcoef(drawn) - np.eye(4)
    assert np.abs(correlation).max() < 5 / sqrt(20_000)


def test_bell_and_uniform_have_the_documented_deviation() -> None:
    assert streams.bell(0, "key", (100_000,)).std() == pytest.approx(sqrt(4 / 3), rel=0.01)
    assert streams.uniform(0, "key", (100_000,)).std() == pytest.approx(sqrt(1 / 3), rel=0.01)
    assert abs(streams.bell(0, "key", (100_000,)).mean()) < 0.02


def test_wide_spans_its_exponents() -> None:
    drawn = streams.wide(0, "key", (10_000,)) / streams.bell(0, "key", (10_000,))
    assert set(np.log2(drawn)) == set(range(streams.WIDE[0], streams.WIDE[1] + 1))


def test_large_is_sixteen_bells() -> None:
    np.testing.assert_array_equal(streams.large(3, "key", (9,)), 16 * streams.bell(3, "key", (9,)))


def test_equal_has_one_key() -> None:
    drawn = streams.draw("equal", 0, "key", (2, 3, 5, 4), axis=-2)
    assert (drawn == drawn[:, :, :1]).all()
    assert len(np.unique(drawn[:, :, 0])) == 2 * 3 * 4


def test_ramp_is_sorted_along_keys() -> None:
    assert (np.diff(streams.draw("ramp", 0, "key", (2, 9, 4), axis=-2), axis=-2) > 0).all()
    assert (np.diff(streams.draw("ramp", 0, "masks.0", (3, 9)), axis=-1) > 0).all()


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_alternating_values_cancel_under_keys_alike_in_pairs(length: int) -> None:
    shape = (2, length, 3)
    keys = streams.paired(0, "key", shape, axis=-2)
    values = streams.draw("alternating", 0, "value", shape, axis=-2)
    pairs = length // 2 * 2
    np.testing.assert_array_equal(keys[:, 0:pairs:2], keys[:, 1:pairs:2])
    assert np.abs(values[:, 0:pairs:2] + values[:, 1:pairs:2]).max(initial=0) <= 8 / 64
    assert np.abs(values[:, pairs:]).max(initial=0) <= 4 / 64


@settings(deadline=None)
@given(st.integers(1, 2**20))
def test_the_power_of_two_nearest_to_a_root(number: int) -> None:
    exponent = streams.nearest_root(number)
    assert sqrt(1 / 2) <= sqrt(number) / 2**exponent <= sqrt(2)


def test_projections_keep_the_size_of_inputs() -> None:
    for fan_in in (3, 8, 16, 64, 100):
        weight = streams.parameter(0, "wq", (fan_in, 200))
        projected = streams.bell(0, "query", (200, fan_in)) @ weight
        assert 0.8 < projected.std() < 2.2
    assert np.abs(streams.parameter(0, "bq", (500,))).max() < 1


@settings(deadline=None)
@given(st.integers(1, 2**40), SHAPES, SEEDS)
def test_integers_stay_below_their_limit(limit: int, shape: tuple[int, ...], seed: int) -> None:
    drawn = streams.below(seed, "n", shape, limit)
    assert drawn.shape == shape
    assert prod(shape) == drawn.size
    assert drawn.min() >= 0
    assert drawn.max() < limit


def test_conversions_are_exact() -> None:
    """The 53-bit integers can be recovered exactly from the uniform numbers."""
    integers = [word >> 11 for word in plain_splitmix(int.from_bytes(key_of("5:x"), "little"), 20)]
    drawn = streams.uniform(5, "x", (20,))
    assert [int((number + 1) * 2**52) for number in drawn.tolist() if number >= 0] == [
        integer for integer in integers if integer >= 2**52
    ]


def key_of(text: str) -> bytes:
    return sha256(text.encode()).digest()[:8]
