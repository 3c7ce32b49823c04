"""The arithmetic of attention in JAX, and the evidence of what ran. The adapters that run only on JAX share them."""

import os
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from conformance.bridge import Declaration, Profile, Unsupported

# JAX's name of a platform -> the name of the device in this project. Other names are the same in both.
PLATFORMS = {"gpu": "cuda"}
# Of cuDNN on GPUs since Hopper.
MAX_HEAD_DIM = 256


def fused_declaration(dtype: str, device: str = "cpu") -> Declaration:
    """
    Return the declaration of jax.nn.dot_product_attention: canonical, with a softmax that is always in float32.

    In a float64 call, the logits and the weights are in float32, too. In a float32 call on CUDA, the operands of matrix
    products may be rounded to TF32.
    """
    if dtype == "float32" and device == "cuda":
        rounded = Profile.ordinary(dtype).but(mm="tf32")
        return Declaration(rounded, evidence="jax.lax.Precision.DEFAULT: on GPU uses tensorfloat32 where available")
    if dtype == "float64":
        single = Profile.uniform("float64").but(score="float32", soft="float32", sum="float32", prob="float32")
        return Declaration(single, evidence="jax/_src/nn/functions.py: softmax is always carried out in fp32")
    return Declaration(Profile.ordinary(dtype), evidence="jax/_src/nn/functions.py: logits in float32")


def device_names(devices: Iterable[Any]) -> set[str]:
    """Return the names of JAX devices in this project: "cpu" or "cuda"."""
    return {PLATFORMS.get(device.platform, device.platform) for device in devices}


def jax_evidence(*others: Any) -> dict[str, Any]:
    """Return what runs: the versions of JAX, `others` and NumPy, the device, 64-bit types, threads and XLA_FLAGS."""
    return {
        "versions": {module.__name__: module.__version__ for module in (jax, *others, np)},
        "device": str(jax.devices()[0]),
        "x64": jax.config.jax_enable_x64,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "environment": {"XLA_FLAGS": os.environ.get("XLA_FLAGS")},
    }


def decline_unless_supported(
    query: Any, key: Any, masks: dict[str, Any], flags: dict[str, Any], *, slopes: bool
) -> None:
    """
    Raise Unsupported for a call for which JAX raises an exception because cuDNN does not support it.

    query, key: (batch, seq_len, num_heads, head_dim). slopes: whether gradients are requested. The conditions are those
    of check_layout and check_is_flash_attention in jax/_src/cudnn/fused_attention_stablehlo.py, and of
    jax.nn.dot_product_attention.
    """
    head_dim, lengths = query.shape[3], (query.shape[1], key.shape[1])
    given = [array for name, array in masks.items() if name in ("mask", "bias")]
    right = flags.get("local_window_size", (0, 0))[1]
    if str(query.dtype) not in ("float16", "bfloat16"):
        raise Unsupported(f"cuDNN: query, key and value are in float16 or bfloat16, not in {query.dtype}")
    if head_dim % 8 or head_dim > MAX_HEAD_DIM:
        raise Unsupported(f"cuDNN: head_dim {head_dim} is not a multiple of 8, or is above {MAX_HEAD_DIM}")
    if any(array.shape[2:] != lengths for array in given):
        raise Unsupported("cuDNN: a mask or bias has size 1 on the axis of the queries or keys")
    if right and not flags["is_causal"]:
        raise Unsupported(f"cuDNN: a window has {right} keys on the right, without is_causal")
    if slopes and given and any(length % 2 for length in lengths):
        raise Unsupported(f"cuDNN: gradients with a mask or bias need even lengths, not {lengths}")
