"""Gradients of a Keras layer or function on every backend, shared by the keras adapters."""

from collections.abc import Callable
from typing import Any

import keras

from conformance.bridge import Call, Tensor

from ._arrays import to_numpy
from ._keras_attached import attached
from ._layers import PARAMETERS, as_in_the_call

INPUTS = ("query", "value", "key")


def with_gradients(call: Call, grad_output: Tensor, layer: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """
    Answer a call that requests gradients of sum(grad_output * output).

    The layer is called with `arguments`. Before that, the attached masks are put on their tensors.
    """
    if keras.backend.backend() == "tensorflow":
        from ._tensorflow import with_gradients as taped  # noqa: PLC0415 - only the variant on TensorFlow requires it

        return taped(call, layer, lambda **given: layer(**attached(given)), arguments)
    inputs = {name: keras.ops.convert_to_tensor(arguments[name]) for name in INPUTS}
    others = {name: value for name, value in arguments.items() if name not in INPUTS}
    wanted = keras.ops.convert_to_tensor(to_numpy(grad_output))
    names = [name for name in PARAMETERS if name in call.params]
    by = by_vjp if keras.backend.backend() == "jax" else by_autograd
    output, slopes, params = by(layer, inputs, others, wanted)
    found = {"output": output, **{f"grad_{name}": slope for name, slope in slopes.items()}}
    found |= {f"grad_{name}": slope for name, slope in zip(names, params, strict=True)}
    return as_in_the_call(call, {name: keras.ops.convert_to_numpy(each) for name, each in found.items()})


# The output, the gradients with respect to the inputs by name, and the gradients with respect to the parameters in the
# order of the layer.
Found = tuple[Any, dict[str, Any], list[Any]]


def by_vjp(layer: Any, inputs: dict[str, Any], others: dict[str, Any], wanted: Any) -> Found:
    """
    Compute the gradients on JAX with jax.vjp, under jax.jit.

    The layer is called in a keras.StatelessScope. Layer.stateless_call is not used, because it does not pass
    attached masks to the layer.
    """
    import jax  # noqa: PLC0415 - only the variant on JAX requires it

    flags = {name: value for name, value in others.items() if isinstance(value, bool)}
    masks = {name: value for name, value in others.items() if name not in flags}

    def differentiated(params: list[Any], given: dict[str, Any], masks: dict[str, Any], wanted: Any) -> Found:
        def attend(params: list[Any], given: dict[str, Any]) -> Any:
            with keras.StatelessScope(state_mapping=zip(layer.trainable_variables, params, strict=True)):
                return layer(**attached({**given, **masks}), **flags)

        output, pull = jax.vjp(attend, params, given)
        slopes, by_inputs = pull(wanted)
        return output, by_inputs, slopes

    params = [variable.value for variable in layer.trainable_variables]
    found: Found = jax.jit(differentiated)(params, inputs, masks, wanted)
    return found


def by_autograd(layer: Any, inputs: dict[str, Any], others: dict[str, Any], wanted: Any) -> Found:
    """Compute the gradients on PyTorch with torch.autograd.grad."""
    import torch  # noqa: PLC0415 - only variants on PyTorch require it

    for tensor in inputs.values():
        tensor.requires_grad_()
    output = layer(**attached({**inputs, **others}))
    params = [variable.value for variable in layer.trainable_variables]
    slopes = torch.autograd.grad(output, [*inputs.values(), *params], wanted)
    return output, dict(zip(inputs, slopes, strict=False)), list(slopes[len(inputs) :])


def differentiated(function: Callable[..., Any], inputs: tuple[Any, ...], wanted: Any) -> list[Any]:
    """Return the output of a function, followed by the gradient of sum(wanted * output) with respect to each input."""
    tensors = [keras.ops.convert_to_tensor(each) for each in inputs]
    if keras.backend.backend() == "jax":
        import jax  # noqa: PLC0415 - only the variant on JAX requires it

        output, pull = jax.vjp(function, *tensors)
        return [output, *pull(keras.ops.convert_to_tensor(wanted, output.dtype))]
    if keras.backend.backend() == "torch":
        import torch  # noqa: PLC0415 - only variants on PyTorch require it

        for tensor in tensors:
            tensor.requires_grad_()
        output = function(*tensors)
        return [output, *torch.autograd.grad(output, tensors, keras.ops.convert_to_tensor(wanted, output.dtype))]
    import tensorflow as tf  # noqa: PLC0415 - only the variant on TensorFlow requires it

    with tf.GradientTape() as tape:
        tape.watch(tensors)
        output = function(*tensors)
    return [output, *tape.gradient(output, tensors, output_gradients=keras.ops.convert_to_tensor(wanted))]
