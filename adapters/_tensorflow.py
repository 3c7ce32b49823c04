"""Gradients of a layer on TensorFlow, shared by the tf_keras and Keras adapters."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from conformance.bridge import Call

from ._arrays import to_numpy
from ._layers import PARAMETERS, as_in_the_call


def with_gradients(call: Call, layer: Any, attend: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """
    Answer a call that requests gradients.

    A GradientTape computes the gradients with respect to query, key, value and the parameters of the layer.

    attend: a function that calls the layer, possibly compiled with tf.function. arguments: the arguments of `attend` by
    name; they include query, value and key.
    """
    inputs = {name: tf.constant(arguments[name]) for name in ("query", "value", "key")}
    names = [name for name in PARAMETERS if name in call.params]
    with tf.GradientTape() as tape:
        tape.watch(list(inputs.values()))
        output = attend(**{**arguments, **inputs})
    by = inputs | dict(zip(names, layer.trainable_variables, strict=True))
    wanted = None if call.grad_output is None else tf.constant(to_numpy(call.grad_output))
    slopes = tape.gradient(output, by, output_gradients=wanted)
    found = {"output": output} | {f"grad_{name}": slope for name, slope in slopes.items()}
    return as_in_the_call(call, {name: array.numpy() for name, array in found.items()})
