"""An adapter that sends what the installed framework does not know: in every call, or in some of them."""

from typing import Any

from conformance.bridge import Call, Declaration, Deviation, Facts, framework_call

from ._honest import honest, honest_declaration, honest_evidence

NAME = "fake.broken"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["mistakes", "value_dim"]
SLOTS = {
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal"],
        "axes": [["b", "h", "q", "k"]],
        "bool": "attend",
    },
}
VARIANTS: dict[str, dict[str, Any]] = {"always": {}, "with_a_mask": {}, "honest": {}}


def declare(facts: Facts) -> Declaration:
    leaks = Deviation("nonfinite_value", "leaks", "https://example.org/broken")
    return Declaration(honest_declaration(facts).profile, (leaks,), "tests/fakes/_honest.py")


def sdpa(call: Call) -> Any:
    variant, size = call.facts.variant, call.query.bits.size
    with framework_call():
        if variant == "always":
            raise RuntimeError(f"node {size}: Unrecognized attribute: causal for operator Attention")
        if variant == "with_a_mask" and "attn_mask" in call.arguments:
            raise RuntimeError(f"node {size}: Unrecognized attribute: causal for operator Attention")
        return honest(call)


evidence = honest_evidence
