"""The arithmetic of attention in JAX, and the evidence of what ran. The adapters that run only on JAX share them."""

import os
from typing import Any

import jax
import numpy as np

from conformance.bridge import Declaration, Profile


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


def jax_evidence(*others: Any) -> dict[str, Any]:
    """Return what runs: the versions of JAX, `others` and NumPy, the device, 64-bit types, threads and XLA_FLAGS."""
    return {
        "versions": {module.__name__: module.__version__ for module in (jax, *others, np)},
        "device": str(jax.devices()[0]),
        "x64": jax.config.jax_enable_x64,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "environment": {"XLA_FLAGS": os.environ.get("XLA_FLAGS")},
    }
