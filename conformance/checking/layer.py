"""
Build an attention layer from its class with the sizes, weights and biases of a call.

The generated adapter uses this module in the worker: it needs the bridge, NumPy, and the framework of the class, which
is PyTorch, Flax (nnx or linen), Equinox, Keras, or none.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.bridge import Call, Facts, Unsupported

# Role of a constructor argument -> the names that are recognised for it.
BUILT_WITH: dict[str, tuple[str, ...]] = {
    "width": (
        "embed_dim", "d_model", "dim", "hidden_size", "hidden_dim", "emb_size", "embed_size", "n_embd", "emb_dim",
        "embedding_dim", "model_dim", "features", "in_features", "input_dim", "query_dim", "d_in", "d_out", "out_dim",
        "output_dim", "qkv_features", "out_features", "width", "num_hiddens", "n_state", "n_feat",
        "units", "query_size", "key_size", "value_size", "kdim", "vdim",
    ),
    "num_heads": ("num_heads", "n_heads", "heads", "n_head", "nhead", "nheads", "h", "num_attention_heads"),
    "num_kv_heads": ("num_kv_heads", "n_kv_heads", "num_key_value_heads", "kv_heads", "num_kv_groups"),
    "head_dim": (
        "head_dim", "d_k", "dim_head", "head_size", "key_dim", "d_head", "dim_k", "dk", "d_kv", "size_per_head",
    ),
    "value_dim": ("d_v", "value_dim", "dim_v", "dv"),
    "dropout": (
        "dropout", "dropout_p", "attn_dropout", "dropout_rate", "p_dropout", "attention_dropout", "attn_pdrop",
        "attn_drop", "proj_drop", "resid_dropout", "rate", "resid_pdrop", "embd_pdrop", "residual_dropout",
        "attention_probs_dropout_prob", "hidden_dropout_prob",
    ),
    "biases": ("bias", "qkv_bias", "use_bias", "proj_bias"),
    "positions": (
        "block_size", "context_length", "max_len", "max_length", "max_seq_len", "max_seq_length", "seq_len", "n_ctx",
        "max_position_embeddings", "n_positions",
    ),
    "config": ("config", "cfg", "args", "params"),
    "batch_first": ("batch_first",),
    "temperature": ("temperature",),
    "scale": ("scale", "sm_scale", "softmax_scale"),
    "is_causal": ("causal", "is_causal"),
    "rngs": ("rngs",),
    "random_key": ("key", "rng"),
}  # fmt: skip

# Arguments that may be the width of one head, if a layer has a linear layer for each head.
OF_ONE_HEAD = frozenset({"d_out", "out_dim", "output_dim", "out_features"})

OF_CONSTRUCTOR = {name: role for role, names in BUILT_WITH.items() for name in names}

_BEFORE = r"(?:w|to|proj|fc|linear|lin|project)?"
_AFTER = r"(?:s|proj|projection|linear|lin|layer|fc|dense|weight|transform)*"
# Projection -> pattern for the name of its linear layer or parameter, with or without underscores.
PARTS = {
    "qkv": re.compile(r".*qkv.*|in_?proj(?:_weight|_bias)?|c_?attn"),
    "kv": re.compile(_BEFORE + r"(?:kv|keyvalue)" + _AFTER),
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
        "positions": lambda: max(sizes["seq_len_q"], sizes["seq_len_k"]),
        "config": lambda: Configuration(facts),
        "batch_first": lambda: True,
        "temperature": lambda: sizes["head_dim"] ** 0.5,
        "scale": lambda: sizes["head_dim"] ** -0.5,
        "is_causal": lambda: False,
        "rngs": lambda: sys.modules["flax.nnx"].Rngs(0),
        "random_key": lambda: sys.modules["jax"].random.PRNGKey(0),
    }
    return {name: values[role]() for name, role in names.items()}


class Configuration:
    """The argument `config` of a constructor: an attribute has the value of a constructor argument of this name."""

    def __init__(self, facts: Facts) -> None:
        """Begin; facts: those of the call for which the layer is built."""
        self._facts = facts

    def __getattr__(self, name: str) -> Any:
        if OF_CONSTRUCTOR.get(name, "config") == "config":
            raise AttributeError(
                f"check gives the configuration no {name!r}: it knows the names of constructor arguments, such as "
                "n_embd, n_head, dropout and block_size"
            )
        return constructed({name: OF_CONSTRUCTOR[name]}, self._facts)[name]


# Kind of layer -> its base class: the module, and the name there. Keras on PyTorch is based on both.
FAMILIES = {
    "keras": ("keras", "Layer"),
    "torch": ("torch.nn", "Module"),
    "nnx": ("flax.nnx", "Module"),
    "linen": ("flax.linen", "Module"),
    "equinox": ("equinox", "Module"),
}

# Kind of an instance of any other class that has matrices of NumPy with the names of projections.
OF_NUMPY = "numpy"

# Kind of layer -> the arrays that it gets. Keras converts those of NumPy to its backend.
ARRAYS_OF = {"torch": "torch", "nnx": "jax", "linen": "jax", "equinox": "jax", "keras": "numpy"}

# Kind of layer -> the method with its parameters, if another one is called.
FORWARD = {"torch": "forward", "keras": "call"}


def family(layer: Any) -> str:
    """Return the kind of a class or an instance, or "" if it is not a known layer."""
    kind = layer if isinstance(layer, type) else type(layer)
    bases = {name: getattr(sys.modules.get(module), base, ()) for name, (module, base) in FAMILIES.items()}
    found = next((name for name, base in bases.items() if issubclass(kind, base)), "")
    return found or (OF_NUMPY if not isinstance(layer, type) and linears_of(_numpy_leaves(layer)) else "")


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
        if family(self._kind) == "keras":
            sys.modules["keras"].config.set_dtype_policy(call.facts.dtype)
        layer = self._kind(**constructed(self._names, call.facts))
        if (kind := family(layer)) and (call.params or kind in FORWARD):
            return WITH_WEIGHTS[kind](layer, call, self._method)
        return getattr(layer, self._method) if self._method else layer


@dataclass(frozen=True)
class Projections:
    """
    What an instance has of the projections q, k, v, o.

    biased: whether each of them has a bias. inputs: the width of the query projection's inputs. outputs: that of its
    outputs, of all heads together.
    """

    biased: Mapping[str, bool]
    inputs: int
    outputs: int


def projections_of(
    layer: Any, inputs: Sequence[Any] = (), modes: Mapping[str, bool] | None = None
) -> Projections | None:
    """
    Return what an instance has of the projections; None if it has no weights.

    inputs, modes: arrays and flags for a plain call, with which a layer of flax.linen or Keras creates its weights.

    Raises:
        LayerError: a projection is not found.
    """
    linears = LINEARS[family(layer)](layer, inputs, modes or {}) if family(layer) else {}
    if not linears:
        return None
    found = complete(linears)
    widths = [weight[rows].shape for weight, _, rows in found["q"]]
    biased = {part: all(bias is not None for _, bias, _ in pieces) for part, pieces in found.items()}
    return Projections(biased, widths[0][1], sum(width for width, _ in widths))


# Name of a linear layer -> its weight (out, in) and its bias or None, as writable tensors or views.
Linears = dict[str, tuple[Any, Any]]

# Path in a JAX layer, such as `q_proj.kernel` -> array.
Leaves = dict[str, Any]


def _torch_layer(layer: Any, call: Call, method: str) -> Any:
    torch = sys.modules["torch"]

    layer = layer.to(call.facts.device, getattr(torch, call.facts.dtype)).eval()
    _create_lazy_weights(layer, call.query.shape[-1])
    if call.params:
        given = {name: torch.from_numpy(each) for name, each in _numbers(call).items()}
        with torch.no_grad():
            _fill(_torch_linears(layer), given, torch.zeros_like)
    return getattr(layer, method) if method else layer


def _create_lazy_weights(layer: Any, width: int) -> None:
    torch = sys.modules["torch"]

    with torch.no_grad():
        for each in layer.modules():
            if isinstance(each, torch.nn.LazyLinear):  # its first call creates the weights, in the width of its input
                each(torch.zeros(width, device=each.weight.device, dtype=each.weight.dtype))


def _torch_linears(layer: Any, inputs: Sequence[Any] = (), *_: Any) -> Linears:
    torch = sys.modules["torch"]

    for each in inputs[:1]:
        _create_lazy_weights(layer, each.shape[-1])
    found = {
        name: (each.weight, each.bias) for name, each in layer.named_modules() if isinstance(each, torch.nn.Linear)
    }
    named = dict(layer.named_parameters())
    for name, each in named.items():
        if name.endswith("in_proj_weight"):
            found[name] = (each, named.get(name.replace("weight", "bias")))
    matrices = {name: each.T for name, each in named.items() if each.ndim == len(("in", "out")) and part_of(name)}
    rest = {name: (matrices.get(name, each), named.get(_bias_of(name))) for name, each in named.items()}
    return found or rest


def _nnx_layer(layer: Any, call: Call, method: str) -> Any:
    variables = _nnx_variables(layer)
    for name, leaf in _with_numbers(call, {name: each.value for name, each in variables.items()}).items():
        variables[name].value = leaf
    return getattr(layer, method) if method else layer


def _nnx_linears(layer: Any, *_: Any) -> Linears:
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


def _linen_linears(layer: Any, inputs: Sequence[Any], modes: Mapping[str, bool]) -> Linears:
    flax = sys.modules["flax"]

    params = layer.init(_random_key(), *inputs, **modes).get("params", {})
    return linears_of(flax.traverse_util.flatten_dict(params, sep="."))


def _equinox_layer(layer: Any, call: Call, method: str) -> Any:
    jax = sys.modules["jax"]

    filled = _with_numbers(call, _equinox_leaves(layer))
    leaves, structure = jax.tree_util.tree_flatten_with_path(sys.modules["equinox"].nn.inference_mode(layer))
    made = structure.unflatten(filled.get(_path(path), each) for path, each in leaves)
    return getattr(made, method) if method else made


def _equinox_linears(layer: Any, *_: Any) -> Linears:
    return linears_of(_equinox_leaves(layer))


def _equinox_leaves(layer: Any) -> Leaves:
    jax = sys.modules["jax"]

    leaves = jax.tree_util.tree_flatten_with_path(layer)[0]
    return {_path(path): each for path, each in leaves if isinstance(each, jax.Array)}


def _keras_layer(layer: Any, call: Call, method: str) -> Any:
    """Return a function that calls a Keras layer, and returns NumPy arrays; its first call creates the weights."""
    keras = sys.modules["keras"]
    called = getattr(layer, method) if method else layer

    def applied(*arrays: Any, **others: Any) -> Any:
        if call.params:
            with _zero_kernels():
                called(*arrays, **others)
            variables = dict(_keras_variables(layer))
            leaves = {name: _float64(each) for name, each in variables.items()}
            _fill(linears_of(leaves), _numbers(call), np.zeros_like)
            for name, leaf in leaves.items():
                variables[name].assign(leaf)
        return keras.tree.map_structure(keras.ops.convert_to_numpy, called(*arrays, **others))

    return applied


@contextmanager
def _zero_kernels() -> Iterator[None]:
    """Initialise kernels with zeros: they get the weights of the call, and random numbers take most of its time."""
    keras = sys.modules["keras"]
    kind, zeros = keras.initializers.VarianceScaling, keras.initializers.Zeros()
    drawn = kind.__call__
    kind.__call__ = lambda _, shape, dtype=None: zeros(shape, dtype=dtype)
    try:
        yield
    finally:
        kind.__call__ = drawn


def _keras_linears(layer: Any, inputs: Sequence[Any], modes: Mapping[str, bool]) -> Linears:
    layer(*inputs, **modes)
    return linears_of({name: _float64(each) for name, each in _keras_variables(layer)})


def _numpy_layer(layer: Any, call: Call, method: str) -> Any:
    leaves = {name: each.astype(np.float64) for name, each in _numpy_leaves(layer).items()}
    _fill(linears_of(leaves), _numbers(call), np.zeros_like)
    for name, each in leaves.items():
        setattr(layer, name, each.astype(call.facts.dtype))
    return getattr(layer, method) if method else layer


def _numpy_linears(layer: Any, *_: Any) -> Linears:
    return linears_of(_numpy_leaves(layer))


def _numpy_leaves(layer: Any) -> Leaves:
    """Return the arrays of floats among the attributes of an instance."""
    found = getattr(layer, "__dict__", {})
    return {name: each for name, each in found.items() if isinstance(each, np.ndarray) and each.dtype.kind == "f"}


def _float64(variable: Any) -> Any:
    return np.array(sys.modules["keras"].ops.convert_to_numpy(variable), dtype=np.float64, order="C")


def _keras_variables(layer: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the variables of a Keras layer by the attributes that lead to them; Keras has other names of its own."""
    keras = sys.modules["keras"]
    attributes = vars(layer)
    for name, each in {**attributes, **attributes.get("_modules", {})}.items():  # on PyTorch, layers are in _modules
        path = f"{prefix}{name.strip('_')}"
        if isinstance(each, keras.Variable):
            yield path, each
        elif isinstance(each, keras.Layer):
            yield from _keras_variables(each, f"{path}.")


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
    Return the linear layers among the arrays of a layer of JAX, Keras or NumPy.

    Flax and Keras have a kernel (in, out), where `in` or `out` may be two axes (heads, width per head); Equinox has a
    weight (out, in). A matrix with the name of a projection, such as W_q, is (in, out), for `x @ W_q`; its bias is b_q.
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
        elif leaf.ndim == len(("in", "out")) and part_of(last):
            found[name] = (leaf.T, leaves.get(_bias_of(name)))
    return found


