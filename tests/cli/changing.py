"""An adapter that imitates a framework before and after an upgrade: tests replace its line BEHAVIOUR."""

import numpy as np

from conformance.bridge import Call, Declaration, Facts, Profile, Unsupported, framework_call

NAME = "mine.sdpa"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES: list[str] = []
SLOTS = {
    "mask": {
        "role": "mask",
        "takes": ["key_padding", "attention"],
        "axes": [["b", "h", "q", "k"]],
        "bool": "attend",
    }
}
BEHAVIOUR = "zero"


def declare(facts: Facts) -> Declaration:
    return Declaration(Profile.uniform(facts.dtype), evidence="tests/cli/changing.py")


def sdpa(call: Call) -> dict[str, np.ndarray]:
    if BEHAVIOUR == "declines" and "mask" in call.arguments:
        raise Unsupported("takes no masks any more")
    query, key, value = call.query.bits, call.key.bits, call.value.bits
    with framework_call():
        if BEHAVIOUR == "raises":
            raise ValueError("bad shape (3, 5)")
        if BEHAVIOUR == "raises_masked" and "mask" in call.arguments:
            raise ValueError("no masks")
        logits = (query @ key.swapaxes(-1, -2)) * query.dtype.type(query.shape[-1] ** -0.5)
        if (mask := call.arguments.get("mask")) is not None:
            logits = np.where(mask.bits, logits, -np.inf)
        top = logits.max(-1, keepdims=True)
        weights = np.exp(logits - np.where(np.isfinite(top), top, 0))
        total = weights.sum(-1, keepdims=True)
        dead = total == 0
        weights = weights / np.where(dead, 1, total)
        if BEHAVIOUR == "mean":
            weights = np.where(dead, weights.dtype.type(1 / weights.shape[-1]), weights)
        if BEHAVIOUR == "nan":
            weights = np.where(dead, weights.dtype.type(np.nan), weights)
        weights, value = weights[..., None], value[..., None, :, :]
        return {"output": np.where(weights == 0, weights.dtype.type(0), weights * value).sum(-2)}
