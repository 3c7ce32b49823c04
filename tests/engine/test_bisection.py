"""The first release that differs is found in few trials, even if some releases cannot be judged."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.engine.provision import FirstDifference, State, bisect


def search(count: int, first: int, skipped: set[int]) -> tuple[FirstDifference, list[str]]:
    """Bisect releases 0 .. count - 1, of which `first` is the first that differs; return the result and the trials."""
    asked: list[str] = []

    def state(release: str) -> State:
        asked.append(release)
        number = int(release)
        return "skip" if number in skipped else "after" if number >= first else "before"

    return bisect([str(number) for number in range(count)], state), asked


def test_two_releases_need_no_trial() -> None:
    assert search(2, 1, set()) == (FirstDifference("0", "1", ()), [])


@pytest.mark.parametrize("first", range(1, 11))
def test_every_border_of_eleven_releases_is_found_in_four_trials(first: int) -> None:
    found, asked = search(11, first, set())
    assert found == FirstDifference(str(first - 1), str(first), ())
    assert len(asked) <= 4


def test_what_cannot_be_judged_at_the_border_is_told() -> None:
    assert search(7, 4, {3, 4})[0] == FirstDifference("2", "5", ("3", "4"))
    assert search(7, 4, {1, 2, 3, 4, 5})[0] == FirstDifference("0", "6", ("1", "2", "3", "4", "5"))


@given(st.data())
def test_the_border_lies_where_it_is_said_to_lie(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 40))
    first = data.draw(st.integers(1, count - 1))
    skipped = data.draw(st.sets(st.integers(1, count - 1)) if count > 2 else st.just(set())) - {count - 1}
    found, asked = search(count, first, skipped)
    last, border = int(found.last), int(found.first)
    assert last < first <= border
    assert found.skipped == tuple(map(str, range(last + 1, border)))
    assert set(range(last + 1, border)) <= skipped
    assert len(asked) == len(set(asked)) <= ceil(log2(count)) + len(skipped)
