"""
What a run log says, as frozen records.

Numbers that the log writes as "inf", "-inf" or "nan" are floats here; a key that did not apply is None or empty.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

VERDICTS = ("pass", "dialect", "unsupported", "inconclusive", "fail", "error", "timeout", "crash")
"""Every verdict, least grave first."""

CONFORMING = frozenset({"pass", "dialect"})
UNJUDGED = frozenset({"unsupported", "inconclusive"})
"""Verdicts that say nothing about the subject's numbers."""

Key = tuple[str, str]
"""A cell's place: case and subject."""


@dataclass(frozen=True)
class Case:
    """One expanded case: what was asked."""

    name: str
    suite: str
    operator: str
    dtype: str
    tags: tuple[str, ...] = ()
    summary: str = ""
    yaml: str = ""
    source: str = ""
    digest: str = ""
    features: tuple[str, ...] = ()

    @property
    def theme(self) -> str:
        """First segment of the suite."""
        return self.suite.split("/", 1)[0]


@dataclass(frozen=True)
class Subject:
    """One adapter x variant x device x environment: what was judged."""

    name: str
    adapter: str
    variant: str
    device: str
    environment: str
    operators: tuple[str, ...]
    framework: str
    counted: bool
    offered: bool
    digest: str = ""


@dataclass(frozen=True)
class NotOffered:
    """An adapter that could not be judged here, and the extra that would add it."""

    adapter: str
    missing: tuple[str, ...]
    extra: str


@dataclass(frozen=True)
class Worker:
    """One started worker process: what really ran, or why it did not."""

    name: str
    subjects: tuple[str, ...]
    status: str
    environment: str = ""
    device: str = ""
    python: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)
    start_seconds: float | None = None
    reason: str = ""
    stderr: str = ""


@dataclass(frozen=True)
class Output:
    """How one output of a cell compared."""

    name: str
    verdict: str
    fail_class: str = ""
    budget: float | None = None
    max_error: float | None = None
    bound: float | None = None
    at: tuple[int, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class Explanation:
    """The semantic decision that explains a failure, in words, and what to change."""

    decision: str
    name: str
    sentence: str
    remedy: str = ""
    budget: float | None = None


@dataclass(frozen=True)
class Deviation:
    """One declared non-canonical decision with the link that documents it."""

    decision: str
    name: str
    source: str = ""


@dataclass(frozen=True)
class Known:
    """The known deviation that accepts a verdict."""

    reason: str
    link: str = ""
    entry: str = ""


@dataclass(frozen=True)
class Failure:
    """An exception, or the end of a process, in words."""

    kind: str
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class Cell:
    """The verdict of one case x subject; `record` is the line of the log as it stands."""

    case: str
    subject: str
    verdict: str
    fail_class: str = ""
    budget: float | None = None
    reason: str = ""
    outputs: tuple[Output, ...] = ()
    explanation: Explanation | None = None
    ties: tuple[str, ...] = ()
    dialect: tuple[Deviation, ...] = ()
    known: Known | None = None
    error: Failure | None = None
    uncalibrated: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    tensors: str = ""
    rerun: str = ""
    record: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> Key:
        """Case and subject."""
        return (self.case, self.subject)

    @property
    def green(self) -> bool:
        """Whether the verdict is acceptable by itself or by a known deviation."""
        if self.known is not None or self.verdict in CONFORMING or self.verdict == "unsupported":
            return True
        return self.verdict == "inconclusive" and self.uncalibrated


@dataclass(frozen=True)
class Tie:
    """Another cause that explains the same verdicts as well; separated_by: a case that would tell, or ""."""

    sentence: str
    remedy: str = ""
    condition: str = ""
    separated_by: str = ""


@dataclass(frozen=True)
class Cause:
    """
    What explains verdicts of one subject together.

    sentence: what it does, after "it". condition: under which it shows, in words, or "". cells: case ids, the simplest
    first. decisions: those that are taken otherwise than declared; none for coarser arithmetic.
    """

    sentence: str
    cells: tuple[str, ...]
    remedy: str = ""
    condition: str = ""
    decisions: Mapping[str, str] = field(default_factory=dict)
    ties: tuple[Tie, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """Why one subject fails, over all its verdicts; unexplained: case ids that no cause explains."""

    subject: str
    causes: tuple[Cause, ...]
    unexplained: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gate:
    """The gate's decision over the whole run."""

    conforms: bool
    rejected: frozenset[Key] = frozenset()
    live: int = 0
    dead: tuple[str, ...] = ()
    too_wide: tuple[str, ...] = ()
    not_reached: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Footer:
    """The end of a run that was not cut."""

    finished: str
    exit_code: int
    complete: bool
    gate: Gate
    timing: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Header:
    """What a run set out to do."""

    run: str
    started: str
    cases: Mapping[str, Case]
    subjects: Mapping[str, Subject]
    command: tuple[str, ...] = ()
    device: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    platform: Mapping[str, Any] = field(default_factory=dict)
    not_offered: tuple[NotOffered, ...] = ()


@dataclass(frozen=True)
class Run:
    """A run folder that was read; `footer` is None where the run was cut."""

    folder: Path
    header: Header
    workers: tuple[Worker, ...]
    cells: Mapping[Key, Cell]
    footer: Footer | None
    diagnoses: Mapping[str, Diagnosis] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the log has its footer, and the footer says nothing is missing."""
        return self.footer is not None and self.footer.complete

    @property
    def conforms(self) -> bool:
        """Whether the gate said so; a run without a footer never does."""
        return self.footer is not None and self.footer.gate.conforms

    @cached_property
    def rejected(self) -> frozenset[Key]:
        """The cells that the gate does not accept; of a cut run, those that no gate could."""
        if self.footer is not None:
            return self.footer.gate.rejected
        return frozenset(key for key, cell in self.cells.items() if not cell.green)

    def asked(self, subject: Subject) -> tuple[Case, ...]:
        """The cases of the subject's operators, in the order of the header."""
        return tuple(case for case in self.header.cases.values() if case.operator in subject.operators)

    @cached_property
    def missing(self) -> frozenset[Key]:
        """Cells that a counted subject owes and the log does not have."""
        owed = (
            (case.name, subject.name)
            for subject in self.header.subjects.values()
            if subject.counted and subject.offered
            for case in self.asked(subject)
        )
        return frozenset(key for key in owed if key not in self.cells)
