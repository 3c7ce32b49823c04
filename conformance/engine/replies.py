"""What a worker said, held against what was asked: the one place at which a reply is believed or not."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from conformance.bridge.messages import Answer
from conformance.engine.job import Job
from conformance.spec.model_faults import faults
from conformance.spec.texts import quoted


class Evidence(BaseModel):
    """
    The keys of evidence that something here reads; beside them it may hold any JSON value.

    environment: variables of the worker, None where one is not set. nodes: execution provider -> its operators.
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
    """What is wrong with evidence, in words; "" where nothing is."""
    said = unlike(Evidence, evidence)
    return f"odd evidence: {said}" if said else ""


def unlike(model: type[BaseModel], value: Mapping[str, Any]) -> str:
    """The first thing in which a value is not what the model says, in words; "" where there is none."""
    try:
        model.model_validate(value)
    except ValidationError as error:
        return faults(error, dict(value), lambda _: ())[0].message
    return ""


# Where an exception can come from.
STAGES = ("declare", "adapter", "framework")

# What a worker measures of a call, in seconds.
CLOCKS = ("call", "cpu")

# How deep evidence may be nested.
MAX_NESTING = 16


class Hello(BaseModel):
    """What a worker says of itself when it is ready."""

    model_config = ConfigDict(extra="allow", strict=True)

    digest: str
    python: str
    versions: dict[str, str]
    device: str
    evidence: dict[str, Any]
    cpu: float
    peak: int


def hello_fault(fields: Mapping[str, Any]) -> str:
    """What is wrong with a greeting, in words; "" where nothing is."""
    return unlike(Hello, fields) or text_fault(fields) or evidence_fault(fields["evidence"])


def answer_fault(answer: Answer, job: Job) -> str:
    """Why an answer cannot be one to the job, in words; "" where it can."""
    return next((said for said in _faults(answer, job) if said), "")


def _faults(answer: Answer, job: Job) -> Iterator[str]:
    if answer.status == "reply":
        yield _other_outputs(answer, job)
        yield "" if answer.declaration is not None else "replied without a declaration"
        yield "" if answer.error is None else "replied, and told an error"
    else:
        yield f"sent outputs, and says {answer.status!r}" if answer.outputs else ""
    if answer.status == "unsupported":
        yield "" if answer.reason else "declined without a reason"
    if answer.status == "error":
        yield _error_fault(answer.error or {})
    yield _numbers_fault(answer)
    yield text_fault({"reason": answer.reason, "error": answer.error, "declaration": _texts(answer)})
    yield text_fault(answer.evidence) or evidence_fault(answer.evidence)


def _other_outputs(answer: Answer, job: Job) -> str:
    asked = job.call.facts.outputs
    missing = [name for name in asked if name not in answer.outputs]
    extra = [name for name in answer.outputs if name not in asked]
    parts = [f"without {', '.join(missing)}"] if missing else []
    parts += [f"with {', '.join(map(quoted, extra))}, which nobody asked for"] if extra else []
    return f"replied {' and '.join(parts)}; the call asks for {', '.join(asked)}" if parts else ""


def _error_fault(error: Mapping[str, str]) -> str:
    missing = [name for name in ("type", "message", "traceback", "stage") if name not in error]
    if missing:
        return f"told an error without its {', '.join(missing)}"
    return "" if error["stage"] in STAGES else f"told an error of the stage {quoted(error['stage'])}"


def _numbers_fault(answer: Answer) -> str:
    for name, number in answer.seconds.items():
        if name not in CLOCKS or not (math.isfinite(number) and number >= 0):
            return f"measured {quoted(name)} as {number:g} seconds; it measures {' and '.join(CLOCKS)}"
    return "" if answer.peak >= 0 else f"has a peak of {answer.peak} bytes"


def _texts(answer: Answer) -> list[str]:
    if answer.declaration is None:
        return []
    dialect = [text for each in answer.declaration.dialect for text in (each.decision, each.name, each.source)]
    return [answer.declaration.evidence, *dialect]


def text_fault(value: Any, depth: int = 0) -> str:
    """Which text in a JSON value is none that can be written, or how deep it is nested, in words; "" where neither."""
    if depth > MAX_NESTING:
        return f"sent a value that is nested deeper than {MAX_NESTING}"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return f"sent a text with half a character, \\u{ord(value[error.start]):04x}: {quoted(value)}"
        return ""
    inner = [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return next((said for each in inner if (said := text_fault(each, depth + 1))), "")
