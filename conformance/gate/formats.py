"""
Models of the machine-readable files; their JSON Schemas are generated from these, and tests validate real output.

Within a schema version, only optional keys are added; any other change gets a new number.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from conformance.gate.baseline import BaselineFile
from conformance.spec.document import DIALECT

Number = float | Literal["inf", "-inf", "nan"]
ExitCode = Literal[0, 1, 2, 3, 4, 5, 7]
Kind = Literal[
    "regressed",
    "fails_otherwise",
    "dialect_changed",
    "support_lost",
    "accepted",
    "fixed",
    "support_gained",
    "drifted",
    "added",
    "deleted",
    "case_changed",
    "judge_changed",
]


class _Object(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class KnownList(_Object):
    """The results of the list of known deviations; empty if the run was interrupted."""

    live: int = 0
    dead: list[str] = []
    too_wide: list[str] = []
    expired: list[str] = []
    not_reached: list[str] = []


class Gate(_Object):
    """
    The decision of the gate, with reasons.

    rejected: pairs of case and subject. not_working: subject -> the sentence that says that it had no reply.
    """

    conforms: bool
    rejected: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    problems: list[str]
    incomplete: list[str]
    not_working: dict[str, str] = {}
    known: KnownList


class SubjectSum(_Object):
    """One subject: the number of cells with each verdict, and the largest budget of the conforming cells."""

    counts: dict[str, int]
    worst_budget: Number


class VerdictFile(_Object):
    """The content of verdict.json."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    run: str
    exit_code: ExitCode
    conforms: bool
    complete: bool
    counts: dict[str, int]
    gate: Gate
    subjects: dict[str, SubjectSum]
    report: str


class ObservedCell(_Object):
    """One cell on one side; keys that do not apply are absent."""

    verdict: str
    klass: Annotated[str, Field(alias="class")] = ""
    budget: Number | None = None
    ways: list[str] = []
    declared: dict[str, str] = {}
    text: str = ""
    known: str = ""
    rerun: str = ""


class ChangedCell(_Object):
    """A cell that changed; a side without the cell is absent."""

    case: str
    subject: str
    base: ObservedCell | None = None
    candidate: ObservedCell | None = None
    source: str = ""


class Way(_Object):
    """One side of a group: the distributions that differ, and the behaviour there."""

    versions: dict[str, str]
    way: str
    text: str


class ChangeGroup(_Object):
    """Cells that changed for one reason, and the sentence that reports it."""

    kind: Kind
    meaning: str
    rejected: bool
    sentence: str
    cases: int
    subjects: list[str]
    base: Way
    candidate: Way
    cells: list[ChangedCell]


class ComparedSide(_Object):
    """A side: where it was read from, and the versions in each subject's environment."""

    name: str
    subjects: dict[str, dict[str, str]]


class Settings(_Object):
    """What counts as drift, and the number of cells that may lose support."""

    drift: float
    floor: float
    skip_budget: int


class ComparisonFile(_Object):
    """The content of comparison.json."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    headline: str
    exit_code: ExitCode
    conforms: bool
    complete: bool
    base: ComparedSide
    candidate: ComparedSide
    settings: Settings
    counts: dict[Kind, int]
    compared: int
    judged: int = 0
    unchanged: int
    declined: int = 0
    red_on_both: int
    incomplete: list[str]
    notes: list[str]
    groups: list[ChangeGroup]


# The formats that `conformance schema` prints in addition to that of case files.
FORMATS: dict[str, type[BaseModel]] = {
    "verdict": VerdictFile,
    "comparison": ComparisonFile,
    "baseline": BaselineFile,
}


def schema_text(name: str) -> str:
    """The JSON Schema of one format."""
    schema: dict[str, Any] = {"$schema": DIALECT, **FORMATS[name].model_json_schema(by_alias=True)}
    return json.dumps(schema, indent=1) + "\n"
