"""Keys that are attended up to, or from, a number that is not theirs: what is seen, drawn by hand."""

import numpy as np
import pytest

from conformance.oracle.key_ranges import KeyRange, key_range, key_ranges
from conformance.oracle.variations import find
from conformance.spec.problem import Group

from .test_tiles_by_hand import even, flag, seen

PADDED = Group(
    "lengths", ("key_padding",), "bool", np.array([[[[1, 1, 1, 0, 0, 0, 0]]], [[[0, 0, 1, 1, 1, 1, 1]]]], dtype=bool)
)
"""The first item has three keys, the second, which is padded on the left, five."""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first_queries", "xxx----"),
        ("first_queries_up_2", "xxxx---"),
        ("first_queries_down_2", "xx-----"),
        ("behind_queries", "---xxxx"),
        ("first_half", "xxx----"),
        ("first_most", "xxxx---"),
        ("first_4", "xxxx---"),
        ("first_queries_up_8", "xxxxxxx"),
        ("first_queries_down_8", "-------"),  # there is no whole tile
    ],
)
def test_keys_are_attended_as_far_as_the_number_goes(name: str, expected: str) -> None:
    assert seen(even(3, 7), f"key_range={name}") == [expected] * 3


def test_masks_hide_what_they_hide_all_the_same() -> None:
    assert seen(even(3, 7, flag(3, 7, 2)), "key_range=first_queries_up_4") == ["xxx----", "xxxx---", "xxxx---"]
    assert seen(even(3, 7, flag(3, 7, 0)), "key_range=first_queries") == ["x------", "xx-----", "xxx----"]


@pytest.mark.parametrize(
    ("each", "expected"),
    [
        (KeyRange("first_item"), ["xxx----"]),
        (KeyRange("first_item", left=True), ["xxxxxxx", "xxxxx--"]),
        (KeyRange("longest"), ["xxxxx--"]),
        (KeyRange("next_item"), ["xxxxx--", "xxx----"]),
        (KeyRange("item_before", behind=True), ["-----xx", "---xxxx"]),
        (KeyRange("mean"), ["xxxx---"]),
        (KeyRange("items", 4), ["xxxx---"]),
    ],
)
def test_the_number_may_be_what_padding_leaves_of_an_item(each: KeyRange, expected: list[str]) -> None:
    problem = even(3, 7)
    both = {name: np.repeat(getattr(problem, name), 2, axis=0) for name in ("query", "key", "value")}
    rows = each.seen(problem.but(**both, groups=(PADDED,)))
    assert ["".join("x" if key else "-" for key in row) for row in rows] == expected


def test_where_it_hides_nothing_that_was_attended_it_changes_nothing() -> None:
    problem = even(3, 7, flag(3, 7))
    changed = key_range(KeyRange("queries")).problem
    assert changed is not None
    assert changed(problem) is problem


def test_it_says_what_it_does() -> None:
    assert find("key_range", "first_queries_up_4").sentence == (
        "attends only the first keys: as many as there are queries, rounded up to whole tiles of 4"
    )
    assert find("key_range", "behind_mean_left").sentence == (
        "attends none of the first keys of those that padding leaves: as many as padding leaves the items on average, "
        "rounded down"
    )
    assert find("key_range", "first_16").sentence == "attends only the first keys: 16"


def test_every_range_has_a_name_of_its_own_by_which_it_is_found() -> None:
    ranges = list(key_ranges())
    assert len({each.name for each in ranges}) == len(ranges)
    assert {find("key_range", each.name).sentence for each in ranges} == {each.sentence for each in ranges}


def test_what_is_no_range_is_refused() -> None:
    with pytest.raises(KeyError, match="no variation key_range=first_3: a range has a name such as first_queries_up_8"):
        find("key_range", "first_3")
