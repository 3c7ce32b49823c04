"""
The records of a run log (docs/run-log.md) as frozen models; keys that nothing here uses are ignored.

Numbers that the log writes as "inf", "-inf" or "nan" are floats here; a key that does not apply is None or empty.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AliasPath,
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
from conformance.spec import refusals
from conformance.verdicts.verdict import GRAVITY, Verdict, is_green

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


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


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


class LoggedSubject(_Record):
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


class Interpreter(_Record):
    """An environment of a run: its name and interpreter."""

    name: str = ""
    python: str = ""


class NotOffered(_Record):
    """An adapter that could not be judged because packages are missing, and the extra that installs them."""

    adapter: str
    missing: tuple[str, ...] = ()
    extra: str = ""

    @property
    def remedy(self) -> str:
        """The install command, valid with and without a checkout; "" for an adapter from elsewhere."""
        return install_command("python", self.missing) if self.extra else ""


class Header(_Record):
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
    def _named(cls, entries: Mapping[str, _Record]) -> Mapping[str, _Record]:
        return {name: entry.model_copy(update={"name": name}) for name, entry in entries.items()}


class Worker(_Record):
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


class Output(_Record):
    """The verdict on one output of a cell."""

    verdict: Verdict
    output: str = ""
    message: str = ""


class Routed(_Record):
    """One mask argument of a call."""

    slot: str
    kinds: tuple[str, ...]
    element: str


class LoggedPattern(_Record):
    """How many of the effective weights are beyond their bound, if they were read."""

    beyond: Annotated[StrictInt, Field(ge=0)] = 0
    elements: Annotated[StrictInt, Field(ge=1)] = 1


class LoggedExplanation(_Record):
    """The semantic decision that explains a failure, in words, and what to change."""

    decision: str
    name: str
    sentence: str
    remedy: str = ""


class LoggedDeviation(_Record):
    """One declared non-canonical decision with the link that documents it."""

    decision: str
    name: str
    source: str = ""


class LoggedKnown(_Record):
    """The known deviation that accepts a verdict; decisions: those that it names, as `decision=name`."""

    reason: str
    link: str = ""
    entry: str = ""
    decisions: tuple[str, ...] = ()


class Failure(_Record):
    """An exception or the death of a process, in words."""

    kind: Annotated[str, Field(alias="type")] = "error"
    message: str = ""
    traceback: str = ""


class LoggedRelation(_Record):
    """A relation between this reply and the reply to a changed call, and whether it holds."""

    name: str
    found: str


class LoggedCell(_Record):
    """
    The verdict of one case x subject.

    since: the versions for which the known deviation holds. odd_weights: every certain phrase about the effective
    weights, if they were read and no single decision explains the cell. repeated: how replies to the same call
    differed. declared: the dialect and the profile as the log has them.
    """

    case: str
    subject: str
    verdict: Verdict
    fail_class: Annotated[str, Field(alias="class")] = ""
    budget: Number | None = None
    reason: str = ""
    outputs: tuple[Output, ...] = ()
    explanation: LoggedExplanation | None = None
    ties: tuple[str, ...] = ()
    dialect: Annotated[tuple[LoggedDeviation, ...], Field(validation_alias=AliasPath("declared", "dialect"))] = ()
    known: LoggedKnown | None = None
    since: Annotated[Mapping[str, str], Field(validation_alias=AliasPath("known", "versions"))] = {}
    error: Failure | None = None
    uncalibrated: StrictBool = False
    searched: StrictBool = True
    mistake: refusals.Name | None = None
    repeated: Annotated[str, Field(validation_alias=AliasPath("repeats", "reason"))] = ""
    dropped_outputs: tuple[str, ...] = ()
    invariants: tuple[LoggedRelation, ...] | None = None
    digests: Mapping[str, str] = {}
    seconds: Mapping[str, Number] = {}
    route: tuple[Routed, ...] = ()
    covered_by: Mapping[str, str] = {}
    pattern: LoggedPattern = LoggedPattern()
    odd_weights: Annotated[tuple[str, ...] | None, Field(validation_alias=AliasPath("pattern", "odd"))] = None
    tensors: str = ""
    rerun: str = ""
    declared: Annotated[Any, Field(repr=False)] = None

    @property
    def key(self) -> Key:
        """Case and subject."""
        return (self.case, self.subject)


def _known_of(known: Mapping[str, Any]) -> LoggedKnown:
    """The known deviation in the record of a cell; the same object for all cells that it accepts."""
    return _known(known["reason"], known.get("link", ""), known.get("entry", ""), tuple(known.get("decisions", ())))


@lru_cache(maxsize=1024)
def _known(reason: str, link: str, entry: str, decisions: tuple[str, ...]) -> LoggedKnown:
    return LoggedKnown(reason=reason, link=link, entry=entry, decisions=decisions)


@dataclass(frozen=True, slots=True)
class JudgedCell:
    """
    What is kept in memory of every judged cell; everything else is read again from its line in the log.

    budget: None if no numbers were compared. green: whether the gate accepts the cell. known: the known deviation that
    accepts it. dropped_outputs: outputs that the subject does not have. tensors: the name of its file, or "". seconds:
    of all its steps. start: the byte of the log at which its line begins.
    """

    case: str
    subject: str
    verdict: Verdict
    fail_class: str
    budget: float | None
    green: bool
    known: LoggedKnown | None
    dropped_outputs: tuple[str, ...]
    tensors: str
    seconds: float
    start: int

    @classmethod
    def of(cls, record: Mapping[str, Any], start: int = 0) -> Self:
        """The part to keep of a valid cell record of the log. Names that many cells share are stored once."""
        budget, known = record.get("budget"), record.get("known")
        seconds = (float(each) for each in record.get("seconds", {}).values() if isinstance(each, int | float))
        return cls(
            case=sys.intern(record["case"]),
            subject=sys.intern(record["subject"]),
            verdict=GRAVITY[GRAVITY.index(record["verdict"])],
            fail_class=sys.intern(record.get("class", "")),
            budget=None if budget is None else real(budget),
            green=is_green(record),
            known=None if known is None else _known_of(known),
            dropped_outputs=tuple(map(sys.intern, record.get("dropped_outputs", ()))),
            tensors=record.get("tensors", ""),
            seconds=sum(each for each in seconds if 0 <= each < math.inf),
            start=start,
        )

    @property
    def key(self) -> Key:
        """Case and subject."""
        return (self.case, self.subject)

    def is_graver(self, other: "JudgedCell") -> bool:
        """Whether this record of a cell is more severe than another one: first by red or green, then by verdict."""
        ranks = [(not cell.green, GRAVITY.index(cell.verdict)) for cell in (self, other)]
        return ranks[0] > ranks[1]


class Tie(_Record):
    """Another cause that explains the same verdicts; separated_by: a case that would distinguish the two, or ""."""

    sentence: str
    remedy: str = ""
    condition: str = ""
    separated_by: str = ""


class LoggedCause(_Record):
    """
    A cause that explains several verdicts of one subject together.

    sentence: what the subject does, to follow "it". condition: under which it appears, in words, or "". cells: case
    ids, the simplest first. decisions: those that deviate from the declaration; empty for coarser arithmetic.
    arithmetic: the name of the coarser arithmetic. accepted: whether the deviation is accepted, and its cells fail for
    other causes.
    """

    sentence: str
    cells: tuple[str, ...]
    remedy: str = ""
    condition: str = ""
    decisions: Mapping[str, str] = {}
    arithmetic: str = ""
    ties: tuple[Tie, ...] = ()
    accepted: StrictBool = False


class Lost(_Record):
    """Calls of one subject that ended in the same exception; condition: what they have in common, in words, or ""."""

    cells: tuple[str, ...]
    condition: str = ""


class LoggedDiagnosis(_Record):
    """
    Why one subject fails, over all its verdicts.

    unexplained: case ids that no cause explains. unexplained_where: what these cases have in common, in words, or "".
    errors: calls that ended in an exception, grouped by its root. separated: the causes with one deviation each, if
    that is the shorter description; a verdict may have several of them.
    """

    subject: str
    causes: tuple[LoggedCause, ...] = ()
    separated: tuple[LoggedCause, ...] = ()
    unexplained: tuple[str, ...] = ()
    unexplained_where: str = ""
    errors: tuple[Lost, ...] = ()

    @property
    def reported(self) -> tuple[LoggedCause, ...]:
        """The causes that are reported to a user."""
        return tuple(cause for cause in self.separated if not cause.accepted) or self.causes


class LoggedKnownList(_Record):
    """Known deviations that are no longer needed (dead) or accept too much (too_wide)."""

    dead: tuple[str, ...] = ()
    too_wide: tuple[str, ...] = ()


class LoggedGate(_Record):
    """The gate's decision over the whole run."""

    conforms: StrictBool
    rejected: frozenset[Key] = frozenset()
    known: LoggedKnownList = LoggedKnownList()
    incomplete: tuple[str, ...] = ()
    not_working: Mapping[str, str] = {}
    problems: tuple[str, ...] = ()


class Footer(_Record):
    """The last record of a run that was not interrupted."""

    finished: str = ""
    exit_code: StrictInt
    complete: StrictBool
    counts: Mapping[str, StrictInt] = {}
    gate: LoggedGate
    timing: Mapping[str, Number] = {}
    replies: Mapping[str, StrictInt] = {}
