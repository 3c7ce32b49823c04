"""The outcome of a case combines the two forms in which its masks are passed."""

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.bridge.contract import Facts
from conformance.bridge.profile import Profile
from conformance.checking.check_report import CaseOutcome, headline, outcomes
from conformance.checking.declarations import Declared
from conformance.checking.function_check import AcceptedFailures
from conformance.checking.signature import Signature
from conformance.engine.judging import Judged
from conformance.report import load_run

from ..problems import judge, random_sdpa, reply_under
from ..report.build_run import RunBuilder

FLOAT32 = Profile.uniform("float32")
FORMS = ("mine.attention", "mine.attention[dense]")


@pytest.fixture
def builder(tmp_path: Path) -> RunBuilder:
    made = RunBuilder(tmp_path)
    made.subject(FORMS[0])
    made.subject(FORMS[1], counted=False)
    made.case("a/b")
    return made


def told(builder: RunBuilder) -> CaseOutcome:
    return outcomes(load_run(builder.write()), lambda case: f"check -k {case}")["a/b"]


@pytest.mark.parametrize(
    ("native", "dense", "verdict"),
    [
        ("pass", None, "pass"),
        ("pass", "dialect", "dialect"),
        ("pass", "unsupported", "pass"),
        ("unsupported", "pass", "pass"),
    ],
)
def test_a_form_that_is_declined_does_not_count_beside_one_that_is_judged(
    builder: RunBuilder, native: str, dense: str | None, verdict: str
) -> None:
    builder.cell("a/b", FORMS[0], native)
    if dense is not None:
        builder.cell("a/b", FORMS[1], dense)
    assert told(builder) == CaseOutcome(verdict, accepted=True)


def test_what_is_declined_says_why(builder: RunBuilder) -> None:
    builder.cell("a/b", FORMS[0], "unsupported", reason="does not support: scale")
    assert told(builder) == CaseOutcome("unsupported", accepted=True, text="does not support: scale")


def test_what_fails_in_one_form_fails_with_its_cause_and_the_command(builder: RunBuilder) -> None:
    builder.cell("a/b", FORMS[0])
    why = {"decision": "scale", "name": "none", "sentence": "does not scale the logits", "remedy": "scale them"}
    builder.cell("a/b", FORMS[1], "fail", class_="semantic", explanation=why, rejected=True)
    assert told(builder) == CaseOutcome(
        "fail",
        accepted=False,
        text="it does not scale the logits (1 case)\nworkaround: scale them\nrerun: check -k a/b",
    )


def test_a_case_that_shows_two_mistakes_says_both(builder: RunBuilder) -> None:
    builder.cell("a/b", FORMS[0], "fail", class_="semantic", rejected=True)
    first, second = ({"sentence": each, "remedy": f"no {each}", "cells": ["a/b"]} for each in ("lies", "steals"))
    builder.diagnosis(FORMS[0], {"sentence": "lies and steals", "cells": ["a/b"]}, separated=(first, second))
    assert told(builder).text == "it lies (1 case)\nalso: it steals (1 case)\nworkaround: no lies\nrerun: check -k a/b"


def test_what_no_cause_explains_says_what_happened_in_this_case(builder: RunBuilder) -> None:
    builder.cell(builder.case("a/a"), FORMS[0], "fail", class_="precision", reason="output: 1 element", rejected=True)
    builder.cell("a/b", FORMS[0], "fail", class_="precision", reason="output: 7 elements", rejected=True)
    found = outcomes(load_run(builder.write()), lambda case: f"check -k {case}")
    first = "no cause found (could be rounding): output: 1 element (2 cases)"
    assert found["a/a"].text.splitlines() == [first, "rerun: check -k a/a"]
    assert found["a/b"].text.splitlines() == [first, "in this case: output: 7 elements", "rerun: check -k a/b"]


