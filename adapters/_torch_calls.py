"""The ways in which torch.mha calls a layer: as it is, sequences first, item by item, traced by torch.compile."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
import torch.compiler.config

# How often the traced call may be compiled: more than a run has signatures; past PyTorch's default of 8 it raises.
SIGNATURES = 1000


def call_layer(layer: Any, inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Output and weights (or None); the inputs are (batch, seq_len, width)."""
    output, weights = layer(*inputs, **arguments)
    return output, weights


def call_sequences_first(layer: Any, inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """Inputs and output are (seq_len, batch, width) for the layer; what is one object stays one."""
    moved = {id(tensor): tensor.transpose(0, 1) for tensor in inputs}
    output, weights = layer(*(moved[id(tensor)] for tensor in inputs), **arguments)
    return output.transpose(0, 1), weights


def call_item_by_item(layer: Any, inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """One call for each item, without a batch axis; (batch * num_heads, ...) masks are taken apart."""
    batch = inputs[0].shape[0]
    items = []
    for number in range(batch):
        item = {id(tensor): tensor[number] for tensor in inputs}
        own = {name: _of_item(name, value, number, batch) for name, value in arguments.items()}
        items.append(layer(*(item[id(tensor)] for tensor in inputs), **own))
    outputs, weights = zip(*items, strict=True)
    return torch.stack(outputs), None if weights[0] is None else torch.stack(weights)


def _of_item(name: str, value: Any, number: int, batch: int) -> Any:
    """What one item gets of an argument: its own row of the padding, its own heads of a mask that has them."""
    if name == "key_padding_mask":
        return value[number]
    if name == "attn_mask" and value.ndim > len("qk"):
        return value.reshape(batch, -1, *value.shape[1:])[number]
    return value


def call_traced(layer: Any, inputs: tuple[Any, ...], arguments: Mapping[str, Any]) -> tuple[Any, Any]:
    """
    Traced as one graph by TorchDynamo and AOTAutograd, whose operators then run eagerly.

    Absent masks are given as None: PyTorch 2.13 looks for masks of earlier calls when it says why it compiles one
    anew whose tensors are one object: a KeyError where they are left out.
    """
    output, weights = _traced()(layer, *inputs, **{"key_padding_mask": None, "attn_mask": None, **arguments})
    return output, weights


@cache
def _traced() -> Any:
    torch.compiler.config.recompile_limit = SIGNATURES
    return torch.compile(torch.nn.MultiheadAttention.forward, backend="aot_eager", dynamic=False, fullgraph=True)


# How a variant calls the layer; the others call it as it is.
CALLS = {"seq_first": call_sequences_first, "unbatched": call_item_by_item, "aot_eager": call_traced}
