"""Masks that travel with their tensors, as layers before attach them: shared by the keras adapters."""

from typing import Any

import keras

from conformance.bridge import Call

from ._layers import on_tensors

# The last call that was made, and its arguments.
_HELD: dict[str, Any] = {}


def attached(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with masks on their tensors: https://keras.io/guides/understanding_masking_and_padding/."""
    return on_tensors(arguments, _attach)


def held(call: Call, arguments: dict[str, Any]) -> dict[str, Any]:
    """As `attached`; where the same call is made twice, both times with the same tensors."""
    if _HELD.get("call") is not call:
        _HELD.update(call=call, arguments=attached(arguments))
    found: dict[str, Any] = _HELD["arguments"]
    return found


def _attach(tensor: Any, mask: Any) -> Any:
    layer = keras.layers.Lambda(_same, mask=keras.ops.convert_to_tensor(mask))
    return layer(keras.ops.convert_to_tensor(tensor))


def _same(tensor: Any) -> Any:
    return tensor
