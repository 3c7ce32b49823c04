"""Which calls are repeated once more for a subject that gave two different replies to one call."""

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.engine.second_look import MORE, Closeness, Question, SecondLook
from conformance.verdicts.compare import IN_A_ROW


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
