"""The profiles, layer arguments, replies and evidence of Keras, shared by the keras adapters on every backend."""

import os
from functools import cache
from typing import Any

import keras
import numpy as np

from conformance.bridge import Call, Facts, Profile

from ._arrays import to_numpy
from ._layers import ATTACHED, stepwise_profile
from ._onednn import bfloat16_profile, libraries
from ._releases import known
from ._versions import version

MASKS = ("query_mask", "value_mask", "key_mask", "attention_mask", *ATTACHED)
KERAS = "https://github.com/keras-team/keras/blob/01a4a576bcf765dcce90b79e33297561982df460/keras/src"
# This file maps float64 to float32 on every backend except TensorFlow, "to be aligned with JAX's default behavior".
RESULT_TYPE = f"{KERAS}/backend/common/dtypes.py"


# The environment variables of the worker on which its replies may depend.
VARIABLES = ("OMP_NUM_THREADS", "JAX_ENABLE_X64", "JAX_PLATFORMS", "XLA_FLAGS")

# The kernel initializer. Its values are never used, because the weights are set before every call. JAX would
# compile a random initializer for each shape and dtype.
UNUSED = "zeros"


def attention_profile(backend: str, dtype: str) -> Profile:
    """
    Return the profile of keras.ops.dot_product_attention.

    The scale is a float32 number. On every backend except TensorFlow, float64 is computed in float32.

    TensorFlow stores half-precision logits in half precision and accumulates float16 products in float16. If Eigen
    computes bfloat16 instead of oneDNN, bfloat16 products are truncated.
    """
    if dtype in ("float64", "float32"):
        return Profile.uniform(dtype if backend == "tensorflow" else "float32").but(scale="float32")
    if backend != "tensorflow":
        return Profile.fused(dtype)
    profile = Profile.fused(dtype).but(score=dtype, acc="float16" if dtype == "float16" else "float32")
    return bfloat16_profile(profile, dtype, truncated=True)


def layer_profile(facts: Facts) -> Profile:
    """
    Return the profile of an attention layer.

    If the call requests attention weights, if the layer has a dropout, or in the variant [axes], each step is an
    operator of its own. Otherwise, the profile is that of keras.ops.dot_product_attention.
    """
    backend = keras.backend.backend()
    if not ("weights" in facts.outputs or "dropout" in facts.requirements or facts.variant == "axes"):
        return attention_profile(backend, facts.dtype)
    profile = stepwise_profile(backend, facts.dtype)
    if backend != "tensorflow":
        return profile
    return (
        profile.but(scale="float32")
        if facts.dtype == "float64"
        else bfloat16_profile(profile, facts.dtype, truncated=True)
    )


def layer_arguments(call: Call) -> dict[str, Any]:
    """Return the arguments of an attention layer by name: query, value, key, masks and flags."""
    inputs = {"query": call.query, "value": call.value, "key": call.key}
    masks = {slot: call.arguments[slot] for slot in MASKS if slot in call.arguments}
    return {
        **{name: to_numpy(tensor) for name, tensor in {**inputs, **masks}.items()},
        "use_causal_mask": bool(call.arguments.get("use_causal_mask", False)),
        "return_attention_scores": "weights" in call.facts.outputs,
    }


def layer_reply(call: Call, result: Any) -> dict[str, Any]:
    """Return the requested outputs by name. `result` is the output or, with weights, (output, weights)."""
    found = result if "weights" in call.facts.outputs else (result,)
    return {name: keras.ops.convert_to_numpy(found[("output", "weights").index(name)]) for name in call.facts.outputs}


def sliding_window(call: Call) -> int | None:
    """
    Return the argument `sliding_window` of the layer, or None if the call has no window.

    It is the number of positions that the window covers to one side, plus one for the position of the query.
    """
    sides = call.arguments.get("sliding_window")
    return None if sides is None else int(sides[0]) + 1


def mha_sizes(facts: Facts) -> tuple[int, ...]:
    """Return the sizes from which `mha_layer` builds a MultiHeadAttention."""
    names = ("num_heads", "head_dim", "value_dim", "output_dim", "query_dim", "vdim", "kdim")
    return tuple(facts.sizes[name] for name in names)


@cache
def mha_layer(
    sizes: tuple[int, ...],
    dtype: str,
    axes: tuple[int, ...] | None = None,
    *,
    biases: bool,
    dropout: float = 0.0,
    window: int | None = None,
) -> Any:
    """Return a MultiHeadAttention of these `mha_sizes`. Its weights are set before each call."""
    number, head_dim, value_dim, output_dim, *widths = sizes
    layer = keras.layers.MultiHeadAttention(
        number,
        head_dim,
        value_dim=value_dim,
        output_shape=output_dim,
        use_bias=biases,
        dropout=dropout,
        attention_axes=axes,
        kernel_initializer=UNUSED,
        dtype=dtype,
        **known(keras.layers.MultiHeadAttention.__init__, sliding_window=window),
    )
    layer.build(*((*(None,) * (3 if axes else 2), width) for width in widths))
    return layer


def keras_evidence() -> dict[str, Any]:
    """Return versions, backend, device, libraries, environment variables, and whether flash attention is enabled."""
    backend = keras.backend.backend()
    flash = getattr(keras.config, "is_flash_attention_enabled", None)  # Keras 3.7 adds this and flash attention
    return {
        "versions": {name: version(name) for name in ("keras", backend)} | {"numpy": np.__version__},
        "backend": backend,
        "device": "cpu",
        "flash_attention": flash() if flash else False,
        "libraries": _libraries(backend),
        "environment": {name: os.environ.get(name) for name in VARIABLES},
    }


def _libraries(backend: str) -> dict[str, str]:
    """Return the libraries or the CPU capability on which the replies of a backend depend."""
    if backend == "torch":
        import torch  # noqa: PLC0415 - imported only if it is the backend

        return {"torch": torch.backends.cpu.get_cpu_capability()}
    return libraries() if backend == "tensorflow" else {}
