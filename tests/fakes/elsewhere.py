"""An honest adapter that claims a second device; its variants differ in where they say that the call ran."""

from typing import Any

from conformance.bridge import Call, framework_call

from ._honest import honest, honest_declaration

NAME = "fake.elsewhere"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES: list[str] = []
SLOTS = {"attn_mask": {"role": "mask", "takes": ["attention"], "axes": [["q", "k"]], "bool": "attend"}}
VARIANTS = {
    "there": {"summary": "ran where it was asked to"},
    "fallen_back": {"summary": "ran on the CPU"},
    "half": {"summary": "some of its nodes ran on the CPU"},
    "silent": {"summary": "does not say"},
}

NODES = {"CPUExecutionProvider": {"Softmax": 1}, "CUDAExecutionProvider": {"MatMul": 2}}
said: dict[str, Any] = {}
declare = honest_declaration


def sdpa(call: Call) -> dict[str, Any]:
    claims: dict[str, dict[str, Any]] = {
        "there": {"ran_on": [call.facts.device]},
        "fallen_back": {"ran_on": ["cpu"]},
        "half": {"ran_on": ["cpu", "cuda"], "nodes": NODES},
        "silent": {},
    }
    said.clear()
    said.update(claims[call.facts.variant])
    with framework_call():
        return honest(call)


def devices() -> list[str]:
    return ["cpu", "cuda"]


def evidence() -> dict[str, Any]:
    return dict(said)
