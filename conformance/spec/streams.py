"""
Random numbers for inputs: integers from a counter and a mixing function, converted exactly to float64.

The mixing function is SplitMix64 (Steele, Lea and Flood 2014) on wrapping 64-bit integers, keyed by a digest of the
seed and the name of the tensor. It is followed only by integer operations, exact conversions, sums and powers of two,
so the bytes are the same with every NumPy, libm and processor. Word i depends only on the key and on i: a longer stream
begins with the shorter one. This module imports only NumPy.
"""

from hashlib import sha256
from math import prod
from typing import Any, Literal, get_args

import numpy as np

Array = np.ndarray[Any, Any]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))

# Smallest and largest exponent of two in the wide distribution.
WIDE = (-8, 4)

Distribution = Literal["bell", "uniform", "large", "equal", "wide", "alternating", "ramp"]
DISTRIBUTIONS: tuple[str, ...] = get_args(Distribution)

# Maximum magnitude of the numbers of each distribution.
BOUNDS = {"bell": 4.0, "uniform": 1.0, "large": 64.0, "equal": 4.0, "wide": 64.0, "alternating": 4.0625, "ramp": 4.0}


def splitmix(key: int, count: int) -> Array:
    """Return the first `count` words of SplitMix64 with the seed `key`, uint64 (count,)."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * _GAMMA + np.uint64(key)
    for shift, factor in _MIX:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def words(seed: int, name: str, count: int) -> Array:
    """Return the first `count` words of the stream of (seed, name), uint64 (count,)."""
    key = sha256(f"{seed}:{name}".encode()).digest()[:8]
    return splitmix(int.from_bytes(key, "little"), count)


def below(seed: int, name: str, shape: tuple[int, ...], limit: int) -> Array:
    """Draw integers 0 <= n < limit, int64."""
    return np.asarray((words(seed, name, prod(shape)) % np.uint64(limit)).astype(np.int64).reshape(shape))


def uniform(seed: int, name: str, shape: tuple[int, ...]) -> Array:
    """Draw uniform numbers on [-1, 1) with 53 bits."""
    integers = (words(seed, name, prod(shape)) >> np.uint64(11)).astype(np.int64) - 2**52
    return np.asarray((integers.astype(np.float64) * 2.0**-52).reshape(shape))


def bell(seed: int, name: str, shape: tuple[int, ...]) -> Array:
    """Draw sums of four uniform numbers on [-1, 1): between -4 and 4, standard deviation sqrt(4/3)."""
    integers = (words(seed, name, 4 * prod(shape)) >> np.uint64(13)).astype(np.int64)
    centred = integers.reshape(-1, 4).sum(axis=1) - 2**52
    return np.asarray((centred.astype(np.float64) * 2.0**-50).reshape(shape))


def large(seed: int, name: str, shape: tuple[int, ...]) -> Array:
    """Draw bell numbers times 16."""
    return np.asarray(bell(seed, name, shape) * 16.0)


def wide(seed: int, name: str, shape: tuple[int, ...]) -> Array:
    """Draw bell numbers, each multiplied by its own power of two between 2**-8 and 2**4."""
    low, high = WIDE
    exponents = low + below(seed, f"{name}/exponent", shape, high - low + 1)
    return np.asarray(np.ldexp(bell(seed, name, shape), exponents.astype(np.int32)))


def constant(seed: int, name: str, shape: tuple[int, ...], axis: int) -> Array:
    """Draw bell numbers that are constant along `axis`."""
    thin = list(shape)
    thin[axis] = 1
    return np.broadcast_to(bell(seed, name, tuple(thin)), shape).copy()


def paired(seed: int, name: str, shape: tuple[int, ...], axis: int) -> Array:
    """Draw bell numbers that are equal at positions 2n and 2n + 1 of `axis`."""
    half = list(shape)
    half[axis] = (shape[axis] + 1) // 2
    twice = np.repeat(bell(seed, name, tuple(half)), 2, axis=axis)
    return np.take(twice, np.arange(shape[axis]), axis=axis)


def opposed(seed: int, name: str, shape: tuple[int, ...], axis: int) -> Array:
    """Draw pairs along `axis` that are opposite up to 1/64 of a bell; a last position without a partner is small."""
    length = shape[axis]
    signs = 1.0 - 2.0 * (np.arange(length) % 2)
    if length % 2:
        signs[-1] = 0.0
    column = signs.reshape([-1 if size == axis % len(shape) else 1 for size in range(len(shape))])
    return column * paired(seed, name, shape, axis) + bell(seed, f"{name}/own", shape) * 2.0**-6


def draw(distribution: str, seed: int, name: str, shape: tuple[int, ...], axis: int = -1) -> Array:
    """Draw a tensor of a named distribution; `axis` is the sequence axis."""
    if distribution == "equal":
        return constant(seed, name, shape, axis)
    if distribution == "alternating":
        return opposed(seed, name, shape, axis)
    if distribution == "ramp":
        return np.sort(bell(seed, name, shape), axis=axis)
    return {"bell": bell, "uniform": uniform, "large": large, "wide": wide}[distribution](seed, name, shape)


def parameter(seed: int, name: str, shape: tuple[int, ...]) -> Array:
    """
    Draw a weight (fan_in, fan_out) that preserves unit-size inputs, or a bias (width,) in [-1, 1).

    A weight is uniform with the standard deviation of a bell, times the power of two nearest to 1/sqrt(fan_in).
    """
    drawn = uniform(seed, name, shape)
    return drawn if len(shape) == 1 else drawn * 2.0 ** (1 - nearest_root(shape[0]))


def nearest_root(number: int) -> int:
    """Return the n for which 2**n is nearest to sqrt(number) as a ratio."""
    exponent = 0
    while number > 2 * 4**exponent:
        exponent += 1
    return exponent
