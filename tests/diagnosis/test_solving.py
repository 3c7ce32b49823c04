"""Numbers are read from replies: the number that was put in is found, in the fewest digits that fit the reply."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.bridge.contract import Facts
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.edges import causal
from conformance.deviations.measured import MEASURED, text
from conformance.diagnosis import candidates
from conformance.diagnosis.candidates import solved
from conformance.diagnosis.diagnosis import diagnose
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.explanation import Way
from conformance.reference.pipeline import StepsMap
from conformance.spec.problem import MaskOperand, Problem
from conformance.spec.rounding import to_tensor
from conformance.verdicts.expectation import expect

from ..problems import BATCH, HEADS, KEYS, QUERIES, VALUE_DIM, random_sdpa, reply_under
from .judged_cells import SIZES, asked, cell, padded, plain

EVERY = settings(max_examples=12, deadline=None)


def padding() -> MaskOperand:
    allowed = np.ones((BATCH, 1, 1, KEYS), dtype=bool)
    allowed[..., -2:] = False
    return MaskOperand("padding", ("key_padding",), "bool", allowed)


def fully_masked() -> MaskOperand:
    allowed = np.ones((1, 1, QUERIES, KEYS), dtype=bool)
    allowed[:, :, 1] = False
    return MaskOperand("mask", ("attention",), "bool", allowed)


def bias() -> MaskOperand:
    values = np.random.default_rng(17).normal(size=(1, HEADS, QUERIES, KEYS))
    values[..., 0] = -np.inf
    return MaskOperand("bias", ("additive",), "float", values)


def flag(offset: int = 0) -> MaskOperand:
    return MaskOperand("is_causal", ("causal",), "flag", causal(QUERIES, KEYS, offset), offset=offset)


def replied(asked_of: Problem, actual: Mapping[str, Tensor]) -> Evidence:
    """The reply to a call as evidence, whatever its verdict."""
    facts, profile = Facts("sdpa", asked_of.dtype, "cpu", "", asked_of.outputs), Profile.ordinary(asked_of.dtype)
    return Evidence("made", facts, asked_of, expect(asked_of, {}, profile), profile, actual)


def told(decision: str, name: str, *masks: MaskOperand, dtype: str = "float64") -> dict[str, str]:
    """What is read from the reply of an implementation with this deviation: decision and prefix -> name."""
    asked_of = random_sdpa(13, *masks, dtype=dtype)
    actual = reply_under({decision: name}, asked_of, Profile.ordinary(dtype))
    return {f"{found} {way.rstrip('-.e0123456789')}": way for found, way in solved(replied(asked_of, actual))}


def near(name: str, prefix: str, number: float) -> bool:
    """Whether a name contains this number, to the precision of a name."""
    return float(name.removeprefix(prefix)) == pytest.approx(number, rel=1e-5)


@given(st.floats(-12.0, 9.0).map(lambda number: round(number, 3)))
@EVERY
def test_what_masked_logits_are_filled_with(number: float) -> None:
    found = told("mask_fill", f"puts_{text(number)}", padding())
    assert near(found["mask_fill puts_"], "puts_", number)


@given(st.floats(-12.0, -0.1).map(lambda number: round(number, 3)))
@EVERY
def test_what_is_added_to_masked_logits(number: float) -> None:
    found = told("mask_fill", f"adds_{text(number)}", padding())
    assert near(found["mask_fill adds_"], "adds_", number)


@given(st.floats(-12.0, -0.1).map(lambda number: round(number, 3)))
@EVERY
def test_what_one_of_two_masks_fills_with(number: float) -> None:
    for decision in ("argument_fill[padding]", "causal_fill"):
        found = told(decision, f"puts_{text(number)}", padding(), flag(KEYS - QUERIES))
        assert near(found[f"{decision} puts_"], "puts_", number)


@given(st.floats(-12.0, -0.5).map(lambda number: round(number, 3)))
@EVERY
def test_what_each_mask_adds(number: float) -> None:
    both = told("mask_fill", f"adds_{text(number)}_for_each", fully_masked(), padding())
    (name,) = (way for way in both.values() if way.startswith("adds_") and way.endswith("_for_each"))
    assert float(name.removeprefix("adds_").removesuffix("_for_each")) == pytest.approx(number, rel=1e-5)


@given(st.floats(0.2, 3.0).map(lambda number: round(number, 3)), st.floats(-12.0, 9.0).map(lambda x: round(x, 3)))
@EVERY
def test_a_number_is_read_beside_another_mistake(factor: float, fill: float) -> None:
    mistakes = {"scale": f"times_{text(factor)}", "mask_fill": f"puts_{text(fill)}"}
    asked_of = random_sdpa(13, padding(), dtype="float64")
    actual = reply_under(mistakes, asked_of, Profile.ordinary("float64"))
    found = solved(replied(asked_of, actual), beside=(("scale", mistakes["scale"]),))
    names = [name for _, name in found if name.startswith("puts_")]
    assert any(near(name, "puts_", fill) for name in names)


def fills_tried(mistakes: dict[str, str]) -> tuple[set[float], list[float]]:
    """The fills under which a reply with one fully masked query is compared, and the fills that explain it."""
    asked_of = random_sdpa(13, fully_masked(), dtype="float64")
    actual = reply_under(mistakes, asked_of, Profile.ordinary("float64"))
    (kind,) = (each for each in MEASURED if each.pattern == "puts_N" and each.decision == "mask_fill")
    tried: set[float] = set()

    def steps(number: float) -> StepsMap:
        tried.add(number)
        assert kind.steps is not None
        return kind.steps(number)

    return tried, candidates.solve(replace(kind, steps=steps), replied(asked_of, actual).suspect())


def test_a_number_is_not_fitted_if_the_reply_is_wrong_where_no_number_changes_it() -> None:
    tried, found = fills_tried({"scale": "times_0.9", "mask_fill": "puts_-3"})
    assert (len(tried), found) == (3, [])
    tried, found = fills_tried({"mask_fill": "puts_-3"})
    assert len(tried) > 3
    assert found


def test_a_number_is_found_that_is_smaller_than_every_guess() -> None:
    found = told("logit_limit", "0.05")
    assert near(found["logit_limit "], "", 0.05)


def test_a_reply_of_zeros_is_not_told_as_a_factor_near_zero() -> None:
    """Every small factor explains it."""
    asked_of = random_sdpa(13, dtype="float32")
    zeros = {"output": to_tensor(np.zeros((BATCH, HEADS, QUERIES, VALUE_DIM)), "float32")}
    found = dict(solved(replied(asked_of, zeros)))
    assert "weight_factor" not in found
    assert near(told("weight_factor", "times_0.003", dtype="float32")["weight_factor times_"], "times_", 0.003)


def test_one_mask_alone_says_nothing_of_the_others() -> None:
    assert not [decision for decision in told("mask_fill", "puts_-3", padding()) if "argument" in decision]


def test_all_fills_that_a_reply_does_not_distinguish_are_told() -> None:
    """A fully masked row is uniform under every fill; another call may show which one it is."""
    asked_of = random_sdpa(13, fully_masked(), flag(KEYS), dtype="float64")
    actual = reply_under({"mask_fill": "puts_-1e9"}, asked_of, Profile.ordinary("float64"))
    found = list(solved(replied(asked_of, actual)))
    for decision in ("argument_fill[mask]", "mask_fill"):
        assert {name for each, name in found if each == decision} >= {"puts_-1e9", "puts_-10000", "puts_-65504"}


@pytest.mark.parametrize(("dtype", "most"), [("float64", 17), ("float32", 9)])
def test_a_number_has_as_many_digits_as_the_reply_shows(dtype: str, most: int) -> None:
    ln2 = float(np.log(2.0))
    found = told("bias_scale", f"times_{text(ln2)}", bias(), dtype=dtype)["bias_scale times_"]
    digits = found.removeprefix("times_0.")
    assert len(digits) <= most
    assert float(f"0.{digits}") == pytest.approx(ln2, rel=1e-14 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("number", [0.1, 1e-6, 1e4, 0.6931471805599453, 1 / 3, -1e60, 123456789.0])
def test_the_text_of_a_number_gives_it_back(number: float) -> None:
    assert float(text(number)) == number
    assert len(text(number)) <= len(f"{number:.17g}")


@given(st.floats(0.02, 30.0).filter(lambda number: abs(number - 1.0) > 1e-3).map(lambda number: float(f"{number:.4g}")))
@EVERY
def test_by_what_the_logits_are_scaled(number: float) -> None:
    found = told("scale", f"times_{text(number)}")
    assert near(found["scale times_"], "times_", number)


@given(st.floats(-9.0, 1.0).map(lambda power: float(f"{10.0**power:.4g}")))
@EVERY
def test_what_is_added_to_the_denominator(number: float) -> None:
    found = told("softmax_denominator", f"plus_{text(number)}")
    assert near(found["softmax_denominator plus_"], "plus_", number)


@given(st.floats(-3.0, 3.0).map(lambda number: round(number, 3)).filter(lambda number: number not in (0.0, 1.0)))
@EVERY
def test_by_what_the_weights_are_multiplied(number: float) -> None:
    found = told("weight_factor", f"times_{text(number)}")
    assert near(found["weight_factor times_"], "times_", number)


@given(st.floats(-4.0, 4.0).filter(lambda number: abs(number - 1.0) > 1e-3).map(lambda number: round(number, 3)))
@EVERY
def test_how_often_an_additive_mask_counts(number: float) -> None:
    found = told("bias_scale", f"times_{text(number)}", bias())
    assert near(found["bias_scale times_"], "times_", number)


@pytest.mark.parametrize("shift", [-4, -2, 2, 3])
def test_by_how_many_keys_a_causal_flag_is_shifted(shift: int) -> None:
    assert told("causal_alignment", f"shifted_{shift}", flag())["causal_alignment shifted_"] == f"shifted_{shift}"


def test_in_float32_the_fewest_digits_are_told() -> None:
    found = told("mask_fill", "puts_-10", padding(), dtype="float32")
    assert found["mask_fill puts_"] == "puts_-10"


@pytest.mark.parametrize("decision", ["logit_limit", "softmax_denominator"])
def test_a_number_that_must_not_be_negative_is_never_fitted_below_zero(decision: str) -> None:
    kinds = [kind for kind in MEASURED if kind.decision == decision]
    assert all(kind.number(kind.name(1e-8)) == 1e-8 and kind.number(kind.name(-1e-8)) is None for kind in kinds)
    uniform = told("scale", "times_0", padding())  # the nearest limit is zero, from both sides
    assert not [name for found, name in uniform.items() if found.startswith(decision) and "-" in name.split("e")[0]]


def test_what_is_right_has_no_number() -> None:
    assert told("fully_masked_row", "nan", padding()) == {}


def test_a_reply_of_another_form_has_no_number() -> None:
    asked_of = random_sdpa(13, padding(), dtype="float64")
    actual = {"output": to_tensor(np.ones((BATCH, HEADS, QUERIES, VALUE_DIM + 1)), "float64")}
    assert list(solved(replied(asked_of, actual))) == []


@pytest.mark.parametrize(
    ("decision", "name"),
    [("mask_fill", "puts_-3.7"), ("scale", "times_1.3"), ("softmax_denominator", "plus_0.02"), ("scale", "is_0.4567")],
)
def test_a_number_is_a_cause_of_all_that_fails(decision: str, name: str) -> None:
    cells = [cell(each, {decision: name}) for size in SIZES for each in asked(*size, "float32")]
    found = diagnose(cells)
    assert [dict(cause.candidate.change) for cause in found.causes] == [{decision: name}]
    assert found.causes[0].ties == ()
    assert found.unexplained == ()


@pytest.mark.parametrize("number", [float(np.log(1e-9)), float(np.log(3e-7))])
def test_a_number_with_many_digits_is_one_cause_in_float64(number: float) -> None:
    """Each call determines some digits of the number; calls with large masked values determine more."""
    calls = [padded(*size, "float64") for size in SIZES]
    large = [
        call.but(value=np.where(call.allowed()[:, :, :1].swapaxes(-1, -2), call.value, 100.0)) for call in calls[-2:]
    ]
    cells = [cell(each, {"mask_fill": f"adds_{text(number)}"}) for each in (*calls, *large)]
    found = diagnose(cells)
    (cause,) = found.causes
    ((decision, name),) = cause.candidate.change
    assert (decision, found.unexplained, cause.ties) == ("mask_fill", (), ())
    assert float(name.removeprefix("adds_")) == pytest.approx(number, rel=1e-9)


def test_fits_start_from_guesses_with_different_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fills of -100, -1000 and -10000 have the same effect, and no fit from them reaches -20.7."""
    monkeypatch.setattr(candidates, "BEST", 2)
    call = padded(2, 5, 7, "float64")
    call = call.but(value=np.where(call.allowed()[:, :, :1].swapaxes(-1, -2), call.value, 1e5))
    made = cell(call, {"mask_fill": "adds_-20.7"})
    assert ("mask_fill", "adds_-20.7") in set(solved(made))


