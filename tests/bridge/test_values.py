"""Strict JSON: how values are written, and how they are read."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.bridge.strict_json import plain_data, real, strict_json


@given(number=st.floats())
def test_every_number_comes_back(number: float) -> None:
    again = real(strict_json(json.dumps(plain_data(number), allow_nan=False)))
    assert again == number or (math.isnan(again) and math.isnan(number))


@pytest.mark.parametrize("word", ["infinity", "NaN", "1.0", True, None, [1]])
def test_other_words_are_no_numbers(word: Any) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        real(word)


def test_numpy_is_unwrapped() -> None:
    odd = {"a": np.float16(0.5), "b": np.arange(2), "c": (np.bool_(1), np.nan), "d": {2, 1}, "e": np.str_("x")}
    assert plain_data(odd) == {"a": 0.5, "b": [0, 1], "c": [True, "nan"], "d": [1, 2], "e": "x"}
    assert type(plain_data(np.float64(1))) is float


@pytest.mark.parametrize("odd", [object(), b"bytes", {1: 2}, [object()], 1j, np.complex64(1)])
def test_what_json_lacks_is_refused(odd: Any) -> None:
    with pytest.raises(TypeError, match=r"is not a"):
        plain_data(odd)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": 1, "a": 1}', "{", "", "[" * 100_000, "1" * 5000])
def test_what_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not strict JSON"):
        strict_json(text)
