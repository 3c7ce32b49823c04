"""Judges `fakeframe`, a framework that tests install in any number of versions (tests/wheelhouse.py)."""

from typing import Any

import fakeframe

from conformance.bridge import Call, Declaration, Deviation, Facts, Profile, framework_call

NAME = "fake.framed"
OPERATORS = ["sdpa"]
REQUIRES = ["fakeframe"]
OUTPUTS = ["output"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "value_dim"]
SLOTS = {
    "mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "bool": "attend",
    },
    "causal": {"role": "causal", "alignment": "top_left"},
}


def declare(facts: Facts) -> Declaration:
    leaks = Deviation("nonfinite_value", "leaks", "https://example.org/framed")
    return Declaration(Profile.uniform(facts.dtype), (leaks,), "tests/wheelhouse.py")


def sdpa(call: Call) -> dict[str, Any]:
    mask, causal = call.arguments.get("mask"), call.arguments.get("causal", False)
    scale = call.query.shape[-1] ** -0.5 if call.scale is None else call.scale
    with framework_call():
        output = fakeframe.attention(call.query.bits, call.key.bits, call.value.bits, scale, mask and mask.bits, causal)
    return {"output": output}
