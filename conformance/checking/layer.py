"""
Build an attention layer from its class with the sizes, weights and biases of a call.

The generated adapter uses this module in the worker: it needs the bridge, NumPy, and the framework of the class, which
is PyTorch, Flax (nnx or linen) or Equinox.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.bridge import Call, Facts, Unsupported

# Role of a constructor argument -> the names that are recognised for it.
BUILT_WITH: dict[str, tuple[str, ...]] = {
    "width": (
        "embed_dim", "d_model", "dim", "hidden_size", "hidden_dim", "emb_size", "embed_size", "n_embd", "emb_dim",
        "embedding_dim", "model_dim", "features", "in_features", "input_dim", "query_dim", "d_in", "d_out", "out_dim",
        "output_dim", "qkv_features", "out_features", "width", "num_hiddens", "n_state", "n_feat",
    ),
    "num_heads": ("num_heads", "n_heads", "heads", "n_head", "nhead", "nheads", "h", "num_attention_heads"),
    "num_kv_heads": ("num_kv_heads", "n_kv_heads", "num_key_value_heads", "kv_heads"),
    "head_dim": ("head_dim", "d_k", "dim_head", "head_size", "key_dim", "d_head", "dim_k", "dk"),
    "value_dim": ("d_v", "value_dim", "dim_v", "dv"),
    "dropout": (
        "dropout", "dropout_p", "attn_dropout", "dropout_rate", "p_dropout", "attention_dropout", "attn_pdrop",
        "attn_drop", "proj_drop", "resid_dropout",
    ),
    "biases": ("bias", "qkv_bias", "use_bias", "proj_bias"),
    "batch_first": ("batch_first",),
    "temperature": ("temperature",),
    "scale": ("scale", "sm_scale", "softmax_scale"),
    "is_causal": ("causal", "is_causal"),
    "rngs": ("rngs",),
    "random_key": ("key", "rng"),
}  # fmt: skip

OF_CONSTRUCTOR = {name: role for role, names in BUILT_WITH.items() for name in names}

_BEFORE = r"(?:w|to|proj|fc|linear|lin|project)?"
_AFTER = r"(?:s|proj|projection|linear|lin|layer|fc|dense|weight|transform)*"
# Projection -> pattern for the name of its linear layer or parameter, with or without underscores.
PARTS = {
    "qkv": re.compile(r".*qkv.*|in_?proj(?:_weight|_bias)?|c_?attn"),
    "q": re.compile(_BEFORE + r"(?:q|query|queries)" + _AFTER),
    "k": re.compile(_BEFORE + r"(?:k|key|keys)" + _AFTER),
    "v": re.compile(_BEFORE + r"(?:v|value|values)" + _AFTER),
    "o": re.compile(_BEFORE + r"(?:o|out|output)" + _AFTER + r"|c?_?proj|fc|dense|unify_?heads"),
}

# The projections of four unnamed linear layers, in their order.
IN_ORDER = ("q", "k", "v", "o")


class LayerError(Unsupported):
    """The weights of a call do not fit a layer; the message says what is missing."""


def constructed(names: Mapping[str, str], facts: Facts) -> dict[str, Any]:
    """Return the arguments of a constructor; names: argument -> role."""
    sizes = facts.sizes
    width = sizes["num_heads"] * sizes["head_dim"]
    values: dict[str, Callable[[], Any]] = {
        "width": lambda: width,
        "num_heads": lambda: sizes["num_heads"],
        "num_kv_heads": lambda: sizes["num_kv_heads"],
        "head_dim": lambda: sizes["head_dim"],
        "value_dim": lambda: sizes["value_dim"],
        "dropout": lambda: 0.0,
        "biases": lambda: facts.biases,
        "batch_first": lambda: True,
        "temperature": lambda: sizes["head_dim"] ** 0.5,
        "scale": lambda: sizes["head_dim"] ** -0.5,
        "is_causal": lambda: False,
        "rngs": lambda: sys.modules["flax.nnx"].Rngs(0),
        "random_key": lambda: sys.modules["jax"].random.PRNGKey(0),
    }
    return {name: values[role]() for name, role in names.items()}


# Kind of layer -> the module that defines its base class Module.
FAMILIES = {"torch": "torch.nn", "nnx": "flax.nnx", "linen": "flax.linen", "equinox": "equinox"}


def family(layer: Any) -> str:
    """Return the kind of a class or an instance, or "" if it is not a known layer."""
    kind = layer if isinstance(layer, type) else type(layer)
    bases = {name: getattr(sys.modules.get(module), "Module", ()) for name, module in FAMILIES.items()}
    return next((name for name, base in bases.items() if issubclass(kind, base)), "")


class Layer:
    """
    Builds an instance of a class for each call, such as a torch.nn.Module.

    names: argument of the constructor -> role. method: the method that is called, "" for the instance itself.
    """

    def __init__(self, kind: Callable[..., Any], names: Mapping[str, str], method: str = "") -> None:
        self._kind, self._names, self._method = kind, names, method

    def made(self, call: Call) -> Any:
        """
        Return an instance in evaluation mode, or its method, with the dtype and the weights of the call.

        Raises:
            LayerError: the weights of the call do not fit the layer.
        """
        layer = self._kind(**constructed(self._names, call.facts))
        if (kind := family(layer)) and (call.params or kind == "torch"):
            return WITH_WEIGHTS[kind](layer, call, self._method)
        return getattr(layer, self._method) if self._method else layer


def is_biased(layer: Any, inputs: Sequence[Any] = ()) -> bool | None:
    """
    Return whether every projection of an instance has a bias; None if the instance has no weights.

    inputs: arrays for a plain call, with which a flax.linen layer creates its weights.

    Raises:
        LayerError: a projection is not found.
    """
    linears = LINEARS[family(layer)](layer, inputs) if family(layer) else {}
    return all(bias is not None for _, bias, _ in complete(linears).values()) if linears else None


# Name of a linear layer -> its weight (out, in) and its bias or None, as writable tensors or views.
Linears = dict[str, tuple[Any, Any]]

# Path in a JAX layer, such as `q_proj.kernel` -> array.
Leaves = dict[str, Any]


def _torch_layer(layer: Any, call: Call, method: str) -> Any:
    torch = sys.modules["torch"]

    layer = layer.to(call.facts.device, getattr(torch, call.facts.dtype)).eval()
    with torch.no_grad():
        for each in layer.modules():
            if isinstance(each, torch.nn.LazyLinear):  # its first call creates the weights, in the width of its input
                each(torch.zeros(call.query.shape[-1], device=call.facts.device, dtype=each.weight.dtype))
    if call.params:
        given = {name: torch.from_numpy(each) for name, each in _numbers(call).items()}
        with torch.no_grad():
            _fill(_torch_linears(layer), given, torch.zeros_like)
    return getattr(layer, method) if method else layer


def _torch_linears(layer: Any, _inputs: Sequence[Any] = ()) -> Linears:
    torch = sys.modules["torch"]

    found = {
        name: (each.weight, each.bias) for name, each in layer.named_modules() if isinstance(each, torch.nn.Linear)
    }
    named = dict(layer.named_parameters())
    for name, each in named.items():
        if name.endswith("in_proj_weight"):
            found[name] = (each, named.get(name.replace("weight", "bias")))
    rest = {name: (each, None) for name, each in named.items()}  # for the error message
    return found or rest


def _nnx_layer(layer: Any, call: Call, method: str) -> Any:
    variables = _nnx_variables(layer)
    for name, leaf in _with_numbers(call, {name: each.value for name, each in variables.items()}).items():
        variables[name].value = leaf
    return getattr(layer, method) if method else layer


def _nnx_linears(layer: Any, _inputs: Sequence[Any] = ()) -> Linears:
    return linears_of({name: each.value for name, each in _nnx_variables(layer).items()})


def _nnx_variables(layer: Any) -> dict[str, Any]:
    nnx = sys.modules["flax.nnx"]
    found = nnx.iter_graph(layer)
    return {".".join(map(str, path)): each for path, each in found if isinstance(each, nnx.Param)}


def _linen_layer(layer: Any, call: Call, method: str) -> Any:
    """Return a function that applies a linen layer; its weights exist only when it is called."""
    flax = sys.modules["flax"]
    jax = sys.modules["jax"]

    def applied(*arrays: Any, **others: Any) -> Any:
        whole = {"method": method} if method else {}
        shapes = jax.eval_shape(lambda: layer.init(_random_key(), *arrays, **others, **whole))
        leaves = flax.traverse_util.flatten_dict(shapes["params"], sep=".")
        filled = _with_numbers(call, {name: np.zeros(each.shape) for name, each in leaves.items()})
        params = flax.traverse_util.unflatten_dict(filled, sep=".")
        rest = layer.init(_random_key(), *arrays, **others, **whole) if len(shapes) > 1 else {}
        return layer.apply({**rest, "params": params}, *arrays, **others, **whole)

    return applied


def _linen_linears(layer: Any, inputs: Sequence[Any] = ()) -> Linears:
    flax = sys.modules["flax"]

    params = layer.init(_random_key(), *inputs).get("params", {})
    return linears_of(flax.traverse_util.flatten_dict(params, sep="."))


def _equinox_layer(layer: Any, call: Call, method: str) -> Any:
    jax = sys.modules["jax"]

    filled = _with_numbers(call, _equinox_leaves(layer))
    leaves, structure = jax.tree_util.tree_flatten_with_path(sys.modules["equinox"].nn.inference_mode(layer))
    made = structure.unflatten(filled.get(_path(path), each) for path, each in leaves)
    return getattr(made, method) if method else made


def _equinox_linears(layer: Any, _inputs: Sequence[Any] = ()) -> Linears:
    return linears_of(_equinox_leaves(layer))


def _equinox_leaves(layer: Any) -> Leaves:
    jax = sys.modules["jax"]

    leaves = jax.tree_util.tree_flatten_with_path(layer)[0]
    return {_path(path): each for path, each in leaves if isinstance(each, jax.Array)}


def _path(path: Sequence[Any]) -> str:
    return ".".join(str(getattr(each, "name", getattr(each, "key", getattr(each, "idx", each)))) for each in path)


def _random_key() -> Any:
    return sys.modules["jax"].random.PRNGKey(0)


def _with_numbers(call: Call, leaves: Leaves) -> dict[str, Any]:
    """Return the JAX arrays of a layer with the dtype and the weights of the call."""
    jnp = sys.modules["jax"].numpy

    leaves = {name: np.array(each, dtype=np.float64, order="C") for name, each in leaves.items()}
    _fill(linears_of(leaves), _numbers(call), np.zeros_like)
    return {name: jnp.asarray(each).astype(call.facts.dtype) for name, each in leaves.items()}


def linears_of(leaves: Leaves) -> Linears:
    """
    Return the linear layers among the arrays of a JAX layer.

    Flax has a kernel (in, out), where `in` or `out` may be two axes (heads, width per head); Equinox has a weight
    (out, in).
    """
    found: Linears = {}
    for name, leaf in leaves.items():
        layer, _, last = name.rpartition(".")
        bias = leaves.get(f"{layer}.bias")
        flat = None if bias is None else bias.reshape(-1)
        if last == "kernel":
            inner = (-1, leaf.shape[-1]) if part_of(layer) == "o" else (leaf.shape[0], -1)
            found[layer] = (leaf.reshape(inner).T, flat)
        elif last == "weight" and leaf.ndim == len(("out", "in")):
            found[layer] = (leaf, flat)
    return found


# Kind of layer -> function that gives an instance, or its method, the weights of a call.
WITH_WEIGHTS = {"torch": _torch_layer, "nnx": _nnx_layer, "linen": _linen_layer, "equinox": _equinox_layer}

# Kind of layer -> function that finds its linear layers.
LINEARS = {"torch": _torch_linears, "nnx": _nnx_linears, "linen": _linen_linears, "equinox": _equinox_linears}


def _numbers(call: Call) -> dict[str, Any]:
    """Return the weights and biases of a call; bfloat16 as float64, which the layer converts back exactly."""
    return {
        name: each.float64() if each.dtype == "bfloat16" else each.bits.copy() for name, each in call.params.items()
    }


def _fill(linears: Linears, params: Mapping[str, Any], zeros: Callable[[Any], Any]) -> None:
    """
    Write the weights, which are (in, out) in a call, and the biases into the linear layers.

    Raises:
        LayerError: the call has a bias that the layer does not have.
    """
    for part, (weight, bias, rows) in complete(linears).items():
        weight[rows] = params[f"w{part}"].T
        if bias is not None:
            given = params.get(f"b{part}")
            bias[rows] = zeros(bias[rows]) if given is None else given
        elif params.get(f"b{part}") is not None:
            raise LayerError(f"the {WORDS[part]} has no bias, but the call has one")


def complete(linears: Linears) -> dict[str, tuple[Any, Any, slice]]:
    """
    Return for each of q, k, v, o the weight, the bias or None, and its rows in them.

    Raises:
        LayerError: a projection is not found.
    """
    found = projections(linears)
    if missing := [part for part in IN_ORDER if part not in found]:
        raise LayerError(
            f"the layer has no {WORDS[missing[0]]} with a known name; its parameters are {', '.join(linears)}. Name "
            "linear layers like q_proj, k_proj, v_proj, out_proj, or qkv and proj"
        )
    return found


WORDS = {"q": "query projection", "k": "key projection", "v": "value projection", "o": "output projection"}


def projections(linears: Linears) -> dict[str, tuple[Any, Any, slice]]:
    """Return the projections among linear layers: by their names, or by their order if there are four unnamed ones."""
    found: dict[str, tuple[Any, Any, slice]] = {}
    for name, (weight, bias) in linears.items():
        _add_projection(found, part_of(name), weight, bias)
    left = [each for name, each in linears.items() if part_of(name) is None]
    if not found and len(left) == len(IN_ORDER):
        for part, each in zip(IN_ORDER, left, strict=True):
            _add_projection(found, part, *each)
    elif "o" not in found and len(left) == 1:
        _add_projection(found, "o", *left[0])
    return found


def part_of(name: str) -> str | None:
    """Return which projection a linear layer is, from the last part of its name that says it; None if none does."""
    names = [(each, each.replace("_", "")) for each in reversed(name.lower().split("."))]
    known = ((part, pattern, each) for each in names for part, pattern in PARTS.items())
    return next((part for part, pattern, each in known if any(map(pattern.fullmatch, each))), None)


def _add_projection(found: dict[str, tuple[Any, Any, slice]], part: str | None, weight: Any, bias: Any) -> None:
    if part == "qkv":
        third = weight.shape[0] // 3
        for number, each in enumerate("qkv"):
            found.setdefault(each, (weight, bias, slice(number * third, (number + 1) * third)))
    elif part is not None:
        found.setdefault(part, (weight, bias, slice(None)))
