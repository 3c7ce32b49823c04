"""Cells: a case as a call of one subject (with a mistake if it must be refused), or the reason to decline it."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from conformance.bridge.contract import SECOND_CALL, Call, Facts
from conformance.bridge.tensor import Tensor
from conformance.engine.adapters import Subject
from conformance.engine.mask_placing import Declined, Slots
from conformance.engine.routing import Route, route, route_dense
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.problem import GRADIENT, SCORES, Array, Problem
from conformance.spec.rounding import to_tensor

# A change of an array along one of its axes.
Change = Callable[[Array, int], Array]


def _grown(array: Array, axis: int) -> Array:
    """The array with its last position along the axis repeated."""
    return np.concatenate([array, np.take(array, [-1], axis=axis)], axis=axis)


def _shrunk(array: Array, axis: int) -> Array:
    """The array without its last position along the axis."""
    return np.take(array, range(array.shape[axis] - 1), axis=axis)


# Mistake -> the axis of the mask, and the change along it.
MASKS: Mapping[str, tuple[str, Change]] = {
    "mask_keys": ("k", _grown),
    "mask_queries": ("q", _grown),
    "mask_batch": ("b", _shrunk),
}


def mistaken(call: Call, axes: Mapping[str, tuple[str, ...]], mistake: str | None) -> Call:
    """
    The call with a mistake of `spec.refusals`; unchanged if `mistake` is None.

    axes: the form of each mask argument.

    Raises:
        Declined: no argument carries a mask in which the mistake can be made.
    """
    if mistake is None:
        return call
    if mistake in MASKS:
        letter, change = MASKS[mistake]
        return replace(call, arguments=_masks(call.arguments, axes, letter, change))
    if mistake == "num_heads":
        sizes = call.facts.sizes
        return replace(call, facts=replace(call.facts, sizes={**sizes, "num_heads": _not_dividing(sizes)}))
    changed: dict[str, Any] = {}
    if mistake == "value_positions":
        changed["value"] = _changed(call.value, _shrunk, -2)
    elif mistake == "key_batch":
        changed |= {name: _changed(getattr(call, name), _shrunk, 0) for name in ("key", "value")}
    else:
        name = mistake.removesuffix("_width")
        changed[name] = _changed(getattr(call, name), _grown, -1)
    return replace(call, **changed)


# Mistakes in the choice of arguments, not in an array.
ROUTED = ("two_masks", "lone_flag")


def misrouted(problem: Problem, slots: Slots, arguments: Mapping[str, Any], mistake: str) -> Mapping[str, Any]:
    """
    Arguments with a mistake: two that exclude each other, or a flag without the argument that it requires.

    arguments: the valid ones.

    Raises:
        Declined: the subject documents no such rule, or the masks do not need two such arguments.
    """
    if mistake == "lone_flag":
        required = {other for name in arguments for other in slots[name].requires}
        if not required:
            raise Declined("no argument of this call requires another one: the mistake cannot be made")
        return {name: argument for name, argument in arguments.items() if name not in required}
    free = {name: replace(slot, excludes=()) for name, slot in slots.items()}
    both = route(problem, free).arguments
    if not any(other in both for name in both for other in slots[name].excludes):
        raise Declined("no two arguments of this call exclude each other: the mistake cannot be made")
    return both


def _not_dividing(sizes: Mapping[str, int]) -> int:
    """The smallest larger number of heads that does not divide num_heads * head_dim."""
    width = sizes["num_heads"] * sizes["head_dim"]
    return next(number for number in range(sizes["num_heads"] + 1, width + 2) if width % number)


def _masks(
    arguments: Mapping[str, Any], axes: Mapping[str, tuple[str, ...]], letter: str, change: Change
) -> dict[str, Any]:
    """The arguments with every mask that spans the axis changed along it."""
    made = dict(arguments)
    for name, form in axes.items():
        argument = arguments[name]
        spanned = [letter in axis.split("*") for axis in form]
        if not isinstance(argument, Tensor) or argument.bits.ndim != len(form) or not any(spanned):
            continue
        if argument.shape[spanned.index(True)] > 1:
            made[name] = _changed(argument, change, spanned.index(True))
    if all(made[name] is arguments[name] for name in arguments):
        raise Declined(f"no argument takes a mask over axis {letter} unchanged: the mistake cannot be made")
    return made


def _changed(tensor: Tensor, change: Change, axis: int) -> Tensor:
    return Tensor(tensor.dtype, np.ascontiguousarray(change(tensor.bits, axis)))


# Maximum size of a reply, as a multiple of the float64 bytes of the requested outputs: a wrong shape is judged, not
# rejected.
REPLY_SLACK = 4


@dataclass(frozen=True, eq=False)
class Cell:
    """
    A case routed into the arguments of one subject.

    dropped: requested outputs that the subject does not have. signature: what a compiler would specialise on (shapes,
    dtype, mask arguments, outputs and flags, but no values).
    """

    case: Case
    subject: Subject
    route: Route
    call: Call
    dropped: tuple[str, ...]
    signature: str
    reply_limit: int

    @property
    def key(self) -> tuple[str, str]:
        """(case id, subject name)."""
        return self.case.id, self.subject.name

    @cached_property
    def digest(self) -> str:
        """The sha256 of everything that the call passes, and of its signature."""
        return call_digest(self.call, self.signature)


@dataclass(frozen=True, eq=False)
class Refused:
    """A cell that is unsupported, found without calling the framework, and the reason."""

    case: Case
    subject: Subject
    reason: str

    @property
    def key(self) -> tuple[str, str]:
        """(case id, subject name)."""
        return self.case.id, self.subject.name


def make_cell(case: Case, problem: Problem, subject: Subject) -> Cell | Refused | None:
    """
    Make the cell of a case and a subject; None if there is no such cell.

    There is none if the subject does not have the operator, and none for a dense subject whose route is the ordinary
    one, since the same call would be judged twice.
    """
    if case.operator not in subject.operators:
        return None
    try:
        routed = route_dense(problem, subject.slots) if subject.dense else route(problem, subject.slots)
    except Declined as declined:
        return Refused(case, subject, str(declined))
    if routed is None:
        return None
    outputs = tuple(name for name in case.outputs if name in subject.outputs)
    if lacking := _lacking(case, subject, outputs):
        return Refused(case, subject, lacking)
    if (named := case.reply_names(outputs)) != routed.problem.outputs:
        routed = replace(routed, problem=routed.problem.but(outputs=named))
    return _cell(case, problem, subject, routed, tuple(name for name in case.outputs if name not in outputs))


def _lacking(case: Case, subject: Subject, outputs: tuple[str, ...]) -> str:
    """What the subject lacks for a case, in words; "" if nothing. outputs: those of the case that it returns."""
    if case.dtype not in subject.dtypes:
        return f"does not support {case.dtype}, only {', '.join(subject.dtypes)}"
    if not outputs:
        return f"returns no {' or '.join(case.outputs)}, only {', '.join(subject.outputs)}"
    lacking = sorted(set(case.requirements()) - {SECOND_CALL, *subject.capabilities})
    return f"does not support: {', '.join(lacking)}" if lacking else ""


def count_cells(case: Case, subjects: Sequence[Subject]) -> int:
    """
    The number of subjects for which `make_cell` returns a cell.

    Fast, since no call is built, and the problem is made only if a dense form may be there.
    """
    candidates = [subject for subject in subjects if case.operator in subject.operators]
    routed: dict[int, bool] = {}
    for slots in (subject.slots for subject in candidates if subject.dense):
        if id(slots) not in routed:
            routed[id(slots)] = route_dense(materialise(case), slots) is not None
    return sum(not subject.dense or routed[id(subject.slots)] for subject in candidates)


def _cell(case: Case, problem: Problem, subject: Subject, routed: Route, dropped: tuple[str, ...]) -> Cell | Refused:
    call = make_call(routed.problem, subject, routed, problem)
    try:
        if case.mistake in ROUTED:
            call = replace(call, arguments=misrouted(problem, subject.slots, call.arguments, case.mistake))
        else:
            call = mistaken(call, routed.axes, case.mistake)
    except Declined as declined:
        return Refused(case, subject, str(declined))
    return Cell(
        case=case,
        subject=subject,
        route=routed,
        call=call,
        dropped=dropped,
        signature=signature(call),
        reply_limit=reply_limit(routed.problem),
    )


# Problem -> the tensors of its arrays by the id of the array: every subject is sent the same ones.
_TENSORS: WeakKeyDictionary[Problem, dict[int, tuple[Array, Tensor]]] = WeakKeyDictionary()


def _tensors(problem: Problem) -> Callable[[Array], Tensor]:
    """The tensor of an array of a problem, converted once for the problem."""
    known = _TENSORS.setdefault(problem, {})

    def tensor(array: Array) -> Tensor:
        if id(array) not in known:
            known[id(array)] = array, to_tensor(array, problem.dtype)
        return known[id(array)][1]

    return tensor


def make_call(problem: Problem, subject: Subject, routed: Route, source: Problem | None = None) -> Call:
    """
    Turn a routed problem into the call that is sent to the worker: bits, arguments and facts.

    source: the problem that was routed, which other subjects share; None if it is not shared.
    """
    source = source or problem
    facts = Facts(
        operator=problem.operator,
        dtype=problem.dtype,
        device=subject.device,
        variant=subject.variant,
        outputs=problem.outputs,
        alias=problem.alias,
        masks=routed.masks,
        sizes=problem.sizes(),
        requirements=problem.requirements,
        layout=problem.layout,
    )
    tensor = _tensors(source)
    query = tensor(problem.query)
    key = query if problem.alias == "qkv" else tensor(problem.key)
    value = key if problem.alias in ("kv", "qkv") else tensor(problem.value)
    params = {name: tensor(array) for name, array in problem.params.items()}
    grad = problem.grad_output if problem.differentiated else None
    past_key, key = _separately(key, problem.past)
    past_value, value = (past_key, key) if problem.alias == "kv" else _separately(value, problem.past)
    return Call(
        facts=facts,
        query=query,
        key=key,
        value=value,
        past_key=past_key,
        past_value=past_value,
        params=params,
        arguments=routed.arguments,
        scale=problem.scale,
        softcap=problem.softcap,
        dropout_p=problem.dropout_p,
        grad_output=None if grad is None else tensor(grad),
    )


def _separately(tensor: Tensor, past: int) -> tuple[Tensor | None, Tensor]:
    """The first `past` positions (None if past is 0) and the others, each as a dense tensor."""
    if not past:
        return None, tensor
    parts = (tensor.bits[..., :past, :], tensor.bits[..., past:, :])
    first, rest = (Tensor(tensor.dtype, np.ascontiguousarray(part)) for part in parts)
    return first, rest


def reply_limit(problem: Problem) -> int:
    """The maximum number of bytes of a reply to this problem."""
    batch, heads, length_q, length_k = problem.weights_shape
    width = problem.sizes().get("output_dim", heads * problem.value_dim)
    elements = {
        "output": batch * length_q * width,
        "weights": batch * heads * length_q * length_k,
        "weights_mean": batch * length_q * length_k,
        **dict.fromkeys(SCORES, batch * heads * length_q * length_k),
        "present_key": problem.key.size,
        "present_value": problem.value.size,
    }
    differentiated = {"query": problem.query, "key": problem.key, "value": problem.value, **problem.params}
    elements |= {GRADIENT + name: array.size for name, array in differentiated.items()}
    return REPLY_SLACK * 8 * sum(elements[name] for name in problem.outputs) + 4096


def _form(argument: Any) -> str:
    return f"{argument.dtype}{list(argument.shape)}" if isinstance(argument, Tensor) else repr(argument)


# Requirements that are compile-time constants of a call.
STATIC = ("softcap", "dropout", "zero_key", "relu", "residual")


def signature(call: Call) -> str:
    """A text of everything that a compiler would specialise on for this call."""
    facts = call.facts
    parts = [
        facts.operator,
        facts.dtype,
        facts.alias,
        *(f"{name}={size}" for name, size in sorted(facts.sizes.items())),
        *(f"{slot}:{_form(argument)}" for slot, argument in sorted(call.arguments.items())),
        ",".join(sorted(call.params)),
        ",".join(facts.outputs),
        "scaled" if call.scale is not None else "",
        *(name for name in facts.requirements if name in STATIC),
        "" if facts.layout == "contiguous" else facts.layout,
        *(f"{tensor.shape}" for tensor in (call.query, call.key, call.value) if "mistakes" in facts.requirements),
    ]
    return " ".join(parts)


def call_digest(call: Call, signature: str) -> str:
    """The sha256 of everything that the call passes, and of its signature."""
    digest = hashlib.sha256(signature.encode())
    digest.update(repr((call.scale, call.softcap, call.dropout_p)).encode())
    tensors = [call.query, call.key, call.value, *(call.params[name] for name in sorted(call.params))]
    tensors += [call.arguments[slot] for slot in sorted(call.arguments) if isinstance(call.arguments[slot], Tensor)]
    tensors += [each for each in (call.past_key, call.past_value, call.grad_output) if each is not None]
    for tensor in tensors:
        digest.update(tensor.digest)
    return f"sha256:{digest.hexdigest()}"


def outputs_digest(outputs: Mapping[str, Tensor]) -> str:
    """The sha256 of names, dtypes, shapes and bits of outputs; all NaNs count as equal."""
    digest = hashlib.sha256()
    for name in sorted(outputs):
        tensor = outputs[name]
        digest.update(f"{name} {_form(tensor)} ".encode())
        bits = tensor.float64() if tensor.dtype == "bfloat16" else tensor.bits
        if np.issubdtype(bits.dtype, np.floating):
            bits = np.where(np.isnan(bits), bits.dtype.type(np.nan), bits)
        digest.update(np.ascontiguousarray(bits).tobytes())
    return f"sha256:{digest.hexdigest()}"
