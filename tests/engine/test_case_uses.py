"""A case is needed until its last user is done; then the judge lets go of what it expects."""

from pathlib import Path

import pytest

from conformance.bridge.profile import Profile
from conformance.engine.judging import Judge
from conformance.engine.session import CaseUses
from conformance.spec.bounded_memo import BoundedMemo
from conformance.spec.case import Case
from conformance.spec.entry import read_entry
from conformance.spec.materialise import materialise
from conformance.verdicts import expectation
from conformance.verdicts.expectation import Expectation, expect


def plain_case() -> Case:
    sizes = {"batch": 2, "num_heads": 3, "seq_len_q": 5, "seq_len_k": 7, "head_dim": 11}
    plain, faults = read_entry({"name": "plain", "operator": "sdpa", **sizes}, Path("cases/t.yaml"), Path("cases"))
    assert plain is not None, faults
    return plain


def test_a_case_is_needed_until_its_last_user_is_done() -> None:
    uses = CaseUses()
    uses.expect("one")
    uses.expect("one")
    assert not uses.end("one")
    assert uses.needs("one")
    assert uses.end("one")
    assert not uses.needs("one")


def test_the_judge_forgets_what_it_expects_of_a_finished_case(monkeypatch: pytest.MonkeyPatch) -> None:
    case = plain_case()
    problem, judge = materialise(case), Judge()
    profile, coarser = Profile.uniform("float32"), Profile.uniform("float16")

    def ask() -> Expectation:
        return judge.expectation(case.id, problem, {}, profile)

    no_room: BoundedMemo[Expectation] = BoundedMemo(0, lambda each: each.size)
    monkeypatch.setattr(expectation, "_KNOWN", no_room)
    first = ask()
    expect(problem, {}, coarser)  # drops what `expect` kept
    assert ask() is first
    judge.finish(case.id)
    assert ask() is not first


def test_what_is_expected_depends_on_problem_dialect_and_profile_alone() -> None:
    case = plain_case()
    problem, profile = materialise(case), Profile.uniform("float32")
    expected = expect(problem, {}, profile)
    assert expect(problem.but(query=problem.query.copy()), {}, profile) is expected
    others = [
        expect(problem.but(query=-problem.query), {}, profile),
        expect(problem.but(outputs=("output", "weights")), {}, profile),
        expect(problem, {"scale": "none"}, profile),
        expect(problem, {}, Profile.uniform("float16")),
    ]
    assert all(other is not expected for other in others)
    changed = [other.reply["output"].values.tobytes() != expected.reply["output"].values.tobytes() for other in others]
    assert changed == [True, False, True, False]
