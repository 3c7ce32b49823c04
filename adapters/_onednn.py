"""
The library of TensorFlow's CPU kernels, oneDNN or Eigen: shared by the adapters that run TensorFlow.

The two libraries round bfloat16 differently. oneDNN is the default on CPUs with AVX512_VNNI, AVX512_BF16, AVX_VNNI or
AMX. The variable TF_ENABLE_ONEDNN_OPTS overrides the default:
https://github.com/tensorflow/tensorflow/blob/08df8c40b4376ed012fa3ba03ff3e3068d8d2a94/tensorflow/core/util/port.cc
"""

from pathlib import Path
from typing import Any

from conformance.bridge import Profile

CPU = Path("/proc/cpuinfo")


def library() -> str:
    """The library of TensorFlow's CPU kernels: "oneDNN" or "Eigen"."""
    from tensorflow.python.util import _pywrap_util_port  # noqa: PLC0415 - only where TensorFlow is the backend

    return "oneDNN" if _pywrap_util_port.IsMklEnabled() else "Eigen"


def bfloat16_library() -> str:
    """The library of TensorFlow's bfloat16 kernels. The bfloat16 kernels of oneDNN need AVX-512."""
    wide = CPU.exists() and "avx512f" in CPU.read_text(encoding="ascii", errors="replace")
    return library() if wide else "Eigen"


def bfloat16_profile(profile: Profile, dtype: str, **eigen: Any) -> Profile:
    """
    Return `profile`, with the fields `eigen` changed if Eigen computes in bfloat16.

    Measured with Eigen: tf.matmul multiplies in float32 and truncates the product to bfloat16 (truncated=True);
    tf.einsum accumulates in bfloat16 (acc="bfloat16"). oneDNN accumulates in float32 and rounds.
    """
    return profile.but(**eigen) if dtype == "bfloat16" and bfloat16_library() == "Eigen" else profile


def libraries() -> dict[str, str]:
    """The libraries for the evidence of an adapter. Known deviations may depend on them."""
    return {"tensorflow": library(), "tensorflow bfloat16": bfloat16_library()}
