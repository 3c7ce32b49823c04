"""Helpers of the Keras, tf_keras, Flax and Equinox adapters, mainly for projections with an axis for the heads."""

from collections.abc import Callable, Mapping
from typing import Any

from conformance.bridge import Call, Profile

from ._arrays import to_numpy

PARTS = {"q": "query", "k": "key", "v": "value", "o": "out"}
# The order in which such layers store their parameters. Biases may be absent.
PARAMETERS = ("wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo")

# Slot of a mask that an earlier layer attaches to a tensor -> the argument whose tensor carries the mask.
ATTACHED = {"attached_to_query": "query", "attached_to_value": "value", "attached_to_key": "key"}


def parameters(call: Call) -> dict[str, Any]:
    """
    Return the parameters of a call as NumPy arrays with an axis for the heads.

    wq: (in, num_heads, head_dim); wk: (in, num_kv_heads, head_dim); wv: (in, num_kv_heads, value_dim); bq, bk, bv: the
    same without the first axis; wo: (num_heads, value_dim, out); bo: (out,).
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
    """Return `parameters` as Flax nests them: query, key, value and out each have a kernel and an optional bias."""
    nested: dict[str, dict[str, Any]] = {part: {} for part in PARTS.values()}
    for name, array in parameters(call).items():
        nested[PARTS[name[1]]]["kernel" if name[0] == "w" else "bias"] = array
    return nested


def on_tensors(arguments: Mapping[str, Any], attach: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Return the arguments without the masks of ATTACHED; `attach` attaches each of these masks to its tensor."""
    given = {name: value for name, value in arguments.items() if name not in ATTACHED}
    for slot, name in ATTACHED.items():
        if slot in arguments:
            given[name] = attach(given[name], arguments[slot])
    return given


def as_in_the_call(call: Call, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requested outputs. Gradients with respect to parameters get the shapes of the parameters in `call`."""
    shapes = {f"grad_{name}": tensor.shape for name, tensor in call.params.items()}
    found = {name: arrays[name] for name in call.facts.outputs}
    return {name: array.reshape(shapes.get(name, array.shape)) for name, array in found.items()}


def stepwise_profile(backend: str, dtype: str) -> Profile:
    """
    Return the arithmetic of a layer whose query scaling, product, softmax and weighted sum are separate operators.

    In half precision, every operator rounds its result. JAX computes the softmax in half precision, too, and so does
    TensorFlow in float16. TensorFlow also accumulates float16 products in float16.
    """
    if dtype in ("float64", "float32"):
        return Profile.uniform(dtype)
    if backend == "jax":
        return Profile.naive(dtype).but(soft=dtype)
    if backend == "tensorflow" and dtype == "float16":
        return Profile.naive(dtype).but(acc=dtype, soft=dtype)
    return Profile.naive(dtype)
