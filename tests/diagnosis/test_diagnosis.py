"""Causes over all cells of a subject: with a condition, as a pair, tied, rejected, from the arithmetic, or none."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Dialect
from conformance.deviations.measured import MEASURED
from conformance.deviations.names import bits_of
from conformance.diagnosis import diagnosis
from conformance.diagnosis.candidates import Candidate, different, singles
from conformance.diagnosis.coarser_arithmetic import ARITHMETIC, lies_on
from conformance.diagnosis.conditions import Condition, always
from conformance.diagnosis.detectability import by_kind
from conformance.diagnosis.diagnosis import Diagnosis, diagnose, record_of
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.search import Search
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.problem import MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor
from conformance.verdicts.expectation import expect

from ..problems import HEADS, judge, random_mha
from .judged_cells import IGNORED, REVERSED, SIZES, asked, bent, cell, flagged, padded, plain, reply, subject


def told(found: Diagnosis) -> list[tuple[dict[str, str], Condition, int]]:
    return [(dict(cause.candidate.change), cause.guards[0], len(cause.cells)) for cause in found.causes]


def test_what_always_shows_needs_no_guard() -> None:
    found = diagnose(subject(lambda _: REVERSED))
    assert told(found) == [(REVERSED, always(), 20)]
    assert found.unexplained == ()


@pytest.mark.parametrize(
    ("lie", "when", "expected", "cells"),
    [
        (REVERSED, lambda p: p.batch == 1, Condition(sizes={"batch": 1}), 8),
        (REVERSED, lambda p: p.dtype == "float16", Condition(dtype=["float16"]), 10),
        (REVERSED, lambda p: bool(p.mask_operands), Condition(masks=True), 10),
        (REVERSED, lambda p: not p.mask_operands, Condition(masks=False), 10),
        (IGNORED, lambda p: p.seq_len_q != p.seq_len_k, Condition(sizes_differ=[("seq_len_q", "seq_len_k")]), 6),
        (REVERSED, lambda p: p.seq_len_k > 8, Condition(sizes_above={"seq_len_q": 8}), 4),
        (
            REVERSED,
            lambda p: p.batch == 1 and p.dtype == "float16",
            Condition(dtype=["float16"], sizes={"batch": 1}),
            4,
        ),
    ],
    ids=["one item", "float16", "a mask", "no mask", "not square", "long", "two conditions"],
)
def test_the_condition_under_which_it_shows_is_found(
    lie: Dialect, when: Callable[[Problem], bool], expected: Condition, cells: int
) -> None:
    found = diagnose(subject(lambda p: lie if when(p) else {}))
    assert told(found) == [(lie, expected, cells)]
    assert found.unexplained == ()


def test_two_decisions_at_once_are_one_cause() -> None:
    both = {"scale": "none", **REVERSED}
    found = diagnose(subject(lambda _: both))
    assert told(found) == [(both, always(), 20)]


def test_a_pair_is_one_cause_also_where_only_one_of_the_two_shows() -> None:
    both = {**IGNORED, **REVERSED}
    found = diagnose(subject(lambda _: both))
    assert told(found) == [(both, always(), 20)]


def test_two_bugs_under_two_conditions_are_two_causes() -> None:
    found = diagnose(subject(lambda p: REVERSED if p.dtype == "float16" else IGNORED if p.batch == 1 else {}))
    reversed_, ignored = found.causes
    assert (dict(reversed_.candidate.change), reversed_.guards[0]) == (REVERSED, Condition(dtype=["float16"]))
    assert (dict(ignored.candidate.change), len(ignored.cells)) == (IGNORED, 2)
    assert ignored.guards[0].record().items() >= {"sizes": {"batch": 1}}.items()


def test_one_decision_under_two_conditions_that_no_two_hold_together_is_told_twice() -> None:
    found = diagnose(subject(lambda p: REVERSED if p.dtype == "float16" or (p.batch == 1 and p.seq_len_q == 7) else {}))
    assert [(dict(each.candidate.change), each.guards[0]) for each in found.causes] == [
        (REVERSED, Condition(dtype=["float16"])),
        (REVERSED, Condition(sizes={"batch": 1}, sizes_equal=[("seq_len_q", "seq_len_k")])),
    ]
    assert found.unexplained == ()


def test_what_conforming_cells_contradict_under_no_condition_is_no_cause() -> None:
    """Two calls meet the same conditions, but only one of them fails."""
    cells = [cell(padded(2, 5, 7), lie) for lie in (IGNORED, {})]
    found = diagnose(cells)
    assert found.causes == ()
    assert found.unexplained == (cells[0],)


def test_two_conditions_for_a_single_cell_are_chance() -> None:
    when = {("float16", 1, 17)}
    sizes = ((1, 17, 7), (2, 17, 7), (1, 5, 7))
    lie = [
        cell(plain(*size, dtype), REVERSED if (dtype, size[0], size[1]) in when else {})
        for dtype in ("float16", "float32")
        for size in sizes
    ]
    assert [each.facts.dtype for each in diagnose(lie).unexplained] == ["float16"]


def test_what_no_words_describe_is_unexplained() -> None:
    found = diagnose([cell(each.but(scale=0.4567), {}) for each in asked(2, 5, 7, "float32")])
    assert (found.causes, found.unexplained) == ((), ())
    wrong = [reply(each, evaluate(each).reply["output"].values ** 3) for each in asked(2, 5, 7, "float32")]
    found = diagnose(wrong)
    assert found.causes == ()
    assert set(found.unexplained) == set(wrong)


def test_a_tie_is_stated_with_the_simplest_case_that_would_tell() -> None:
    """With one key more than queries, bottom-right alignment is one key ahead."""
    square = [flagged(2, 7, 7), flagged(3, 7, 7)]
    cells = [cell(each, {"causal_alignment": "one_ahead"}) for each in square]
    (cause,) = diagnose(cells).causes
    assert cause.ties == ()
    cells = [cell(flagged(2, 5, 6), {"causal_alignment": "one_ahead"})]
    (cause,) = diagnose(cells).causes
    assert dict(cause.candidate.change) == {"causal_alignment": "bottom_right"}
    assert [dict(tie.candidate.change) for tie in cause.ties] == [{"causal_alignment": "one_ahead"}]
    others = [cell(flagged(*size), {}) for size in ((1, 5, 6), (2, 5, 5), (2, 5, 7))]
    record = record_of(diagnose(cells), others)["causes"][0]
    (tie,) = record["ties"]
    assert tie["separated_by"] == "float32-masked-2-3-5-5"
    assert tie["sentence"] == "lets each query attend to one future key"
    assert "separated_by" not in record_of(diagnose(cells), others[:1])["causes"][0]["ties"][0]


def test_conditions_that_no_cell_tells_apart_are_named_together() -> None:
    lie = {("float16", 1): REVERSED}
    calls = [plain(1, 5, 7, "float16"), plain(2, 5, 7), plain(3, 5, 7)]
    cells = [cell(each, lie.get((each.dtype, each.batch), {})) for each in calls]
    (record,) = record_of(diagnose(cells))["causes"]
    assert record["when"] == {"dtype": ["float16"]}
    assert record["condition"] == "only in float16, or only with batch = 1 (no case tells which)"
    assert record["other_conditions"] == ["with batch = 1"]
    told_apart = [*cells, cell(plain(2, 5, 7, "float16"), {})]
    (record,) = record_of(diagnose(told_apart))["causes"]
    assert (record["when"], record["condition"]) == ({"sizes": {"batch": 1}}, "only with batch = 1")


def test_a_cause_says_how_many_calls_fail_otherwise_although_it_would_show() -> None:
    """The output is zero in the longest calls; in the others, the values are reversed."""
    cells = [cell(each, REVERSED) for size in SIZES for each in asked(*size, "float32")]
    longest = max(each.problem.seq_len_k for each in cells)
    zeros = [reply(each.problem, np.zeros_like(each.actual["output"].bits)) for each in cells if each.actual]
    found = diagnose([z if z.problem.seq_len_k == longest else each for each, z in zip(cells, zeros, strict=True)])
    (record,) = record_of(found)["causes"]
    assert (record["decisions"], record["fail_otherwise"]) == (REVERSED, len(found.unexplained))
    assert found.unexplained
    assert "fail_otherwise" not in record_of(diagnose(cells))["causes"][0]


def test_a_stale_declaration_is_a_cause() -> None:
    declared = {"value_path": "reversed"}
    cells = [cell(each, {}, declared) for size in SIZES for each in asked(*size, "float32")]
    (record,) = record_of(diagnose(cells))["causes"]
    assert record["decisions"] == {"value_path": "canonical"}
    assert record["remedy"] == "remove value_path=reversed from the declaration"
    assert "although it is judged under value_path=reversed" in record["sentence"]


def test_a_number_is_read_in_calls_of_each_mask_argument() -> None:
    """The simplest calls with a mask have an unnamed error; the fill shows only under the causal argument."""
    noise = np.random.default_rng(3)

    def nameless(asked: Problem) -> Evidence:
        output = round_to(np.asarray(noise.standard_normal(asked.query.shape)), "float32")
        return replace(cell(asked, REVERSED), found=(), actual={"output": to_tensor(output, "float32")})

    wrong = [nameless(padded(2, 4, keys)) for keys in (5, 6, 7)]
    filled = [cell(flagged(*size), {"mask_fill": "puts_-10"}) for size in SIZES]
    found = diagnose([*wrong, *filled, *(cell(plain(*size), {}) for size in SIZES)])
    assert [change for change, _, _ in told(found)] == [{"mask_fill": "puts_-10"}]
    assert len(found.unexplained) == len(wrong)


def test_nan_plus_minus_infinity_is_no_second_cause_beside_coarser_arithmetic() -> None:
    """A NaN key has a bias of -inf: its batch element is NaN, the other one is rounded."""
    asked = plain(2, 5, 7)
    key, bias = asked.key.copy(), np.zeros((2, 1, 1, 7))
    key[1, :, -1], bias[1, ..., -1] = np.nan, -np.inf
    asked = asked.but(key=key, mask_operands=(MaskOperand("bias", ("additive",), "float", bias),))
    with np.errstate(invalid="ignore"):
        logits = (asked.query @ asked.key.swapaxes(-1, -2) * asked.applied_scale + bias).astype(np.float16)
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        output = (powers / powers.sum(axis=-1, keepdims=True)).astype(np.float32) @ asked.value
    half = next(each for each in ARITHMETIC if each.name == "scores_and_softmax_in_float16")
    assert half.explains(reply(asked, output))
    assert not half.explains(reply(asked, np.where(np.isnan(output), 0.0, output)))
    assert not half.explains(reply(asked, np.where(output > 0.0, np.nan, output)))


def test_coarser_arithmetic_is_a_cause_with_its_condition() -> None:
    """The weights are rounded to bfloat16 in calls with a mask."""
    cells = []
    for size in SIZES:
        whole, masked = asked(*size, "float32")
        weights = round_to(evaluate(masked.but(outputs=("weights",))).reply["weights"].values, "bfloat16")
        cells += [cell(whole, {}), reply(masked, weights @ masked.value)]
    (record,) = record_of(diagnose(cells))["causes"]
    assert (record["arithmetic"], record["profile"]) == ("weights_in_bfloat16", {"prob": "bfloat16"})
    assert (
        record["sentence"] == "rounds like code that rounds the weights to bfloat16 before the product with V: "
        "coarser than its arithmetic profile"
    )
    assert (record["condition"], len(record["cells"])) == ("only with a mask", 5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_on_the_numbers_of_a_narrower_type_were_rounded_to_it(dtype: str) -> None:
    """Coarse weights give errors of the same size, but not only results that are exact in the narrower dtype."""
    whole = [plain(*size) for size in SIZES]
    cells = [reply(each, round_to(evaluate(each).reply["output"].values, dtype)) for each in whole]
    (record,) = record_of(diagnose(cells))["causes"]
    assert (record["arithmetic"], record["ties"]) == (f"results_in_{dtype}", [])
    assert (
        record["sentence"] == f"rounds like code that rounds the output and the results of projections to {dtype}: "
        "coarser than its arithmetic profile"
    )


def test_a_result_that_is_exact_in_a_narrower_type_does_not_show_rounding() -> None:
    """Values are 0.5 and 2.5 and one weight is 1: the result is exact in any dtype."""
    exact = plain(2, 17, 7)
    exact = exact.but(query=exact.query * 1e4, value=round_to(np.sign(exact.value) + 1.5, "float16"))
    output = to_tensor(round_to(evaluate(exact).reply["output"].values, "bfloat16"), "float32")
    made = replace(cell(exact, {}), actual={"output": output})
    assert not lies_on("float16", made)
    assert not lies_on("bfloat16", made)


def test_one_key_shows_the_rounding_of_its_value_not_of_results() -> None:
    """The weight of a single key is 1, so its rounded value is returned unchanged."""
    whole = [plain(*size) for size in (*SIZES, (2, 5, 1))]
    rounded = [
        each.but(**{name: round_to(getattr(each, name), "float16") for name in ("query", "key", "value")})
        for each in whole
    ]
    cells = [reply(each, evaluate(coarse).reply["output"].values) for each, coarse in zip(whole, rounded, strict=True)]
    assert [lies_on("float16", each) for each in cells] == [False] * len(SIZES) + [True]
    (record,) = record_of(diagnose(cells))["causes"]
    assert record["arithmetic"] in ("tf32_operands", "float16_operands")


def test_arithmetic_that_explains_few_of_what_fails_is_no_cause() -> None:
    (whole,) = (plain(*size) for size in SIZES[:1])
    rounded = whole.but(**{name: round_to(getattr(whole, name), "tf32") for name in ("query", "key", "value")})
    near = [reply(whole, evaluate(rounded).reply["output"].values)]
    far = [bent(plain(*size), 0.3) for size in SIZES[1:]]
    assert diagnose(near).causes != ()
    assert diagnose([*near, *far]).causes == ()


def test_errors_that_no_arithmetic_makes_are_not_told_as_rounding() -> None:
    assert diagnose([bent(plain(*size), 1e-4) for size in SIZES]).causes == ()


def test_a_decision_is_preferred_to_arithmetic_that_explains_it_too() -> None:
    """1e-6 is added to the denominator: the effect is as small as that of coarser arithmetic."""
    cells = [cell(padded(*size), {"softmax_denominator": "plus_1e-6"}) for size in SIZES]
    failing = [each for each in cells if each.actual is not None]
    causes = diagnose(failing).causes
    assert causes
    assert all(not cause.candidate.arithmetic for cause in causes)


def test_a_cause_has_also_the_cells_that_it_changes_by_little() -> None:
    """One element exceeds its bound by half of what the cause changes: in this cell the two answers hardly differ."""
    lie = {"softmax_denominator": "plus_1e-6"}
    cells = [cell(padded(*size), lie) for size in SIZES]
    long = plain(1, 5, 61)
    right = expect(long, {}, Profile.ordinary("float32"))
    tolerance, values = right.bounds["output"].tolerance, right.reply["output"].values
    moved = evaluate(long, lie, "float32").reply["output"].values - values
    most = np.unravel_index(np.argmax(np.abs(moved) / tolerance), values.shape)
    assert 0.1 < abs(moved[most]) / tolerance[most] < 0.9
    values = values.copy()
    values[most] += np.sign(moved[most]) * (tolerance[most] + 0.5 * abs(moved[most]))
    near = reply(long, values)
    assert not near.explained_by(tuple(lie.items()))
    (cause,) = diagnose([near, *cells]).causes
    assert dict(cause.candidate.change) == lie
    assert near in cause.cells


def test_what_any_nan_explains_is_held_against_the_cause_before_it() -> None:
    """Values are taken from the keys, so NaN in a masked key leaks as a value, but not as a key."""
    poisoned = padded(2, 5, 7)
    key = poisoned.key.copy()
    key[0, :, -2:] = np.nan
    poisoned = poisoned.but(key=key)
    lie = {"value_path": "key"}
    plain_cells = [cell(each, lie) for size in SIZES for each in asked(*size, "float32")]
    found = diagnose([*plain_cells, cell(poisoned, {**lie, "nonfinite_value": "leaks"})])
    (cause,) = found.causes
    said = [dict(each.candidate.change) for each in (cause, *cause.ties)]
    assert all(each["value_path"] == "key" for each in said)
    assert {**lie, "nonfinite_value": "leaks"} in said


def test_a_row_with_one_key_does_not_speak_against_a_coarse_softmax() -> None:
    """Its weight is exactly 1, so it contradicts only coarser operands."""
    one = cell(plain(3, 17, 1), {})
    several = cell(plain(3, 17, 7), {})
    by_name = {each.name: each for each in ARITHMETIC}
    assert not by_name["softmax_in_float16"].contradicts(one)
    assert by_name["softmax_in_float16"].contradicts(several)
    assert by_name["float16_operands"].contradicts(one)
    steep = plain(3, 17, 7)
    one_hot = steep.but(query=steep.query * 1e4)
    assert not by_name["softmax_in_float16"].contradicts(cell(one_hot, {}))


def test_heads_that_attend_to_no_key_do_not_speak_against_a_coarse_softmax() -> None:
    """All weights are 0 in the heads that are masked, and 1 in the others: none is rounded."""
    by_name = {each.name: each for each in ARITHMETIC}
    allowed = (np.arange(HEADS) > 0)[None, :, None, None]
    mask = MaskOperand("mask", ("attention",), "bool", allowed)
    one = random_mha(3, mask, batch=5, seq_len_q=17, seq_len_k=1, outputs=("output",))
    assert not by_name["softmax_in_float16"].contradicts(cell(one, {}))
    several = random_mha(3, mask, batch=5, seq_len_q=17, seq_len_k=7, outputs=("output",))
    assert by_name["softmax_in_float16"].contradicts(cell(several, {}))


def test_equal_logits_do_not_speak_against_weights_rounded_before_they_are_normalised() -> None:
    """Exponentials are rounded to float16 before the weighted sum is divided: e^0 = 1 is exact, 1/7 is not."""
    by_name = {each.name: each for each in ARITHMETIC}
    weights = by_name["weights_in_float16"]
    whole = plain(3, 17, 7)
    equal = whole.but(key=whole.key * 0.0)
    half = plain(3, 17, 8)  # two of eight keys share the whole weight
    shared = half.but(query=half.query * 1e4, key=np.concatenate([half.key[:, :, :4]] * 2, axis=2))
    for case, shows in ((whole, True), (equal, False), (shared, False)):
        logits = evaluate(case).state.logits
        exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
        total = exponentials.sum(axis=-1, keepdims=True)
        output = round_to(round_to(exponentials, "float16") @ case.value / total, "float32")
        actual = {"output": to_tensor(output, "float32")}
        assert judge(case, {}, Profile.uniform("float32"), actual).verdict == ("fail" if shows else "pass")
        assert weights.explains(replace(cell(case, {}), actual=actual))
        assert weights.contradicts(cell(case, {})) == shows
        assert by_name["softmax_in_float16"].contradicts(cell(case, {})) == shows
        assert by_name["float16_operands"].contradicts(cell(case, {}))


def test_the_layout_in_memory_can_be_the_condition() -> None:
    cells = []
    for size in SIZES:
        for layout in ("contiguous", "transposed"):
            made = cell(plain(*size), REVERSED if layout == "transposed" else {})
            cells.append(replace(made, facts=replace(made.facts, layout=layout), case=f"{made.case}-{layout}"))
    assert told(diagnose(cells)) == [(REVERSED, Condition(layout=["transposed"]), 5)]


def test_a_pair_in_the_other_order_is_the_same_candidate() -> None:
    one, other = ("value_path", "reversed"), ("scale", "none")
    asked = [Candidate((one, other)), Candidate((other, one)), Candidate((one,)), Candidate(), Candidate((one, other))]
    assert different(asked) == [Candidate((one, other)), Candidate((one,)), Candidate()]


def test_of_what_explains_nan_the_decision_about_such_numbers_comes_first() -> None:
    """An ignored mask also lets a masked NaN through; a subtracted bias also makes a fully masked row NaN."""
    poisoned = padded(2, 5, 7)
    value = poisoned.value.copy()
    value[0, :, -2:] = np.nan
    leaking = cell(poisoned.but(value=value), {"nonfinite_value": "leaks"})
    assert leaking.found[0] == ("nonfinite_value", "leaks")
    assert ("use[padding]", "ignored") in leaking.found
    bias = np.zeros((1, 1, 5, 7))
    bias[:, :, 2] = -np.inf
    fully_masked = plain(2, 5, 7).but(mask_operands=(MaskOperand("bias", ("additive",), "float", bias),))
    found = cell(fully_masked, {"fully_masked_row": "nan"}).found
    assert found[0] == ("fully_masked_row", "nan")
    assert ("float_mask[bias]", "subtracted") in found


def test_a_cause_of_another_form_is_suspected_first_with_its_condition() -> None:
    """A single failing call needs no condition, and other causes fit it as well."""
    square = Condition(sizes_equal=[("seq_len_q", "seq_len_k")])
    (known,) = diagnose(subject(lambda problem: REVERSED if problem.seq_len_q == problem.seq_len_k else {})).causes
    assert known.guards[0] == square
    (failing,) = (each for each in subject(lambda _: REVERSED, ["float32"]) if each.case.endswith("masked-2-3-7-7"))
    found = diagnose([failing], other=Diagnosis((known,)))
    assert told(found) == [(REVERSED, square, 1)]
    assert diagnose([failing]).causes[0].guards[0] == always()


def test_a_suspect_that_a_conforming_call_contradicts_is_none() -> None:
    (known,) = diagnose(subject(lambda _: REVERSED)).causes
    failing, conforming = cell(plain(2, 5, 7), REVERSED), cell(plain(2, 17, 19), {})
    found = diagnose([failing, conforming], other=Diagnosis((known,)))
    assert [change for change, guard, _ in told(found) if guard == always()] == []


def test_a_suspect_that_explains_nothing_is_none() -> None:
    (known,) = diagnose(subject(lambda _: REVERSED)).causes
    found = diagnose([cell(padded(2, 5, 7), IGNORED)], other=Diagnosis((known,)))
    assert [change for change, *_ in told(found)] == [IGNORED]


@pytest.mark.parametrize(("unknown", "causes"), [(2, []), (1, [{**REVERSED, **IGNORED}])])
def test_calls_that_show_an_unknown_mistake_of_another_form_are_not_searched(
    unknown: int, causes: list[dict[str, str]]
) -> None:
    """Most plain calls of the other form fail without a cause, so calls with a mask show the same mistake."""
    plain_calls = [plain(*size) for size in SIZES[:3]]
    cells = [bent(each, 0.1) if n < unknown else cell(each, {}) for n, each in enumerate(plain_calls)]
    other = diagnose(cells)
    assert (len(other.unexplained), other.judged, other.has_unknown_mistake) == (unknown, 3, unknown == 2)
    found = diagnose([cell(padded(*size), {**REVERSED, **IGNORED}) for size in SIZES[:4]], other=other)
    assert [change for change, *_ in told(found)] == causes
    assert len(found.unexplained) == (0 if causes else 4)


BOTH = {**REVERSED, **IGNORED}


def test_evident_deviations_are_the_cause_if_together_they_explain_every_call() -> None:
    """A call without a mask shows one of them; a call that conforms contradicts none."""
    searched: list[Evidence] = []

    def recorded(some: Iterable[Evidence], *_: object) -> tuple[Candidate, ...]:
        searched.extend(some)
        return ()

    cells = [cell(padded(*size), BOTH) for size in SIZES] + [cell(plain(*size), BOTH) for size in SIZES]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnosis, "singles", recorded)
        found = diagnose(cells, evident=tuple(BOTH.items()))
    assert told(found) == [(BOTH, always(), 10)]
    assert [[way for way, _ in cause.candidate.change] for cause in found.separated] == [
        ["value_path"],
        ["use[padding]"],
    ]
    assert searched == []


@pytest.mark.parametrize(
    "other",
    [cell(padded(2, 11, 13), {"scale": "none"}), cell(padded(2, 11, 13), {}), cell(plain(2, 11, 13), IGNORED)],
    ids=["a call with another mistake", "a call that conforms", "a call that shows neither"],
)
def test_evident_deviations_that_some_call_contradicts_are_searched_like_any_other(other: Evidence) -> None:
    cells = [*(cell(padded(*size), BOTH) for size in SIZES), other]
    evident = tuple(BOTH.items())
    assert record_of(diagnose(cells, evident=evident)) == record_of(diagnose(cells))


def test_gradients_say_nothing_of_a_cause_that_takes_their_parameter_away() -> None:
    """Without the projection it has no gradient; if the mask is ignored, the gradient is different."""
    root = Path(__file__).parents[2] / "cases"
    problems = (materialise(case) for case in load([root / "gradients"], root) if case.operator == "mha" and case.masks)
    judged = cell(by_kind(next(problems)), {})
    missing, ignored = ("output_projection", "missing"), (f"use[{judged.problem.mask_operands[0].slot}]", "ignored")
    assert not judged.contradicts((missing,))
    assert judged.contradicts((ignored,))
    assert judged.contradicts((missing, ignored))
    assert judged.under((missing, ignored)) == {ignored[0]: "ignored"}


@pytest.mark.parametrize(
    ("lie", "cost"),
    [
        ({"scale": "none"}, 5.0),
        (IGNORED, 5.0),
        (REVERSED, None),
        ({"scale": "times_0.5"}, None),
        ({"mask_fill": "puts_-10"}, None),
        ({"softmax_denominator": "plus_0.1"}, None),
    ],
    ids=str,
)
def test_a_number_that_cannot_win_is_not_fitted_and_the_diagnosis_is_the_same(
    lie: dict[str, str], cost: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []

    def noted(search: Search, candidates: Iterable[Candidate]) -> float:
        limits.append(enough(search, candidates))
        return limits[-1]

    enough = Search.enough
    monkeypatch.setattr(Search, "enough", noted)
    pruned = record_of(diagnose(subject(lambda _: lie)))
    monkeypatch.setattr(Search, "enough", lambda _search, _candidates: inf)
    assert record_of(diagnose(subject(lambda _: lie))) == pruned
    assert pruned["causes"]
    if cost is not None:
        assert limits == [cost]


def test_a_cause_under_a_condition_leaves_room_for_numbers() -> None:
    search = Search(subject(lambda p: {"scale": "none"} if p.batch == 1 else {}))
    assert search.enough([Candidate((("scale", "none"),))]) == inf
    search = Search(subject(lambda _: {"scale": "none"}))
    assert search.enough([Candidate((("scale", "none"),))]) == 5.0
    assert search.enough([Candidate((("scale", "squared"),))]) == inf


def test_a_deviation_with_a_name_is_tried_where_a_number_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simplest calls show another mistake. A factor of 1/sqrt(head_dim) would explain the other calls as well."""
    monkeypatch.setattr(diagnosis, "MAX_SEARCHED_CELLS", 2)
    bias = np.random.default_rng(5).normal(size=(1, 1, 17, 19))
    mask = MaskOperand("bias", ("additive",), "float", bias)
    calls = [plain(batch, 17, 19).but(mask_operands=(mask,)) for batch in (2, 3)]
    biased = [replace(cell(call, {"bias_scale": "scaled"}), found=()) for call in calls]
    ignored = [replace(cell(padded(2, queries, 7), IGNORED), found=()) for queries in (2, 3, 5)]
    found = diagnose([*ignored, *biased])
    assert sorted(str(dict(cause.candidate.change)) for cause in found.causes) == sorted(
        [str(IGNORED), str({"bias_scale": "scaled"})]
    )


