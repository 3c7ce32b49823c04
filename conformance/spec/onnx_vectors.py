"""
Convert the node tests of the ONNX operator Attention to cases: the same problem, with the results that onnx expects.

Each test is kept as it is: a number of valid keys, a causal argument, a window, or a mask over fewer keys must be
passed in an argument made for it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from conformance.spec.problem import PRESENT, PRESENTS, Array

SOURCE = "https://github.com/onnx/onnx/blob/main/onnx/backend/test/case/node/attention.py"
# Minimum rtol of onnx's own test runner in bfloat16: onnx/backend/test/runner/__init__.py.
BFLOAT16_RTOL = 2.0**-6
NONPAD = "nonpad_kv_seqlen"
# Content of qk_matmul_output, by its mode.
MODES = ("scaled", "capped", "logits", "weights")


@dataclass(frozen=True, eq=False)
class Vector:
    """One node test: `attributes`, `opset`, `rtol`, `atol` and dtypes as in onnx, arrays by their onnx names."""

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
        """Number of keys from the cache."""
        return int(self.arrays["past_key"].shape[2]) if "past_key" in self.inputs else 0

    @property
    def window(self) -> tuple[int | None, int | None]:
        """Number of keys to the left and right; None is unbounded."""
        left, right = (int(self.attributes.get(f"{side}_window_size", -1)) for side in ("left", "right"))
        return (None if left < 0 else left), (None if right < 0 else right)

    @property
    def short(self) -> int:
        """Number of last keys that the array mask leaves out."""
        if "attn_mask" not in self.inputs:
            return 0
        keys = self.past + self.heads("K", "kv_num_heads").shape[2]
        return int(keys - self.arrays["attn_mask"].shape[-1])

    @property
    def mode(self) -> int:
        """The content of qk_matmul_output, an index of MODES."""
        return int(self.attributes.get("qk_matmul_output_mode", 0))

    def heads(self, name: str, count: str) -> Array:
        """Return an input or output with four axes, (batch, num_heads, seq_len, dim)."""
        array = self.arrays[name]
        if array.ndim == len("bhsd"):
            return array
        batch, length, _width = array.shape
        return array.reshape(batch, length, self.attributes[count], -1).swapaxes(1, 2)


@dataclass(frozen=True, eq=False)
class Imported:
    """A case as plain data, the arrays of its two files, and notes on what of the test it leaves out."""

    entry: Mapping[str, Any]
    inputs: Mapping[str, Array]
    published: Mapping[str, Array]
    left_out: tuple[str, ...]


def imported(vector: Vector) -> Imported:
    """Convert one vector to a case; this works for every vector."""
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
        "masks": list(_masks(vector)),
        "published": {
            "source": SOURCE,
            "file": f"{vector.name}.published.npz",
            "rtol": max(vector.rtol, BFLOAT16_RTOL) if dtype == "bfloat16" else vector.rtol,
            "atol": vector.atol,
            **({"computed_in": dtype} if dtype in ("float16", "bfloat16") else {}),
        },
        "native": list(_native(vector)),
        "x-onnx": {"opset": vector.opset, "attributes": dict(vector.attributes)},
    }
    entry |= {name: vector.attributes[name] for name in ("scale", "softcap") if name in vector.attributes}
    entry |= {"past": vector.past} if vector.past else {}
    return Imported(entry, {"query": query, "key": key, "value": value}, published, tuple(_left_out(vector)))


_COUNTS = ("q_num_heads", "kv_num_heads", "kv_num_heads")


def _masks(vector: Vector) -> Iterator[dict[str, Any]]:
    """Yield the array mask, then the masks given by the attributes and the number of valid keys."""
    if "attn_mask" in vector.inputs:
        yield _array_mask(vector)
    anchor = {"offset": "past" if vector.past else "start"}
    if NONPAD in vector.inputs:
        yield {"kind": "key_padding", "lengths": [int(length) for length in vector.arrays[NONPAD]]}
        anchor = {"offset": "lengths"}
    if vector.attributes.get("is_causal", 0):
        yield {"kind": "causal", **anchor}
    left, right = sides = vector.window
    if sides != (None, None):
        yield {"kind": "window", "left": left, "right": right, **anchor}


def _native(vector: Vector) -> Iterator[str]:
    """Yield the argument roles that a subject needs."""
    if vector.attributes.get("is_causal", 0):
        yield "causal"
    if any(f"{side}_window_size" in vector.attributes for side in ("left", "right")):
        yield "window"
    if NONPAD in vector.inputs:
        yield "lengths"
    if vector.short:
        yield "short"


def _array_mask(vector: Vector) -> dict[str, Any]:
    """Make the mask of attn_mask over the axes that it spans; missing keys are masked, as onnx documents."""
    mask = vector.arrays["attn_mask"]
    boolean = vector.inputs["attn_mask"] == "bool"
    missing = [(0, 0)] * (mask.ndim - 1) + [(0, vector.short)]
    mask = np.pad(mask, missing, constant_values=False if boolean else -np.inf)
    axes = "bhqk"[4 - mask.ndim :]
    kept = [number for number, size in enumerate(mask.shape) if size > 1 or axes[number] == "k"]
    values = mask.reshape([mask.shape[number] for number in kept])
    return {
        "kind": "attention" if boolean else "additive",
        "axes": [axes[number] for number in kept],
        **({"short": vector.short} if vector.short else {}),
        "values": values.astype(int).tolist() if boolean else values.astype(float).tolist(),
    }


def _left_out(vector: Vector) -> Iterator[str]:
    if "softmax_precision" in vector.attributes:
        yield "softmax_precision: a subject declares its arithmetic"
