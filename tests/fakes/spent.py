"""An adapter whose framework changes the arrays that it is given: a second call with them has another answer."""

from typing import Any

from conformance.bridge import Call, Declaration, Deviation, Facts, framework_call

from ._honest import honest, honest_declaration, honest_evidence

NAME = "fake.spent"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES: list[str] = []
SLOTS = {
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention"],
        "axes": [["b", "h", "q", "k"]],
        "bool": "attend",
    },
}
VARIANTS: dict[str, dict[str, Any]] = {"scales_in_place": {}, "honest": {}}


def declare(facts: Facts) -> Declaration:
    leaks = Deviation("nonfinite_value", "leaks", "https://example.org/spent")
    return Declaration(honest_declaration(facts).profile, (leaks,), "tests/fakes/_honest.py")


def sdpa(call: Call) -> Any:
    with framework_call():
        reply = honest(call)
        if call.facts.variant == "scales_in_place":
            query = call.query.bits
            query.flags.writeable = True
            query *= 0.5
        return reply


evidence = honest_evidence