def test_every_kind_of_number_says_what_its_cheapest_number_costs() -> None:
    for kind in MEASURED:
        assert all(kind.least_bits <= bits_of(kind.decision, kind.name(guess)) for guess in kind.guesses)
    by_name = {kind.decision: kind.least_bits for kind in MEASURED}
    assert by_name["bias_scale"] == bits_of("bias_scale", "times_0")
    assert by_name["scale"] == bits_of("scale", "times_2") > bits_of("scale", "none") + 2


@dataclass(frozen=True)
class Sure(Candidate):
    """A candidate that explains the given cases, whatever their replies are."""

    cases: frozenset[str] = frozenset()

    def explains(self, cell: Evidence) -> bool:
        """Whether the case is one of the given ones."""
        return cell.case in self.cases


def test_an_alternative_explains_also_the_calls_of_the_cause_that_a_pair_replaces() -> None:
    cells = [replace(each, case=str(n)) for n, each in enumerate(subject(lambda _: REVERSED, ["float32"]))]
    every = frozenset(each.case for each in cells)
    one, usual = ("scale", "none"), ("fully_masked_row", "nan")
    search = Search(cells)
    search.take([Sure((one,), cases=every - {"0"})])
    leaks = Sure((("nonfinite_key", "leaks"), ("nonfinite_value", "leaks")), cases=frozenset("0"))
    search.take([Sure((one, usual), cases=every), leaks])
    (cause,) = search.causes
    assert cause.candidate.change == (one, usual)
    assert sorted(each.case for each in cause.cells) == sorted(every)
    assert cause.ties == ()


