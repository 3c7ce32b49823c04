"""
A case made concrete: arrays, masks grouped by the argument that carries them, and what is asked for.

All floating arrays here are float64 and hold numbers that the dtype under test represents exactly. In our
own code True always means attend.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# The axes of the logits in their order, and the size of each by name.
AXES = {"b": "batch", "h": "num_heads", "q": "seq_len_q", "k": "seq_len_k"}

# The output that stands for a gradient by every input and parameter.
GRADIENTS = "gradients"

# How each of them is called, before the name of what it is a gradient by.
GRADIENT = "grad_"

# The output that stands for all keys and values, those of the past first.
PRESENT = "present"

# What it is made of.
PRESENTS = ("present_key", "present_value")

# Outputs on the way to the softmax: query . key times the scale, after the softcap, after bias and masks.
SCORES = ("scaled", "capped", "logits")

# The slot of a mask that has not been routed to an argument yet.
SLOTLESS = ""


@dataclass(frozen=True, eq=False)
class MaskOperand:
    """
    What one mask argument or flag of a call carries, in the canonical reading.

    slot: the argument's name. kinds: the kinds of mask folded into it (key_padding, attention, causal, window,
    additive). element: how it is handed over: bool, int, float, or flag. values: broadcastable to (batch,
    num_heads, seq_len_q, seq_len_k); bool for bool and flag elements (True = attend), float64 otherwise (int: non-zero
    = attend; float: added to the logits, -inf = not attended). verbatim: handed over as the case wrote it.
    offset: for a causal mask, how far its diagonal is shifted (0 is top-left). window: for a window, the inclusive
    numbers of keys to the left and right of the query's own position, None for unbounded. moved: as window, of a
    causal mask or window that moves with the number of keys of each item: query i of item b stands at lengths[b] -
    seq_len_q + i; offset and window are None then. short: so many keys, the last, which are masked, need not stand in
    the array. attached: travels with its tensor. Size-one axes are axes that the mask does not span.
    """

    slot: str
    kinds: tuple[str, ...]
    element: str
    values: Array
    verbatim: bool = False
    offset: int | None = None
    window: tuple[int | None, int | None] | None = None
    moved: tuple[int | None, int | None] | None = None
    short: int = 0
    attached: bool = False

    @property
    def ordered(self) -> bool:
        """Whether it says something about the order of the keys."""
        return any(places is not None for places in (self.offset, self.window, self.moved))

    @property
    def allowed(self) -> Array | None:
        """Which positions are attended, or None where the group only adds."""
        if self.element == "float":
            return None
        return np.asarray(self.values != 0)

    @property
    def bias(self) -> Array | None:
        """What is added to the logits, or None where the group only allows."""
        return self.values if self.element == "float" else None


@dataclass(frozen=True, eq=False)
class Problem:
    """
    One attention call as arrays; shapes as in `bridge.Call`, masks as groups.

    scale None means 1/sqrt(head_dim), softcap None no cap. params is empty for sdpa. alias: "none", "kv", "qkv".
    bias_k and bias_v among the parameters are a key and a value that are appended, zero_key one of zeros after it. wo
    is absent where there is no output projection. activation: of the projections of query, key and value. residual:
    the query is added to the output. layout: how query, key and value lie in memory. dropout_p: of a dropout that is
    inactive. native: what the call must use, in the words of `Case.native`. past: how many keys and values, the first,
    are handed over as those of earlier calls; they count among key and value here.
    mistake: what is made wrong in the call, which must be refused; nothing here has it.
    requirements: what the case asks for beyond ordinary attention, in the words of CAPABILITIES.
    grad_output: of the shape of the output, given where gradients are asked for.
    """

    operator: str
    dtype: str
    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    query: Array
    key: Array
    value: Array
    params: Mapping[str, Array] = field(default_factory=dict)
    mask_operands: tuple[MaskOperand, ...] = ()
    scale: float | None = None
    outputs: tuple[str, ...] = ("output",)
    alias: str = "none"
    softcap: float | None = None
    dropout_p: float | None = None
    layout: str = "contiguous"
    zero_key: bool = False
    activation: str | None = None
    residual: bool = False
    past: int = 0
    mistake: str | None = None
    native: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    grad_output: Array | None = None

    @property
    def differentiated(self) -> bool:
        """Whether gradients are asked for."""
        return any(name.startswith(GRADIENT) for name in self.outputs)

    @property
    def applied_scale(self) -> float:
        """What the products are multiplied by: the scale that is given, else 1/sqrt(head_dim)."""
        return self.head_dim**-0.5 if self.scale is None else self.scale

    @property
    def batch(self) -> int:
        """Number of sequences."""
        return int(self.query.shape[0])

    @property
    def seq_len_q(self) -> int:
        """Number of queries."""
        return int(self.query.shape[-2])

    @property
    def seq_len_k(self) -> int:
        """Number of keys."""
        return int(self.key.shape[-2])

    @property
    def logits_shape(self) -> tuple[int, int, int, int]:
        """(batch, num_heads, seq_len_q, seq_len_k)."""
        return (self.batch, self.num_heads, self.seq_len_q, self.seq_len_k)

    @property
    def weights_shape(self) -> tuple[int, int, int, int]:
        """As `logits_shape`, with the keys that are appended."""
        batch, heads, queries, keys = self.logits_shape
        return (batch, heads, queries, keys + ("bias_k" in self.params) + self.zero_key)

    def allowed(self) -> Array:
        """AND of what the groups allow, shape (batch, num_heads, seq_len_q, seq_len_k); True = attend."""
        total = np.ones(self.logits_shape, dtype=bool)
        for operand in self.mask_operands:
            if (allowed := operand.allowed) is not None:
                total &= allowed
        return total

    def bias(self) -> Array | None:
        """Sum of what the groups add, broadcastable to the logits, or None where nothing is added."""
        added = [bias for operand in self.mask_operands if (bias := operand.bias) is not None]
        if not added:
            return None
        return np.asarray(sum(added[1:], start=added[0]))

    def attended(self) -> Array:
        """Which positions can receive weight: allowed, and not under a bias of -inf."""
        bias = self.bias()
        return self.allowed() if bias is None else self.allowed() & (bias != -np.inf)

    def sizes(self) -> dict[str, int]:
        """Every dimension by its name."""
        sizes = {
            "batch": self.batch,
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "seq_len_q": self.seq_len_q,
            "seq_len_k": self.seq_len_k,
            "head_dim": self.head_dim,
            "value_dim": self.value_dim,
        }
        if self.past:
            sizes["past"] = self.past
        if self.operator == "mha":
            widths = {"query_dim": self.query, "kdim": self.key, "vdim": self.value}
            sizes |= {name: int(array.shape[-1]) for name, array in widths.items()}
            merged = self.num_heads * self.value_dim
            sizes["output_dim"] = int(self.params["wo"].shape[1]) if "wo" in self.params else merged
        return sizes

    def but(self, **fields: Any) -> "Problem":
        """The same problem except for `fields`."""
        return replace(self, **fields)
