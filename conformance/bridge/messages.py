"""
The messages between coordinator and worker.

    worker       hello (or failed)                     began N, answer N, ...                    bye
    coordinator                      call N, call M, ...                       (closes its side)

A request is a call with its number, the requirements of its case, and the maximum size of its answer in bytes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from conformance.bridge.contract import Call, Declaration, Deviation, Facts, MaskFacts
from conformance.bridge.profile import Profile
from conformance.bridge.strict_json import real
from conformance.bridge.tensor import Tensor
from conformance.bridge.wire import Message, WireError

# The version that both sides must speak.
PROTOCOL = 1

ANSWERS = ("reply", "unsupported", "error")

# The kind of a message after which a worker serves another adapter, and greets again.
LOAD = "load"


# Fields of a call that are a number or None.
NUMBERS = ("scale", "softcap", "dropout_p")

# Arrays that only some calls have.
OPTIONAL = ("past_key", "past_value", "grad_output")


@dataclass(frozen=True)
class Request:
    """One call for a worker; `limit` is the maximum number of bytes of the outputs in its answer."""

    number: int
    call: Call
    requirements: tuple[str, ...] = ()
    limit: int = 0


@dataclass(frozen=True)
class Answer:
    """
    The answer of a worker to a request.

    status: reply (with outputs), unsupported (with a reason) or error (type, message, traceback, and the stage that
    raised it: declare, adapter or framework). declaration: what the adapter declares for the call, if `declare`
    returned. seconds: wall and CPU time of the operator function. peak: peak memory of the process so far, in bytes.
    """

    number: int
    status: str
    declaration: "Declaration | None" = None
    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    reason: str = ""
    error: "Mapping[str, str] | None" = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    peak: int = 0


def request_message(request: Request) -> Message:
    """The message of a request; query, key and value that are one object are sent once."""
    call = request.call
    tensors = {"query": call.query}
    if call.facts.alias != "qkv":
        tensors["key"] = call.key
    if call.facts.alias == "none":
        tensors["value"] = call.value
    optional = {name: getattr(call, name) for name in OPTIONAL}
    tensors |= {name: tensor for name, tensor in optional.items() if tensor is not None}
    tensors |= {f"params.{name}": tensor for name, tensor in call.params.items()}
    arrays = {slot: value for slot, value in call.arguments.items() if isinstance(value, Tensor)}
    tensors |= {f"arguments.{slot}": tensor for slot, tensor in arrays.items()}
    fields = {
        "number": request.number,
        "facts": vars(call.facts) | {"masks": [vars(mask) for mask in call.facts.masks]},
        "flags": {slot: value for slot, value in call.arguments.items() if slot not in arrays},
        **{name: getattr(call, name) for name in NUMBERS},
        "requirements": request.requirements,
        "limit": request.limit,
    }
    return Message("call", fields, tensors)


def read_request(message: Message) -> Request:
    """
    The request in a message.

    Raises:
        WireError: the message is not a valid request.
    """
    with _form_of(message, "call"):
        fields = message.fields
        return Request(
            int(fields["number"]), _call(fields, message.tensors), tuple(fields["requirements"]), int(fields["limit"])
        )


def _call(fields: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Call:
    facts = _facts(fields["facts"])
    query = tensors["query"]
    key = query if facts.alias == "qkv" else tensors["key"]
    flags = {slot: tuple(value) if isinstance(value, list) else value for slot, value in fields["flags"].items()}
    given: dict[str, Any] = {name: None if fields[name] is None else real(fields[name]) for name in NUMBERS}
    given |= {name: tensors.get(name) for name in OPTIONAL}
    return Call(
        facts=facts,
        query=query,
        key=key,
        value=tensors["value"] if facts.alias == "none" else key,
        params=_under("params.", tensors),
        arguments=flags | _under("arguments.", tensors),
        **given,
    )


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _facts(fields: Mapping[str, Any]) -> Facts:
    masks = tuple(MaskFacts(**{**mask, "kinds": tuple(mask["kinds"])}) for mask in fields["masks"])
    lists = {name: tuple(fields[name]) for name in ("outputs", "requirements")}
    return Facts(**{**fields, **lists, "masks": masks})


def answer_message(answer: Answer) -> Message:
    """The message of an answer."""
    fields = {
        "number": answer.number,
        "declaration": None if answer.declaration is None else declaration_record(answer.declaration),
        "reason": answer.reason,
        "error": answer.error,
        "evidence": answer.evidence,
        "seconds": answer.seconds,
        "peak": answer.peak,
    }
    return Message(answer.status, fields, answer.outputs)


def read_answer(message: Message) -> Answer:
    """
    The answer in a message.

    Raises:
        WireError: the message is not a valid answer.
    """
    with _form_of(message, *ANSWERS):
        fields = message.fields
        declaration, error = fields["declaration"], fields["error"]
        return Answer(
            number=_whole(fields["number"]),
            status=message.kind,
            declaration=None if declaration is None else read_declaration(declaration),
            outputs=message.tensors,
            reason=_text(fields["reason"]),
            error=None if error is None else {name: _text(text) for name, text in error.items()},
            evidence=_named(fields["evidence"]),
            seconds={name: real(value) for name, value in fields["seconds"].items()},
            peak=_whole(fields["peak"]),
        )


def declaration_record(declaration: Declaration) -> dict[str, Any]:
    """A declaration as JSON values."""
    return {
        "profile": declaration.profile.record(),
        "dialect": [asdict(deviation) for deviation in declaration.dialect],
        "evidence": declaration.evidence,
    }


def read_declaration(record: Mapping[str, Any]) -> Declaration:
    """
    The inverse of `declaration_record`.

    Raises:
        KeyError, TypeError, ValueError: the record is not that of a declaration.
    """
    profile = _named(record["profile"])
    profile["exp_ulp"] = real(profile["exp_ulp"])
    dialect = tuple(
        Deviation(**{name: _text(text) for name, text in deviation.items()}) for deviation in record["dialect"]
    )
    return Declaration(Profile.from_record(profile), dialect, _text(record["evidence"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TypeError(f"{value!r} is not a 64-bit integer")
    return value


def _named(value: Any) -> "dict[str, Any]":
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    return dict(value)


@contextmanager
def _form_of(message: Message, *kinds: str) -> Iterator[None]:
    if message.kind not in kinds:
        raise WireError(f"expected {' or '.join(kinds)}, got {message.kind!r}")
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise WireError(f"a malformed {message.kind!r} message: {type(error).__name__}: {error}") from None
