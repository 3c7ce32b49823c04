"""What the fakes share: an honest answer, and when to lie instead."""

import importlib.util
import os
import sys
from typing import Any

import numpy as np

from conformance.bridge import Call, Declaration, Facts, Profile

# Fakes are honest but for calls with this many sequences.
LIES_AT_BATCH = 13


def lies(facts: Facts) -> bool:
    return facts.sizes["batch"] == LIES_AT_BATCH


def honest_declaration(facts: Facts) -> Declaration:
    return Declaration(Profile.uniform(facts.dtype), evidence="tests/fakes/_honest.py")


def honest(call: Call) -> dict[str, Any]:
    query, key, value = call.query.bits, call.key.bits, call.value.bits
    scale = query.dtype.type(query.shape[-1] ** -0.5 if call.scale is None else call.scale)
    logits = (query @ key.swapaxes(-1, -2)) * scale
    if (mask := call.arguments.get("attn_mask")) is not None:
        logits = np.where(mask.bits, logits, -np.inf)
    top = logits.max(-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total > 0, total, 1)
    return {"output": weights @ value, "weights": weights, "never_asked_for": logits}


def honest_evidence() -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "group": os.getpgid(0),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "python_variables": sorted(name for name in os.environ if name.startswith("PYTHON")),
        "path": sys.path,
        "engine": importlib.util.find_spec("conformance.engine") is not None,
        "kernel": np.str_("plain"),
    }
