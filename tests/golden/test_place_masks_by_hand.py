"""Places that are hidden or shown whatever masks say: which these are, of three queries and keys, and beside flags."""

import pytest

from conformance.oracle.place_masks import EFFECTS, place_masks
from conformance.oracle.variations import find

from .test_tiles_by_hand import even, flag, mask, seen

ROWS = mask([[1, 0, 0], [1, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hidden_the_last_key", ["x--", "xx-", "---"]),
        ("hidden_keys_before_the_query", ["x--", "-x-", "--x"]),
        ("shown_the_last_key", ["x-x", "xxx", "--x"]),
        ("shown_the_key_at_the_querys_own_place", ["x--", "xx-", "--x"]),
        ("shown_keys_behind_the_query", ["xxx", "xxx", "--x"]),
        ("shown_by_flags_keys_behind_the_query", ["x--", "xx-", "--x"]),
    ],
)
def test_places_of_a_mask(name: str, expected: list[str]) -> None:
    assert seen(even(3, 3, ROWS), f"place_mask={name}") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shown_the_last_key", ["x-x", "xxx", "xxx"]),
        ("shown_by_flags_the_last_key", ["x-x", "xxx", "xxx"]),
        ("hidden_the_first_key", ["---", "-x-", "-xx"]),
        ("shown_by_flags_keys_of_the_querys_own_block_of_4", ["xxx", "xxx", "xxx"]),
        ("hidden_keys_behind_the_querys_own_block_of_4", ["x--", "xx-", "xxx"]),
    ],
)
def test_places_of_a_flag(name: str, expected: list[str]) -> None:
    assert seen(even(3, 3, flag(3, 3)), f"place_mask={name}") == expected


def test_of_a_mask_beside_a_flag_nothing_is_shown_by_flags() -> None:
    assert seen(even(3, 3, flag(3, 3), ROWS), "place_mask=shown_by_flags_the_last_key") == ["x--", "xx-", "--x"]
    assert seen(even(3, 3, flag(3, 3), ROWS), "place_mask=shown_the_last_key") == ["x-x", "xxx", "--x"]


def test_calls_in_which_nothing_changes_are_left_alone() -> None:
    for name in ("shown_the_last_key", "hidden_keys_behind_the_querys_own_block_of_4"):
        change = find("place_mask", name).problem
        assert change is not None
        assert change(plain := even(3, 3)) is plain


def test_it_says_what_it_does() -> None:
    hidden = find("place_mask", "hidden_keys_behind_the_querys_own_block_of_8")
    assert hidden.sentence == "does not attend keys behind the query's own block of 8"
    shown = find("place_mask", "shown_by_flags_the_last_key")
    assert shown.sentence == "attends the last key, whatever a flag says"


def test_every_place_has_a_name_of_its_own() -> None:
    every = list(place_masks())
    assert len({each.name for each in every}) == len(every) > 100 * len(EFFECTS)
    with pytest.raises(KeyError, match="no variation place_mask=hidden: one has a name such as hidden_the_last_key"):
        find("place_mask", "hidden")
