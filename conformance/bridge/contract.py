"""
The adapter contract: what a call contains, what an adapter declares, and how it declines.

An adapter file has literal facts at its top (the coordinator reads them without importing the file) and functions:

    declare(facts) -> Declaration    what the framework documents for such a call; gets no values and no case name
    sdpa(call) / mha(call) -> dict   output name -> array; makes one framework call inside `framework_call()`
    evidence() -> dict               optional: versions, device, threads, kernel: evidence of what really ran

It translates what its framework documents and nothing else: no try/except, tolerance, seed, retry or repair.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor

# The requirement of calls that are made twice with the same objects. The worker does this for every adapter.
SECOND_CALL = "second_call"


class Unsupported(Exception):  # noqa: N818 - a reply, not an error
    """Raised by an adapter, before it calls the framework, if it cannot express the call; the text says why."""


@dataclass(frozen=True)
class MaskFacts:
    """
    One mask argument that a call uses.

    slot: its name in the adapter's SLOTS. kinds: the kinds of mask in it (key_padding, attention, causal, window,
    additive). element: bool, int, float, or flag (a causal or window argument). verbatim: passed as the case wrote it.
    """

    slot: str
    kinds: tuple[str, ...]
    element: str
    verbatim: bool = False


@dataclass(frozen=True)
class Facts:
    """
    Everything that `declare` may depend on: all properties of a call except its name and its values.

    sizes: batch, num_heads, num_kv_heads, seq_len_q, seq_len_k, head_dim, value_dim; for mha also query_dim, kdim,
    vdim, output_dim; with a past also past, which seq_len_k includes. alias: "none", "kv" (key and value are one
    object) or "qkv" (all three are one object). requirements: what the call needs beyond ordinary attention, in the
    words of CAPABILITIES. layout: the memory layout of query, key and value (`strided`); it is always "contiguous"
    unless the adapter has the capability `layout`.
    """

    operator: str
    dtype: str
    device: str
    variant: str
    outputs: tuple[str, ...]
    alias: str = "none"
    masks: tuple[MaskFacts, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    layout: str = "contiguous"

    @property
    def biases(self) -> bool:
        """Whether at least one projection has a bias."""
        return self.operator == "mha" and "no_bias" not in self.requirements

    @property
    def gradients(self) -> tuple[str, ...]:
        """With respect to what gradients are requested: query, key, value, for mha also parameters; may be empty."""
        return tuple(name.removeprefix("grad_") for name in self.outputs if name.startswith("grad_"))

    def mask(self, slot: str) -> "MaskFacts | None":
        """The facts about the mask in `slot`, or None if the call does not use it."""
        return next((mask for mask in self.masks if mask.slot == slot), None)


@dataclass(frozen=True)
class Call:
    """
    A problem as the arguments of one subject.

    sdpa: query (batch, num_heads, seq_len_q, head_dim), key (batch, num_kv_heads, seq_len_k, head_dim), value (batch,
    num_kv_heads, seq_len_k, value_dim). mha: query (batch, seq_len_q, query_dim), key (batch, seq_len_k, kdim),
    value (batch, seq_len_k, vdim), and params wq (query_dim, num_heads * head_dim), wk, wv, wo (num_heads *
    value_dim, output_dim) and, unless the case has no biases, bq, bk, bv, bo. With the requirement bias_kv also bias_k
    (num_kv_heads * head_dim,) and bias_v; with no_output_projection neither wo nor bo. If facts.alias says so, key and
    value are the same objects as query.

    arguments: slot -> a Tensor in the polarity and shape that SLOTS documents, or the value of a causal or window
    argument. scale: factor of query . key; None means the framework's default, 1/sqrt(head_dim). softcap: scaled
    logits x become softcap * tanh(x / softcap) before masks are applied; None means no cap. dropout_p: a dropout
    probability that the layer is given and that must be inactive in inference; None means no dropout.

    past_key, past_value: with the requirement past, the keys and values that precede key and value, which are then only
    the rest: (batch, num_kv_heads, past, dim) and (batch, num_kv_heads, seq_len_k - past, dim); for mha (batch, past,
    width), which the layer keeps from earlier calls. grad_output: if gradients are requested (`facts.gradients`), the
    gradient of a loss with respect to the output, of the shape of the output.
    """

    facts: Facts
    query: Tensor
    key: Tensor
    value: Tensor
    params: Mapping[str, Tensor] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    scale: float | None = None
    softcap: float | None = None
    dropout_p: float | None = None
    past_key: "Tensor | None" = None
    past_value: "Tensor | None" = None
    grad_output: "Tensor | None" = None


@dataclass(frozen=True)
class Deviation:
    """One decision in which the framework deviates from canonical attention, with the link that documents it."""

    decision: str
    name: str
    source: str


@dataclass(frozen=True)
class Declaration:
    """
    What a subject documents for one call.

    dialect: its non-canonical decisions, each with a source; never polarity, which SLOTS declares. profile: its
    arithmetic. evidence: what supports the profile (a document, source code, a measurement).
    """

    profile: Profile
    dialect: tuple[Deviation, ...] = ()
    evidence: str = ""


class _Stage:
    """Whether the framework call is running or was made: only its own exceptions are replies of the framework."""

    inside = False
    entered = False


@contextmanager
def framework_call() -> Iterator[None]:
    """Mark the one framework call: an exception that leaves this block was raised by the framework."""
    _Stage.inside = _Stage.entered = True
    yield
    _Stage.inside = False


def begin_call() -> None:
    """Reset the marks of the previous call."""
    _Stage.inside = _Stage.entered = False


def left_from_framework() -> bool:
    """Return whether the last exception left `framework_call`, and reset the mark."""
    inside, _Stage.inside = _Stage.inside, False
    return inside


def framework_was_entered() -> bool:
    """Whether `framework_call` was entered since `begin_call`."""
    return _Stage.entered
