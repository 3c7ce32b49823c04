"""Checks answers of a worker against the call: the only place that decides whether an answer is valid."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from conformance.bridge.messages import Answer
from conformance.engine.job import Job
from conformance.spec.model_faults import faults
from conformance.spec.texts import quoted


class AdapterEvidence(BaseModel):
    """
    The keys of evidence that this package reads; evidence may have other keys with any JSON value.

    environment: environment variables of the worker, None for one that is not set. nodes: execution provider -> its
    operators.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    versions: dict[str, str] = {}
    libraries: dict[str, str] = {}
    environment: dict[str, str | None] = {}
    ran_on: list[str] = []
    nodes: dict[str, dict[str, Any] | list[str]] = {}
    device: str | None = None
    threads: int | str | None = None


def evidence_fault(evidence: Mapping[str, Any]) -> str:
    """What is wrong with evidence, in words; "" if it is valid."""
    fault = model_fault(AdapterEvidence, evidence)
    return f"invalid evidence: {fault}" if fault else ""


def model_fault(model: type[BaseModel], value: Mapping[str, Any]) -> str:
    """The first violation of a model by a value, in words; "" if there is none."""
    try:
        model.model_validate(value)
    except ValidationError as error:
        return faults(error, dict(value), lambda _: ())[0].message
    return ""


# The stages that can raise an exception.
STAGES = ("declare", "adapter", "framework")

# The times of a call that a worker measures, in seconds.
CLOCKS = ("call", "cpu")

# Maximum nesting depth of evidence.
MAX_NESTING = 16


class Hello(BaseModel):
    """The fields of the message with which a worker reports that it is ready."""

    model_config = ConfigDict(extra="allow", strict=True)

    digest: str
    python: str
    versions: dict[str, str]
    device: str
    evidence: dict[str, Any]
    cpu: float
    peak: int


def hello_fault(fields: Mapping[str, Any]) -> str:
    """What is wrong with a hello message, in words; "" if it is valid."""
    return model_fault(Hello, fields) or text_fault(fields) or evidence_fault(fields["evidence"])


def answer_fault(answer: Answer, job: Job) -> str:
    """Why an answer is not valid for the job, in words; "" if it is valid."""
    return next((fault for fault in _faults(answer, job) if fault), "")


def _faults(answer: Answer, job: Job) -> Iterator[str]:
    if answer.status == "reply":
        yield _other_outputs(answer, job)
        yield "" if answer.declaration is not None else "replied without a declaration"
        yield "" if answer.error is None else "sent a reply that has an error"
    else:
        yield f"sent outputs with the status {answer.status!r}" if answer.outputs else ""
    if answer.status == "unsupported":
        yield "" if answer.reason else "declined without giving a reason"
    if answer.status == "error":
        yield _error_fault(answer.error or {})
    yield _numbers_fault(answer)
    yield text_fault({"reason": answer.reason, "error": answer.error, "declaration": _texts(answer)})
    yield text_fault(answer.evidence) or evidence_fault(answer.evidence)


def _other_outputs(answer: Answer, job: Job) -> str:
    requested = job.call.facts.outputs
    missing = [name for name in requested if name not in answer.outputs]
    extra = [name for name in answer.outputs if name not in requested]
    parts = [f"without {', '.join(missing)}"] if missing else []
    parts += [f"with {', '.join(map(quoted, extra))}, which was not requested"] if extra else []
    return f"replied {' and '.join(parts)}; the call requests {', '.join(requested)}" if parts else ""


def _error_fault(error: Mapping[str, str]) -> str:
    missing = [name for name in ("type", "message", "traceback", "stage") if name not in error]
    if missing:
        return f"sent an error without {', '.join(missing)}"
    return "" if error["stage"] in STAGES else f"sent an error with the unknown stage {quoted(error['stage'])}"


def _numbers_fault(answer: Answer) -> str:
    for name, number in answer.seconds.items():
        if name not in CLOCKS or not (math.isfinite(number) and number >= 0):
            return (
                f"sent {number:g} seconds for {quoted(name)}, expected non-negative numbers for {' and '.join(CLOCKS)}"
            )
    return "" if answer.peak >= 0 else f"sent a peak memory of {answer.peak} bytes"


def _texts(answer: Answer) -> list[str]:
    if answer.declaration is None:
        return []
    dialect = [text for each in answer.declaration.dialect for text in (each.decision, each.name, each.source)]
    return [answer.declaration.evidence, *dialect]


def text_fault(value: Any, depth: int = 0) -> str:
    """What is wrong with a JSON value (text that is not valid Unicode, or too deep nesting), in words; else ""."""
    if depth > MAX_NESTING:
        return f"sent a value that is nested deeper than {MAX_NESTING}"
    if isinstance(value, str):
        if value.isascii():
            return ""
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return f"sent a text with a lone surrogate, \\u{ord(value[error.start]):04x}: {quoted(value)}"
        return ""
    inner = [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return next((fault for each in inner if (fault := text_fault(each, depth + 1))), "")
