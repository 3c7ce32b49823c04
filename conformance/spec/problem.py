"""
A problem: the arrays of a case, its mask operands (one for each mask argument), and the requested outputs.

All floating arrays are float64 and contain only numbers that the dtype under test represents exactly. True always means
attend.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

# The axes of the logits in order, and the name of the size of each.
AXES = {"b": "batch", "h": "num_heads", "q": "seq_len_q", "k": "seq_len_k"}

# The output that requests the gradients by every input and parameter.
GRADIENTS = "gradients"

# Prefix of the name of a gradient; the name of the input or parameter follows.
GRADIENT = "grad_"

# The output that requests all keys and values, those of the past first.
PRESENT = "present"

# The arrays that `present` consists of.
PRESENTS = ("present_key", "present_value")

# Intermediate outputs: query . key times the scale, then after the softcap, then after bias and masks.
SCORES = ("scaled", "capped", "logits")

# Slot of a mask that is not assigned to an argument yet.
SLOTLESS = ""


@dataclass(frozen=True, eq=False)
class MaskOperand:
    """
    The mask that one mask argument, causal argument or window argument of a call means, in the canonical reading.

    slot: name of the argument. kinds: kinds of the masks combined in it (key_padding, attention, causal, window,
    additive). element: how it is passed: bool, int, float, or flag (a causal, window or lengths argument). values:
    broadcastable to (batch, num_heads, seq_len_q, seq_len_k), with size one on axes that the mask does not span; bool
    for bool and flag elements (True = attend), float64 otherwise (int: non-zero = attend; float: added to the logits,
    -inf = masked). verbatim: whether it is passed as the case wrote it. offset: of a causal mask, the shift of its
    diagonal (0 is top-left). window: of a window, the inclusive numbers of keys to the left and right of the query's
    own position, None for unbounded. moved: like window, for a causal mask or window that moves with the number of keys
    of each batch element: query i of batch element b is at position lengths[b] - seq_len_q + i; offset and window are
    None then. short: number of last keys that are masked and may be left out of the array. attached: whether it is
    attached to its tensor. inverted: whether the array is passed with True = ignore, as the argument documents.
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
    inverted: bool = False

    @property
    def ordered(self) -> bool:
        """Whether it depends on the order of the keys (causal or window)."""
        return any(edges is not None for edges in (self.offset, self.window, self.moved))

    @property
    def allowed(self) -> Array | None:
        """Attended positions as booleans; None if the operand is additive."""
        if self.element == "float":
            return None
        return np.asarray(self.values != 0)

    @property
    def bias(self) -> Array | None:
        """Numbers added to the logits; None if the operand is not additive."""
        return self.values if self.element == "float" else None


@dataclass(frozen=True, eq=False)
class Problem:
    """
    One attention call as arrays; shapes as in `bridge.Call`, masks as mask operands.

    scale: None means 1/sqrt(head_dim). softcap: None means no softcap. params: empty for sdpa; bias_k and bias_v are a
    key and a value to append; wo is absent if there is no output projection. zero_key: whether a key and a value of
    zeros are appended after them. alias: "none", "kv" or "qkv". activation: applied to the projected query, key and
    value. residual: whether the query is added to the output. layout: memory layout of query, key and value.
    dropout_p: probability of a dropout that is inactive. native: argument roles that the call must use, as in
    `Case.native`. past: number of first keys and values that are passed as those of earlier calls; key and value
    include them. mistake: the mistake of a call that must be refused; the arrays here do not have it. requirements:
    what the case needs beyond ordinary attention, in the words of CAPABILITIES. grad_output: the gradient of the loss
    by the output, in the shape of the output, if gradients are requested.
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
        """Whether gradients are requested."""
        return any(name.startswith(GRADIENT) for name in self.outputs)

    @property
    def applied_scale(self) -> float:
        """The factor of the products: the given scale, or 1/sqrt(head_dim)."""
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
        """Like `logits_shape`, but with the appended keys."""
        batch, heads, queries, keys = self.logits_shape
        return (batch, heads, queries, keys + ("bias_k" in self.params) + self.zero_key)

    def allowed(self) -> Array:
        """AND of the non-additive operands, shape (batch, num_heads, seq_len_q, seq_len_k); True = attend."""
        total = np.ones(self.logits_shape, dtype=bool)
        for operand in self.mask_operands:
            if (allowed := operand.allowed) is not None:
                total &= allowed
        return total

    def bias(self) -> Array | None:
        """Sum of the additive operands, broadcastable to the logits; None if there are none."""
        added = [bias for operand in self.mask_operands if (bias := operand.bias) is not None]
        if not added:
            return None
        return np.asarray(sum(added[1:], start=added[0]))

    def attended(self) -> Array:
        """Positions that can receive weight: allowed, and without a bias of -inf."""
        bias = self.bias()
        return self.allowed() if bias is None else self.allowed() & (bias != -np.inf)

    def sizes(self) -> dict[str, int]:
        """Every dimension by name."""
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
        """Return a copy with other `fields`."""
        return replace(self, **fields)
