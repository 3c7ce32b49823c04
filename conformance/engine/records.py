"""
The records of a run log (docs/run-log.md) but for its cells, as frozen models; keys that nothing uses are ignored.

Numbers that the log writes as "inf", "-inf" or "nan" are floats here; a key that does not apply is None or empty.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    TypeAdapter,
    field_validator,
)

from conformance.bridge.strict_json import real
from conformance.engine.environments import install_command
from conformance.engine.replies import evidence_fault

Number = Annotated[float, BeforeValidator(real)]

# A text that many records share, stored once.
Shared = Annotated[str, AfterValidator(sys.intern)]


@lru_cache(maxsize=1024)
def _same(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The first of all equal tuples."""
    return texts


SharedTexts = Annotated[tuple[Shared, ...], AfterValidator(_same)]

# The key of a cell: case and subject.
Key = tuple[str, str]


def native(subject: str) -> str:
    """The name of the subject whose dense form this is; the name itself if it is no dense form."""
    return subject.replace(",dense]", "]").replace("[dense]", "")


class LogRecord(BaseModel):
    """A record of a run log, or a part of one."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


@dataclass(frozen=True, slots=True)
class LoggedCase:
    """One expanded case. It has slots because a run may have many cases."""

    suite: Shared
    operator: Shared
    dtype: Shared
    tags: SharedTexts = ()
    summary: Shared = ""
    yaml: Shared = ""
    source: Shared = ""
    digest: str = ""
    features: SharedTexts = ()
    name: Annotated[Shared, Field(validation_alias="case")] = ""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "LoggedCase":
        """
        The case in a record of the log.

        Raises:
            ValidationError: it is not valid.
        """
        return _CASES.validate_python(record)


_CASES = TypeAdapter(LoggedCase)


class LoggedSubject(LogRecord):
    """One judged subject: adapter x variant x device x environment."""

    name: str = ""
    adapter: str = ""
    variant: str = ""
    device: str = ""
    environment: str = "default"
    operators: tuple[str, ...] = ()
    framework: str = ""
    counted: StrictBool = True
    offered: StrictBool = True
    digest: str = ""


class Interpreter(LogRecord):
    """An environment of a run: its name and interpreter."""

    name: str = ""
    python: str = ""


class NotOffered(LogRecord):
    """An adapter that could not be judged because packages are missing, and the extra that installs them."""

    adapter: str
    missing: tuple[str, ...] = ()
    extra: str = ""

    @property
    def remedy(self) -> str:
        """The install command, valid with and without a checkout; "" for an adapter from elsewhere."""
        return install_command("python", self.missing) if self.extra else ""


class Header(LogRecord):
    """
    The header of a run: its cases, subjects, environments and settings.

    case_records: the number of records of cases that follow it; None in a log of schema 1, whose header has the cases.
    """

    run: str
    started: str
    cases: Mapping[str, LoggedCase] = {}
    case_records: Annotated[StrictInt, Field(ge=0)] | None = None
    subjects: Mapping[str, LoggedSubject]
    environments: Mapping[str, Interpreter] = {}
    command: tuple[str, ...] = ()
    device: str = ""
    judge: str = ""
    versions: Mapping[str, str] = {}
    platform: Mapping[str, Any] = {}
    not_offered: tuple[NotOffered, ...] = ()
    left_out: StrictInt = 0

    @field_validator("platform")
    @classmethod
    def _machine(cls, platform: Mapping[str, Any]) -> Mapping[str, Any]:
        features = platform.get("cpu_features", [])
        if not (isinstance(features, list) and all(isinstance(each, str) for each in features)):
            raise ValueError("cpu_features must be a list of names")
        return platform

    @field_validator("cases")
    @classmethod
    def _named_cases(cls, entries: Mapping[str, LoggedCase]) -> Mapping[str, LoggedCase]:
        return {sys.intern(name): replace(entry, name=sys.intern(name)) for name, entry in entries.items()}

    @field_validator("subjects", "environments")
    @classmethod
    def _named(cls, entries: Mapping[str, LogRecord]) -> Mapping[str, LogRecord]:
        return {name: entry.model_copy(update={"name": name}) for name, entry in entries.items()}


class Worker(LogRecord):
    """One started worker process: its versions and evidence, or why it failed to start."""

    name: Annotated[str, Field(alias="worker")]
    subjects: tuple[str, ...]
    status: Literal["ready", "failed"]
    environment: str = ""
    device: str = ""
    python: str = ""
    versions: Mapping[str, str] = {}
    evidence: Mapping[str, Any] = {}
    settings: Mapping[str, str] = {}
    start_seconds: Number | None = None
    reason: str = ""
    stderr: str = ""

    @field_validator("evidence")
    @classmethod
    def _readable(cls, evidence: Mapping[str, Any]) -> Mapping[str, Any]:
        if fault := evidence_fault(evidence):
            raise ValueError(fault)
        return evidence


class Tie(LogRecord):
    """Another cause that explains the same verdicts; separated_by: a case that would distinguish the two, or ""."""

    sentence: str
    remedy: str = ""
    condition: str = ""
    separated_by: str = ""


class LoggedCause(LogRecord):
    """
    A cause that explains several verdicts of one subject together.

    sentence: what the subject does, to follow "it". condition: under which it appears, in words, or "". cells: case
    ids, the simplest first. decisions: those that deviate from the declaration; empty for coarser arithmetic.
    arithmetic: the name of the coarser arithmetic. accepted: whether the deviation is accepted, and its cells fail for
    other causes. fail_otherwise: the number of cells without a cause in which it would show; a cause that leaves some
    is less certain.
    """

    sentence: str
    cells: tuple[str, ...]
    remedy: str = ""
    condition: str = ""
    decisions: Mapping[str, str] = {}
    arithmetic: str = ""
    ties: tuple[Tie, ...] = ()
    accepted: StrictBool = False
    fail_otherwise: int = 0


class Lost(LogRecord):
    """Calls of one subject that ended in the same exception; condition: what they have in common, in words, or ""."""

    cells: tuple[str, ...]
    condition: str = ""


class LoggedDiagnosis(LogRecord):
    """
    Why one subject fails, over all its verdicts.

    unexplained: case ids that no cause explains. unexplained_where: what these cases have in common, in words, or "".
    errors: calls that ended in an exception, grouped by its root. separated: the causes with one deviation each, if
    that is the shorter description; a verdict may have several of them. fault: the traceback of an exception that ended
    the search, or "".
    """

    subject: str
    causes: tuple[LoggedCause, ...] = ()
    separated: tuple[LoggedCause, ...] = ()
    unexplained: tuple[str, ...] = ()
    unexplained_where: str = ""
    fault: str = ""
    errors: tuple[Lost, ...] = ()

    @property
    def reported(self) -> tuple[LoggedCause, ...]:
        """The causes that are reported to a user."""
        return tuple(cause for cause in self.separated if not cause.accepted) or self.causes


class LoggedKnownList(LogRecord):
    """Known deviations that are no longer needed (dead) or accept too much (too_wide)."""

    dead: tuple[str, ...] = ()
    too_wide: tuple[str, ...] = ()


class LoggedGate(LogRecord):
    """The gate's decision over the whole run."""

    conforms: StrictBool
    rejected: frozenset[Key] = frozenset()
    known: LoggedKnownList = LoggedKnownList()
    incomplete: tuple[str, ...] = ()
    not_working: Mapping[str, str] = {}
    problems: tuple[str, ...] = ()


class Footer(LogRecord):
    """The last record of a run that was not interrupted."""

    finished: str = ""
    exit_code: StrictInt
    complete: StrictBool
    counts: Mapping[str, StrictInt] = {}
    gate: LoggedGate
    timing: Mapping[str, Number] = {}
    replies: Mapping[str, StrictInt] = {}
