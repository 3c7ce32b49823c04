"""An adapter that takes what does not fit, or refuses it, as its variant says; valid calls have an honest answer."""

from typing import Any

from conformance.bridge import Call, Declaration, Facts, framework_call

from ._honest import honest, honest_declaration, honest_evidence

NAME = "fake.lenient"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["mistakes"]
SLOTS = {
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention"],
        "axes": [["b", "h", "q", "k"]],
        "bool": "attend",
    },
}
VARIANTS: dict[str, dict[str, Any]] = {
    "strict": {},
    "lenient": {},
    "outside": {},
    "exhausted": {},
    "refuses_all": {},
    "unprepared": {"CAPABILITIES": []},
}


def declare(facts: Facts) -> Declaration:
    return honest_declaration(facts)


def sdpa(call: Call) -> Any:
    variant = call.facts.variant
    wrong = "mistakes" in call.facts.requirements
    if wrong and variant == "outside":
        raise ValueError("the adapter looked at the shapes itself")
    with framework_call():
        if variant == "refuses_all":
            raise ValueError("no")
        if wrong and variant == "exhausted":
            raise MemoryError("cannot allocate")
        if wrong and variant == "lenient":
            return {"output": call.query.bits}
        return honest(call)


evidence = honest_evidence
