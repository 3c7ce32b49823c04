"""Problems are made again when they were dropped, and what nobody needs any more is forgotten."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.bridge.profile import Profile
from conformance.engine import judging, problem_memo
from conformance.engine.judging import Judge
from conformance.engine.problem_memo import CaseUses, ProblemMemo, size_of
from conformance.spec.case import Case
from conformance.spec.entry import read_entry
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem


def cases(*names: str) -> list[Case]:
    sizes = {"batch": 2, "num_heads": 3, "seq_len_q": 5, "seq_len_k": 7, "head_dim": 11}
    plain, faults = read_entry({"name": "plain", "operator": "sdpa", **sizes}, Path("cases/t.yaml"), Path("cases"))
    assert plain is not None, faults
    return [replace(plain, id=name) for name in names]


def test_a_problem_is_made_once_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(case: Case) -> Problem:
        made.append(case.id)
        return materialise(case)

    monkeypatch.setattr(problem_memo, "materialise", make)
    one, other, third = cases("one", "other", "third")
    memo = ProblemMemo(limit=2 * size_of(materialise(one)))
    assert memo.problem(one) is memo.problem(one)
    memo.problem(other)
    memo.problem(one)
    memo.problem(third)  # drops `other`, which was used longest ago
    memo.problem(one)
    assert made == ["one", "other", "third"]
    assert np.array_equal(memo.problem(other).query, materialise(other).query)
    assert made == ["one", "other", "third", "other"]


def test_the_digest_of_a_dropped_problem_is_still_known(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = cases("one", "other")
    memo = ProblemMemo(limit=1)
    first = memo.digest(one)
    memo.problem(other)
    monkeypatch.setattr(problem_memo, "materialise", lambda case: pytest.fail(f"{case.id} is made again"))
    assert memo.digest(one) == first


def test_a_case_is_needed_until_its_last_user_is_done() -> None:
    uses = CaseUses()
    uses.expect("one")
    uses.expect("one")
    assert not uses.end("one")
    assert uses.needs("one")
    assert uses.end("one")
    assert not uses.needs("one")


def test_expectations_of_finished_cases_are_forgotten_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, third = cases("one", "other", "third")
    judge, profile = Judge(), Profile.uniform("float32")

    def ask(case: Case) -> object:
        return judge.expectation(case.id, materialise(case), {}, profile)

    found = {case.id: ask(case) for case in (one, other, third)}
    monkeypatch.setattr(judging, "LIMIT", 10**9)
    judge.finish("one")
    assert ask(one) is found["one"]  # there is room
    monkeypatch.setattr(judging, "LIMIT", 1)
    judge.finish("other")
    assert ask(third) is found["third"]  # still needed
    assert ask(one) is not found["one"]
    assert ask(other) is not found["other"]
