"""Graphs of ONNX operators, made with onnx.helper: shared by the adapters that call one operator directly."""

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import NodeProto, TensorProto, helper

from conformance.bridge import Call, Deviation, Facts, Unsupported

from ._arrays import to_numpy

OPERATOR = "https://onnx.ai/onnx/operators/onnx__Attention.html"
CONTRIB = "https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"
IR_VERSION = 10
# The ONNX opset of graphs with onnxruntime's own operators. These operators do not depend on it. It is an old opset,
# because a release of onnxruntime refuses opsets that are newer than the release.
OLD_OPSET = 17

# The content of qk_matmul_output in modes 0 to 3.
MODES = ("scaled", "capped", "logits", "weights")
NONPAD = "nonpad_kv_seqlen"
PASTS = ("past_key", "past_value")
PRESENTS = ("present_key", "present_value")

Arrays = Mapping[str, Any]


def merged(array: Any) -> Any:
    """Merge the heads of (batch, num_heads, seq_len, dim) into (batch, seq_len, num_heads * dim)."""
    return array.swapaxes(1, 2).reshape(array.shape[0], array.shape[2], -1)


def split(array: Any, heads: int) -> Any:
    """Split (batch, seq_len, heads * dim) into (batch, heads, seq_len, dim): the inverse of `merged`."""
    return array.reshape(*array.shape[:2], heads, -1).swapaxes(1, 2)


def model(nodes: Sequence[NodeProto], inputs: Arrays, outputs: Sequence[str], opset: int) -> bytes:
    """
    Return a serialised model of the nodes.

    The inputs have no fixed sizes. The outputs have the element type of the first input. opset: the ONNX opset.
    """
    kinds = {name: kind(array) for name, array in inputs.items()}
    given = [helper.make_tensor_value_info(name, kinds[name], [None] * array.ndim) for name, array in inputs.items()]
    first = next(iter(kinds.values()))
    graph = helper.make_graph(
        nodes, "call", given, [helper.make_tensor_value_info(name, first, None) for name in outputs]
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
    return bytes(made.SerializeToString())


def kind(array: Any) -> int:
    """Return the ONNX element type of an array; onnx before 1.19 does not know the bfloat16 of ml_dtypes."""
    half = array.dtype.name == "bfloat16"
    return int(TensorProto.BFLOAT16 if half else helper.np_dtype_to_tensor_dtype(array.dtype))


def microsoft(
    operator: str, inputs: Sequence[str], *, output: str = "Y", more: Sequence[str] = (), **attributes: Any
) -> NodeProto:
    """Return a node of the domain com.microsoft; an attribute that is None keeps its default."""
    given = {name: value for name, value in attributes.items() if value is not None}
    return helper.make_node(operator, list(inputs), [output, *more], domain="com.microsoft", **given)


def contrib_dialect(facts: Facts, mask: str) -> tuple[Deviation, ...]:
    """Return the documented default of mask_filter_value as a deviation, if the call uses the mask argument `mask`."""
    return (Deviation(f"penalty[{mask}]", "minus_1e4", CONTRIB),) if facts.mask(mask) is not None else ()


def attention(call: Call, opset: int, *, rank: int) -> tuple[bytes, dict[str, Any]]:
    """
    Return a model with one `Attention` node for the call, and the inputs of the model.

    rank: the number of axes of Q, K and V, 3 or 4. With 3 axes their heads are merged.
    """
    facts = call.facts
    inputs = {name: to_numpy(tensor) for name, tensor in zip("QKV", (call.query, call.key, call.value), strict=True)}
    attributes: dict[str, Any] = {"is_causal": int(call.arguments.get("is_causal", False))}
    if rank == len("bsd"):
        inputs = {name: merged(array) for name, array in inputs.items()}
        attributes |= {"q_num_heads": facts.sizes["num_heads"], "kv_num_heads": facts.sizes["num_kv_heads"]}
    if call.scale is not None:
        attributes["scale"] = call.scale
    if call.softcap is not None:
        attributes["softcap"] = call.softcap
    if "window" in call.arguments:
        sides = (-1 if side is None else side for side in call.arguments["window"])
        attributes |= dict(zip(("left_window_size", "right_window_size"), sides, strict=True))
    if "attn_mask" in call.arguments:
        inputs["attn_mask"] = to_numpy(call.arguments["attn_mask"])
    inputs |= past(call)
    if NONPAD in call.arguments:
        inputs[NONPAD] = to_numpy(call.arguments[NONPAD]).astype("int64")
    on_the_way = on_the_way_asked(facts)
    if on_the_way is not None:
        attributes["qk_matmul_output_mode"] = MODES.index(on_the_way)
    presents = PRESENTS if call.past_key is not None else ("", "")
    outputs = ["Y", *presents, "" if on_the_way is None else "qk_matmul_output"]
    names = ("Q", "K", "V", "attn_mask", *PASTS, *((NONPAD,) if NONPAD in inputs else ()))  # opset 23 has six
    slots = [name if name in inputs else "" for name in names]
    node = helper.make_node("Attention", slots, outputs, **attributes)
    return model([node], inputs, [name for name in outputs if name], opset), inputs


def past(call: Call) -> dict[str, Any]:
    """Return the inputs past_key and past_value, if the call has them."""
    given = {"past_key": call.past_key, "past_value": call.past_value}
    return {name: to_numpy(tensor) for name, tensor in given.items() if tensor is not None}


def on_the_way_asked(facts: Facts) -> str | None:
    """Return which of MODES the call requests in qk_matmul_output, or None."""
    several = [name for name in MODES if name in facts.outputs]
    if len(several) > 1:
        raise Unsupported(f"one call returns one of {', '.join(MODES)}, not {' and '.join(several)}")
    return several[0] if several else None


def attention_dialect() -> tuple[Deviation, ...]:
    """
    Return the deviations from canonical attention that the operator's page documents.

    All weights are multiplied by the values, even weights of zero. -inf is added to the logits of masked keys. Query
    and key are each multiplied by the square root of the scale.
    """
    return (
        Deviation("nonfinite_value", "leaks", OPERATOR),
        Deviation("nonfinite_key", "leaks", OPERATOR),
        Deviation("scale", "square_root", OPERATOR),
    )


def attention_reply(facts: Facts, results: Sequence[Any], *, rank: int) -> dict[str, Any]:
    """Return the results of the operator by the output names of the call."""
    output = split(results[0], facts.sizes["num_heads"]) if rank == len("bsd") else results[0]
    found = dict(zip(PRESENTS, results[1:3], strict=False)) | dict.fromkeys(MODES, results[-1]) | {"output": output}
    return {name: found[name] for name in facts.outputs}
