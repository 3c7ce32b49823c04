"""
The oracle against numbers that none of us wrote: the Attention node tests that ship inside the `onnx` package.

Their expected outputs come from onnx's own reference, computed in the dtype of the inputs, so half precision
is held to the derived bound of that arithmetic and float32 to the tolerance that onnx publishes.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.judge.compare import budgets
from conformance.judge.expectation import expect
from conformance.spec.problem import Array, Group, Problem

pytestmark = pytest.mark.frameworks

BEYOND_THE_FORMAT = ("qk_matmul_output_mode",)
"""Attributes that the problem record has no word for."""


def vectors() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases  # noqa: PLC0415 - slow, and only this test needs it

        tests = collect_testcases("Attention")
    return {
        test.name.removeprefix("test_attention_"): test
        for test in tests
        if test.model is not None and test.model.graph.node[0].op_type == "Attention"
    }


@pytest.fixture(scope="module")
def collected() -> dict[str, Any]:
    return vectors()


def attributes(test: Any) -> dict[str, Any]:
    return {each.name: each.i if each.type == 2 else each.f for each in test.model.graph.node[0].attribute}


def inputs(test: Any) -> dict[str, Array]:
    named = [name for name in test.model.graph.node[0].input if name]
    return dict(zip(named, test.data_sets[0][0], strict=True))


def beyond(test: Any) -> str | None:
    """Why a vector cannot be put as a problem, or None."""
    given, asked = inputs(test), attributes(test)
    for name in ("past_key", "nonpad_kv_seqlen"):
        if name in given:
            return name
    for name in BEYOND_THE_FORMAT:
        if asked.get(name):
            return name
    return None


def heads(array: Array, count: int) -> Array:
    if array.ndim == 4:
        return array
    batch, length, width = array.shape
    return array.reshape(batch, length, count, width // count).transpose(0, 2, 1, 3)


def groups(given: Mapping[str, Array], asked: Mapping[str, Any], length_q: int, length_k: int) -> tuple[Group, ...]:
    found = []
    if (mask := given.get("attn_mask")) is not None:
        values = mask if mask.dtype == bool else mask.astype(np.float64)
        values = values.reshape((1,) * (4 - values.ndim) + values.shape)
        found.append(Group("attn_mask", ("attention",), "bool" if mask.dtype == bool else "float", values))
    gap = np.arange(length_k)[None, :] - np.arange(length_q)[:, None]
    if asked.get("is_causal"):
        found.append(Group("is_causal", ("causal",), "flag", (gap <= 0)[None, None], offset=0))
    left, right = asked.get("left_window_size", -1), asked.get("right_window_size", -1)
    if left >= 0 or right >= 0:
        inside = (gap >= (-left if left >= 0 else -length_q)) & (gap <= (right if right >= 0 else length_k))
        found.append(Group("window", ("window",), "bool", inside[None, None]))
    return tuple(found)


def as_problem(test: Any) -> Problem:
    given, asked = inputs(test), attributes(test)
    query = heads(given["Q"], asked.get("q_num_heads", 1))
    key, value = (heads(given[name], asked.get("kv_num_heads", 1)) for name in "KV")
    exact = [array.astype(np.float64) for array in (query, key, value)]
    return Problem(
        operator="sdpa",
        dtype=given["Q"].dtype.name,
        num_heads=query.shape[1],
        num_kv_heads=key.shape[1],
        head_dim=query.shape[3],
        value_dim=value.shape[3],
        query=exact[0],
        key=exact[1],
        value=exact[2],
        groups=groups(given, asked, query.shape[2], key.shape[2]),
        scale=asked.get("scale"),
        softcap=asked.get("softcap") or None,
    )


def test_every_vector_is_put_or_listed_with_the_reason(collected: dict[str, Any]) -> None:
    reasons = {name: beyond(test) for name, test in collected.items()}
    plain = sum(reason is None for reason in reasons.values())
    assert plain >= 50, f"{plain} of {len(reasons)} vectors can be put: {reasons}"
    assert set(reasons.values()) <= {None, "past_key", "nonpad_kv_seqlen", *BEYOND_THE_FORMAT}


def test_the_oracle_agrees_with_every_vector_that_can_be_put(collected: dict[str, Any]) -> None:
    wrong = {}
    for name, test in collected.items():
        if beyond(test) is not None:
            continue
        problem = as_problem(test)
        published = heads(test.data_sets[0][1][0], problem.num_heads)
        profile = Profile.uniform("float32") if problem.dtype == "float32" else Profile.naive(problem.dtype)
        expected = expect(problem, {}, profile)
        values = expected.reply["output"].values
        error = np.abs(Tensor.of(published).float64() - values)
        allowed = expected.bounds["output"].tolerance
        if problem.dtype == "float32":
            allowed = np.maximum(allowed, test.atol + test.rtol * np.abs(values))
        used = float(np.max(budgets(error, allowed), initial=0.0))
        if not used <= 1.0:
            wrong[name] = used
    assert wrong == {}
