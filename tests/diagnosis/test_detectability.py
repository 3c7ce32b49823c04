"""Which deviations cases detect: detected, undetected, always canonical, and cases that detect none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.bounds.bound import Bound
from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Expected
from conformance.deviations.names import INVISIBLE
from conformance.diagnosis.detectability import (
    FACTOR,
    Detectability,
    Detection,
    all_deviations,
    bounds_apart,
    by_kind,
    detectability,
    distinguished,
    distinguishes_any,
)
from conformance.spec.problem import SLOTLESS, Array, MaskOperand, Problem

from ..problems import KEYS, random_sdpa, sdpa


def problem(dtype: str = "float32", **fields: Any) -> Problem:
    return random_sdpa(0, dtype=dtype, **fields)


def padding() -> MaskOperand:
    kept = np.arange(KEYS) < np.array([4, 6])[:, None]
    return MaskOperand(SLOTLESS, ("key_padding",), "bool", kept[:, None, None, :])


def empty() -> Problem:
    """A problem with one key, all zeros: it shows only the shape and dtype of the reply."""
    zeros = np.zeros((1, 1, 1, 2))
    return sdpa(zeros, zeros, zeros, dtype="float32", scale=None)


def test_a_mask_tells_apart_what_reads_it_otherwise_and_no_more() -> None:
    found = distinguished(by_kind(problem(mask_operands=(padding(),))))
    assert {"polarity[key_padding]=ignore", "use[key_padding]=ignored", "mask_axes[key_padding]=first_batch"} <= set(
        found
    )
    assert {"use[key_padding]=ignored_beside_others", "causal_alignment=bottom_right"}.isdisjoint(found)
    assert min(found.values()) >= FACTOR


def test_an_argument_is_called_like_the_kind_of_its_mask() -> None:
    folded = replace(padding(), slot="attn_mask", kinds=("key_padding", "causal"))
    assert by_kind(problem(mask_operands=(folded,))).mask_operands[0].slot == "key_padding"


def test_other_dtypes_are_seen_and_do_not_pin_down() -> None:
    found = detectability([("half", problem("float16")), ("whole", problem())])
    assert {sight.dtype for sight in found.detections["scale=none"]} == {"float16", "float32"}
    assert [sight.case for sight in found.sharp("scale=none")] == ["whole"]
    assert "scale=none" in detectability([("half", problem("float16"))]).unpinned


def test_every_deviation_is_listed_also_those_that_nothing_shows() -> None:
    found = detectability([("plain", problem())])
    assert set(found.detections) == {deviation.key for deviation in all_deviations()}
    assert "fully_masked_row=nan" in found.unpinned
    assert "scale=none" not in found.unpinned
    assert "fully_masked_row" in found.undecided
    assert "scale" not in found.undecided


def test_what_is_canonical_by_nature_is_a_deviation_and_not_missed() -> None:
    found = detectability([("plain", problem())])
    assert set(INVISIBLE) <= set(found.detections)
    assert set(INVISIBLE).isdisjoint(found.unpinned)
    assert "float_mask[window]" not in found.undecided
    assert all(INVISIBLE.values())


def test_a_case_in_which_only_the_form_of_the_reply_shows_has_no_power() -> None:
    found = detectability([("plain", problem()), ("empty", empty())])
    assert found.powerless == ("empty",)
    assert distinguishes_any(problem())
    assert not distinguishes_any(empty())
    assert "empty" in [sight.case for sight in found.detections["result_dtype=float64"]]


def test_a_deviation_that_enough_cases_detect_is_not_tried_on_more() -> None:
    cases = [("half", problem("float16")), ("one", problem()), ("two", problem()), ("empty", empty())]
    found = detectability(cases, enough=1)
    assert [sight.case for sight in found.detections["scale=none"]] == ["half", "one"]
    assert found.powerless == ("empty",)
    assert found.unpinned == detectability(cases).unpinned


def test_the_simplest_case_is_the_smallest_then_the_first() -> None:
    detections = [Detection("large", "sdpa", "float32", 11.0, 9), Detection("half", "sdpa", "float16", 11.0, 1)]
    detections += [Detection("first", "mha", "float64", 11.0, 4), Detection("second", "sdpa", "float32", 99.0, 4)]
    simplest = Detectability({"scale=none": tuple(detections)}, ()).simplest("scale=none")
    assert simplest is not None
    assert simplest.case == "first"
    assert Detectability({"scale=none": ()}, ()).simplest("scale=none") is None


def moved(values: Array, tolerance: float, dtype: str = "float32") -> float:
    """The distance of a reply of `values` from the canonical reply, whose bound is `tolerance` everywhere."""
    right = evaluate(problem())
    shape = right.reply["output"].values.shape
    flat = np.full(shape, tolerance)
    bound = Bound(flat, np.zeros(shape), flat, np.ones(shape, dtype=bool), np.ones(shape), np.zeros(shape))
    return bounds_apart(right, {"output": Expected(values, dtype)}, {"output": bound})


def test_distance_counts_in_bounds_and_is_infinite_for_another_form() -> None:
    values = evaluate(problem()).reply["output"].values
    assert moved(values.copy(), 1.0) == 0.0
    assert moved(values.copy(), 0.0) == 0.0
    assert moved(values + 3.0, 0.5) == pytest.approx(6.0)
    assert moved(values, 1.0, "float64") == np.inf
    assert moved(values[0], 1.0) == np.inf
    assert moved(np.where(values == values.max(), np.nan, values), 1.0) == np.inf
    assert moved(np.where(values == values.max(), np.inf, values), 1.0) == np.inf
