"""A result is computed once while there is room; the least recently used results are dropped."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conformance.spec import materialise as making
from conformance.spec.case import Case
from conformance.spec.entry import read_entry
from conformance.spec.materialise import BoundedMemo, materialise
from conformance.spec.problem import Problem


def case(**changed: int) -> Case:
    sizes = {"batch": 2, "num_heads": 3, "seq_len_q": 5, "seq_len_k": 7, "head_dim": 11}
    about = {"name": "plain", "operator": "sdpa", **sizes, **changed}
    plain, faults = read_entry(about, Path("cases/t.yaml"), Path("cases"))
    assert plain is not None, faults
    return plain


def test_a_result_is_computed_once_while_there_is_room() -> None:
    computed: list[str] = []

    def ask(key: str) -> str:
        def compute() -> str:
            computed.append(key)
            return key * 3

        return memo.once(key, compute)

    memo: BoundedMemo[str] = BoundedMemo(limit=10, size_of=len)
    assert [ask("a"), ask("bb"), ask("a")] == ["aaa", "bbbbbb", "aaa"]
    assert computed == ["a", "bb"]
    ask("c")  # drops `bb`, the least recently used key
    ask("a")
    assert computed == ["a", "bb", "c"]
    assert ask("bb") == "bbbbbb"
    assert computed == ["a", "bb", "c", "bb"]


def test_a_result_that_is_larger_than_the_limit_is_kept_until_the_next() -> None:
    memo: BoundedMemo[str] = BoundedMemo(limit=1, size_of=len)
    one = memo.once(1, lambda: "one")
    assert memo.once(1, lambda: pytest.fail("it is computed again")) is one
    assert memo.once(2, lambda: "other") == "other"
    assert memo.once(1, lambda: "anew") == "anew"


def test_a_result_that_is_forgotten_makes_room() -> None:
    memo: BoundedMemo[str] = BoundedMemo(limit=10, size_of=len)
    kept = memo.once("kept", lambda: "seven!!")
    memo.once("finished", lambda: "abc")
    memo.forget("finished")
    memo.forget("never there")
    memo.once("next", lambda: "def")
    assert memo.once("kept", lambda: pytest.fail("it was dropped")) is kept
    assert memo.once("finished", lambda: "anew") == "anew"


def test_an_exception_is_not_kept() -> None:
    memo: BoundedMemo[int] = BoundedMemo(limit=1, size_of=lambda _: 1)
    with pytest.raises(ZeroDivisionError):
        memo.once("key", lambda: 1 // 0)
    assert memo.once("key", lambda: 13) == 13


def test_equal_cases_have_one_problem_and_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    memo: BoundedMemo[Problem] = BoundedMemo(making.LIMIT, making.size_of)
    monkeypatch.setattr(making, "_MADE", memo)
    first = materialise(case())
    assert materialise(case()) is first
    longer = materialise(case(seq_len_k=13))
    assert longer.key.shape == (2, 3, 13, 11)
    monkeypatch.setattr(making, "_MADE", BoundedMemo(making.LIMIT, making.size_of))
    again = materialise(case())
    assert again is not first
    assert np.array_equal(again.query, first.query)


def test_the_problem_of_a_finished_case_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "_MADE", BoundedMemo(making.LIMIT, making.size_of))
    first = materialise(case())
    making.forget(case())
    assert materialise(case()) is not first


def test_a_case_with_the_same_name_and_other_inputs_has_its_own_problem() -> None:
    plain = case()
    shared = replace(plain, seq_len_q=7, inputs=replace(plain.inputs, alias="kv"))
    assert shared.id == plain.id
    assert materialise(shared).value is materialise(shared).key
    assert materialise(plain).value is not materialise(plain).key


def test_arrays_in_a_file_are_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "arrays.npz"
    plain = case()
    of_file = replace(plain, inputs=replace(plain.inputs, file=path))
    for number in (3.0, 5.0):
        np.savez(path, query=np.full((2, 3, 5, 11), number))
        assert np.all(materialise(of_file).query == number)