@pytest.mark.parametrize(("element", "remedy"), [("bool", "pass ~padding"), ("int", "pass 1 - padding")])
def test_the_remedy_inverts_a_mask_as_its_elements_need_it(element: str, remedy: str) -> None:
    calls = [padded(*size) for size in SIZES]
    masks = [tuple(replace(mask, element=element) for mask in call.mask_operands) for call in calls]
    asked_so = [call.but(mask_operands=mask) for call, mask in zip(calls, masks, strict=True)]
    found = diagnose([cell(each, {"polarity[padding]": "ignore"}) for each in asked_so])
    assert [cause["remedy"] for cause in record_of(found)["causes"]] == [remedy]


def searched_masked(monkeypatch: pytest.MonkeyPatch, plain_cells: list[Evidence], masked: Evidence) -> bool:
    """Whether single deviations are searched in the masked cell of a subject."""
    sought: list[Evidence] = []

    def recorded(cells: Iterable[Evidence], *more: Any) -> Iterator[Candidate]:
        for each in cells:
            sought.append(each)
            yield from singles([each], *more)

    monkeypatch.setattr(diagnosis, "singles", recorded)
    diagnose([*plain_cells, masked])
    return masked in sought


# Calls without a dimension of size 1.
LARGER = [plain(2, 5, keys) for keys in range(7, 29, 2)]
MASKED = padded(2, 5, 7)


