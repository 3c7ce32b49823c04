"""Comparisons of handmade sides: the kind of each change, its sentence, and the exit code."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.gate.change import change_of
from conformance.gate.comparison import Comparison, compare
from conformance.gate.decision import CONFORMS, INCOMPLETE, NOTHING, REJECTED
from conformance.gate.observations import Observed
from conformance.report.comparison_report import totals
from conformance.spec.refusals import REFUSALS

from .handmade_comparisons import MACHINE, SUBJECT, mean_row, nan_row, side

PASS = Observed("pass", budget=0.3, bits="b1")
NAN_DECLARED = Observed("dialect", budget=0.3, bits="b2", declared={"fully_masked_row": "nan"})
ERROR = Observed("error", error="ValueError", text="bad shape")
UNEXPLAINED = Observed("fail", budget=40.0, klass="impossible", bits="b3")
DECLINED = Observed("unsupported", text="takes no bfloat16")
UNCALIBRATED = Observed("inconclusive", budget=1.3, uncalibrated=True)


@pytest.mark.parametrize(
    ("base", "candidate", "kind"),
    [
        (PASS, nan_row(), "regressed"),
        (PASS, nan_row(known="since 1.24"), "regressed"),
        (PASS, ERROR, "regressed"),
        (NAN_DECLARED, Observed("crash", error="crash"), "regressed"),
        (DECLINED, ERROR, "regressed"),
        (nan_row(), mean_row(), "fails_otherwise"),
        (nan_row(known="x"), mean_row(), "fails_otherwise"),
        (nan_row(), ERROR, "fails_otherwise"),
        (ERROR, Observed("error", error="TypeError"), "fails_otherwise"),
        (UNEXPLAINED, nan_row(), "fails_otherwise"),
        (UNEXPLAINED, Observed("fail", budget=40.0, klass="precision", bits="b4"), "fails_otherwise"),
        (UNEXPLAINED, Observed("fail", budget=90.0, klass="impossible", bits="b4"), "fails_otherwise"),
        (nan_row(known="x"), mean_row(known="y"), "dialect_changed"),
        (PASS, NAN_DECLARED, "dialect_changed"),
        (NAN_DECLARED, PASS, "dialect_changed"),
        (PASS, DECLINED, "support_lost"),
        (nan_row(), PASS, "fixed"),
        (nan_row(known="x"), NAN_DECLARED, "fixed"),
        (ERROR, nan_row(known="x"), "fixed"),
        (UNEXPLAINED, nan_row(known="x"), "fixed"),
        (UNEXPLAINED, Observed("error", error="ValueError: no", known="x"), "accepted"),
        (Observed("fail", ways=("use[is_causal]=ignored",)), nan_row(known="x"), "fixed"),
        (mean_row(), nan_row(known="x"), "fails_otherwise"),
        (DECLINED, PASS, "support_gained"),
        (DECLINED, nan_row(known="x"), "support_gained"),
        (PASS, Observed("pass", budget=0.61, bits="b1"), "drifted"),
        (PASS, UNCALIBRATED, "drifted"),
        (PASS, Observed("pass", budget=0.3, bits="b9"), "drifted"),
        (PASS, PASS, None),
        (PASS, Observed("pass", budget=0.59, bits="b1"), None),
        (Observed("pass", budget=0.001, bits="b"), Observed("pass", budget=0.09, bits="b"), None),
        (nan_row(known="x"), nan_row(), None),
        (Observed("error", error="Fail", known="x"), Observed("error", error="NotImplemented", known="x"), None),
        (
            Observed("error", error="Fail", known="x"),
            Observed("error", error="NotImplemented", known="y"),
            "fails_otherwise",
        ),
        (Observed("error", error="Fail", known="x"), Observed("crash", known="x"), "fails_otherwise"),
        (mean_row(), Observed("fail", ways=("fully_masked_row=uniform",), klass="semantic"), None),
        (ERROR, Observed("error", error="ValueError", text="shape is bad"), None),
        (UNEXPLAINED, Observed("fail", budget=45.0, klass="impossible", bits="b4"), None),
        (DECLINED, Observed("unsupported", text="says it otherwise"), None),
    ],
)
def test_each_pair_of_observations_has_its_kind(base: Observed, candidate: Observed, kind: str | None) -> None:
    found = change_of(base, candidate, same_machine=True)
    assert (found and found[0]) == kind


LEAKS = Observed("fail", ways=("invariant=poisoned_value",), klass="invariant", looked=True)
LOOKED = Observed("pass", budget=0.3, bits="b1", looked=True)
UNSTEADY = Observed("fail", budget=3.0, klass="nondeterministic", bits="b5")


@pytest.mark.parametrize(
    ("base", "candidate", "kind"),
    [
        (LOOKED, LEAKS, "regressed"),
        (LEAKS, LOOKED, "fixed"),
        (LEAKS, LEAKS, None),
        (PASS, LEAKS, None),
        (LEAKS, PASS, None),
        (UNSTEADY, Observed("fail", budget=90.0, klass="nondeterministic", bits="b6"), None),
        (UNSTEADY, nan_row(), "fails_otherwise"),
    ],
)
def test_a_second_look_counts_where_both_were_given_one(base: Observed, candidate: Observed, kind: str | None) -> None:
    found = change_of(base, candidate, same_machine=False)
    assert (found and found[0]) == kind


def test_a_broken_relation_is_told_by_its_sentence() -> None:
    found = of({"a": LOOKED}, {"a": LEAKS})
    said = "it returns a different result when a value that no query attends to is NaN; in 1.23.2 it conformed"
    assert [group.sentence for group in found.groups] == [f"onnxruntime 1.24.4: {said}: 1 case"]


def test_a_regression_without_a_cause_is_told_with_what_its_calls_have_in_common() -> None:
    wrong = Observed("fail", klass="impossible", condition="only with batch > 1")
    (group,) = of({"a": PASS}, {"a": wrong}).groups
    said = "only with batch > 1, it differs by more than rounding can, and no single decision explains it"
    assert group.sentence == f"onnxruntime 1.24.4: {said}; in 1.23.2 it conformed: 1 case"
    (group,) = of({"a": PASS}, {"a": replace(ERROR, condition="only in float16")}).groups
    said = "only in float16, it raises ValueError: bad shape; in 1.23.2 it conformed"
    assert group.sentence == f"onnxruntime 1.24.4: {said}: 1 case"


def test_a_cause_of_two_ways_is_told_with_its_condition() -> None:
    both = Observed("fail", ways=("scale=none & use[mask]=ignored",), klass="semantic", condition="only in float16")
    found = of({"a": PASS, "b": PASS}, {"a": both, "b": both})
    said = "it does not scale the logits and ignores mask, only in float16; in 1.23.2 it"
    was = "scales the logits by 1/sqrt(head_dim) or by the given scale and uses mask in every call"
    assert [group.sentence for group in found.groups] == [f"onnxruntime 1.24.4: {said} {was}: 2 cases"]
    coarse = of({"a": PASS}, {"a": Observed("fail", ways=("arithmetic=tf32",), klass="precision")})
    told = "it computes with less precision than declared (tf32); in 1.23.2 it conformed: 1 case"
    assert [group.sentence for group in coarse.groups] == [f"onnxruntime 1.24.4: {told}"]


def test_what_no_decision_explains_is_told_by_its_class() -> None:
    non_reproducible = of({"a": PASS}, {"a": UNSTEADY})
    told = "it returns different results for the same call; in 1.23.2 it conformed: 1 case"
    assert [group.sentence for group in non_reproducible.groups] == [f"onnxruntime 1.24.4: {told}"]
    loud = Observed("error", error="ValueError", text="a shape of the wrong size, " * 20)
    said = of({"a": PASS}, {"a": loud}).groups[0].sentence
    assert re.search(r"it raises ValueError: a shape[\w ,]{100,150}wrong …; in 1.23.2 it conformed: 1 case$", said)
    bits = of({"a": PASS}, {"a": Observed("pass", budget=0.3, bits="b9")})
    assert [group.sentence for group in bits.groups] == [
        "onnxruntime 1.24.4: conforms with different bits than in 1.23.2: 1 case"
    ]


def test_calls_that_must_be_refused_are_told_by_their_mistake() -> None:
    both, short = (
        Observed("fail", klass="not_refused", not_refused=REFUSALS[name].sentence)
        for name in ("two_masks", "value_positions")
    )
    found = of({"a": both, "b": both, "c": short}, {"a": PASS, "b": PASS, "c": PASS})
    assert [group.sentence for group in found.groups] == [
        f"onnxruntime 1.24.4: it conforms; in 1.23.2 it {both.not_refused}: 2 cases",
        "onnxruntime 1.24.4: it conforms; in 1.23.2 it accepts a value with fewer positions than the key: 1 case",
    ]


def test_a_reply_that_is_computed_in_another_dtype_is_told_by_its_errors() -> None:
    fine, coarse = Observed("pass", budget=2e-9), Observed("pass", budget=0.5)
    (group,) = of({"a": fine}, {"a": coarse}).groups
    told = "computes in a narrower dtype (errors over 1,000 times larger, within the bound) than in 1.23.2"
    assert group.sentence == f"onnxruntime 1.24.4: {told}: 1 case"
    assert change_of(coarse, fine, same_machine=True) == ("drifted", "finer")
    assert change_of(Observed("pass", budget=0.0), coarse, same_machine=True) == ("drifted", "budget")


def test_other_bits_say_nothing_on_another_machine() -> None:
    other = Observed("pass", budget=0.3, bits="b9")
    assert change_of(PASS, other, same_machine=True) == ("drifted", "bits")
    assert change_of(PASS, other, same_machine=False) is None


def keep(path: Path, actual: float) -> Path:
    arrays = {"output.actual": np.full((2, 3), actual), "output.tolerance": np.full((2, 3), 0.01)}
    np.savez(path, **arrays)  # type: ignore[arg-type]  # names of arrays, none is allow_pickle
    return path


@pytest.mark.parametrize(("now", "kind"), [(1.009, None), (1.011, "fails_otherwise")])
def test_kept_arrays_tell_whether_an_unexplained_failure_is_the_same(
    tmp_path: Path, now: float, kind: str | None
) -> None:
    base = Observed("fail", budget=40.0, klass="impossible", tensors=keep(tmp_path / "base.npz", 1.0))
    candidate = Observed("fail", budget=40.0, klass="impossible", tensors=keep(tmp_path / "now.npz", now))
    found = change_of(base, candidate, same_machine=True)
    assert (found and found[0]) == kind


def of(base: dict[str, Observed], now: dict[str, Observed], **more: Any) -> Comparison:
    return compare(side("base", base), side("candidate", now, "1.24.4"), **more)


def test_a_group_has_one_sentence_that_says_what_it_is_and_what_it_was() -> None:
    found = of(
        {"a": nan_row(known="x"), "b": nan_row(known="x"), "c": PASS, "d": PASS},
        {"a": mean_row(known="y"), "b": mean_row(known="y"), "c": PASS, "d": PASS},
    )
    sentence = "onnxruntime 1.24.4: a fully masked row is the mean of V (in 1.23.2: NaN): 2 cases"
    assert [group.sentence for group in found.groups] == [sentence]
    assert found.exit_code == REJECTED
    assert found.unchanged == 2


def test_the_first_line_says_what_changed() -> None:
    cells = [f"dead/{number}" for number in range(14)]
    found = of(dict.fromkeys(cells, nan_row(known="x")), dict.fromkeys(cells, mean_row(known="y")))
    assert found.headline == (
        "Dialect changed: onnxruntime 1.24.4: a fully masked row is the mean of V (in 1.23.2: NaN): 14 cases"
    )


@pytest.mark.parametrize(
    ("since", "kind", "code"),
    [
        ({"onnxruntime": ">=1.24"}, "accepted", CONFORMS),
        ({"onnxruntime": ">=1.24", "numpy": ">=2"}, "accepted", CONFORMS),
        ({"onnxruntime": ">=1.23"}, "regressed", REJECTED),  # the base has such versions, too, and it conformed
        ({"numpy": ">=2"}, "regressed", REJECTED),
        ({}, "regressed", REJECTED),
    ],
)
def test_a_change_is_accepted_where_a_known_deviation_begins_after_the_base(
    since: dict[str, str], kind: str, code: int
) -> None:
    found = of({"a": PASS}, {"a": nan_row(known="told upstream", since=since)})
    assert (found.counts, found.exit_code) == ({kind: 1}, code)
    sentence = "onnxruntime 1.24.4: a fully masked row is NaN (in 1.23.2: zero): 1 case"
    assert found.groups[0].sentence == sentence
    assert found.headline == (
        f"Nothing regressed. Accepted: {sentence}" if kind == "accepted" else f"Regressed: {sentence}"
    )


def test_another_way_and_another_failure_are_accepted_alike() -> None:
    since = {"onnxruntime": ">=1.24"}
    for before in (nan_row(), nan_row(known="x", since={"onnxruntime": "<1.24"})):
        found = of({"a": before}, {"a": mean_row(known="y", since=since)})
        assert (found.counts, found.exit_code) == ({"accepted": 1}, CONFORMS)
    found = of({"a": PASS, "b": PASS}, {"a": mean_row(known="y", since=since), "b": mean_row()})
    assert (found.counts, found.exit_code) == ({"regressed": 1, "accepted": 1}, REJECTED)


def test_what_conforms_is_told_by_the_decision_of_the_other_side() -> None:
    tiled = Observed("fail", ways=("grouped_heads=tile",), klass="semantic")
    found = of({"a": PASS, "b": tiled}, {"a": tiled, "b": PASS})
    now = "onnxruntime 1.24.4: key and value heads are shared"
    assert [(group.kind, group.sentence) for group in found.groups] == [
        ("regressed", f"{now} in the order 0, 1, 0, 1 (in 1.23.2: in the order 0, 0, 1, 1): 1 case"),
        ("fixed", f"{now} in the order 0, 0, 1, 1 (in 1.23.2: in the order 0, 1, 0, 1): 1 case"),
    ]


def test_two_decisions_are_told_one_after_the_other() -> None:
    before = Observed("fail", ways=("scale=none",), klass="semantic")
    found = of({"a": before}, {"a": Observed("fail", ways=("use[mask]=ignored",), klass="semantic")})
    sentence = "onnxruntime 1.24.4: it ignores mask; in 1.23.2 it does not scale the logits: 1 case"
    assert [(group.kind, group.sentence) for group in found.groups] == [("fails_otherwise", sentence)]


def test_the_cause_that_explains_most_cells_names_the_group() -> None:
    both = ("mask_axes[mask]=transposed", "use[mask]=ignored")
    found = of(
        {"a": PASS, "b": PASS},
        {"a": Observed("fail", ways=both), "b": Observed("fail", ways=("use[mask]=ignored",))},
    )
    assert [group.sentence for group in found.groups] == [
        "onnxruntime 1.24.4: mask is ignored (in 1.23.2: used): 2 cases"
    ]


def test_what_the_diagnosis_of_a_run_says_names_the_group() -> None:
    """It takes precedence over the deviation that explains most cells, and over what a single reply shows."""
    ways = ("use[mask]=ignored", "fully_masked_row=uniform", "mask_axes[mask]=transposed")
    told = Observed("fail", ways=ways[::-1], cause="mask_axes[mask]=transposed", condition="only with a mask")
    found = of({"a": PASS, "b": PASS}, {"a": told, "b": Observed("fail", ways=ways[:1])})
    assert {group.changes[0].case: group.ways.now for group in found.groups} == {"a": ways[2], "b": ways[0]}
    (first,) = [group for group in found.groups if group.changes[0].case == "a"]
    assert "it transposes mask when seq_len_q = seq_len_k, only with a mask; " in first.sentence


def test_a_red_base_with_a_green_candidate_conforms_and_says_what_was_fixed() -> None:
    found = of({"a": nan_row()}, {"a": PASS})
    assert found.exit_code == CONFORMS
    assert found.headline == (
        "Nothing regressed. Fixed: onnxruntime 1.24.4: a fully masked row is zero (in 1.23.2: NaN): 1 case"
    )


def test_what_both_sides_decline_is_counted_by_itself() -> None:
    before = {"a": DECLINED, "b": PASS, "c": PASS}
    record = of(before, before | {"b": DECLINED}).record()
    assert totals(record) == "3 cells compared: 1 support lost, 1 unchanged, 1 declined on both sides"


def test_the_same_red_twice_is_no_regression() -> None:
    found = of({"a": nan_row(), "b": ERROR}, {"a": nan_row(), "b": ERROR})
    assert (found.exit_code, found.judged, found.unchanged, found.groups) == (CONFORMS, 1, 1, ())
    assert found.headline == "Unchanged: 1 verdict on 1 subject, judged on both sides; 2 verdicts are red on both sides"
    accepted = {"a": nan_row(known="x"), "b": PASS}
    assert of(accepted, accepted).headline == "Unchanged: 2 verdicts on 1 subject, judged on both sides"


def test_where_neither_side_replies_nothing_was_compared() -> None:
    found = of({"a": ERROR, "b": ERROR}, {"a": ERROR, "b": ERROR})
    assert (found.exit_code, found.record()["red_on_both"]) == (NOTHING, 2)
    assert found.headline == "Nothing was compared: 2 verdicts, none of them judged on both sides"
    known = {"a": Observed("error", error="ValueError", known="x")}
    assert of(known, known).exit_code == NOTHING
    declined = {"a": Observed("unsupported")}
    assert of(declined, declined).exit_code == NOTHING


def test_an_exception_of_another_class_with_the_same_root_is_the_same_failure() -> None:
    before, now = (Observed("error", error=name, root="no kernel for #") for name in ("RuntimeException", "Fail"))
    assert of({"a": before, "b": PASS}, {"a": now, "b": PASS}).groups == ()
    other = Observed("error", error="Fail", root="another reason")
    assert of({"a": before, "b": PASS}, {"a": other, "b": PASS}).counts == {"fails_otherwise": 1}


def test_exceptions_of_one_root_are_one_group_whatever_their_class() -> None:
    now = {
        name: Observed("error", error=kind, root="gone") for name, kind in (("a", "Fail"), ("b", "RuntimeException"))
    }
    found = of({"a": PASS, "b": PASS}, now)
    assert [each.cases for each in found.groups] == [2]


def test_another_problem_or_another_judge_is_no_regression() -> None:
    before, now = {"a": Observed("pass", problem="p1")}, {"a": nan_row(problem="p2")}
    assert of(before, now).counts == {"case_changed": 1}
    judged = of({"a": PASS}, {"a": nan_row(judge="another")})
    assert (judged.counts, judged.exit_code) == ({"judge_changed": 1}, CONFORMS)
    assert judged.notes == (
        "the judging code differs, so changed verdicts are not compared; judge both sides with the same version",
    )


def test_bits_of_another_machine_are_told_once() -> None:
    other = MACHINE | {"cpu_features": "avx512f"}
    found = compare(
        side("base", {"a": PASS, "b": PASS}),
        side("candidate", {"a": Observed("pass", budget=0.3, bits="b9"), "b": PASS}, machine=other),
    )
    assert found.groups == ()
    differ = "platform, CPU features, threads, device or math libraries differ"
    assert found.notes == (f"bits are not comparable for every subject: {differ}",)


def test_support_may_be_lost_within_the_skip_budget() -> None:
    before, now = {"a": PASS, "b": PASS}, {"a": DECLINED, "b": DECLINED}
    assert of(before, now).exit_code == REJECTED
    assert of(before, now, skip_budget=1).exit_code == REJECTED
    spared = of(before, now, skip_budget=2)
    assert spared.exit_code == CONFORMS
    assert [group["rejected"] for group in spared.record()["groups"]] == [False]


def test_cells_of_cases_that_one_side_does_not_have_are_reported_only() -> None:
    found = of({"a": PASS, "old": PASS}, {"a": PASS, "new": nan_row()})
    assert (found.counts, found.exit_code) == ({"added": 1, "deleted": 1}, CONFORMS)


def test_what_only_a_thorough_run_asks_is_not_deleted() -> None:
    both, further = Observed("pass", budget=0.5), Observed("pass", budget=0.25)
    thorough = side("nightly", {"a": both, "b": further, "c": further})
    plain = side("plain", {"a": both}, left_out=592)
    found = compare(thorough, plain)
    assert (found.counts, found.exit_code) == ({}, CONFORMS)
    assert found.notes == (
        "2 verdicts are only in nightly, a thorough run, and not compared: run both sides with --thorough",
    )
    assert compare(plain, thorough).notes == found.notes, "in either direction"
    assert compare(replace(plain, cells=thorough.cells), plain).counts == {"deleted": 2}, "both are plain runs"


def test_a_verdict_that_was_asked_for_and_is_missing_makes_it_incomplete() -> None:
    short = side("candidate", {"a": nan_row()}, cases={"a": "", "b": ""})
    found = compare(side("base", {"a": PASS, "b": PASS}), short)
    assert found.exit_code == INCOMPLETE
    assert found.incomplete == ("candidate: 1 verdict is missing, first b on onnxruntime.sdpa: run it again",)
    assert found.headline.startswith("Incomplete: candidate: 1 verdict is missing")
    assert found.counts == {"regressed": 1}


def test_a_subject_that_is_not_offered_any_more_has_lost_its_support() -> None:
    gone = side("candidate", {}, asked={}, not_offered={SUBJECT: "onnxruntime"})
    found = compare(side("base", {"a": PASS}), gone)
    sentence = f"{SUBJECT}: it is declined: not offered, because it lacks onnxruntime; before it conformed: 1 case"
    assert [(group.kind, group.sentence) for group in found.groups] == [("support_lost", sentence)]
    assert found.exit_code == REJECTED


def test_a_call_that_has_no_dense_form_any_more_has_lost_a_mask_argument() -> None:
    dense = f"{SUBJECT}[dense]"
    cells = {("a", SUBJECT): PASS, ("a", dense): PASS, ("b", SUBJECT): PASS}
    base = replace(side("base", {"a": PASS, "b": PASS}), cells=cells)
    base = replace(base, asked={**base.asked, dense: base.asked[SUBJECT]})
    only_native = {key: cell for key, cell in cells.items() if key[1] == SUBJECT}
    found = compare(base, replace(base, cells=only_native))
    sentence = (
        f"{dense}: it is declined: the call uses only the argument for all masks now, so it has no dense form; "
        "before it conformed: 1 case"
    )
    assert [(group.kind, group.sentence) for group in found.groups] == [("support_lost", sentence)]
    assert found.exit_code == REJECTED
    unasked = replace(base, cells=only_native, asked={SUBJECT: base.asked[SUBJECT]})
    assert compare(base, unasked).counts == {"deleted": 1}, "dense forms were not asked for"
    assert compare(base, replace(base, cells={("b", SUBJECT): PASS})).counts == {}, "the call was not judged at all"


def test_two_sides_with_nothing_in_common_compare_nothing() -> None:
    assert of({"a": PASS}, {"b": PASS}).exit_code == NOTHING
