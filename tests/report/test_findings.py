"""What every report shows first: the conclusion, the causes, and the totals of each subject."""

import io
import math
from pathlib import Path
from typing import Any

import pytest

from conformance.report import load_run
from conformance.report.conclusion import gate_notes, headline, known_groups, subject_lines
from conformance.report.counts import budget_text, share_text
from conformance.report.findings import advice, finding_text, findings, findings_of
from conformance.report.junit import junit_xml
from conformance.report.run_page import page, picture
from conformance.report.summary import summary, write_summary
from conformance.report.terminal import print_summary

from .build_run import RunBuilder


def test_a_remedy_says_whether_the_function_or_its_call_is_changed() -> None:
    assert advice("in the function, fill with -inf") == "fix: in the function, fill with -inf"
    assert advice("pass ~mask") == "workaround: pass ~mask"
    assert advice("") == ""


def test_verdicts_with_one_cause_are_one_finding(demonstration: Path) -> None:
    found = findings(load_run(demonstration))
    assert [(finding.subject, finding.count) for finding in found[:2]] == [
        ("torch.sdpa[math]", 10),
        ("onnx.torch_sdpa", 4),
    ]
    assert found[0].sentence == "reads True in attn_mask as ignore, only with a mask"
    assert found[0].ambiguous == (
        (
            "it ignores attn_mask (workaround: do not rely on attn_mask: it has no effect); "
            "causal/square/sdpa_full[dtype=float32] would distinguish them"
        ),
    )
    assert finding_text(found[0]) == (
        "1 cause explains 10 verdicts of torch.sdpa[math]: it reads True in attn_mask as ignore, only with a mask; "
        "workaround: pass ~attn_mask"
    )
    assert found[0].remedy == "pass ~attn_mask"
    assert found[0].explained
    assert not found[1].explained
    assert found[1].sentence.startswith("RuntimeError: [ONNXRuntimeError]")
    assert {finding.kind for finding in found} == {
        "fail, semantic", "error", "crash", "timeout", "fail, impossible", "fail, precision",
    }  # fmt: skip


def failing(builder: Any, *names: str, **more: Any) -> str:
    """Add a subject that fails these cases; return its name. scale=none and scale=ignored both explain each failure."""
    subject: str = builder.subject("torch.mha")
    explanation = {"decision": "scale", "name": "none", "sentence": "does not scale", "remedy": "scale"}
    for name in names:
        case = builder.case(name)
        builder.cell(
            case, subject, "fail", class_="semantic", rejected=True, explanation=explanation, ties=["scale=ignored"],
            reason="output: far off", **more,
        )  # fmt: skip
    return subject


