"""The literal facts of the adapter that a signature implies."""

from collections.abc import Mapping
from typing import Any

from conformance.own.signature import Signature

AT_END = "is_causal_bottom_right"
"""The second causal flag of a function that takes causal_alignment."""

_AXES = ["b", "h", "q", "k"]
_WIDTHS = ("value_dim", "kdim", "query_dim", "output_dim", "no_bias", "some_biases")


def facts_of(signature: Signature, name: str, polarity: Mapping[str, str]) -> dict[str, Any]:
    """Facts by their names; polarity says of a boolean argument what True means in it, if not attend."""
    return {
        "NAME": name,
        "OPERATORS": [signature.operator],
        "REQUIRES": [signature.framework],
        "OUTPUTS": outputs(signature),
        "DTYPES": dtypes(signature),
        "DEVICES": ["cpu"],
        "CAPABILITIES": capabilities(signature),
        "SLOTS": slots(signature, polarity),
    }


def dtypes(signature: Signature) -> list[str]:
    """NumPy has no bfloat16, and JAX no float64 unless it is told to."""
    doubles = ["float64"] if signature.doubles else []
    return [*doubles, "float32", "float16", *([] if signature.framework == "numpy" else ["bfloat16"])]


def outputs(signature: Signature) -> list[str]:
    """What can be asked for."""
    found = ["output"]
    if signature.returned in ("weights", "weights_mean"):
        found.append(signature.returned)
    if signature.has("need_weights"):
        found.append("weights")
        if signature.has("average_weights"):
            found.append("weights_mean")
    return found


def capabilities(signature: Signature) -> list[str]:
    """Widths and memory layouts are part of the convention; a scale and fewer key heads need an argument."""
    if signature.built is not None:
        return _of_layer(signature)
    widths = _WIDTHS if signature.operator == "mha" else _WIDTHS[: signature.wide]
    memory = ["layout"] if signature.framework != "jax" and signature.layout not in ("thd", "bsd") else []
    optional = {
        "scale": "scale", "num_kv_heads": "grouped_heads", "enable_gqa": "grouped_heads", "softcap": "softcap"
    }  # fmt: skip
    honoured = dict.fromkeys(name for keyword, name in optional.items() if signature.has(keyword))
    return [*memory, *widths, *honoured]


def _of_layer(signature: Signature) -> list[str]:
    """A layer is built with one width; a bias that it has can be zero."""
    built = set((signature.built or {}).values())
    biases = ["no_bias", "some_biases"] if signature.operator == "mha" else []
    heads = ["grouped_heads"] if "num_kv_heads" in built else []
    return ["layout", *biases, *heads, *(["scale"] if signature.has("scale") else [])]


def slots(signature: Signature, polarity: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Mask arguments and flags by the names of the function; what has none of its own is folded into the mask."""
    found: dict[str, dict[str, Any]] = {}
    names = signature.names
    if signature.has("key_padding_mask"):
        found[names["key_padding_mask"]] = {
            "role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"
        }  # fmt: skip
    if signature.mask is not None:
        found[signature.mask] = _mask(signature)
    for name in found.keys() & polarity.keys():
        found[name]["bool"] = polarity[name]
    if signature.has("bias"):
        found[names["bias"]] = {
            "role": "mask", "takes": ["additive"], "axes": [_AXES], "broadcast": _AXES, "float": "add"
        }  # fmt: skip
    if signature.has("is_causal"):
        found[names["is_causal"]] = {"role": "causal", "alignment": "top_left"}
        if signature.has("causal_alignment"):
            found[AT_END] = {"role": "causal", "alignment": "bottom_right"}
    if signature.has("window"):
        found[names["window"]] = {"role": "window"}
    return found


def _mask(signature: Signature) -> dict[str, Any]:
    form = signature.form
    kinds = {"key_padding": "bk", "attention": "bhqk", "causal": "qk", "window": "qk"}
    takes = [kind for kind, axes in kinds.items() if kind == "attention" or set(axes) <= set(form.axes)]
    if form.axes == ("b", "k"):
        takes = ["key_padding"]
    slot: dict[str, Any] = {"role": "mask", "takes": takes, "axes": [list(form.axes)], "broadcast": list(form.axes)}
    if form.boolean:
        slot["bool"] = "attend"
    if form.added:
        slot["float"] = "add"
        slot["takes"] += [] if signature.has("bias") else ["additive"]
    return slot
