"""Named patterns compared with masks drawn by hand, and properties of each pattern on any axes."""

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.spec import patterns

Array = np.ndarray[Any, Any]


def drawn(*rows: str) -> Array:
    """Return the mask of a drawing: `#` is attended, `.` is not."""
    return np.array([[mark == "#" for mark in row] for row in rows])


@st.composite
def sizes(draw: st.DrawFn, needs: tuple[str, ...] = ("k",)) -> dict[str, int]:
    """Draw the axes of a mask and their sizes; the axes in needs are always there."""
    return {axis: draw(st.integers(1, 6)) for axis in "bhqk" if axis in needs or draw(st.booleans())}


QK = {
    "all": ["####", "####", "####"],
    "none": ["....", "....", "...."],
    "all_masked": ["....", "....", "...."],
    "diagonal": ["#...", ".#..", "..#."],
    "first_key": ["#...", "#...", "#..."],
    "last_key": ["...#", "...#", "...#"],
    "checkerboard": ["#.#.", ".#.#", "#.#."],
    "block": ["##..", "##..", "..##"],
    "one_fully_masked_row": ["####", "....", "####"],
}


@pytest.mark.parametrize("name", QK)
def test_a_pattern_over_queries_and_keys(name: str) -> None:
    made = patterns.make(name, {"q": 3, "k": 4}, 0, "masks.0")
    np.testing.assert_array_equal(made, drawn(*QK[name]))


def test_one_fully_masked_batch_over_items_and_keys() -> None:
    made = patterns.make("one_fully_masked_batch", {"b": 3, "k": 2}, 0, "masks.0")
    np.testing.assert_array_equal(made, drawn("##", "##", ".."))


def test_more_queries_than_keys_leave_rows_of_the_diagonal_dead() -> None:
    made = patterns.make("diagonal", {"q": 3, "k": 2}, 0, "masks.0")
    np.testing.assert_array_equal(made, drawn("#.", ".#", ".."))


def test_the_longer_block_of_an_odd_length_comes_first() -> None:
    made = patterns.make("block", {"q": 5, "k": 3}, 0, "masks.0")
    np.testing.assert_array_equal(made, drawn("##.", "##.", "##.", "..#", "..#"))


def test_items_and_heads_of_a_checkerboard_alternate() -> None:
    made = patterns.make("checkerboard", {"b": 2, "h": 2, "q": 2, "k": 2}, 0, "masks.0")
    np.testing.assert_array_equal(made[0, 0], drawn("#.", ".#"))
    np.testing.assert_array_equal(made[1, 0], drawn(".#", "#."))
    np.testing.assert_array_equal(made[1, 1], made[0, 0])


def test_lengths_are_padding_at_the_end_and_leading_at_the_start() -> None:
    per_item = {"b": 3, "k": 4}
    np.testing.assert_array_equal(patterns.from_lengths(per_item, (4, 1, 0)), drawn("####", "#...", "...."))
    leading = patterns.from_lengths(per_item, (4, 1, 0), leading=True)
    np.testing.assert_array_equal(leading, drawn("####", "...#", "...."))


def test_lengths_of_queries_cut_rows() -> None:
    made = patterns.from_lengths({"b": 2, "q": 3, "k": 4}, (2, 3), (3, 1))
    np.testing.assert_array_equal(made[0], drawn("##..", "##..", "##.."))
    np.testing.assert_array_equal(made[1], drawn("###.", "....", "...."))


def test_every_documented_name_has_a_pattern() -> None:
    assert set(get_args(patterns.Name)) == {*patterns.PATTERNS, patterns.LEADING}


@settings(deadline=None)
@given(st.data(), st.sampled_from(sorted(patterns.PATTERNS)), st.integers(0, 2**63 - 1))
def test_a_pattern_fills_the_axes_of_its_mask(data: st.DataObject, name: str, seed: int) -> None:
    axes = data.draw(sizes(patterns.PATTERNS[name].needs))
    made = patterns.make(name, axes, seed, "masks.0")
    assert made.dtype == bool
    assert made.shape == tuple(axes.values())
    np.testing.assert_array_equal(made, patterns.make(name, axes, seed, "masks.0"))
    if not patterns.PATTERNS[name].random:
        np.testing.assert_array_equal(made, patterns.make(name, axes, seed + 1, "masks.1"))


@settings(deadline=None)
@given(sizes(), st.integers(0, 2**63 - 1))
def test_holes_leave_a_key_and_a_hole_in_every_row(axes: dict[str, int], seed: int) -> None:
    made = patterns.make("holes", axes, seed, "masks.0")
    assert made.any(axis=-1).all()
    assert axes["k"] == 1 or not made.all(axis=-1).any()


@pytest.mark.parametrize("name", ["holes", "random"])
def test_random_masks_of_one_case_differ(name: str) -> None:
    axes = {"q": 9, "k": 9}
    made = [patterns.make(name, axes, seed, mask) for seed in (0, 1) for mask in ("masks.0", "masks.1")]
    assert len({mask.tobytes() for mask in made}) == 4
