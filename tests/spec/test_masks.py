"""The mask algebra: conversions between all conventions and back, broadcasting, combination, layout."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from conformance.spec.masks import (
    CONVENTIONS,
    Inexpressible,
    as_bool,
    as_float,
    fold,
    is_boolean,
    lay_out,
    read,
    spanned,
    write,
)
from conformance.spec.problem import Array, MaskOperand, Problem

from ..problems import BATCH, HEADS, KEYS, QUERIES, random_sdpa

SIZES = (BATCH, HEADS, QUERIES, KEYS)


@st.composite
def booleans(draw: st.DrawFn) -> Array:
    shape = tuple(draw(st.sampled_from((1, size))) for size in SIZES)
    seed = draw(st.integers(0, 2**16))
    return np.asarray(np.random.default_rng(seed).random(shape) < draw(st.sampled_from((0.0, 0.3, 0.7, 1.0))))


@st.composite
def groups(draw: st.DrawFn) -> MaskOperand:
    allowed = draw(booleans())
    element = draw(st.sampled_from(("bool", "int", "float", "additive")))
    if element == "additive":
        numbers = np.where(allowed, np.arange(allowed.size).reshape(allowed.shape) / 8.0, -np.inf)
        return MaskOperand("", ("additive",), "float", numbers)
    values = np.where(allowed, 0.0, -np.inf) if element == "float" else allowed
    return MaskOperand("", ("attention",), element, values)


def effect(each: Problem) -> Array:
    """Return the sum that all masks add to the logits: -inf at positions that are not attended."""
    bias = each.bias()
    finite = np.zeros(each.logits_shape) if bias is None else np.where(bias == -np.inf, 0.0, bias)
    return np.where(each.attended(), finite, -np.inf)


@given(booleans(), st.sampled_from(CONVENTIONS), st.sampled_from(CONVENTIONS))
def test_every_convention_to_every_other_and_back(allowed: Array, one: tuple[str, str], other: tuple[str, str]) -> None:
    there = write(read(write(allowed, *one), *one), *other)
    back = write(read(there, *other), *one)
    assert np.array_equal(read(there, *other), allowed)
    assert np.array_equal(back, write(allowed, *one))
    assert back.dtype == write(allowed, *one).dtype


def test_conventions_by_hand() -> None:
    allowed = np.array([True, False])
    assert write(allowed, "bool", "ignore").tolist() == [False, True]
    assert write(allowed, "int", "attend").tolist() == [1, 0]
    assert write(allowed, "float", "add").tolist() == [0.0, -np.inf]
    assert write(allowed, "float", "attend").tolist() == [1.0, 0.0]


def test_a_reader_of_the_other_polarity_is_wrong_everywhere() -> None:
    allowed = np.array([True, False, True])
    assert not np.any(read(write(allowed, "bool", "attend"), "bool", "ignore") == allowed)


@pytest.mark.parametrize("convention", [("int", "add"), ("bool", "add"), ("complex", "attend")])
def test_a_convention_that_cannot_carry_a_mask_is_refused(convention: tuple[str, str]) -> None:
    with pytest.raises(Inexpressible, match="no convention"):
        write(np.array([True]), *convention)
    with pytest.raises(Inexpressible, match="no convention"):
        read(np.array([True]), *convention)


@given(st.lists(groups(), min_size=1, max_size=4))
def test_folding_means_what_all_mean_together(members: list[MaskOperand]) -> None:
    apart = random_sdpa(3, *members)
    together = random_sdpa(3, fold(members, "mask"))
    assert np.array_equal(effect(apart), effect(together))
    assert together.mask_operands[0].slot == "mask"


@given(groups())
def test_changing_the_element_changes_nothing_that_is_attended(group: MaskOperand) -> None:
    assert np.array_equal(effect(random_sdpa(3, group)), effect(random_sdpa(3, as_float(group))))
    if is_boolean(group):
        assert np.array_equal(effect(random_sdpa(3, group)), effect(random_sdpa(3, as_bool(group))))


def test_finite_numbers_cannot_become_booleans() -> None:
    with pytest.raises(Inexpressible, match="adds finite numbers"):
        as_bool(MaskOperand("", ("additive",), "float", np.full((1, 1, 1, 7), 0.5)))


@given(groups(), st.booleans())
def test_layout_broadcasts_without_changing_values(group: MaskOperand, keep: bool) -> None:  # noqa: FBT001 - drawn
    laid = lay_out(group.values, SIZES, ("b", "h", "q", "k"), ("b", "h", "q", "k") if keep else ())
    assert np.array_equal(np.broadcast_to(laid, SIZES), np.broadcast_to(group.values, SIZES))
    assert laid.shape == (group.values.shape if keep else SIZES)


def test_folded_batch_and_heads_are_batch_major() -> None:
    values = np.arange(6).reshape(2, 3, 1, 1)
    laid = lay_out(values, SIZES, ("b*h", "q", "k"))
    assert laid.shape == (6, 5, 7)
    assert laid[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_layout_refuses_a_mask_that_spans_an_axis_the_argument_lacks() -> None:
    with pytest.raises(Inexpressible, match="a mask over b k does not fit an argument over q k"):
        lay_out(np.ones((2, 1, 1, 7), dtype=bool), SIZES, ("q", "k"))


def test_layout_inserts_axes_of_size_one() -> None:
    assert lay_out(np.ones((2, 1, 1, 7), dtype=bool), SIZES, ("b", "1", "1", "k")).shape == (2, 1, 1, 7)


def test_spanned_axes_are_those_that_vary() -> None:
    assert spanned(np.ones((2, 1, 1, 7))) == ("b", "k")
