"""
The record of one judged cell: built once when the cell is written, and read again from the log (docs/run-log.md).

`LoggedCell.record` makes the line of the log, `LoggedCell.model_validate` reads it. A key that does not apply is absent
from the line, and None or empty here. Keys that are unknown are ignored when a log is read.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import Field, StrictBool, StrictInt

from conformance.bridge.contract import Declaration
from conformance.bridge.messages import read_declaration
from conformance.engine.records import Key, LogRecord, Number
from conformance.spec import refusals
from conformance.verdicts.verdict import GRAVITY, Verdict, is_green


class LoggedOutput(LogRecord):
    """
    The verdict on one output of a cell.

    budget: the share of the bound that is used. dtype: of the reply. The rest is about the compared numbers, and absent
    if the shape, the dtype or the positions of non-finite values are wrong: max_error: the largest error. at: the
    position of the worst error, with the expected and actual number, the error and its bound there. rms: root mean
    square of error / expected standard deviation. coverage: share of elements that have a bound. not_judged, beyond,
    elements: numbers of elements without a bound, beyond it, and in all. beyond_worst: whether an error is larger than
    any implementation of the declared arithmetic can make.
    """

    output: str = ""
    verdict: Verdict
    budget: Number | None = None
    message: str = ""
    dtype: str = ""
    max_error: Number | None = None
    at: tuple[StrictInt, ...] | None = None
    expected: Number | None = None
    actual: Number | None = None
    error: Number | None = None
    bound: Number | None = None
    rms: Number | None = None
    coverage: Number | None = None
    not_judged: StrictInt | None = None
    beyond: StrictInt | None = None
    elements: StrictInt | None = None
    beyond_worst: StrictBool | None = None


class LoggedMask(LogRecord):
    """A mask argument of a call. axes: the form of its array. verbatim: whether it takes the case's array as it is."""

    slot: str
    kinds: tuple[str, ...]
    element: str
    axes: tuple[str, ...] = ()
    verbatim: StrictBool = False


class LoggedDeviation(LogRecord):
    """One declared non-canonical decision with the link that documents it."""

    decision: str
    name: str
    source: str = ""


class LoggedDeclaration(LogRecord):
    """What the subject declared for the call: its dialect, its arithmetic profile, and the evidence for both."""

    profile: Mapping[str, Any] = {}
    dialect: tuple[LoggedDeviation, ...] = ()
    evidence: str = ""

    def declaration(self) -> Declaration:
        """
        The declaration that a worker sent.

        Raises:
            KeyError, TypeError, ValueError: the log has an invalid one.
        """
        return read_declaration(self.model_dump())


class LoggedExplanation(LogRecord):
    """
    The semantic decision that explains a failure, in words, and what to change.

    declared: the declared way of the decision. budget: the share of the bound that the reply uses under the deviation.
    """

    decision: str
    name: str
    declared: str = ""
    sentence: str
    remedy: str = ""
    budget: Number | None = None


class LoggedKnown(LogRecord):
    """
    The known deviation that accepts a verdict.

    entry: where it is listed. versions: for which it holds, as package -> specifier. decisions: those that it names, as
    `decision=name`.
    """

    reason: str
    link: str = ""
    entry: str = ""
    versions: Mapping[str, str] = {}
    decisions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reviewed:
    """
    What the list of known deviations says of a judged cell.

    known: the entry that accepts the verdict. covered_by: the origin of every entry that covers the cell -> the outcome
    (`matched`, `conforms`, `other`).
    """

    known: LoggedKnown | None = None
    covered_by: Mapping[str, str] = field(default_factory=dict)


class Failure(LogRecord):
    """An exception or the death of a process, in words. stage: the one that raised: declare, adapter or framework."""

    kind: Annotated[str, Field(alias="type")] = "error"
    message: str = ""
    traceback: str = ""
    stage: str = ""


class LoggedRepetition(LogRecord):
    """
    How replies to the same call compare: `same`, `nondeterministic` or `order_dependent`, and how they differ.

    again, alone: how often the call was repeated in the same worker and in a fresh one.
    """

    found: str = ""
    again: StrictInt | None = None
    alone: StrictInt | None = None
    reason: str = ""


