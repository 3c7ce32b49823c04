"""
A class whose instances compute attention: built for the sizes of a call, with the weights and biases of that call.

The adapter that check writes uses it in the worker: it needs the bridge, and PyTorch where the class is a layer of it.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from conformance.bridge import Call, Facts, Unsupported

BUILT_WITH: dict[str, tuple[str, ...]] = {
    "width": (
        "embed_dim", "d_model", "dim", "hidden_size", "hidden_dim", "emb_size", "embed_size", "n_embd", "emb_dim",
        "embedding_dim", "model_dim", "features", "in_features", "input_dim", "query_dim", "d_in", "d_out", "out_dim",
        "output_dim", "qkv_features", "out_features", "width",
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
}  # fmt: skip
"""What a constructor is given -> the names by which people call it."""

OF_CONSTRUCTOR = {name: role for role, names in BUILT_WITH.items() for name in names}

_BEFORE = r"(?:w|to|proj|fc|linear|lin|project)?"
_AFTER = r"(?:s|proj|projection|linear|lin|layer|fc|dense|weight|transform)*"
PARTS = {
    "qkv": re.compile(r".*qkv.*|in_?proj(?:_weight|_bias)?|c_?attn"),
    "q": re.compile(_BEFORE + r"(?:q|query|queries)" + _AFTER),
    "k": re.compile(_BEFORE + r"(?:k|key|keys)" + _AFTER),
    "v": re.compile(_BEFORE + r"(?:v|value|values)" + _AFTER),
    "o": re.compile(_BEFORE + r"(?:o|out|output)" + _AFTER + r"|c?_?proj|fc|dense|unify_?heads"),
}
"""Which projection a linear layer or a parameter is, by its name without underscores."""

IN_ORDER = ("q", "k", "v", "o")
"""Four linear layers in a list are these."""


class LayerError(Unsupported):
    """A layer cannot take the weights of a call; the text says what was looked for."""


def constructed(names: Mapping[str, str], facts: Facts) -> dict[str, Any]:
    """The arguments of a constructor; names: argument -> role."""
    sizes = facts.sizes
    width = sizes["num_heads"] * sizes["head_dim"]
    values = {
        "width": width,
        "num_heads": sizes["num_heads"],
        "num_kv_heads": sizes["num_kv_heads"],
        "head_dim": sizes["head_dim"],
        "value_dim": sizes["value_dim"],
        "dropout": 0.0,
        "biases": facts.biases,
        "batch_first": True,
        "temperature": sizes["head_dim"] ** 0.5,
        "scale": sizes["head_dim"] ** -0.5,
        "is_causal": False,
    }
    return {name: values[role] for name, role in names.items()}


class Layer:
    """
    Builds an instance of a class for each call, such as a torch.nn.Module.

    names: argument of the constructor -> role. method: the method that is called, "" for the instance itself.
    """

    def __init__(self, kind: Callable[..., Any], names: Mapping[str, str], method: str = "") -> None:
        self._kind, self._names, self._method = kind, names, method

    def made(self, call: Call) -> Any:
        """
        An instance in evaluation mode, in the dtype and with the weights of the call, or its method.

        Raises:
            LayerError: weights of the call have no place in it.
        """
        layer = self._kind(**constructed(self._names, call.facts))
        torch = sys.modules.get("torch")  # a class without it is none of its layers
        if torch is not None and isinstance(layer, torch.nn.Module):
            layer = layer.to(getattr(torch, call.facts.dtype)).eval()
            if call.params:
                _fill(layer, {name: torch.from_numpy(each.bits.copy()) for name, each in _numbers(call)}, torch)
        return getattr(layer, self._method) if self._method else layer

    @staticmethod
    def is_biased(layer: Any) -> bool:
        """
        Whether every projection of an instance has a bias.

        Raises:
            LayerError: a projection is not found.
        """
        import torch  # noqa: PLC0415 - the framework of the layer

        return all(bias is not None for _, bias, _, _ in _complete(layer, torch).values())


def _numbers(call: Call) -> Iterator[tuple[str, Any]]:
    for name, tensor in call.params.items():
        if tensor.dtype == "bfloat16":
            yield name, _Wide(tensor.float64())
        else:
            yield name, tensor


class _Wide:
    """Numbers that NumPy has no dtype for; copied into the parameter they are rounded to it, which changes nothing."""

    def __init__(self, bits: Any) -> None:
        self.bits = bits


def _fill(layer: Any, params: Mapping[str, Any], torch: Any) -> None:
    with torch.no_grad():
        for part, (weight, bias, rows, transposed) in _complete(layer, torch).items():
            given = params[f"w{part}"]
            weight[rows] = given.T if transposed else given
            if bias is not None:
                bias[rows] = params.get(f"b{part}", torch.zeros_like(bias[rows]))
            elif params.get(f"b{part}") is not None:
                raise LayerError(f"the {WORDS[part]} has no bias, and the call has one")


def _complete(layer: Any, torch: Any) -> dict[str, tuple[Any, Any, slice, bool]]:
    places = projections(layer, torch)
    if missing := [part for part in IN_ORDER if part not in places]:
        found = ", ".join(name for name, _ in layer.named_parameters())
        raise LayerError(
            f"no parameter of the layer is the {WORDS[missing[0]]}; it has {found}. Name linear layers like "
            "q_proj, k_proj, v_proj, out_proj, or qkv and proj"
        )
    return places


WORDS = {"q": "query projection", "k": "key projection", "v": "value projection", "o": "output projection"}


def projections(layer: Any, torch: Any) -> dict[str, tuple[Any, Any, slice, bool]]:
    """q, k, v, o -> weight, bias or None, the rows that are its own, and whether the weight is (out, in)."""
    linears = {name: each for name, each in layer.named_modules() if isinstance(each, torch.nn.Linear)}
    found: dict[str, tuple[Any, Any, slice, bool]] = {}
    for name, each in linears.items():
        _place(found, _part(name), each.weight, each.bias)
    for name, each in layer.named_parameters():
        if name.endswith("in_proj_weight"):
            _place(found, "qkv", each, dict(layer.named_parameters()).get(name.replace("weight", "bias")))
    left = [each for name, each in linears.items() if _part(name) is None]
    if not found and len(left) == len(IN_ORDER):
        for part, each in zip(IN_ORDER, left, strict=True):
            _place(found, part, each.weight, each.bias)
    elif "o" not in found and len(left) == 1:
        _place(found, "o", left[0].weight, left[0].bias)
    return found


def _part(name: str) -> str | None:
    last = name.rpartition(".")[2].lower()
    plain = last.replace("_", "")
    return next((part for part, pattern in PARTS.items() if pattern.fullmatch(last) or pattern.fullmatch(plain)), None)


def _place(found: dict[str, tuple[Any, Any, slice, bool]], part: str | None, weight: Any, bias: Any) -> None:
    if part == "qkv":
        third = weight.shape[0] // 3
        for number, each in enumerate("qkv"):
            found.setdefault(each, (weight, bias, slice(number * third, (number + 1) * third), True))
    elif part is not None:
        found.setdefault(part, (weight, bias, slice(None), True))
