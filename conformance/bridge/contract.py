"""
The adapter contract: what a call carries, what an adapter declares, how it declines.

An adapter file has literal facts at its top (read by the coordinator without importing it) and functions:

    declare(facts) -> Declaration    what the framework documents for such a call; never sees a value or a name
    sdpa(call) / mha(call) -> dict   output name -> array; makes one framework call inside `framework_call()`
    evidence() -> dict               optional: versions, device, threads, kernel: what shows what really ran

It translates what its framework documents and nothing else: no try/except, tolerance, seed, retry or repair.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor

# The requirement of calls that are made twice, with the same objects: the worker does that for every adapter.
SECOND_CALL = "second_call"


class Unsupported(Exception):  # noqa: N818 - an answer, not an error
    """Raised by an adapter before the framework is called: this call cannot be expressed here, and why."""


@dataclass(frozen=True)
class MaskFacts:
    """
    One mask argument or flag that a call uses.

    slot: its name in the adapter's SLOTS. kinds: what it carries (key_padding, attention, causal, window,
    additive). element: bool, int, float, or flag. verbatim: handed over as the case wrote it.
    """

    slot: str
    kinds: tuple[str, ...]
    element: str
    verbatim: bool = False


@dataclass(frozen=True)
class Facts:
    """
    What `declare` may depend on: everything about a call but its name and its values.

    sizes has batch, num_heads, num_kv_heads, seq_len_q, seq_len_k, head_dim, value_dim, and for mha also
    query_dim, kdim, vdim, output_dim; with a past also past, which seq_len_k counts. alias is "none", "kv" (key is
    value) or "qkv" (all three are one object).
    requirements: what the call asks for beyond ordinary attention, in the words of CAPABILITIES. layout: how query, key
    and value are to lie in memory (`strided`); only adapters with the capability `layout` see another than contiguous.
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
        """Whether projections have biases, be it not all of them."""
        return self.operator == "mha" and "no_bias" not in self.requirements

    @property
    def gradients(self) -> tuple[str, ...]:
        """By what gradients are asked for: query, key, value, and for mha the parameters; empty if for none."""
        return tuple(name.removeprefix("grad_") for name in self.outputs if name.startswith("grad_"))

    def mask(self, slot: str) -> "MaskFacts | None":
        """What the call puts into `slot`, or None."""
        return next((mask for mask in self.masks if mask.slot == slot), None)


@dataclass(frozen=True)
class Call:
    """
    A problem routed into the arguments of one subject.

    sdpa: query (batch, num_heads, seq_len_q, head_dim), key (batch, num_kv_heads, seq_len_k, head_dim), value (batch,
    num_kv_heads, seq_len_k, value_dim). mha: query (batch, seq_len_q, query_dim), key (batch, seq_len_k, kdim),
    value (batch, seq_len_k, vdim), and params wq (query_dim, num_heads * head_dim), wk, wv, wo (num_heads *
    value_dim, output_dim) and, unless the case has no biases, bq, bk, bv, bo. With the
    requirement bias_kv also bias_k (num_kv_heads * head_dim,) and bias_v; with no_output_projection neither wo nor bo.
    Where facts.alias says so, key and
    value are the same objects as query.

    arguments maps a slot to a Tensor already in the polarity and shape that SLOTS documents, or a flag to its value.
    scale multiplies query . key; None leaves the framework's default of 1/sqrt(head_dim). softcap: the scaled products
    become softcap * tanh(them / softcap) before masks are applied; None is no cap. dropout_p: a dropout that the layer
    is given and that inference leaves inactive; None is no dropout. past_key and past_value, with the requirement
    past, come before key and value, which are then the rest: (batch, num_kv_heads, past, dim) and (batch, num_kv_heads,
    seq_len_k - past, dim), for mha (batch, past, width), which the layer keeps from earlier calls. grad_output
    is there where gradients are asked for (`facts.gradients`): the gradient of a loss by the output, of its shape.
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
    """One decision that the framework takes otherwise than canonical, with the link that documents it."""

    decision: str
    name: str
    source: str


@dataclass(frozen=True)
class Declaration:
    """
    What a subject documents for one call.

    dialect: its non-canonical decisions, each with a source (never polarity: that is SLOTS'). profile: its arithmetic.
    evidence: on what the profile rests (a document, source code, a measurement).
    """

    profile: Profile
    dialect: tuple[Deviation, ...] = ()
    evidence: str = ""


class _Stage:
    """Where the call is: an exception is the framework's answer only inside, a refusal is honest only before."""

    inside = False
    entered = False


@contextmanager
def framework_call() -> Iterator[None]:
    """Mark the one framework call: an exception that leaves this block is the framework's own."""
    _Stage.inside = _Stage.entered = True
    yield
    _Stage.inside = False


def begin_call() -> None:
    """Forget the marks of the call before."""
    _Stage.inside = _Stage.entered = False


def left_from_framework() -> bool:
    """Tell, once after an exception, whether it left `framework_call`; resets the mark."""
    inside, _Stage.inside = _Stage.inside, False
    return inside


def framework_was_entered() -> bool:
    """Whether `framework_call` was entered since `begin_call`."""
    return _Stage.entered