class LoggedRelation(LogRecord):
    """A relation between this reply and the reply to a changed call, and whether it holds; if not, what is wrong."""

    name: str
    found: str
    sentence: str = ""
    where: str = ""


class LoggedPattern(LogRecord):
    """
    The effective attention weights, measured with `calls` calls: how many are beyond their bound.

    not_read: why they were not measured. odd: every certain phrase about the weights, if no single decision explains
    the cell.
    """

    calls: StrictInt | None = None
    beyond: Annotated[StrictInt, Field(ge=0)] | None = None
    elements: Annotated[StrictInt, Field(ge=1)] | None = None
    not_read: str = ""
    odd: tuple[str, ...] | None = None


class LoggedCell(LogRecord):
    """
    The verdict of one case x subject.

    reason: in words; of a conforming reply, how much of its bound it uses. known: the entry that accepts the verdict.
    covered_by: every entry that covers the cell, with the outcome. seconds: `call` and `cpu` of the call, `judge` of
    the coordinator. compiles: whether the call was the first of its signature. cached: whether the reply is from an
    earlier run. repeats, invariants, pattern: what the second look found. tensors: the name of the file in the run
    folder. rerun: the command that judges this cell alone.
    """

    case: str
    subject: str
    verdict: Verdict
    fail_class: Annotated[str, Field(alias="class")] = ""
    budget: Number | None = None
    reason: str = ""
    outputs: tuple[LoggedOutput, ...] = ()
    explanation: LoggedExplanation | None = None
    ties: tuple[str, ...] = ()
    route: tuple[LoggedMask, ...] = ()
    dropped_outputs: tuple[str, ...] = ()
    declared: LoggedDeclaration | None = None
    differs_from_canonical: StrictBool | None = None
    mistake: refusals.Name | None = None
    searched: StrictBool = True
    uncalibrated: StrictBool = False
    known: LoggedKnown | None = None
    covered_by: Mapping[str, str] = {}
    evidence: Mapping[str, Any] = {}
    seconds: Mapping[str, Number] = {}
    compiles: StrictBool | None = None
    cached: StrictBool = False
    digests: Mapping[str, str] = {}
    error: Failure | None = None
    repeats: LoggedRepetition = LoggedRepetition()
    invariants: tuple[LoggedRelation, ...] | None = None
    pattern: LoggedPattern = LoggedPattern()
    tensors: str = ""
    rerun: str = ""

    @property
    def key(self) -> Key:
        """Case and subject."""
        return (self.case, self.subject)

    @property
    def green(self) -> bool:
        """Whether the gate accepts the cell."""
        return is_green(self.verdict, known=self.known is not None, uncalibrated=self.uncalibrated)

    @property
    def dialect(self) -> tuple[LoggedDeviation, ...]:
        """The declared deviations."""
        return self.declared.dialect if self.declared is not None else ()

    def record(self) -> dict[str, Any]:
        """The record for the log, without fields that do not apply: those with their default value."""
        fields = type(self).model_fields
        absent = {name for name, field in fields.items() if getattr(self, name) == field.default}
        absent -= {"ties"} if self.explanation is not None else set()
        absent -= {"route"} if self.compiles is not None else set()  # of a call, perhaps without a mask
        return {"type": "cell", **self.model_dump(by_alias=True, exclude_unset=True, exclude=absent)}


@lru_cache(maxsize=1024)
def _same_known(reason: str, link: str, entry: str, decisions: tuple[str, ...]) -> LoggedKnown:
    """What is kept in memory of a known deviation: the same object for all cells that it accepts."""
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
    def of(cls, cell: LoggedCell, start: int = 0) -> Self:
        """The part to keep of a cell. Names that many cells share are stored once."""
        known = cell.known
        return cls(
            case=sys.intern(cell.case),
            subject=sys.intern(cell.subject),
            verdict=cell.verdict,
            fail_class=sys.intern(cell.fail_class),
            budget=cell.budget,
            green=cell.green,
            known=None if known is None else _same_known(known.reason, known.link, known.entry, known.decisions),
            dropped_outputs=tuple(map(sys.intern, cell.dropped_outputs)),
            tensors=cell.tensors,
            seconds=sum(each for each in cell.seconds.values() if 0 <= each < math.inf),
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
