"""An adapter whose replies depend on more than the call, or that is wrong only in calls that no case makes."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from conformance.bridge import Call, Declaration, Facts, Tensor, framework_call

from ._honest import honest, honest_declaration

NAME = "fake.restless"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale", "value_dim"]
SLOTS = {
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "bool": "attend",
        "float": "add",
    },
}
VARIANTS: dict[str, dict[str, str]] = {
    "honest": {},
    "counting": {},
    "remembering": {},
    "sparing": {},
    "leaking_keys": {},
    "leaking_values": {},
    "alone": {},
    "floats": {},
    "inverted": {},
}


class Memory:
    """What the process has been asked so far."""

    calls = 0
    before = 0.0


def declare(facts: Facts) -> Declaration:
    return honest_declaration(facts)


def as_booleans(call: Call) -> Call:
    """The mask as booleans, True = attend."""
    mask = call.arguments.get("attn_mask")
    if mask is None or mask.dtype == "bool":
        return call
    return replace(call, arguments={"attn_mask": Tensor.of(mask.bits == 0)})


def sdpa(call: Call) -> dict[str, Any]:
    with framework_call():
        clean = as_booleans(call)
        with np.errstate(invalid="ignore"):
            reply = honest(clean) if call.facts.variant == "leaking_values" else isolated(clean)
        lie = LIES.get(call.facts.variant)
        output = reply["output"] if lie is None else lie(call, reply["output"])
        Memory.calls += 1
        mask = clean.arguments.get("attn_mask")
        Memory.before = float(call.query.bits.mean()) + (0.0 if mask is None else float(mask.bits.mean()))
        return {"output": np.asarray(output, dtype=np.float32)}


def isolated(call: Call) -> Mapping[str, Any]:
    """What is not finite stands where nobody attends: without it the reply is the same."""
    key, value = (Tensor.of(np.nan_to_num(tensor.bits)) for tensor in (call.key, call.value))
    return honest(replace(call, key=key, value=value))


def inverted(call: Call, output: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    mask = as_booleans(call).arguments.get("attn_mask")
    if mask is None:
        return output
    return np.asarray(isolated(replace(call, arguments={"attn_mask": Tensor.of(~mask.bits)}))["output"])


LIES: dict[str, Callable[[Call, np.ndarray[Any, Any]], Any]] = {
    "counting": lambda _, output: output + 0.01 * (Memory.calls + 1),
    "remembering": lambda _, output: output + Memory.before,
    "sparing": lambda _, output: output * (3 if Memory.calls % 7 else 2),
    "leaking_keys": lambda call, output: output + 0 * call.key.bits.sum(),
    "alone": lambda call, output: output * (2 if call.query.shape[0] == 1 else 1),
    "floats": lambda call, output: output * (2 if has_float_mask(call) else 1),
    "inverted": inverted,
}


def has_float_mask(call: Call) -> bool:
    mask = call.arguments.get("attn_mask")
    return mask is not None and mask.dtype != "bool"
