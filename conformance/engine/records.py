"""
What a run log says (docs/run-log.md), as frozen records; what nobody here asks for is passed over.

Numbers that the log writes as "inf", "-inf" or "nan" are floats here; a key that did not apply is None or empty.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasPath, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, field_validator

from conformance.bridge.strict_json import real
from conformance.engine.environments import install_command
from conformance.engine.replies import evidence_fault
from conformance.spec import refusals
from conformance.verdicts.verdict import Verdict

Number = Annotated[float, BeforeValidator(real)]

# A cell's place: case and subject.
Key = tuple[str, str]


def native(subject: str) -> str:
    """The subject whose dense form this is, by its name; itself where it is none."""
    return subject.replace(",dense]", "]").replace("[dense]", "")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Case(_Record):
    """One expanded case: what was asked."""

    name: str = ""
    suite: str
    operator: str
    dtype: str
    tags: tuple[str, ...] = ()
    summary: str = ""
    yaml: str = ""
    source: str = ""
    digest: str = ""
    features: tuple[str, ...] = ()


class Subject(_Record):
    """One adapter x variant x device x environment: what was judged."""

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
    """An environment of a run."""

    name: str = ""
    python: str = ""


class NotOffered(_Record):
    """An adapter that could not be judged here, and the extra that would add it."""

    adapter: str
    missing: tuple[str, ...] = ()
    extra: str = ""

    @property
    def remedy(self) -> str:
        """What to type so that it can, in a checkout and without one; nothing for an adapter that is not ours."""
        return install_command("python", self.missing) if self.extra else ""


class Header(_Record):
    """What a run set out to do."""

    run: str
    started: str
    cases: Mapping[str, Case]
    subjects: Mapping[str, Subject]
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
            raise ValueError("cpu_features is a list of names")
        return platform

    @field_validator("cases", "subjects", "environments")
    @classmethod
    def _named(cls, entries: Mapping[str, _Record]) -> Mapping[str, _Record]:
        return {name: entry.model_copy(update={"name": name}) for name, entry in entries.items()}


class Worker(_Record):
    """One started worker process: what really ran, or why it did not."""

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
        if said := evidence_fault(evidence):
            raise ValueError(said)
        return evidence


class Output(_Record):
    """How one output of a cell compared."""

    verdict: Verdict
    output: str = ""
    message: str = ""


class Routed(_Record):
    """One mask argument or flag of a call."""

    slot: str
    kinds: tuple[str, ...]
    element: str


class Pattern(_Record):
    """How many of the effective weights are beyond their bound, where they were read."""

    beyond: Annotated[StrictInt, Field(ge=0)] = 0
    elements: Annotated[StrictInt, Field(ge=1)] = 1


class Explanation(_Record):
    """The semantic decision that explains a failure, in words, and what to change."""

    decision: str
    name: str
    sentence: str
    remedy: str = ""


class Deviation(_Record):
    """One declared non-canonical decision with the link that documents it."""

    decision: str
    name: str
    source: str = ""


class Known(_Record):
    """The known deviation that accepts a verdict; decisions: what it says of it, `decision=name`."""

    reason: str
    link: str = ""
    entry: str = ""
    decisions: tuple[str, ...] = ()


class Failure(_Record):
    """An exception, or the end of a process, in words."""

    kind: Annotated[str, Field(alias="type")] = "error"
    message: str = ""
    traceback: str = ""


class Relation(_Record):
    """A relation between this reply and that to a changed call, and whether it holds."""

    name: str
    found: str


class Cell(_Record):
    """
    The verdict of one case x subject.

    since: the versions for which the known deviation holds. odd_weights: what its effective weights are, all that
    is certain, where they were read and no single decision explains the cell. repeated: how replies to the same call
    differed. record: the line of the log as it stands.
    """

    case: str
    subject: str
    verdict: Verdict
    fail_class: Annotated[str, Field(alias="class")] = ""
    budget: Number | None = None
    reason: str = ""
    outputs: tuple[Output, ...] = ()
    explanation: Explanation | None = None
    ties: tuple[str, ...] = ()
    dialect: Annotated[tuple[Deviation, ...], Field(validation_alias=AliasPath("declared", "dialect"))] = ()
    known: Known | None = None
    since: Annotated[Mapping[str, str], Field(validation_alias=AliasPath("known", "versions"))] = {}
    error: Failure | None = None
    uncalibrated: StrictBool = False
    searched: StrictBool = True
    mistake: refusals.Name | None = None
    repeated: Annotated[str, Field(validation_alias=AliasPath("repeats", "reason"))] = ""
    dropped_outputs: tuple[str, ...] = ()
    invariants: tuple[Relation, ...] | None = None
    digests: Mapping[str, str] = {}
    seconds: Mapping[str, Number] = {}
    route: tuple[Routed, ...] = ()
    covered_by: Mapping[str, str] = {}
    pattern: Pattern = Pattern()
    odd_weights: Annotated[tuple[str, ...] | None, Field(validation_alias=AliasPath("pattern", "odd"))] = None
    tensors: str = ""
    rerun: str = ""
    record: Annotated[Mapping[str, Any], Field(repr=False)] = {}

    @property
    def key(self) -> Key:
        """Case and subject."""
        return (self.case, self.subject)


class Tie(_Record):
    """Another cause that explains the same verdicts as well; separated_by: a case that would tell, or ""."""

    sentence: str
    remedy: str = ""
    condition: str = ""
    separated_by: str = ""


class Cause(_Record):
    """
    What explains verdicts of one subject together.

    sentence: what it does, after "it". condition: under which it shows, in words, or "". cells: case ids, the simplest
    first. decisions: those that are taken otherwise than declared; none for coarser arithmetic, which has its name.
    """

    sentence: str
    cells: tuple[str, ...]
    remedy: str = ""
    condition: str = ""
    decisions: Mapping[str, str] = {}
    arithmetic: str = ""
    ties: tuple[Tie, ...] = ()


class Lost(_Record):
    """Calls of one subject that ended in the same exception; condition: what they have in common, in words, or ""."""

    cells: tuple[str, ...]
    condition: str = ""


class Diagnosis(_Record):
    """
    Why one subject fails, over all its verdicts.

    unexplained: case ids that no cause explains. unexplained_where: what these have in common, in words, or "".
    errors: exceptions, by their root.
    """

    subject: str
    causes: tuple[Cause, ...] = ()
    unexplained: tuple[str, ...] = ()
    unexplained_where: str = ""
    errors: tuple[Lost, ...] = ()


class KnownList(_Record):
    """How the list of known deviations fared."""

    dead: tuple[str, ...] = ()
    too_wide: tuple[str, ...] = ()


class Gate(_Record):
    """The gate's decision over the whole run."""

    conforms: StrictBool
    rejected: frozenset[Key] = frozenset()
    known: KnownList = KnownList()
    incomplete: tuple[str, ...] = ()
    not_working: Mapping[str, str] = {}
    problems: tuple[str, ...] = ()


class Footer(_Record):
    """The end of a run that was not cut."""

    finished: str = ""
    exit_code: StrictInt
    complete: StrictBool
    counts: Mapping[str, StrictInt] = {}
    gate: Gate
    timing: Mapping[str, Number] = {}
    replies: Mapping[str, StrictInt] = {}