def _bias_of(matrix: str) -> str:
    """Return the name of the bias that belongs to a matrix: b_q for W_q."""
    layer, dot, last = matrix.rpartition(".")
    return f"{layer}{dot}{re.sub('^[wW]', 'b', last)}"


# Kind of layer -> function that gives an instance, or its method, the weights of a call.
WITH_WEIGHTS = {
    "torch": _torch_layer,
    "nnx": _nnx_layer,
    "linen": _linen_layer,
    "equinox": _equinox_layer,
    "keras": _keras_layer,
    OF_NUMPY: _numpy_layer,
}

# Kind of layer -> function that finds its linear layers.
LINEARS = {
    "torch": _torch_linears,
    "nnx": _nnx_linears,
    "linen": _linen_linears,
    "equinox": _equinox_linears,
    "keras": _keras_linears,
    OF_NUMPY: _numpy_linears,
}


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
    for part, pieces in complete(linears).items():
        given, first = params.get(f"b{part}"), 0
        for weight, bias, rows in pieces:
            own = slice(first, first := first + len(weight[rows]))
            weight[rows] = params[f"w{part}"].T[own]
            if bias is not None:
                bias[rows] = zeros(bias[rows]) if given is None else given[own]
            elif given is not None:
                raise LayerError(f"the {WORDS[part]} has no bias, but the call has one")


