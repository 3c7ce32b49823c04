"""How torch.mha calls a layer: directly, sequence axis first, one batch element at a time, or under torch.compile."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import torch.compiler.config

# How often the traced call may be compiled: more often than a run has signatures. PyTorch raises an error beyond this
# limit, which is 8 by default.
SIGNATURES = 1000


def call_layer(layer: Any, inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the output and the weights (or None); the inputs are (batch, seq_len, width)."""
    output, weights = layer(*inputs, **arguments)
    return output, weights


def call_sequences_first(layer: Any, inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """
    Transpose the inputs to (seq_len, batch, width), call the layer, and transpose the output back.

    Inputs that are one object stay one object.
    """
    moved = {id(tensor): tensor.transpose(0, 1) for tensor in inputs}
    output, weights = layer(*(moved[id(tensor)] for tensor in inputs), **arguments)
    return output.transpose(0, 1), weights


def call_item_by_item(layer: Any, inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """
    Call the layer once for each batch element, without a batch axis, and stack the results.

    A mask (batch * num_heads, ...) is split by batch element.
    """
    batch = inputs[0].shape[0]
    items = []
    for number in range(batch):
        item = {id(tensor): tensor[number] for tensor in inputs}
        own = {name: _of_item(name, value, number, batch) for name, value in arguments.items()}
        items.append(layer(*(item[id(tensor)] for tensor in inputs), **own))
    outputs, weights = zip(*items, strict=True)
    return torch.stack(outputs), None if weights[0] is None else torch.stack(weights)


def _of_item(name: str, value: Any, number: int, batch: int) -> Any:
    """
    The part of an argument that one batch element gets.

    This is its row of the key padding mask, or its heads of an attention mask (batch * num_heads, ...). Other arguments
    are returned unchanged.
    """
    if name == "key_padding_mask":
        return value[number]
    if name == "attn_mask" and value.ndim > len("qk"):
        return value.reshape(batch, -1, *value.shape[1:])[number]
    return value


def call_traced(layer: Any, inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """
    Trace the layer as one graph with TorchDynamo and AOTAutograd, and run the operators of the graph eagerly.

    Absent masks are passed as None. If they were left out, PyTorch 2.13 could raise a KeyError in a call that
    passes one object as several inputs: to explain why it recompiles, it looks up the masks of earlier calls.
    """
    output, weights = _traced()(layer, *inputs, **{"key_padding_mask": None, "attn_mask": None, **arguments})
    return output, weights


@cache
def _traced() -> Any:
    torch.compiler.config.recompile_limit = SIGNATURES
    return torch.compile(torch.nn.MultiheadAttention.forward, backend="aot_eager", dynamic=False, fullgraph=True)


# Variant -> how it calls the layer. The other variants use `call_layer`.
CALLS = {"seq_first": call_sequences_first, "unbatched": call_item_by_item, "aot_eager": call_traced}
