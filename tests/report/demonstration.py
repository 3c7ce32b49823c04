"""A small run that contains every verdict and most of what a report can show."""

from typing import Any

import numpy as np

FRAMEWORKS = {
    "numpy.sdpa[float32]": ("numpy", "sdpa"),
    "numpy.mha[float32]": ("numpy", "mha"),
    "torch.sdpa[math]": ("torch", "sdpa"),
    "torch.sdpa[flash]": ("torch", "sdpa"),
    "torch.sdpa[math,dense]": ("torch", "sdpa"),
    "torch.mha": ("torch", "mha"),
    "keras.mha[tensorflow]": ("keras", "mha"),
    "keras.mha[jax]": ("keras", "mha"),
    "keras.mha[torch]": ("keras", "mha"),
    "keras.ops.dot_product_attention[jax]": ("keras", "sdpa"),
    "jax.nn.dot_product_attention": ("jax", "sdpa"),
    "onnx.torch_mha": ("onnx", "mha"),
    "onnx.torch_sdpa": ("onnx", "sdpa"),
}
THEMES = {
    "shapes/cross": ("longer_keys", "one_query"),
    "masks/key_padding": ("trailing", "leading", "holes"),
    "masks/attention": ("bool_4d", "float_3d"),
    "causal/offset": ("start", "past"),
    "degenerate/fully_masked_rows": ("one_row", "all_rows"),
    "numerics/large": ("equal_logits", "wide_range"),
    "verbatim/polarity": ("true_means_ignore",),
}


TRACEBACK = """Traceback (most recent call last):
  File "onnx_torch_sdpa.py", line 41, in sdpa
    return session.run(None, feeds)
RuntimeError: Non-zero status code
"""


def fill(builder: Any) -> None:
    """Fill a RunBuilder with a run that does not conform."""
    rng = np.random.default_rng(7)
    _name_all(builder)
    special = _special(builder, rng)
    for name, entry in builder.header["subjects"].items():
        for case, about in builder.header["cases"].items():
            if about["operator"] not in entry["operators"] or (not entry["counted"] and "masks" not in case):
                continue
            verdict = special.get((case, name))
            if verdict is None:
                budget = round(float(rng.uniform(0.08, 0.8)), 3)
                verdict = {
                    "budget": budget,
                    "outputs": [
                        {
                            "output": "output",
                            "verdict": "pass",
                            "budget": budget,
                            "max_error": 2e-7,
                            "bound": 1e-6,
                            "at": [0, 1, 2],
                            "coverage": 1.0,
                            "beyond": 0,
                            "elements": 120,
                        }
                    ],
                }
            builder.cell(case, name, **verdict)
    inverted = [case for case, subject in builder.rejected if subject == "torch.sdpa[math]"]
    builder.diagnosis("torch.sdpa[math]", _inversion(inverted))
    builder.gate = {
        "known": {"live": 2, "dead": ["known.yaml:31 jax.nn.dot_product_attention"], "too_wide": [], "not_reached": []},
        "incomplete": ["onnx.torch_sdpa: 1 verdict missing"],
        "problems": [f"{len(builder.rejected)} verdicts are rejected"],
    }


def _name_all(builder: Any) -> None:
    for suite, names in THEMES.items():
        for name in names:
            for operator in ("mha", "sdpa"):
                for dtype in ("float32", "bfloat16"):
                    builder.case(f"{suite}/{operator}_{name}[dtype={dtype}]", operator, dtype)
    for name, (framework, operator) in FRAMEWORKS.items():
        builder.subject(name, operator, framework=framework, counted="dense" not in name)
    for framework in dict.fromkeys(framework for framework, _ in FRAMEWORKS.values()):
        own = [name for name, (other, _) in FRAMEWORKS.items() if other == framework]
        builder.worker(f"{framework}", own, versions={framework: "2.13.0", "numpy": "2.4.6"})
    builder.worker(
        "keras.mha",
        [],
        status="failed",
        reason="the interpreter ended with code 1 before the handshake",
        stderr="Traceback (most recent call last):\nModuleNotFoundError: No module named 'keras'\n",
    )
    builder.header["not_offered"] = [{"adapter": "tensorflow.mha", "missing": ["tensorflow"], "extra": "tensorflow"}]