# The weight of a projection, or of a part of its outputs; the bias or None; and the rows of both.
Piece = tuple[Any, Any, slice]


def complete(linears: Linears) -> dict[str, list[Piece]]:
    """
    Return the pieces of each of q, k, v, o: one, or one for each head. A layer may lack the output projection.

    Raises:
        LayerError: a projection is not found.
    """
    found = projections(linears)
    missing = [part for part in IN_ORDER if part not in found]
    if missing and (missing != ["o"] or any(part_of(name) is None for name in linears)):
        raise LayerError(
            f"the layer has no {WORDS[missing[0]]} with a known name; its parameters are {', '.join(linears)}. Name "
            "linear layers like q_proj, k_proj, v_proj, out_proj, or qkv and proj"
        )
    return found


WORDS = {"q": "query projection", "k": "key projection", "v": "value projection", "o": "output projection"}


def projections(linears: Linears) -> dict[str, list[Piece]]:
    """Return the projections among linear layers: by their names, or by their order if there are four unnamed ones."""
    named: dict[str, dict[str, Piece]] = {part: {} for part in IN_ORDER}
    for name, (weight, bias) in linears.items():
        packed = part_of(name) or ""
        for number, each in enumerate(packed):
            size = weight.shape[0] // len(packed)
            named[each][name] = (weight, bias, slice(number * size, (number + 1) * size))
    found = {part: _of_heads(pieces) for part, pieces in named.items() if pieces}
    left = [[(*each, slice(None))] for name, each in linears.items() if part_of(name) is None]
    if not found and len(left) == len(IN_ORDER):
        return dict(zip(IN_ORDER, left, strict=True))
    return found | ({"o": left[0]} if "o" not in found and len(left) == 1 else {})


def _of_heads(pieces: Mapping[str, Piece]) -> list[Piece]:
    """Return the pieces of a projection that has one for each head, such as `heads.0.query`; else the first piece."""
    whole = len({re.sub(r"\.\d+\.", ".N.", name) for name in pieces}) == 1
    return [*pieces.values()][: None if whole else 1]


def part_of(name: str) -> str | None:
    """
    Return which projection a linear layer is, from the last part of its name that says it; None if none does.

    It is q, k, v or o, or several that are packed: qkv or kv.
    """
    names = [(each, each.replace("_", "")) for each in reversed(name.lower().split("."))]
    known = ((part, pattern, each) for each in names for part, pattern in PARTS.items())
    return next((part for part, pattern, each in known if any(map(pattern.fullmatch, each))), None)
