"""The same call made again: which differences are nondeterministic, and which depend on the order."""

import numpy as np
import pytest

from conformance.bridge import Tensor
from conformance.verdicts.compare import Repetition, Reply, repetition


def reply(*values: float) -> Reply:
    return {"output": Tensor.of(np.array(values, dtype=np.float32))}


A, B, C = reply(1.0, 2.0), reply(1.0, 2.5), reply(1.0, 3.0)


@pytest.mark.parametrize(
    ("again", "alone", "found"),
    [
        ([A, A, A], [A], "same"),
        ([A, A, B], [A], "nondeterministic"),
        ([B, C, A], [A], "nondeterministic"),
        ([A, A, A, A, A, B], [], "nondeterministic"),
        ([A, A, A, B, A, A], [], "order_dependent"),
        ([B, A, A], [A], "order_dependent"),
        ([B, B, B], [A], "order_dependent"),
        ([A, A, A], [B], "order_dependent"),
        ([A, A, A], [None], "order_dependent"),
        ([], [B], "order_dependent"),
        ([A], [], "same"),
    ],
)
def test_replies_are_told_apart(again: list[Reply], alone: list[Reply], found: str) -> None:
    assert repetition(A, again, alone).found == found


def test_exceptions_are_the_same_as_each_other_and_as_nothing_else() -> None:
    assert repetition(None, [None, None, None], [None]).found == "same"
    assert repetition(None, [None, None, None], [A]).reason == (
        "alone in a fresh worker, the same call returns a different result: one of the two calls raises an exception"
    )


def test_the_largest_difference_is_told() -> None:
    found = repetition(A, [A, A, C], [])
    assert found == Repetition(
        "nondeterministic",
        3,
        0,
        "the same call, made twice in a row, returns two different results: output 2, then 3 at [1]",
    )


def test_every_bit_counts_and_nan_is_itself() -> None:
    assert repetition(reply(float("nan")), [reply(float("nan"))], []).found == "same"
    assert repetition(reply(0.0), [reply(-0.0)], []).found == "order_dependent"
    other = {"output": Tensor.of(np.zeros((1, 1), dtype=np.float32))}
    assert "output is float32 [1, 1], then float32 [2]" in repetition(A, [other], []).reason


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_replies_of_any_shape_are_compared(shape: tuple[int, ...]) -> None:
    one, same = ({"output": Tensor.of(np.full(shape, 2.0, np.float32))} for _ in range(2))
    assert repetition(one, [same], []).found == "same"
