"""The literal facts of the adapter that a signature implies."""

from collections.abc import Mapping
from typing import Any

from conformance.own.signature import Signature

AT_END = "is_causal_bottom_right"
"""The second causal flag of a function that takes causal_alignment."""

DTYPES = ("float64", "float32", "float16")
_AXES = ["b", "h", "q", "k"]
_WIDTHS = ("value_dim", "kdim", "query_dim", "output_dim", "no_bias", "some_biases")


def facts_of(signature: Signature, name: str, polarity: Mapping[str, str]) -> dict[str, Any]:
    """Facts by their names; polarity says of a boolean argument what True means in it, if not attend."""
    return {
        "NAME": name,
        "OPERATORS": [signature.operator],
        "REQUIRES": ["numpy"],
        "OUTPUTS": outputs(signature),
        "DTYPES": list(DTYPES),
        "DEVICES": ["cpu"],
        "CAPABILITIES": capabilities(signature),
        "SLOTS": slots(signature, polarity),
    }


def outputs(signature: Signature) -> list[str]:
    """What can be asked for."""
    found = ["output"]
    if signature.has("need_weights"):
        found.append("weights")
        if signature.has("average_weights"):
            found.append("weights_mean")
    return found


def capabilities(signature: Signature) -> list[str]:
    """Widths and memory layouts are part of the convention; a scale and fewer key heads need an argument."""
    widths = _WIDTHS if signature.operator == "mha" else _WIDTHS[:1]
    optional = {"scale": "scale", "num_kv_heads": "grouped_heads", "softcap": "softcap"}
    return ["layout", *widths, *(honoured for keyword, honoured in optional.items() if signature.has(keyword))]


def slots(signature: Signature, polarity: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Mask arguments and flags; whatever has none of its own is folded into the mask."""
    found: dict[str, dict[str, Any]] = {}
    if signature.has("key_padding_mask"):
        found["key_padding_mask"] = {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]]}
    if signature.mask is not None:
        kinds = ["key_padding", "attention", "causal", "window"]
        found[signature.mask] = {"role": "mask", "takes": kinds, "axes": [_AXES], "broadcast": _AXES}
    for name, slot in found.items():
        slot["bool"] = polarity.get(name, "attend")
    if signature.has("bias"):
        found["bias"] = {"role": "mask", "takes": ["additive"], "axes": [_AXES], "broadcast": _AXES, "float": "add"}
    if signature.has("is_causal"):
        found["is_causal"] = {"role": "causal", "alignment": "top_left"}
        if signature.has("causal_alignment"):
            found[AT_END] = {"role": "causal", "alignment": "bottom_right"}
    if signature.has("window"):
        found["window"] = {"role": "window"}
    return found
