"""How long a case is needed, what the judge remembers of it, and when the judge explains a failure."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import places
from conformance.bridge.contract import Declaration
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.diagnosis.judgement import Judgement, explained
from conformance.engine.adapters import Subject, read_adapter
from conformance.engine.cells import Cell, make_cell
from conformance.engine.judging import Judge
from conformance.engine.logged_cell import LoggedKnown
from conformance.engine.session import CaseUses
from conformance.spec.case import Case
from conformance.spec.entry import read_entry
from conformance.spec.materialise import materialise
from conformance.spec.rounding import round_to, to_tensor
from conformance.verdicts.expectation import Expectation, expect

NUMPY = places.adapters() / "numpy_sdpa.py"


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


def test_the_judge_remembers_what_it_expects_until_a_case_is_finished() -> None:
    case = plain_case()
    problem, judge = materialise(case), Judge()
    profile = Profile.uniform("float32")

    def ask(dialect: dict[str, str]) -> Expectation:
        return judge.expectation(case.id, problem, dialect, profile)

    first, reply = ask({}), judge.reply(case.id, problem, {"scale": "none"}, profile)
    assert ask({}) is first
    assert ask({"scale": "none"}) is not first
    assert judge.expectation(case.id, problem, {}, Profile.uniform("float16")) is not first
    assert judge.reply(case.id, problem, {"scale": "none"}, profile) is reply
    judge.finish(case.id)
    assert ask({}) is not first
    assert judge.reply(case.id, problem, {"scale": "none"}, profile) is not reply


def test_what_cannot_affect_a_call_is_not_computed_anew() -> None:
    case, profile = plain_case(), Profile.uniform("float32")
    problem, judge = materialise(case), Judge()
    leaks = {"nonfinite_key": "leaks", "nonfinite_value": "leaks"}
    poisoned = problem.but(value=np.where(np.arange(11) == 3, np.inf, problem.value))
    finite, plain = (judge.expectation(case.id, problem, dialect, profile) for dialect in (leaks, {}))
    assert (finite.dialect, plain.dialect) == (leaks, {})
    assert finite.reply is plain.reply
    assert judge.reply(case.id, problem, leaks, profile) is plain.reply
    other = [judge.expectation("poisoned", poisoned, dialect, profile).reply for dialect in (leaks, {})]
    assert other[0] is not other[1]
    root = {"scale": "square_root"}
    negative = problem.but(scale=-0.3)
    both = [
        judge.reply("negative", negative, root | more, profile)["output"].values
        for more in ({}, {"nonfinite_key": "zeroes"})
    ]
    assert np.isnan(both[0]).all()  # the square root of a negative scale is NaN; the other deviation makes it zero
    assert not both[1].any()
    with pytest.raises(KeyError, match="no deviation scale=zero"):
        judge.expectation(case.id, problem, {"scale": "zero"}, profile)


def unscaled() -> tuple[Cell, Profile, dict[str, Tensor]]:
    """Return a plain call, its profile, and the reply of an implementation that does not scale the logits."""
    case, profile = plain_case(), Profile.uniform("float32")
    cell = make_cell(case, materialise(case), Subject(read_adapter(NUMPY)))
    assert isinstance(cell, Cell)
    wrong = expect(cell.route.problem, {"scale": "none"}, profile).reply
    return cell, profile, {n: to_tensor(round_to(each.values, "float32"), "float32") for n, each in wrong.items()}


@pytest.mark.parametrize("known_first", [False, True])
def test_a_failure_is_explained_before_its_review_unless_known_deviations_come_first(*, known_first: bool) -> None:
    """`check` accepts a failure by its explanation; a run first reads its list and tries only what the entry says."""
    cell, profile, reply = unscaled()
    judge = Judge(known_first=known_first)
    judged = judge.judge(cell, Declaration(profile), reply, {})
    assert judged.verdict == "fail"
    assert judged.judgement is not None
    assert (judged.judgement.explanation is None) is known_first

    def named(*decisions: str) -> str | None:
        known = LoggedKnown(reason="listed", decisions=decisions) if decisions else None
        found = judge.explained(judged, known).judgement
        return found.explanation.name if found is not None and found.explanation is not None else None

    assert named() == "none"
    if known_first:
        assert named("scale=none") == "none"
        assert named("scale=squared") is None
        assert named("scale=none", "mask_fill=zero") == "none"


@pytest.mark.parametrize("known_first", [False, True])
def test_causes_of_a_failure_that_has_none_are_searched_once(
    monkeypatch: pytest.MonkeyPatch, *, known_first: bool
) -> None:
    """A run calls `explained` after its review, whether or not `judge` has searched already."""
    cell, profile, reply = unscaled()
    unheard = {name: Tensor(each.dtype, each.bits + np.sin(7 * each.bits)) for name, each in reply.items()}
    searches = []

    def counted(found: Judgement, *more: Any) -> Judgement:
        searches.append(found)
        return explained(found, *more)

    monkeypatch.setattr("conformance.engine.judging.explained", counted)
    judge = Judge(known_first=known_first)
    judged = judge.explained(judge.judge(cell, Declaration(profile), unheard, {}))
    assert (judged.verdict, len(searches)) == ("fail", 1)
    assert judged.judgement is not None
    assert judged.judgement.explanation is None


def test_what_accepted_a_failure_explains_it_and_is_not_computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, profile, reply = unscaled()
    judge = Judge(known_first=True)
    judged = judge.judge(cell, Declaration(profile), reply, {})
    alone = judge.explained(judged).judgement
    judge.expectation(
        cell.case.id, cell.route.problem, {"scale": "none"}, profile
    )  # as a review of known deviations does
    monkeypatch.setattr("conformance.diagnosis.suspect._evaluated", lambda *_: pytest.fail("it is computed anew"))
    accepted = judge.explained(judged, LoggedKnown(reason="listed", decisions=("scale=none",))).judgement
    assert alone is not None
    assert accepted is not None
    assert accepted.explanation == alone.explanation
