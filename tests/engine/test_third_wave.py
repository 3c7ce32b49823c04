"""Which calls get a second look: those repeated after two different replies, and those whose weights are read."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from conformance.engine.second_look import MORE, Closeness, Question, SecondLook, _to_read
from conformance.spec.problem import Problem
from conformance.verdicts.compare import IN_A_ROW

from ..problems import random_sdpa


def pending(size: int, non_reproducible: str, **more: Any) -> Any:
    """Return a failing cell whose call was repeated."""
    cell, judged = SimpleNamespace(subject=SimpleNamespace(name="numpy.sdpa")), SimpleNamespace(verdict="fail")
    plain: dict[str, Any] = {"red": True, "again": [None] * IN_A_ROW, "alone": [], "elsewhere": ""}
    return SimpleNamespace(size=size, non_reproducible=non_reproducible, cell=cell, judged=judged, **{**plain, **more})


def third(*cells: Any) -> list[Question]:
    look = SecondLook(Closeness(failures=2), lambda _: ())
    look.pending = list(cells)
    list(look._second_wave())
    return list(look._third_wave())


def test_what_was_the_same_is_asked_alone_where_another_depends_on_the_order() -> None:
    """An earlier call may have the same effect each time. Closeness limits how many are asked, the smallest first."""
    asked = third(*(pending(size, "") for size in (13, 11, 7)), pending(5, "order_dependent"))
    assert [question.purpose for question in asked] == [*["repeats"] * IN_A_ROW, "alone"] * 2
    assert [question.fresh for question in asked].count(True) == 2


def test_what_was_asked_alone_already_is_repeated() -> None:
    asked = third(pending(7, "", alone=[None]), pending(5, "order_dependent"))
    assert [question.purpose for question in asked] == ["repeats"] * IN_A_ROW * MORE


@pytest.mark.parametrize("found", ["", "order_dependent"])
def test_nondeterministic_is_what_any_may_be_where_one_is(found: str) -> None:
    asked = third(pending(7, found), pending(5, "nondeterministic"), pending(3, "order_dependent", again=[]))
    assert [question.purpose for question in asked] == ["repeats"] * IN_A_ROW * MORE


def test_nothing_is_asked_where_every_call_has_one_reply() -> None:
    assert not third(pending(7, ""), pending(5, ""))


def test_weights_are_read_from_a_call_with_finite_logits_if_there_is_one() -> None:
    """A NaN logit makes its whole row NaN, and a picture of it shows no mask."""
    finite, row = random_sdpa(13, seq_len_k=11), random_sdpa(13, seq_len_q=1, seq_len_k=11)
    key = finite.key.copy()
    key[0, 0, 0, 0] = np.nan

    def rejected(problem: Problem) -> Any:
        return SimpleNamespace(judged=SimpleNamespace(problem=problem), is_unexplained=False)

    poisoned, plain, one_query = map(rejected, (finite.but(key=key), finite, row))
    assert _to_read([poisoned, plain, one_query]) == [plain]
    assert _to_read([poisoned, one_query]) == [poisoned]