@pytest.mark.parametrize(
    ("decisions", "condition", "line"),
    [
        ({"polarity[mask]": "ignore"}, "", ["if intended: --declare 'polarity[mask]=ignore'"]),
        ({"scale": "none", "mask_fill": "m"}, "", ["if intended: --declare scale=none --declare mask_fill=m"]),
        ({"scale": "none", "secret": "m"}, "", []),
        ({"scale": "none"}, "only in float16", []),
        ({}, "", []),
    ],
)
def test_what_can_be_declared_is_offered(
    builder: RunBuilder, decisions: dict[str, str], condition: str, line: list[str]
) -> None:
    builder.cell("a/b", FORMS[0], "fail", class_="semantic", rejected=True)
    cause = {"sentence": "lies", "remedy": "do not", "cells": ["a/b"], "decisions": decisions, "condition": condition}
    builder.diagnosis(FORMS[0], cause)
    found = outcomes(
        load_run(builder.write()), lambda case: f"check -k {case}", lambda decision, _: decision != "secret"
    )
    assert found["a/b"].text.splitlines()[1:] == ["workaround: do not", *line, "rerun: check -k a/b"]


def test_an_exception_without_a_message_is_named_once(builder: RunBuilder) -> None:
    raised = {"type": "AssertionError", "message": "AssertionError", "traceback": "", "stage": "call"}
    builder.cell("a/b", FORMS[0], "error", error=raised, rejected=True)
    assert told(builder).text == "error: AssertionError (1 case)\nrerun: check -k a/b"


def test_what_has_no_verdict_is_not_accepted(builder: RunBuilder) -> None:
    builder.gate = {"incomplete": ["the worker died 3 times"]}
    outcome = told(builder)
    assert (outcome.verdict, outcome.accepted, outcome.judged) == ("missing", False, False)
    assert outcome.text.splitlines() == ["no verdict: the check ended before this case", "the worker died 3 times"]


def test_a_cause_counts_cases_and_not_the_verdicts_of_both_forms(builder: RunBuilder) -> None:
    why = {"decision": "scale", "name": "none", "sentence": "does not scale the logits", "remedy": ""}
    for case in ("a/b", builder.case("a/c")):
        for form in FORMS:
            builder.cell(case, form, "fail", class_="semantic", explanation=why, rejected=True)
    assert told(builder).text.startswith("it does not scale the logits (2 cases)\n")


@pytest.mark.parametrize(
    ("declined", "said"),
    [
        (
            0,
            "f conforms: 1 call judged; 100 % of the cases were judged (cases that differ only in dtype count as one).",
        ),
        (1, "f conforms: 1 call judged; 1 call left out because the function does not support it; 50 %"),
        (2, "f conforms: 1 call judged; 2 calls left out because the function does not support them; 33 %"),
    ],
)
def test_the_first_line_counts_what_the_function_does_not_support(
    builder: RunBuilder, declined: int, said: str
) -> None:
    builder.cell("a/b", FORMS[0], "pass")
    for number in range(declined):
        builder.case(f"a/c{number}")
        builder.cell(f"a/c{number}", FORMS[0], "unsupported")
    assert headline("f", load_run(builder.write()), (), conforms=True).startswith(said)


@pytest.mark.parametrize(
    ("uncalibrated", "why"),
    [
        (False, "under the declared or observed behaviour, rounding errors alone could be as large as the values"),
        (True, "the bound was not validated for this operation or device"),
    ],
)
def test_a_call_that_cannot_be_judged_is_accepted_and_the_note_says_why(*, uncalibrated: bool, why: str) -> None:
    problem = random_sdpa(3)
    found = judge(problem, {}, FLOAT32, reply_under({}, problem, FLOAT32))
    open_ = replace(found, verdict="inconclusive", uncalibrated=uncalibrated)
    facts = Facts("sdpa", "float32", "cpu", "", ("output",), masks=(), sizes=problem.sizes())
    accepted = AcceptedFailures(Signature("sdpa", {}, ()), Declared())
    for case in ("a/b", "a/c"):
        assert accepted.review(
            Judged(case, FORMS[0], {}, facts, problem, "inconclusive", profile=FLOAT32, judgement=open_)
        ).known
    assert [*accepted.notes()] == [f"accepted: 2 verdicts are inconclusive, such as a/b: {why}"]