@pytest.mark.parametrize(("conforming", "searched"), [(0, False), (1, False), (2, True)])
def test_if_nearly_all_plain_calls_show_an_unknown_mistake_no_other_call_is_searched(
    monkeypatch: pytest.MonkeyPatch, conforming: int, *, searched: bool
) -> None:
    """At most one plain call in eleven may conform, as where all logits are equal."""
    right, wrong = LARGER[:conforming], LARGER[conforming:]
    cells = [*(cell(each, {}) for each in right), *(bent(each, 0.1) for each in wrong)]
    assert searched_masked(monkeypatch, cells, bent(MASKED, 0.1)) is searched


def test_a_call_that_a_deviation_explains_is_searched_even_if_plain_calls_show_an_unknown_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert searched_masked(monkeypatch, [bent(each, 0.1) for each in LARGER], cell(MASKED, IGNORED))


@pytest.mark.parametrize("found", [REVERSED, {"scale": "times_0.7"}, {**REVERSED, "scale": "none"}])
def test_a_mistake_that_plain_calls_explain_is_not_unknown(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, str]
) -> None:
    """A single deviation, a number, and a pair of deviations; the masked call shows one deviation more."""
    both = replace(cell(MASKED, {**found, **IGNORED}), found=())
    assert searched_masked(monkeypatch, [replace(cell(each, found), found=()) for each in LARGER], both)


def test_coarser_arithmetic_in_plain_calls_is_not_an_unknown_mistake() -> None:
    cells = [reply(each, round_to(evaluate(each).reply["output"].values, "bfloat16")) for each in LARGER]
    (cause,) = diagnose(cells).causes
    assert cause.candidate.arithmetic is not None
