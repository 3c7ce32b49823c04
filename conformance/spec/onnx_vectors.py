"""
The node tests of the ONNX operator Attention as cases: the same problem in our words, with what onnx expects.

A number of valid keys per item becomes a mask, and so do the diagonal and the window that it moves item by item.
Nothing else is changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.spec.problem import PRESENT, PRESENTS, Array

SOURCE = "https://github.com/onnx/onnx/blob/main/onnx/backend/test/case/node/attention.py"
BFLOAT16_RTOL = 2.0**-6
"""What onnx's own runner allows at least in bfloat16: onnx/backend/test/runner/__init__.py."""
MODES = ("scaled", "capped", "logits", "weights")
"""What qk_matmul_output holds, by its mode."""


@dataclass(frozen=True, eq=False)
class Vector:
    """One node test: `attributes`, `opset`, `rtol`, `atol` and dtypes as onnx has them, arrays by their names there."""

    name: str
    attributes: Mapping[str, Any]
    opset: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    rtol: float
    atol: float
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def past(self) -> int:
        """How many keys come from the cache."""
        return int(self.arrays["past_key"].shape[2]) if "past_key" in self.inputs else 0

    @property
    def mode(self) -> int:
        """What qk_matmul_output holds."""
        return int(self.attributes.get("qk_matmul_output_mode", 0))

    def heads(self, name: str, count: str) -> Array:
        """An input or output with four axes, (batch, num_heads, seq_len, dim)."""
        array = self.arrays[name]
        if array.ndim == len("bhsd"):
            return array
        batch, length, _width = array.shape
        return array.reshape(batch, length, self.attributes[count], -1).swapaxes(1, 2)


@dataclass(frozen=True, eq=False)
class Imported:
    """A case as plain data, the arrays of its two files, and what of the test it leaves out, in sentences."""

    entry: Mapping[str, Any]
    inputs: Mapping[str, Array]
    published: Mapping[str, Array]
    left_out: tuple[str, ...]


def imported(vector: Vector) -> Imported:
    """The case of one vector; every vector has one."""
    query, key, value = (vector.heads(name, count) for name, count in zip("QKV", _COUNTS, strict=True))
    if vector.past:
        key = np.concatenate([vector.arrays["past_key"], key], axis=2)
        value = np.concatenate([vector.arrays["past_value"], value], axis=2)
    dtype = vector.inputs["Q"]
    published = {"output": vector.heads("Y", "q_num_heads")}
    published |= {name: vector.arrays[name] for name in PRESENTS if name in vector.outputs}
    if "qk_matmul_output" in vector.outputs:
        published[MODES[vector.mode]] = vector.arrays["qk_matmul_output"]
    entry: dict[str, Any] = {
        "name": vector.name,
        "dtype": dtype,
        "batch": query.shape[0],
        "num_heads": query.shape[1],
        "num_kv_heads": key.shape[1],
        "seq_len_q": query.shape[2],
        "seq_len_k": key.shape[2],
        "head_dim": query.shape[3],
        "value_dim": value.shape[3],
        "outputs": list(dict.fromkeys(PRESENT if name in PRESENTS else name for name in published)),
        "inputs": {"file": f"{vector.name}.inputs.npz"},
        "masks": list(_masks(vector, query.shape[2], key.shape[2])),
        "published": {
            "source": SOURCE,
            "file": f"{vector.name}.published.npz",
            "rtol": max(vector.rtol, BFLOAT16_RTOL) if dtype == "bfloat16" else vector.rtol,
            "atol": vector.atol,
            **({"computed_in": dtype} if dtype in ("float16", "bfloat16") else {}),
        },
        "x-onnx": {"opset": vector.opset, "attributes": dict(vector.attributes)},
    }
    entry |= {name: vector.attributes[name] for name in ("scale", "softcap") if name in vector.attributes}
    entry |= {"past": vector.past} if vector.past else {}
    return Imported(entry, {"query": query, "key": key, "value": value}, published, tuple(_left_out(vector)))


_COUNTS = ("q_num_heads", "kv_num_heads", "kv_num_heads")


def _masks(vector: Vector, length_q: int, length_k: int) -> Iterator[dict[str, Any]]:
    """The array mask, then what the attributes and the number of valid keys say."""
    if "attn_mask" in vector.inputs:
        yield _array_mask(vector, length_k)
    causal = bool(vector.attributes.get("is_causal", 0))
    sides = [int(vector.attributes.get(f"{side}_window_size", -1)) for side in ("left", "right")]
    windowed = max(sides) >= 0
    if "nonpad_kv_seqlen" in vector.inputs:
        valid = [int(length) for length in vector.arrays["nonpad_kv_seqlen"]]
        yield {"kind": "key_padding", "lengths": valid}
        offsets = np.array(valid) - length_q
        if causal or windowed:
            allowed = _around(offsets[:, None, None], length_q, length_k, causal=causal, sides=sides)
            yield {"kind": "attention", "axes": ["b", "q", "k"], "values": allowed.astype(int).tolist()}
        return
    anchor = {"offset": "past" if vector.past else "start"}
    if causal:
        yield {"kind": "causal", **anchor}
    if windowed:
        left, right = (None if side < 0 else side for side in sides)
        yield {"kind": "window", "left": left, "right": right, **anchor}


def _around(offset: Array, length_q: int, length_k: int, *, causal: bool, sides: list[int]) -> Array:
    """Which keys a query at the absolute position offset + index sees, True = attend."""
    apart = np.arange(length_k) - (np.arange(length_q)[:, None] + offset)
    seen = apart <= 0 if causal else np.ones(apart.shape, bool)
    left, right = sides
    seen = seen & (apart >= -left) if left >= 0 else seen
    return seen & (apart <= right) if right >= 0 else seen


def _array_mask(vector: Vector, length_k: int) -> dict[str, Any]:
    """attn_mask over the axes that it spans; where it has too few keys the others are masked, as documented."""
    mask = vector.arrays["attn_mask"]
    boolean = vector.inputs["attn_mask"] == "bool"
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, length_k - mask.shape[-1])]
    mask = np.pad(mask, missing, constant_values=False if boolean else -np.inf)
    axes = "bhqk"[4 - mask.ndim :]
    kept = [number for number, size in enumerate(mask.shape) if size > 1 or axes[number] == "k"]
    values = mask.reshape([mask.shape[number] for number in kept])
    return {
        "kind": "attention" if boolean else "additive",
        "axes": [axes[number] for number in kept],
        "values": values.astype(int).tolist() if boolean else values.astype(float).tolist(),
    }


def _left_out(vector: Vector) -> Iterator[str]:
    if "nonpad_kv_seqlen" in vector.inputs and vector.attributes.get("is_causal", 0):
        yield "is_causal beside nonpad_kv_seqlen: subjects are given the mask that it stands for"
    if "softmax_precision" in vector.attributes:
        yield "softmax_precision: arithmetic, which a subject declares"
