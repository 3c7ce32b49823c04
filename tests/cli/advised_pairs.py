"""
Follow by hand what `conformance port` advises between four more pairs, with plain calls, not our adapters.

Run the script with the record of each pair, in the order of PAIRS. It prints results in the format of advised.py.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

os.environ.update(JAX_PLATFORMS="cpu")

import jax
import numpy as np
import torch
from flax import linen
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from conformance.spec.problem import Array, Problem
from tests.cli.following import Trial, agrees, booleans, in_torch, overwritten, printed, shown, told

Shown = Mapping[str, Problem]

TENSORS = ("query", "key", "value")
ONNX_INPUTS = ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")


def in_flax(problem: Problem, mask: Array | None = None) -> Array:
    """The output of flax.linen.MultiHeadDotProductAttention."""
    heads, dim = problem.num_heads, problem.head_dim
    parts = {"query": "q", "key": "k", "value": "v"}
    params: dict[str, Any] = {
        part: {
            "kernel": np.float32(problem.params["w" + letter]).reshape(-1, heads, dim),
            "bias": np.float32(problem.params["b" + letter]).reshape(heads, dim),
        }
        for part, letter in parts.items()
    }
    width = problem.params["wo"].shape[1]
    params["out"] = {
        "kernel": np.float32(problem.params["wo"]).reshape(heads, dim, width),
        "bias": np.float32(problem.params["bo"]),
    }
    layer = linen.MultiHeadDotProductAttention(num_heads=heads, qkv_features=heads * dim, out_features=width)
    inputs = [np.float32(each) for each in (problem.query, problem.key, problem.value)]
    return np.asarray(layer.apply({"params": params}, *inputs, mask=mask), dtype=np.float64)


def torch_sdpa(problem: Problem, **given: Any) -> Array:
    """The output of scaled_dot_product_attention."""
    inputs = [torch.tensor(each, dtype=torch.float32) for each in (problem.query, problem.key, problem.value)]
    masks = {name: torch.tensor(each) if isinstance(each, np.ndarray) else each for name, each in given.items()}
    return np.asarray(torch.nn.functional.scaled_dot_product_attention(*inputs, **masks).numpy(), dtype=np.float64)


def jax_sdpa(problem: Problem, **given: Any) -> Array:
    """The output of jax.nn.dot_product_attention, with the head axis moved back before the length axis."""
    inputs = [np.swapaxes(each, 1, 2).astype(np.float32) for each in (problem.query, problem.key, problem.value)]
    return np.asarray(jax.nn.dot_product_attention(*inputs, **given), dtype=np.float64).swapaxes(1, 2)


def onnx_attention(problem: Problem, inputs: Mapping[str, Array] = MappingProxyType({}), **attributes: Any) -> Array:
    """The output of the Attention operator in the ONNX reference implementation."""
    given = {name: np.float32(getattr(problem, word)) for name, word in zip("QKV", TENSORS, strict=True)} | dict(inputs)
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in given.items()}
    values = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
    slots = [name if name in given else "" for name in ONNX_INPUTS]
    node = helper.make_node("Attention", slots, ["Y"], **attributes)
    result = helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "attention", values, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    return np.asarray(ReferenceEvaluator(model).run(None, given)[0], dtype=np.float64)


def attended(problem: Problem) -> Array:
    """All masks of a case combined into one: (batch, num_heads, seq_len_q, seq_len_k)."""
    return problem.allowed()


def torch_to_jax(found: Shown) -> Iterator[Trial]:
    """torch.sdpa -> jax.sdpa."""
    p = found["fully_masked_row"]
    mask = attended(p)
    new = jax_sdpa(p, mask=mask)
    after = np.where(mask.any(axis=-1, keepdims=True), new, 0)
    yield told("torch.sdpa jax.sdpa", "fully_masked_row", p, mask, (torch_sdpa(p, attn_mask=mask), new, after))


def jax_to_torch(found: Shown) -> Iterator[Trial]:
    """jax.sdpa -> torch.sdpa."""
    there = "jax.sdpa torch.sdpa"
    p = found["nonfinite_key"]
    mask = attended(p)
    clean = p.but(key=np.where(np.isfinite(p.key), p.key, 0))
    old = jax_sdpa(p, mask=mask)
    replies = old, torch_sdpa(p, attn_mask=mask), torch_sdpa(clean, attn_mask=mask)
    yield told(there, "nonfinite_key", clean, mask, replies)


def torch_to_flax(found: Shown) -> Iterator[Trial]:
    """torch.mha -> flax.mha."""
    there = "torch.mha flax.mha[linen]"
    p = found["polarity[attn_mask]"]
    mask = booleans(p, "attention")
    replies = in_torch(p, attn_mask=mask), in_flax(p, mask[None, None]), in_flax(p, ~mask[None, None])
    yield told(there, "polarity[attn_mask]", p, ~mask, replies)

    p = found["polarity[key_padding_mask]"]
    mask = booleans(p, "key_padding")
    wide = mask[:, None, None]
    replies = in_torch(p, key_padding_mask=mask), in_flax(p, wide), in_flax(p, ~wide)
    yield told(there, "polarity[key_padding_mask]", p, ~wide, replies)

    p = found["float_mask[attn_mask]"]
    added = np.asarray(p.mask_operands[0].values[0, 0], dtype=np.float32)
    replies = in_torch(p, attn_mask=added), in_flax(p, added[None, None]), in_flax(p, (added == 0)[None, None])
    yield told(there, "float_mask[attn_mask]", p, added == 0, replies)

    p = found["fully_masked_row"]
    keep, real = booleans(p, "attention"), booleans(p, "key_padding")
    both = (keep & real[:, None])[:, None]
    new = in_flax(p, both)
    old = in_torch(p, attn_mask=~keep, key_padding_mask=~real)
    yield told(
        there, "fully_masked_row", p, both, (old, new, overwritten(new, p, np.asarray(~both[:, 0].any(axis=-1))))
    )

    p = found["polarity[attn_mask]"]
    order = np.tril(np.ones((p.seq_len_q, p.seq_len_k), dtype=bool))
    old = in_torch(p, attn_mask=~order, is_causal=True)
    yield told(there, "is_causal", p, order, (old, in_flax(p), in_flax(p, order[None, None])))


def torch_to_onnx(found: Shown) -> Iterator[Trial]:
    """torch.sdpa -> onnx.attention."""
    there = "torch.sdpa onnx.attention"
    p = found["scale"]
    assert p.scale is not None
    old = torch_sdpa(p, scale=p.scale)
    before, after = onnx_attention(p, scale=p.scale), onnx_attention(p.but(query=-p.query), scale=-p.scale)
    free = np.ones((1, 1), dtype=bool)
    yield Trial(there, "scale", agrees(p, free, old, before), agrees(p, free, old, after))

    p = p.but(scale=None)
    order = np.tril(np.ones((p.seq_len_q, p.seq_len_k), dtype=bool))
    lengths = np.full(p.query.shape[0], p.seq_len_k - 1)
    padded = {"nonpad_kv_seqlen": lengths}
    mask = order & (np.arange(p.seq_len_k) < lengths[:, None])[:, None, None]
    before, after = onnx_attention(p, padded, is_causal=1), onnx_attention(p, {**padded, "attn_mask": order})
    yield told(there, "is_causal", p, mask, (torch_sdpa(p, attn_mask=mask), before, after))


PAIRS = (torch_to_jax, jax_to_torch, torch_to_flax, torch_to_onnx)

if __name__ == "__main__":
    paths = dict(zip(PAIRS, sys.argv[1:], strict=True))
    sys.stdout.write(printed([trial for pair, path in paths.items() for trial in pair(shown(path))]))