def _special(builder: Any, rng: np.random.Generator) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the cells that do not simply pass, by case and subject."""
    special: dict[tuple[str, str], dict[str, Any]] = {}
    cases = builder.header["cases"]
    for number, case in enumerate(
        name for name, one in cases.items() if name.startswith("masks/") and one["operator"] == "sdpa"
    ):
        special[case, "torch.sdpa[math]"] = _inverted(builder, rng, f"inverted{number}")
    for case in (name for name, one in cases.items() if "fully_masked_rows" in name and one["operator"] == "mha"):
        for subject in ("keras.mha[jax]", "keras.mha[torch]", "keras.mha[tensorflow]"):
            name = "uniform" if "torch" in subject else "unmasked_softmax"
            special[case, subject] = {
                "verdict": "dialect",
                "budget": 0.31,
                "declared": {
                    "dialect": [
                        {
                            "decision": "fully_masked_row",
                            "name": name,
                            "source": "https://keras.io/api/layers/attention_layers/multi_head_attention/",
                        }
                    ],
                    "profile": {"store": "float32"},
                    "evidence": "documentation",
                },
                "differs_from_canonical": True,
            }
        special[case, "torch.mha"] = _nan_rows(builder, rng, case.replace("/", "_"))
    for case in (name for name in cases if "causal" in name):
        special[case, "onnx.torch_sdpa"] = {
            "verdict": "error",
            "rejected": True,
            "reason": "the framework raised RuntimeError",
            "error": {
                "type": "RuntimeError",
                "message": "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Attention node",
                "traceback": TRACEBACK,
            },
        }
    for case in (name for name in cases if "bfloat16" in name):
        special.setdefault(
            (case, "onnx.torch_mha"), {"verdict": "unsupported", "reason": "bfloat16 is not in DTYPES of this adapter"}
        )
    special["numerics/large/sdpa_wide_range[dtype=float32]", "jax.nn.dot_product_attention"] = _imprecise(builder, rng)
    special["numerics/large/sdpa_equal_logits[dtype=float32]", "jax.nn.dot_product_attention"] = _wrong_shape(
        builder, rng
    )
    special["numerics/large/sdpa_equal_logits[dtype=bfloat16]", "torch.sdpa[flash]"] = {
        "verdict": "inconclusive",
        "uncalibrated": True,
        "reason": "precision outside the calibrated table",
        "budget": 1.4,
    }
    special["shapes/cross/sdpa_one_query[dtype=float32]", "torch.sdpa[flash]"] = {
        "verdict": "crash",
        "rejected": True,
        "reason": "the worker died with SIGSEGV",
    }
    special["shapes/cross/sdpa_one_query[dtype=float32]", "jax.nn.dot_product_attention"] = {
        "verdict": "timeout",
        "rejected": True,
        "reason": "no reply within 60 s",
    }
    return special


def _inverted(builder: Any, rng: np.random.Generator, name: str) -> dict[str, Any]:
    want, got, tolerance = builder.trio(rng, 3, 2, 5, 8)
    got[:, :, 1:3] += rng.normal(scale=0.4, size=got[:, :, 1:3].shape)
    weights = np.exp(rng.normal(size=(3, 2, 5, 7)))
    weights /= weights.sum(-1, keepdims=True)
    moved = weights[..., ::-1].copy()
    file = builder.tensors(name, output=(want, got, tolerance), weights=(weights, moved, np.full(weights.shape, 1e-7)))
    at = [int(item) for item in np.unravel_index(int(np.abs(got - want).argmax()), got.shape)]
    return {
        "verdict": "fail",
        "class_": "semantic",
        "rejected": True,
        "budget": 1.1e6,
        "tensors": file,
        "reason": "output: 96 of 240 elements beyond the bound; weights: 168 of 210 elements beyond the bound",
        "outputs": [
            {
                "output": "output",
                "verdict": "fail",
                "class": "semantic",
                "max_error": 1.1,
                "bound": 1e-6,
                "at": at,
                "expected": float(want[tuple(at)]),
                "actual": float(got[tuple(at)]),
                "budget": 1.1e6,
                "rms": 3e5,
                "coverage": 1.0,
                "not_judged": 0,
                "unspecified": 0,
                "beyond": 96,
                "elements": 240,
                "beyond_worst": True,
                "message": "96 of 240 elements beyond the bound",
            },
            {
                "output": "weights",
                "verdict": "fail",
                "class": "semantic",
                "max_error": 0.4,
                "bound": 1e-7,
                "at": [0, 1, 2, 3],
                "expected": 0.25,
                "actual": 0.75,
                "budget": 4e6,
                "beyond": 168,
                "elements": 210,
            },
        ],
        "explanation": {
            "decision": "polarity[attn_mask]",
            "name": "ignore",
            "declared": "attend",
            "sentence": "reads True in attn_mask as ignore",
            "remedy": "pass ~attn_mask",
            "budget": 0.4,
        },
        "ties": ["use[attn_mask]=ignored"],
    }


def _inversion(cases: list[str]) -> dict[str, Any]:
    """Return the common cause of the `_inverted` cells, and the cause that it cannot be distinguished from."""
    return {
        "decisions": {"polarity[attn_mask]": "ignore"},
        "sentence": "reads True in attn_mask as ignore",
        "remedy": "pass ~attn_mask",
        "when": {"masks": True},
        "condition": "only with a mask",
        "cells": cases,
        "ties": [
            {
                "decisions": {"use[attn_mask]": "ignored"},
                "sentence": "ignores attn_mask",
                "remedy": "do not rely on attn_mask: it has no effect",
                "when": {},
                "separated_by": "causal/square/sdpa_full[dtype=float32]",
            }
        ],
    }


def _nan_rows(builder: Any, rng: np.random.Generator, name: str) -> dict[str, Any]:
    want, got, tolerance = builder.trio(rng, 3, 5, 16)
    want[1, 2], got[1, 2] = 0.0, np.nan
    got[2, 0, 3], got[2, 0, 4], want[2, 0, 5], got[2, 0, 5] = np.inf, -np.inf, np.inf, np.inf
    tolerance[0, 0] = np.inf
    return {
        "verdict": "fail",
        "class_": "impossible",
        "budget": float("inf"),
        "tensors": builder.tensors(name, output=(want, got, tolerance)),
        "reason": "output: 18 elements are not finite where a number is expected",
        "outputs": [
            {
                "output": "output",
                "verdict": "fail",
                "class": "impossible",
                "max_error": float("nan"),
                "at": [1, 2, 0],
                "expected": 0.0,
                "actual": float("nan"),
                "budget": float("inf"),
                "beyond": 18,
                "elements": 240,
                "message": "non-finite pattern differs",
            }
        ],
        "known": {
            "reason": "A fully masked row is NaN in the fast path of torch.nn.MultiheadAttention",
            "link": "https://github.com/pytorch/pytorch/issues/103749",
            "entry": "known.yaml:12",
        },
    }


def _imprecise(builder: Any, rng: np.random.Generator) -> dict[str, Any]:
    want, got, tolerance = builder.trio(rng, 1, 2, 64, 96)
    got += 1.2e-6 * rng.normal(size=got.shape)
    return {
        "verdict": "fail",
        "class_": "precision",
        "rejected": True,
        "budget": 4.21,
        "tensors": builder.tensors("imprecise", output=(want, got, tolerance)),
        "reason": "output: 3 of 12288 elements beyond the bound",
        "outputs": [{"output": "output", "verdict": "fail", "class": "precision", "budget": 4.21, "at": [0, 1, 2, 3]}],
    }


def _wrong_shape(builder: Any, rng: np.random.Generator) -> dict[str, Any]:
    want, _, tolerance = builder.trio(rng, 3, 2, 5, 8)
    got = want.transpose(0, 2, 1, 3)
    return {
        "verdict": "fail",
        "class_": "impossible",
        "rejected": True,
        "tensors": builder.tensors("shape", output=(want, got, tolerance)),
        "reason": "output: shape (3, 5, 2, 8), expected (3, 2, 5, 8)",
        "outputs": [
            {
                "output": "output",
                "verdict": "fail",
                "class": "impossible",
                "message": "shape (3, 5, 2, 8), expected (3, 2, 5, 8)",
            }
        ],
    }
