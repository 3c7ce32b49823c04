"""
Problems for tests, made of arrays that the test writes out or of random arrays; and the answers of the oracle.

Every array is float64. A random array depends only on its seed. Its numbers are rounded to the dtype under test.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import OracleAnswer, evaluate
from conformance.deviations.deviation import Dialect
from conformance.diagnosis.explanation import Likely
from conformance.diagnosis.judgement import Judgement, explained, judge_against
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor
from conformance.verdicts.expectation import expect, expect_reply

# Default sizes. They all differ, so that a swap of two axes is visible.
BATCH, HEADS, QUERIES, KEYS, DIM, VALUE_DIM = 2, 3, 5, 7, 11, 13

# Widths of query, key and value before a projection, and of the output after it.
WIDTHS, OUTPUT_DIM = (17, 19, 23), 29

LOG3 = float(np.log(3.0))


def sdpa(query: Any, key: Any, value: Any, *masks: MaskOperand, dtype: str = "float64", **fields: Any) -> Problem:
    """
    Return a call of sdpa on arrays or lists of shape (batch, num_heads, seq_len, dim).

    The scale is 1, so that a logit is a dot product. fields: other fields of `Problem`; they can also replace the scale
    and the masks.
    """
    q, k, v = (np.asarray(array, dtype=np.float64) for array in (query, key, value))
    settings: dict[str, Any] = {"scale": 1.0, "mask_operands": masks} | fields
    return Problem("sdpa", dtype, q.shape[1], k.shape[1], q.shape[3], v.shape[3], q, k, v, **settings)


def one_query(logits: Any, values: Any = None, *masks: MaskOperand, **fields: Any) -> Problem:
    """
    Return a call of `sdpa` with one batch element, one head, and one query, which is the number 1.

    logits: shape (seq_len_k,); they are also the keys. values: shape (seq_len_k,) or (seq_len_k, value_dim); if None,
    4, 8, 12, ...
    """
    keys = np.asarray(logits, dtype=np.float64).reshape(1, 1, -1, 1)
    rows = 4.0 * np.arange(1.0, keys.size + 1.0) if values is None else np.asarray(values)
    return sdpa([[[[1.0]]]], keys, rows.reshape(1, 1, keys.size, -1), *masks, **fields)


def two_keys(*masks: MaskOperand, **fields: Any) -> Problem:
    """
    Return a call of `sdpa` with one batch element, one head, two queries and two keys.

    Logits are 0 and ln 3 for the first query, ln 3 and 0 for the second. Values are 4 and 8: the outputs are 7 and 5.
    """
    return sdpa([[[[1, 0], [0, 1]]]], [[[[0, LOG3], [LOG3, 0]]]], [[[[4.0], [8.0]]]], *masks, **fields)


def random_sdpa(
    seed: int | np.random.Generator,
    *masks: MaskOperand,
    dtype: str = "float32",
    batch: int = BATCH,
    num_heads: int = HEADS,
    num_kv_heads: int | None = None,
    seq_len_q: int = QUERIES,
    seq_len_k: int = KEYS,
    head_dim: int = DIM,
    value_dim: int = VALUE_DIM,
    **fields: Any,
) -> Problem:
    """
    Return a call of sdpa on standard normal numbers, rounded to `dtype`, with the default scale.

    seed: a seed or a generator, from which query, key and value are drawn in this order. num_kv_heads: num_heads if
    None. fields: other fields of `Problem`; they can also replace the masks.
    """
    rng, kv_heads = np.random.default_rng(seed), num_heads if num_kv_heads is None else num_kv_heads
    sizes = (num_heads, seq_len_q, head_dim), (kv_heads, seq_len_k, head_dim), (kv_heads, seq_len_k, value_dim)
    query, key, value = (round_to(rng.standard_normal((batch, *each)), dtype) for each in sizes)
    return sdpa(query, key, value, *masks, dtype=dtype, **{"scale": None, **fields})


def mha(
    query: Any,
    key: Any,
    value: Any,
    params: dict[str, Array],
    num_heads: int,
    *masks: MaskOperand,
    dtype: str = "float64",
    **fields: Any,
) -> Problem:
    """
    Return a call of mha on arrays or lists of shape (batch, seq_len, width), with the default scale.

    params: wq, wk and wv of shape (width, heads * dim), and the other parameters of the layer; num_kv_heads, head_dim
    and value_dim follow from them. fields: other fields of `Problem`; they can also replace the masks.
    """
    q, k, v = (np.asarray(array, dtype=np.float64) for array in (query, key, value))
    head_dim = params["wq"].shape[1] // num_heads
    kv_heads = params["wk"].shape[1] // head_dim
    value_dim = params["wv"].shape[1] // kv_heads
    settings: dict[str, Any] = {"params": params, "mask_operands": masks} | fields
    return Problem("mha", dtype, num_heads, kv_heads, head_dim, value_dim, q, k, v, **settings)


def random_mha(
    seed: int | np.random.Generator,
    *masks: MaskOperand,
    dtype: str = "float32",
    batch: int = BATCH,
    num_heads: int = HEADS,
    num_kv_heads: int | None = None,
    seq_len_q: int = QUERIES,
    seq_len_k: int = KEYS,
    head_dim: int = DIM,
    value_dim: int = VALUE_DIM,
    widths: tuple[int, int, int] = WIDTHS,
    output_dim: int = OUTPUT_DIM,
    biases: bool = True,
    **fields: Any,
) -> Problem:
    """
    Return a call of mha on standard normal numbers, rounded to `dtype`, with the default scale.

    seed: a seed or a generator, from which query, key, value and the parameters are drawn in this order. A weight is
    divided by the square root of its number of rows, so that projections are about as large as their inputs.
    num_kv_heads: num_heads if None. widths: of query, key and value. fields: other fields of `Problem`; they can also
    replace the masks.
    """
    rng, kv_heads = np.random.default_rng(seed), num_heads if num_kv_heads is None else num_kv_heads
    lengths = (seq_len_q, seq_len_k, seq_len_k)
    columns = {"q": num_heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * value_dim, "o": output_dim}
    rows = (*widths, num_heads * value_dim)
    query, key, value = (
        round_to(rng.standard_normal((batch, length, width)), dtype)
        for length, width in zip(lengths, widths, strict=True)
    )
    params = {}
    for (name, count), width in zip(columns.items(), rows, strict=True):
        params["w" + name] = round_to(rng.standard_normal((width, count)) * width**-0.5, dtype)
        if biases:
            params["b" + name] = round_to(rng.standard_normal(count), dtype)
    return mha(query, key, value, params, num_heads, *masks, dtype=dtype, **fields)


def two_heads(*masks: MaskOperand, **fields: Any) -> Problem:
    """
    Return a call of `mha`: one batch element, two heads of width 1, one query, two keys, and identity projections.

    Weights are 1/4 and 3/4 in the first head, 1/2 and 1/2 in the second: the outputs are 7 and 20. fields: can replace
    query, key and value (batch, seq_len, width), and single parameters in params.
    """
    query = fields.pop("query", [[[1.0, 0.0]]])
    key = fields.pop("key", [[[0.0, 0.0], [LOG3, 0.0]]])
    value = fields.pop("value", [[[4.0, 10.0], [8.0, 30.0]]])
    params = dict.fromkeys(("wq", "wk", "wv", "wo"), np.eye(2)) | fields.pop("params", {})
    return mha(query, key, value, params, 2, *masks, **fields)


def answered(problem: Problem, profile: Profile, **dialect: str) -> tuple[OracleAnswer, dict[str, Bound]]:
    """Return the answer of the oracle under a dialect, and the bounds of its outputs under a profile."""
    answer = evaluate(problem, dialect, profile.score)
    return answer, bound_reply(answer, profile)


def reply_under(dialect: Dialect, problem: Problem, profile: Profile) -> dict[str, Tensor]:
    """Return the reply of an implementation of a dialect: the answer of the oracle, with each output rounded once."""
    reply = evaluate(problem, dialect, profile.score).reply
    return {name: to_tensor(round_to(each.values, each.dtype), each.dtype) for name, each in reply.items()}


def judge(
    problem: Problem, dialect: Dialect, profile: Profile, actual: Mapping[str, Tensor], device: str = "cpu"
) -> Judgement:
    """Judge the reply `actual` to `problem` under the declared dialect and profile, and explain a failure."""
    declared = expect(problem, dialect, profile)
    found = judge_against(declared, lambda: expect_reply(problem, {}, profile), profile, actual)
    return explained(found, problem, profile, actual, device, Likely())