def test_the_number_that_changes_nothing_is_no_cause() -> None:
    """Together with a fill that explains the reply, an epsilon of 0 explains it too."""
    (kind,) = (each for each in MEASURED if each.decision == "softmax_denominator")
    fill = ("mask_fill", "adds_-5")
    suspect = cell(padded(2, 5, 7, "float64"), dict([fill])).suspect()
    assert suspect.explained_by(dict([fill, (kind.decision, kind.name(kind.neutral))]))
    assert not candidates._Fit((kind,), suspect, (fill,)).explains((kind.neutral,))


@pytest.mark.parametrize(
    "both",
    [
        {"scale": "times_0.9", "softmax_denominator": "plus_0.01"},
        {"scale": "times_0.3", "softcap": "default_2"},
        {"softcap": "default_3", "softmax_denominator": "plus_0.2"},
    ],
)
def test_two_numbers_that_show_in_every_call_are_one_cause(both: dict[str, str]) -> None:
    """All calls here have the same head_dim, so a scale of another form can explain them as well."""
    (cause,) = diagnose([cell(plain(*size), both) for size in SIZES]).causes
    assert both in [dict(each.candidate.change) for each in (cause, *cause.ties)]
    assert len(cause.cells) == len(SIZES)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("mask_fill", "adds_-20.7233"), ("mask_fill", "adds_-20.7232658379"), True),
        (("mask_fill", "adds_-20.7233"), ("mask_fill", "puts_-20.7233"), False),
        (("mask_fill", "adds_-20"), ("mask_fill", "adds_-21"), False),
        (("value_path", "reversed"), ("value_path", "reversed"), False),
    ],
)
def test_numbers_that_differ_in_precision_are_the_same(one: Way, other: Way, *, same: bool) -> None:
    assert candidates.is_same_number(one, other) == same


def test_every_kind_has_a_name_for_its_numbers() -> None:
    for kind in MEASURED:
        for number in kind.guesses:
            assert kind.number(kind.name(number)) == pytest.approx(number, rel=1e-5)
        assert kind.number(kind.name(kind.guesses[0]) + "_or_so") is None


def test_a_number_is_fitted_once_to_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The diagnoses of a check ask the same of a reply under several choices."""
    made = cell(padded(3, 5, 7, "float64"), {"mask_fill": "puts_-3.7"})
    first = list(solved(made))
    assert ("mask_fill", "puts_-3.7") in first
    monkeypatch.setattr(candidates, "solve", lambda *_: pytest.fail("it is fitted again"))
    assert list(solved(made)) == first
