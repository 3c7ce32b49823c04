"""
What a worker said, held against what was asked: the one place at which a reply is believed or not.

A frame may be sound and say nonsense: outputs that nobody asked for, no declaration, evidence that no reader of the run
log takes. What is found here costs the call that was running, as any other break of the protocol.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from conformance.bridge.messages import Answer
from conformance.engine.evidence import odd_evidence, unlike
from conformance.engine.job import Job
from conformance.spec.texts import shown

STAGES = ("declare", "adapter", "framework")
"""Where an exception can come from."""

CLOCKS = ("call", "cpu")
"""What a worker measures of a call, in seconds."""

MOST_NESTED = 16
"""How deep evidence may be nested."""


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


def odd_hello(fields: Mapping[str, Any]) -> str:
    """What is wrong with a greeting, in words; "" where nothing is."""
    return unlike(Hello, fields) or odd_text(fields) or odd_evidence(fields["evidence"])


def odd_answer(answer: Answer, job: Job) -> str:
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
        yield _odd_error(answer.error or {})
    yield _odd_numbers(answer)
    yield odd_text({"reason": answer.reason, "error": answer.error, "declaration": _texts(answer)})
    yield odd_text(answer.evidence) or odd_evidence(answer.evidence)


def _other_outputs(answer: Answer, job: Job) -> str:
    asked = job.call.facts.outputs
    missing = [name for name in asked if name not in answer.outputs]
    extra = [name for name in answer.outputs if name not in asked]
    parts = [f"without {', '.join(missing)}"] if missing else []
    parts += [f"with {', '.join(map(shown, extra))}, which nobody asked for"] if extra else []
    return f"replied {' and '.join(parts)}; the call asks for {', '.join(asked)}" if parts else ""


def _odd_error(error: Mapping[str, str]) -> str:
    missing = [name for name in ("type", "message", "traceback", "stage") if name not in error]
    if missing:
        return f"told an error without its {', '.join(missing)}"
    return "" if error["stage"] in STAGES else f"told an error of the stage {shown(error['stage'])}"


def _odd_numbers(answer: Answer) -> str:
    for name, number in answer.seconds.items():
        if name not in CLOCKS or not (math.isfinite(number) and number >= 0):
            return f"measured {shown(name)} as {number:g} seconds; it measures {' and '.join(CLOCKS)}"
    return "" if answer.peak >= 0 else f"has a peak of {answer.peak} bytes"


def _texts(answer: Answer) -> list[str]:
    if answer.declaration is None:
        return []
    dialect = [text for each in answer.declaration.dialect for text in (each.decision, each.name, each.source)]
    return [answer.declaration.evidence, *dialect]


def odd_text(value: Any, depth: int = 0) -> str:
    """Which text in a JSON value is none that can be written, or how deep it is nested, in words; "" where neither."""
    if depth > MOST_NESTED:
        return f"sent a value that is nested deeper than {MOST_NESTED}"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return f"sent a text with half a character, \\u{ord(value[error.start]):04x}: {shown(value)}"
        return ""
    inner = [*value, *value.values()] if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return next((said for each in inner if (said := odd_text(each, depth + 1))), "")
