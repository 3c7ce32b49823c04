"""Layers whose projections have an axis for the heads: shared by the Keras, tf_keras and Flax adapters."""

from collections.abc import Callable, Mapping
from typing import Any

from conformance.bridge import Call, Profile

from ._arrays import to_numpy

PARTS = {"q": "query", "k": "key", "v": "value", "o": "out"}
# The order in which such layers hold their parameters; biases may be absent.
PARAMETERS = ("wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo")

# Slots of masks that a layer before attaches, and the arguments whose tensors carry them.
ATTACHED = {"attached_to_query": "query", "attached_to_value": "value", "attached_to_key": "key"}


def parameters(call: Call) -> dict[str, Any]:
    """
    The parameters of a call with an axis for the heads.

    wq, wk, wv: (in, heads, dim); bq, bk, bv: (heads, dim); wo: (heads, dim, out); bo: (out).
    """
    sizes = call.facts.sizes
    dims = {"q": sizes["head_dim"], "k": sizes["head_dim"], "v": sizes["value_dim"]}
    shapes: dict[str, tuple[int, ...]] = {"wo": (sizes["num_heads"], sizes["value_dim"], sizes["output_dim"])}
    for letter, dim in dims.items():
        shapes["w" + letter] = (-1, sizes["num_heads" if letter == "q" else "num_kv_heads"], dim)
        shapes["b" + letter] = shapes["w" + letter][1:]
    arrays = {name: to_numpy(call.params[name]) for name in PARAMETERS if name in call.params}
    return {name: array.reshape(shapes.get(name, array.shape)) for name, array in arrays.items()}


def parameters_by_part(call: Call) -> dict[str, dict[str, Any]]:
    """`parameters` as Flax nests them: query, key, value and out, each with a kernel and, if it has one, a bias."""
    nested: dict[str, dict[str, Any]] = {part: {} for part in PARTS.values()}
    for name, array in parameters(call).items():
        nested[PARTS[name[1]]]["kernel" if name[0] == "w" else "bias"] = array
    return nested


def on_tensors(arguments: Mapping[str, Any], attach: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """The arguments, with the masks of ATTACHED on their tensors, to which `attach` brings them."""
    given = {name: value for name, value in arguments.items() if name not in ATTACHED}
    for slot, name in ATTACHED.items():
        if slot in arguments:
            given[name] = attach(given[name], arguments[slot])
    return given


def as_in_the_call(call: Call, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs that were asked for; gradients by parameters in the shapes that those have in the call."""
    shapes = {f"grad_{name}": tensor.shape for name, tensor in call.params.items()}
    found = {name: arrays[name] for name in call.facts.outputs}
    return {name: array.reshape(shapes.get(name, array.shape)) for name, array in found.items()}


def stepwise_profile(backend: str, dtype: str) -> Profile:
    """
    Query scaled, product, softmax and weighted sum as operators of their own: half precision rounds after each.

    The softmax of JAX, and of TensorFlow in float16, is in half precision, too.
    """
    if dtype in ("float64", "float32"):
        return Profile.uniform(dtype)
    if backend == "jax":
        return Profile.naive(dtype).but(soft=dtype)
    if backend == "tensorflow" and dtype == "float16":
        return Profile.naive(dtype).but(acc=dtype, soft=dtype)
    return Profile.naive(dtype)
