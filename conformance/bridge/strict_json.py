"""
Strict JSON: no NaN, no Infinity, no number that would become infinite, and no duplicate key.

Non-finite numbers are written as the strings "inf", "-inf" and "nan", since JSON has none.
"""

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

# Maximum number of characters of a value in a message.
_MAX_SHOWN = 60

# Types of values that are their own JSON value. Most values of a record are of these, so they are looked up first.
_SAME = frozenset({str, int, bool, type(None)})


def plain_data(value: Any) -> Any:
    """
    The JSON value for `value`: NumPy scalars and arrays are converted, non-finite numbers become strings.

    Raises:
        TypeError: `value` has no JSON value.
    """
    if type(value) in _SAME or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {_key(key): entry if type(entry) in _SAME else plain_data(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [entry if type(entry) in _SAME else plain_data(entry) for entry in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain_data(entry) for entry in value)
    if isinstance(value, (np.generic, np.ndarray)):
        return plain_data(value.tolist())
    raise TypeError(f"{type(value).__name__} {value!r} is not a JSON value")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{key!r} is not a valid key: keys of JSON objects are strings")
    return key


def real(value: Any) -> float:
    """
    The number that `plain_data` wrote.

    Raises:
        ValueError: `value` is not a number, or it is beyond float64.
    """
    if isinstance(value, bool) or not (isinstance(value, (int, float)) or value in ("inf", "-inf", "nan")):
        raise ValueError(f"{repr(value)[:_MAX_SHOWN]} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"a number of {len(str(value))} digits is beyond float64") from None


def strict_json(text: "str | bytes") -> Any:
    """
    Read JSON that has no NaN, no Infinity and no duplicate key.

    Raises:
        ValueError: the text is not strict JSON.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_no_key_twice)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not strict JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits} is beyond float64")
    return number


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a duplicate key")
    return found