def test_what_no_diagnosis_speaks_of_goes_to_a_cause_that_is_told_already(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one", "a/two")
    cause = {"sentence": "ignores the scale argument", "decisions": {"scale": "ignored"}, "cells": ["a/two"]}
    builder.diagnosis(subject, cause | {"remedy": "multiply the query instead"})
    (found,) = findings(load_run(builder.write()))
    assert (found.sentence, found.cells) == (cause["sentence"], (("a/two", subject), ("a/one", subject)))


REVERSES: dict[str, Any] = {
    "sentence": "reverses the keys",
    "remedy": "turn them round",
    "decisions": {"value_path": "reversed"},
}
IGNORES: dict[str, Any] = {
    "sentence": "ignores the scale argument",
    "remedy": "scale",
    "decisions": {"scale": "ignored"},
}


def two_mistakes(builder: RunBuilder) -> str:
    """Add a subject that makes two mistakes in the call a/both, and one of them in a/one; return its name."""
    subject = failing(builder, "a/both", "a/one")
    both = {"sentence": "does both", "cells": ["a/both"]}
    ignores = IGNORES | {"cells": ["a/both"], "condition": "only with a mask"}
    reverses = REVERSES | {"cells": ["a/one", "a/both"]}
    builder.diagnosis(subject, both, REVERSES | {"cells": ["a/one"]}, separated=(ignores, reverses))
    return subject


def test_each_of_two_mistakes_is_a_finding_with_all_its_verdicts(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    two_mistakes(builder)
    run = load_run(builder.write())
    assert [finding_text(each) for each in findings(run)] == [
        "1 cause explains 2 verdicts of torch.mha: it reverses the keys; workaround: turn them round",
        "1 cause explains 1 verdict of torch.mha: it ignores the scale argument, only with a mask; workaround: scale",
    ]
    assert {key[0]: len(found) for key, found in findings_of(run).items()} == {"a/both": 2, "a/one": 1}
    assert len(run.rejected) == 2


def test_an_accepted_deviation_is_no_finding(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/both")
    accepted, reverses = IGNORES | {"cells": ["a/both"], "accepted": True}, REVERSES | {"cells": ["a/both"]}
    builder.diagnosis(subject, {"sentence": "does both", "cells": ["a/both"]}, separated=(accepted, reverses))
    assert [each.sentence for each in findings(load_run(builder.write()))] == ["reverses the keys"]


def test_junit_and_the_summary_say_both_mistakes_of_a_call(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    two_mistakes(builder)
    run = load_run(builder.write())
    both, one, _ = junit_xml(run).decode().split("</testcase>")
    assert 'message="fail, semantic: 1 cause explains 2 verdicts of torch.mha: it reverses the keys' in both
    assert "also: 1 cause explains 1 verdict of torch.mha: it ignores the scale argument" in both
    assert "also: " not in one
    assert "reverses the keys; ignores the scale argument" in "\n".join(summary(run))


@pytest.mark.parametrize(("calls", "said"), [(1, "1 other failing call"), (2, "2 other failing calls")])
def test_a_cause_says_what_speaks_against_it(tmp_path: Path, calls: int, said: str) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one", "a/two", "a/three")
    cause = {"sentence": "reverses", "cells": ["a/two"], "remedy": "turn back", "fail_otherwise": calls}
    builder.diagnosis(subject, cause, unexplained=("a/one", "a/three"))
    text = finding_text(findings(load_run(builder.write()))[0])
    assert text.startswith(f"1 cause explains 1 verdict of torch.mha: it reverses, but this does not explain {said} ")
    assert text.endswith(" in which it would show; workaround: turn back")


def test_another_possible_cause_says_what_to_do_only_if_that_is_something_else(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one")
    ties = [{"sentence": "turns round", "remedy": "turn back"}, {"sentence": "turns left", "remedy": "turn right"}]
    cause = {"sentence": "reverses", "remedy": "turn back", "cells": ["a/one"], "ties": ties}
    builder.diagnosis(subject, cause)
    (reverses,) = findings(load_run(builder.write()))
    assert reverses.ambiguous == (
        "it turns round; no case distinguishes the two",
        "it turns left (workaround: turn right); no case distinguishes the two",
    )


def test_the_diagnosis_overrules_what_explains_a_cell_alone(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one", "a/two", "a/three")
    cause = {"sentence": "reverses", "cells": ["a/two"], "ties": [{"sentence": "turns round", "condition": "only now"}]}
    builder.diagnosis(subject, cause, unexplained=("a/one", "a/three"))
    reverses, left = findings(load_run(builder.write()))
    assert (reverses.sentence, reverses.cells, reverses.explained) == ("reverses", (("a/two", subject),), True)
    assert reverses.ambiguous == ("it turns round, only now; no case distinguishes the two",)
    assert left.cells == (("a/one", subject), ("a/three", subject))
    assert finding_text(left) == (
        "2 verdicts of torch.mha (fail: a known cause would explain this failure, but other calls rule it out; "
        "no cause found): "
        "output: far off; these calls alone suggest that it does not scale, but other calls contradict this"
    )


def test_without_a_cause_it_is_told_what_the_weights_are(tmp_path: Path) -> None:
    """For a call that a cause explains (a/one), the finding says nothing about its weights."""
    builder = RunBuilder(tmp_path)
    subject = builder.subject("torch.mha")
    for name, odd in (("a/one", "zero"), ("a/two", "sum to 2"), ("a/three", "sum to 2"), ("a/four", "sum to 2")):
        builder.cell(
            builder.case(name), subject, "fail", class_="impossible", rejected=True, reason="output: far off",
            pattern={"calls": 1, "beyond": 3, "elements": 9, "odd": [odd]},
        )  # fmt: skip
    cause = {"sentence": "does not scale", "decisions": {"scale": "none"}, "cells": ["a/one"]}
    builder.diagnosis(subject, cause, unexplained=("a/two", "a/three", "a/four"))
    explained, left = findings(load_run(builder.write()))
    assert explained.sentence == "does not scale"
    assert (left.sentence, left.facts) == (
        "output: far off",
        ("the weights that it returns (in 3 of 3 measured calls) sum to 2",),
    )


def relation(name: str, found: str = "broken") -> dict[str, str]:
    return {"name": name, "found": found} | ({"sentence": f"breaks {name}"} if found == "broken" else {})


def test_without_a_cause_it_is_told_which_relations_are_broken(tmp_path: Path) -> None:
    """At most two, those that are broken most often first; none that the measured weights tell more precisely."""
    builder = RunBuilder(tmp_path)
    subject = builder.subject("torch.mha")
    read = {"calls": 1, "beyond": 3, "elements": 9, "odd": ["sum to 2"]}
    for name, relations in (
        ("a/one", [relation("order"), relation("rare"), relation("visible_keys"), relation("known", "known")]),
        ("a/two", [relation("order", "holds"), relation("rare", "holds")]),
        ("a/three", [relation("rare", "holds"), relation("heads"), relation("last_key", "holds")]),
    ):
        builder.cell(
            builder.case(name), subject, "fail", class_="impossible", rejected=True, reason="output: far off",
            pattern=read, invariants=relations,
        )  # fmt: skip
    builder.diagnosis(subject, unexplained=("a/one", "a/two", "a/three"), where="only with a mask")
    (found,) = findings(load_run(builder.write()))
    facts = (
        "it fails only with a mask",
        "the weights that it returns (in 3 of 3 measured calls) sum to 2",
        "it breaks heads (in 1 of 1 tested call)",
        "it breaks order (in 1 of 2 tested calls)",
    )
    assert (found.sentence, found.facts) == ("output: far off", facts)
    assert finding_text(found).endswith(f": output: far off; {'; '.join(facts)}")


def test_every_report_has_the_facts_on_lines_of_their_own(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one", "a/two")
    builder.diagnosis(subject, unexplained=("a/one", "a/two"), where="only with a mask")
    run = load_run(builder.write())
    screen = io.StringIO()
    print_summary(run, screen)
    lines = screen.getvalue().splitlines()
    first = next(number for number, line in enumerate(lines) if line.endswith("no cause found): output: far off"))
    assert lines[first + 1] == "  it fails only with a mask"
    write_summary(run, tmp_path / "summary.md")
    assert "output: far off\n  - it fails only with a mask\n" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert '<span class="fact">It fails only with a mask.</span>' in "".join(page(run))


def test_the_picture_is_of_a_call_whose_weights_have_a_name(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = builder.subject("torch.mha")
    for name, beyond, odd in (("a/nan", 9, []), ("a/few", 3, ["sum to 2"]), ("a/more", 5, ["sum to 2"])):
        builder.cell(
            builder.case(name), subject, "fail", class_="impossible", rejected=True, reason="output: far off",
            pattern={"calls": 1, "beyond": beyond, "elements": 9, "odd": odd},
        )  # fmt: skip
    run = load_run(builder.write())
    assert picture(run, findings(run)[0]) == ("a/more", subject)


def test_a_broken_relation_is_told_once(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = builder.subject("torch.mha")
    builder.cell(
        builder.case("a/one"), subject, "fail", class_="invariant", rejected=True,
        reason="order: it breaks order: output: 3", invariants=[relation("order")],
    )  # fmt: skip
    (found,) = findings(load_run(builder.write()))
    assert found.facts == ()


def test_a_cause_shows_once_for_calls_and_for_relations_between_replies(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one", "a/two", "a/three")
    builder.diagnosis(subject, {"sentence": "does not scale", "remedy": "scale", "cells": ["a/two"]})
    (found,) = findings(load_run(builder.write()))
    assert (found.sentence, found.cells) == (
        "does not scale",
        tuple((f"a/{name}", subject) for name in ("two", "one", "three")),
    )


@pytest.mark.parametrize(
    ("native", "dense", "said"),
    [
        ("", "", [("does not scale", 3)]),
        ("", "only with mask given", [("does not scale", 3)]),
        ("only in float32", "only in float32", [("does not scale, only in float32", 3)]),
        ("only in float32", "", [("does not scale, only in float32", 2), ("does not scale", 1)]),
    ],
)
def test_a_cause_that_a_subject_and_its_dense_form_share_is_one_finding(
    tmp_path: Path, native: str, dense: str, said: list[tuple[str, int]]
) -> None:
    """If the cause has no condition in the native form, the finding omits the condition of the dense form."""
    builder = RunBuilder(tmp_path)
    cause = {"sentence": "does not scale", "remedy": "scale", "decisions": {"scale": "none"}}
    for subject, condition, names in (
        ("torch.mha[dense]", dense, ("a/one",)),
        ("torch.mha", native, ("a/one", "a/two")),
    ):
        builder.subject(subject)
        for name in names:
            builder.cell(builder.case(name), subject, "fail", class_="semantic", rejected=True, reason="far off")
        builder.diagnosis(subject, cause | {"cells": list(names), "condition": condition})
    found = findings(load_run(builder.write()))
    assert [(each.sentence, each.count) for each in found] == said
    assert found[0].subject == "torch.mha"


def test_the_example_of_a_cause_is_a_call_that_no_other_cause_changes(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one", "a/two", "a/three")
    causes = [
        {"sentence": sentence, "cells": cells, "decisions": {}}
        for sentence, cells in (("reverses", ["a/one", "a/two"]), ("shifts", ["a/one", "a/three"]))
    ]
    builder.diagnosis(subject, *causes)
    found = findings(load_run(builder.write()))
    assert {each.sentence: each.example[0] for each in found} == {"reverses": "a/two", "shifts": "a/three"}


def test_a_relation_that_breaks_has_the_condition_of_its_cause(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one", "a/two")
    cause = {"sentence": "does not scale", "decisions": {"scale": "none"}, "condition": "only with batch = 1"}
    builder.diagnosis(subject, cause | {"remedy": "scale", "cells": ["a/two"]})
    (found,) = findings(load_run(builder.write()))
    assert found.sentence == "does not scale, only with batch = 1"
    assert found.cells == (("a/two", subject), ("a/one", subject))


def test_what_the_gate_accepts_is_no_finding_though_a_cause_explains_it(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one")
    builder.rejected.clear()
    builder.diagnosis(subject, {"sentence": "reverses", "cells": ["a/one"]})
    assert not findings(load_run(builder.write()))


def test_without_a_diagnosis_cells_are_grouped_by_what_explains_them_alone(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    failing(builder, "a/one", "a/two")
    builder.footed = False
    (found,) = findings(load_run(builder.write()))
    assert (found.count, found.sentence, found.remedy) == (2, "does not scale", "scale")


UNSTEADY = {
    "nondeterministic": "returns different results for the same call (nondeterministic)",
    "order_dependent": "returns a result that depends on earlier calls (order dependent)",
}


def non_reproducible(builder: Any, subject: str, klass: str, *names: str) -> None:
    for name in names:
        builder.cell(
            builder.case(name), subject, "fail", class_=klass, rejected=True, reason=f"{name} differs; far off",
            repeats={"found": klass, "again": 3, "alone": 0, "reason": f"{name} differs"},
        )  # fmt: skip


@pytest.mark.parametrize("klass", sorted(UNSTEADY))
def test_what_is_told_by_repetition_is_one_cause_beside_the_others(tmp_path: Path, klass: str) -> None:
    builder = RunBuilder(tmp_path)
    subject = failing(builder, "a/one")
    builder.diagnosis(subject, {"sentence": "does not scale", "remedy": "scale", "cells": ["a/one"]})
    non_reproducible(builder, subject, klass, "b/one", "b/two")
    found, other = findings(load_run(builder.write()))
    assert (found.sentence, found.explained, found.count) == (UNSTEADY[klass], True, 2)
    assert finding_text(found) == (
        f"1 cause explains 2 verdicts of torch.mha: it {UNSTEADY[klass]}: b/one differs; fix: {found.remedy}"
    )
    assert (other.sentence, other.cells) == ("does not scale", (("a/one", subject),))


@pytest.mark.parametrize(("drawn", "told"), [(2, ["nondeterministic"]), (1, ["nondeterministic", "order_dependent"])])
def test_replies_that_are_the_same_twice_by_chance_are_no_other_cause(
    tmp_path: Path, drawn: int, told: list[str]
) -> None:
    builder = RunBuilder(tmp_path)
    subject = builder.subject("torch.mha")
    non_reproducible(builder, subject, "order_dependent", "a/zero")
    non_reproducible(builder, subject, "nondeterministic", *(f"b/{n}" for n in range(drawn)))
    found = findings(load_run(builder.write()))
    assert sorted(each.sentence for each in found) == sorted(UNSTEADY[klass] for klass in told)
    assert sum(each.count for each in found) == drawn + 1
    assert {each.seen for each in found if "(nondeterministic)" in each.sentence} == {"b/0 differs"}


def test_messages_that_differ_in_numbers_are_one_cause(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    subject = builder.subject("torch.mha")
    for number in (17, 4):
        error = {"type": "ValueError", "message": f"size {number} does not fit"}
        builder.cell(builder.case(f"shapes/{number}"), subject, "error", rejected=True, error=error)
    found = findings(load_run(builder.write()))
    assert [(finding.count, finding.sentence) for finding in found] == [(2, "ValueError: size 17 does not fit")]


def test_the_headline_of_a_run_that_does_not_conform(demonstration: Path) -> None:
    said = headline(load_run(demonstration))
    assert said.startswith("Does not conform: 18 of 332 judged calls are rejected, ")
    assert said.endswith(", 1 worker failed, 1 known deviation is no longer needed.")
    assert ("incomplete", "onnx.torch_sdpa: 1 verdict missing") in gate_notes(load_run(demonstration))


@pytest.mark.parametrize("known", [None, {"reason": "told upstream", "link": "https://example.org/1"}])
@pytest.mark.parametrize("unsupported", [0, 2])
def test_the_headline_of_a_run_that_conforms(tmp_path: Path, known: dict[str, str] | None, unsupported: int) -> None:
    builder = RunBuilder(tmp_path)
    case, subject = builder.case("shapes/one"), builder.subject("torch.mha")
    builder.cell(case, subject, "fail" if known else "pass", known=known)
    for number in range(unsupported):
        builder.cell(builder.case(f"shapes/declined_{number}"), subject, "unsupported")
    accepted = "; 1 verdict accepted as known deviations" if known else ""
    tail = f"{accepted}; 2 unsupported" if unsupported else accepted
    assert headline(load_run(builder.write())) == f"Conforms: 1 call judged on 1 subject, none rejected{tail}."


def test_a_cut_run_is_undecided(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    builder.case("shapes/two")
    builder.cell(builder.case("shapes/one"), builder.subject("torch.mha"))
    builder.footed = False
    assert (
        headline(load_run(builder.write())) == "Undecided: the run was interrupted before its end (1 verdict missing)."
    )


def test_an_incomplete_run_says_so(tmp_path: Path) -> None:
    builder = RunBuilder(tmp_path)
    builder.case("shapes/two")
    builder.cell(builder.case("shapes/one"), builder.subject("torch.mha"))
    builder.gate = {"conforms": False, "incomplete": ["torch.mha: 1 verdict missing"]}
    assert headline(load_run(builder.write())) == "Incomplete: 1 verdict missing."


def test_the_sums_of_a_subject(demonstration: Path) -> None:
    lines = {line.subject.name: line for line in subject_lines(load_run(demonstration))}
    assert lines["onnx.torch_mha"].counts == {"pass": 14, "unsupported": 14}
    assert lines["onnx.torch_mha"].share == 0.5
    assert lines["torch.mha"].counts["known"] == 4
    assert lines["torch.mha"].rejected == 0
    assert lines["torch.mha"].worst == pytest.approx(0.74, abs=0.01)
    assert lines["torch.sdpa[flash]"].share == pytest.approx(27 / 28)
    assert lines["torch.sdpa[math,dense]"].cases == 10


def test_the_cells_of_a_known_deviation_are_grouped(demonstration: Path) -> None:
    (group,) = known_groups(load_run(demonstration))
    assert len(group.cells) == 4
    assert group.subjects == ("torch.mha",)


@pytest.mark.parametrize(
    ("budget", "text"),
    [
        (None, ""), (0.0, "0.00"), (0.004, "<0.01"), (0.437, "0.44"), (12.5, "12"), (9999.0, "9999"), (123456.0, "1e5"),
        (1e12, "1e12"), (math.inf, "inf"), (math.nan, "nan"),
    ],
)  # fmt: skip
def test_budgets_are_short(budget: float | None, text: str) -> None:
    assert budget_text(budget) == text


def test_only_the_whole_is_one_hundred_percent() -> None:
    assert [share_text(share) for share in (None, 0.999, 1.0)] == ["", "99 %", "100 %"]
