"""Loops over key tiles that stop at a causal limit: the keys that each query attends to, drawn by hand."""

import pytest

from conformance.deviations.catalogue import find
from conformance.deviations.tiles import KeyLoop, key_loops

from .tile_problems import even, flag, mask, seen

CAUSAL_7 = ["x" * (query + 1) + "-" * (6 - query) for query in range(7)]


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("4x4_last_up_masked", CAUSAL_7),
        ("4x4_whole_up_masked", CAUSAL_7),
        ("4x4_first_up_masked", CAUSAL_7),
        ("4x4_own_up_masked", [*["-------"] * 4, *["xxxx---"] * 3]),
        ("4x4_first_down_masked", [*["-------"] * 4, *["xxxx---"] * 3]),
        ("4x4_last_down_masked", [*CAUSAL_7[:4], *["xxxx---"] * 3]),
        ("4x1_first_up_masked", [*["x------"] * 4, *["xxxxx--"] * 3]),
        ("4x2_last_up_unmasked", [*["xxxx---"] * 4, *["xxxxxxx"] * 3]),
        ("4x4_whole_down_unmasked", [*["xxxx---"] * 4, *["xxxxxxx"] * 3]),
        ("4x8_whole_down_masked", [*["-------"] * 4, *CAUSAL_7[4:]]),
        ("16x4_last_up_last_masked", [*["xxxx---"] * 4, *CAUSAL_7[4:]]),
        ("4x2_last_up_last_masked", ["xx-----", "xx-----", "xxx----", "xxxx---", *["xxxxxx-"] * 2, "xxxxxxx"]),
        ("1x2_last_up_unmasked", ["xx-----"] * 2 + ["xxxx---"] * 2 + ["xxxxxx-"] * 2 + ["xxxxxxx"]),
        ("4x2_count_up_masked", [*CAUSAL_7[:2], *["xx-----"] * 2, *["xxxx---"] * 3]),
        ("4x1_count_up_masked", [*["x------"] * 4, *["xx-----"] * 3]),
        ("2x4_count_up_masked", CAUSAL_7),
        ("2x4_count_up_unmasked", [*["xxxx---"] * 2, *["xxxxxxx"] * 5]),
        ("4x2_count_up_last_masked", [*CAUSAL_7[:2], *["xx-----"] * 2, *["xxxx---"] * 3]),
        ("1x1_own_up_masked", ["-------", *CAUSAL_7[:6]]),
    ],
)
def test_a_loop_ends_where_it_is_bounded(loop: str, expected: list[str]) -> None:
    assert seen(even(7, 7, flag(7, 7)), f"causal_loop={loop}") == expected


def test_it_is_bounded_under_the_offset_of_the_flag_or_without() -> None:
    problem = even(3, 7, flag(3, 7, 2))
    assert seen(problem, "causal_loop=2x2_last_up_masked") == ["xxx----", "xxxx---", "xxxxx--"]
    assert seen(problem, "causal_loop=2x2_last_from_first_key_up_masked") == ["xx-----", "xx-----", "xxxx---"]
    assert seen(problem, "causal_loop=2x1_count_up_masked") == ["xxx----", "xxx----", "xxxx---"]
    assert seen(problem, "causal_loop=2x1_count_from_first_key_up_masked") == ["x------", "x------", "xx-----"]


def test_a_mask_that_is_no_flag_bounds_no_loop() -> None:
    problem = even(7, 7, mask([[key <= query for key in range(7)] for query in range(7)]))
    assert seen(problem, "causal_loop=4x4_own_up_masked") == CAUSAL_7


def test_it_says_what_it_does() -> None:
    whole = find("causal_loop", "4x8_whole_down_masked").sentence
    assert whole == (
        "loops over tiles of 8 keys: each tile of 4 queries stops at the causal limit that its last query would have "
        "if the tile were full, rounded down to full tiles"
    )
    alone = find("causal_loop", "1x1_own_from_first_key_up_unmasked").sentence
    assert alone == (
        "loops over keys: each query stops at its own position, exclusive, counted from the first key whatever the "
        "alignment is, and the causal mask is applied in none of these tiles"
    )


def test_it_says_how_many_tiles_it_takes() -> None:
    assert find("causal_loop", "32x16_count_up_masked").sentence == (
        "loops over tiles of 16 keys: each tile of 32 queries visits only the first n of them, where n is the number "
        "of tiles of 32 queries so far"
    )
    assert find("causal_loop", "1x4_count_up_unmasked").sentence == (
        "loops over tiles of 4 keys: each query visits only the first n of them, where n is the number of queries so "
        "far, and the causal mask is applied in none of these tiles"
    )


def test_every_loop_has_a_name_of_its_own_by_which_it_is_found() -> None:
    loops = list(key_loops())
    assert len({loop.name for loop in loops}) == len(loops) > 1000
    assert {find("causal_loop", loop.name).sentence for loop in loops} == {loop.sentence for loop in loops}


@pytest.mark.parametrize("name", ["4x4", "3x4_last_up_masked", KeyLoop(1, 4, "first").name, "4x1_last_down_masked"])
def test_what_is_no_loop_is_refused(name: str) -> None:
    with pytest.raises(KeyError, match=f"no deviation causal_loop={name}: the name of a loop looks like 8x4_first_up_"):
        find("causal_loop", name)
