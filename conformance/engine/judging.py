"""Judging outcomes: the verdict of one cell, and expectations that subjects share."""

import hashlib
import platform
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from conformance.bounds.outputs import UnderivedBound
from conformance.bridge.contract import Declaration, Facts
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import concerned
from conformance.deviations.deviation import Dialect, Reply
from conformance.diagnosis.explanation import Explanation, Likely, way_of
from conformance.diagnosis.judgement import Judgement, explained, judge_against, needs_explanation
from conformance.diagnosis.suspect import OF_OTHER_BOUND, Suspect
from conformance.engine.cells import Cell
from conformance.engine.environments import Machine
from conformance.engine.job import Outcome
from conformance.engine.logged_cell import LoggedKnown
from conformance.spec import refusals
from conformance.spec.old_names import current_value
from conformance.spec.problem import Array, Problem
from conformance.verdicts.expectation import Expectation, expect, expect_reply
from conformance.verdicts.verdict import NOT_REFUSED

# The key of the evidence: the devices, as in DEVICES, on which the call's operators ran.
RAN_ON = "ran_on"


def misplaced(asked: str, evidence: Mapping[str, Any]) -> str:
    """
    Why a reply does not count for the device that was asked for, or "".

    The CPU needs no evidence: it is where everything runs that says nothing else.
    """
    ran = [str(device) for device in evidence.get(RAN_ON, ())]
    if not ran:
        silent = f"asked to run on {asked}, and the adapter's evidence does not say where it ran ({RAN_ON})"
        return "" if asked == "cpu" else silent
    if set(ran) == {asked}:
        return ""
    nodes = f"; nodes: {_listed(evidence['nodes'])}" if isinstance(evidence.get("nodes"), Mapping) else ""
    return f"asked to run on {asked}, ran on {', '.join(ran)}{nodes}"


def _listed(nodes: Mapping[str, Any]) -> str:
    """Which operators each execution provider was given."""
    return "; ".join(f"{provider} {', '.join(sorted(operators))}" for provider, operators in nodes.items())


@dataclass(frozen=True, eq=False)
class Judged:
    """
    A verdict with what led to it, for the gate and the run log.

    message: the reason in words, or what an exception said. klass: of a fail that is not about the numbers of this
    call. arrays: expected, actual and tolerance by output, of cells that did not simply pass. fault: the traceback of
    an exception of ours that ended the search for causes; the verdict stands.
    """

    case: str
    subject: str
    versions: Mapping[str, str]
    facts: Facts
    problem: Problem
    verdict: str
    message: str = ""
    declared: Expectation | None = None
    profile: Profile | None = None
    actual: Mapping[str, Tensor] = field(default_factory=dict)
    judgement: Judgement | None = None
    klass: str = ""
    platform: str = field(default_factory=lambda: f"{platform.system()}-{platform.machine()}")
    machine: Machine = field(default_factory=Machine)
    fault: str = ""

    @property
    def fail_class(self) -> str:
        """The class of a fail, see `verdict.CLASSES`; "" of another verdict."""
        return self.klass or (self.judgement.klass if self.judgement is not None else None) or ""

    @property
    def explanation(self) -> Explanation | None:
        """The single deviation that explains a failing reply, if any."""
        return self.judgement.explanation if self.judgement is not None else None

    @property
    def arrays(self) -> dict[str, Array]:
        """`NAME.expected`, `NAME.actual`, `NAME.tolerance` of every output."""
        if self.declared is None or self.verdict == "pass":
            return {}
        found = {}
        for name, tensor in self.actual.items():
            found[f"{name}.expected"] = self.declared.reply[name].values
            found[f"{name}.actual"] = tensor.float64()
            found[f"{name}.tolerance"] = self.declared.bounds[name].tolerance
        return found


class KeptTraceback:
    """A block in which a bug of ours ends only the block. `text` is then the traceback, else ""."""

    text: str = ""

    def __enter__(self) -> Self:
        """Begin the block."""
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        """Keep the traceback of an exception; what is none, such as KeyboardInterrupt, goes on."""
        if isinstance(error, Exception):
            self.text = "".join(traceback.format_exception(error))
        return isinstance(error, Exception)


Result = TypeVar("Result")

# What is expected, by case id and by everything else that it depends on.
KnownExpectations = dict[str, dict[tuple[Any, ...], Expectation]]


class Judge:
    """
    Judges replies, and remembers expectations: most subjects are asked the same and declare the same.

    One expectation serves every cell with the same problem, the same profile, the same element types of masks (a mask
    of -inf rounds otherwise than a boolean one), and the same dialect. A dialect that cannot affect the problem
    counts as the canonical one.
    """

    def __init__(self, *, known_first: bool = False, expectations: KnownExpectations | None = None) -> None:
        """
        Start with nothing remembered, or with the expectations of earlier judges of the same cases.

        known_first: a review by a list of known deviations comes before a failure is explained. expectations: is
        extended.
        """
        self._known_first = known_first
        self._expectations = expectations if expectations is not None else {}
        self._replies: dict[str, dict[tuple[Any, ...], Reply]] = {}
        self._likely: dict[str, Likely] = {}

    def expectation(self, case: str, problem: Problem, dialect: Dialect, profile: Profile) -> Expectation:
        """
        The expected reply to a case under a dialect.

        Raises:
            UnderivedBound: the dialect may be diagnosed, but not declared. KeyError: there is no such deviation.
        """
        relevant, of_case = concerned(problem, dialect), self._expectations.setdefault(case, {})
        found = _once(of_case, _question(problem, relevant, profile), lambda: expect(problem, relevant, profile))
        return found if dialect == relevant else replace(found, dialect=dialect)

    def reply(self, case: str, problem: Problem, dialect: Dialect, profile: Profile) -> Reply:
        """
        The expected reply without its bounds, where only that is needed.

        Raises:
            UnderivedBound: the dialect may be diagnosed, but not declared. KeyError: there is no such deviation.
        """
        relevant, of_case = concerned(problem, dialect), self._replies.setdefault(case, {})
        question = _question(problem, relevant, profile)

        def compute() -> Reply:
            expected = self._expectations.get(case, {}).get(question)
            return expected.reply if expected else expect_reply(problem, relevant, profile)

        return _once(of_case, question, compute)

    def finish(self, case: str) -> None:
        """Forget what is expected of a case that no worker needs any more."""
        self._expectations.pop(case, None)
        self._replies.pop(case, None)

    def declared(self, cell: Cell, declaration: Declaration) -> Expectation:
        """
        What is expected of a call under what the subject declares for it.

        Raises:
            UnderivedBound, KeyError: the declaration cannot be judged.
        """
        declared = {each.decision: current_value(each.decision, each.name) for each in declaration.dialect}
        dialect = {**cell.route.dialect, **declared}
        return self.expectation(cell.case.id, cell.route.problem, dialect, declaration.profile)

    def judge(
        self, cell: Cell, declaration: Declaration, actual: Mapping[str, Tensor], versions: Mapping[str, str]
    ) -> Judged:
        """
        Judge one reply under what the subject declared for that call.

        A failure is explained here only if its verdict depends on that; else see `explained`.
        """
        problem, profile = cell.route.problem, declaration.profile
        shared = (cell.case.id, cell.subject.name, versions, cell.call.facts, problem)
        try:
            declared = self.declared(cell, declaration)
        except (UnderivedBound, KeyError) as error:
            return Judged(*shared, "error", f"the declaration cannot be judged: {error}")
        found = judge_against(declared, lambda: self.reply(cell.case.id, problem, {}, profile), profile, actual)
        judged = Judged(*shared, found.verdict, found.reason, declared, profile, actual, found)
        late = self._known_first and not needs_explanation(found, problem, judged.facts.device)
        return judged if late else self._explained(judged, self._likely_of(judged.subject))

    def explained(self, judged: Judged, known: LoggedKnown | None = None) -> Judged:
        """
        A failing reply with the single deviations that explain it.

        known: the known deviation that accepts the reply. Then only its own decisions are tried.
        """
        if known is None:  # without `known_first`, `judge` has searched already
            return self._explained(judged, self._likely_of(judged.subject)) if self._known_first else judged
        parts = (each.rpartition("=") for each in known.decisions)
        ways = [way_of(decision, name) for decision, _, name in parts]
        # That a causal argument is ignored is reported as `causal_mask`, whichever argument carries it.
        ways += [("causal_mask", name) for decision, name in ways if decision.startswith("use[")]
        return self._explained(judged, Likely(ways, search=False, budget_under=partial(self._budget, judged.case)))

    def _likely_of(self, subject: str) -> Likely:
        """The ways that explained earlier replies of a subject."""
        return self._likely.setdefault(subject, Likely())

    @staticmethod
    def _explained(judged: Judged, likely: Likely) -> Judged:
        """A failing reply with the single deviations that explain it, if it has none yet."""
        found, profile = judged.judgement, judged.profile
        if found is None or profile is None or found.verdict != "fail" or found.explanation is not None:
            return judged
        with KeptTraceback() as kept:
            found = explained(found, judged.problem, profile, judged.actual, judged.facts.device, likely)
        return replace(judged, verdict=found.verdict, judgement=found, fault=kept.text)

    def _budget(self, case: str, suspect: Suspect, dialect: Dialect) -> float | None:
        """As `Suspect.budget`, from the expectation that a review of known deviations has asked for."""
        if OF_OTHER_BOUND.intersection(dialect):
            return suspect.budget(dialect)
        try:
            return suspect.budget_of(self.expectation(case, suspect.problem, dialect, suspect.profile))
        except UnderivedBound:
            return suspect.budget(dialect)


def _once(known: dict[tuple[Any, ...], Result], question: tuple[Any, ...], compute: Callable[[], Result]) -> Result:
    if question not in known:
        known[question] = compute()
    return known[question]


def _question(problem: Problem, dialect: Dialect, profile: Profile) -> tuple[Any, ...]:
    """What the expected reply to a case depends on."""
    by_slot = any("[" in decision for decision in dialect)
    masks = tuple(
        (operand.slot if by_slot else "", operand.element, operand.kinds) for operand in problem.mask_operands
    )
    return (masks, problem.outputs, tuple(sorted(dialect.items())), profile)


@cache
def judge_digest() -> str:
    """sha256 of the code and names that decide what is right: a change of them changes every verdict's meaning."""
    package = Path(__file__).parent.parent
    folders = ("spec", "reference", "deviations", "bounds", "verdicts", "diagnosis")
    files = [path for folder in folders for path in sorted((package / folder).iterdir())]
    digest = hashlib.sha256()
    for path in [*files, package / "bridge" / "profile.py"]:
        if path.suffix in (".py", ".toml"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"sha256:{digest.hexdigest()}"


def packed(arrays: Mapping[str, Array]) -> bytes:
    """The tensors of a cell as a compressed archive (npz); nothing of none."""
    if not arrays:
        return b""
    archive = BytesIO()
    np.savez_compressed(archive, **arrays)  # type: ignore[arg-type]  # names of arrays, none is allow_pickle
    return archive.getvalue()


def judged_outcome(judge: Judge, cell: Cell, outcome: Outcome, versions: Mapping[str, str], doubt: str = "") -> Judged:
    """
    The verdict on what came back.

    versions: of the distributions in the worker that answered. doubt: why a refusal says nothing about the mistake.
    """
    elsewhere = misplaced(cell.subject.device, outcome.evidence) if outcome.status == "reply" else ""
    if elsewhere:
        outcome = replace(outcome, status="error", reason=elsewhere)
    shared = (cell.case.id, cell.subject.name, versions, cell.call.facts, cell.route.problem)
    if cell.case.mistake is not None:
        return Judged(*shared, **refusal(cell.case.mistake, outcome, doubt))
    if outcome.status == "reply" and outcome.declaration is not None:
        return judge.judge(cell, outcome.declaration, outcome.outputs, versions)
    return Judged(*shared, outcome.status, outcome.reason)


# They refuse nothing: memory or stack ran out, the interpreter failed, the framework lacks the operation.
UNCLEAR = ("MemoryError", "RecursionError", "SystemError", "NotImplementedError")


def is_refused(cell: Cell, outcome: Outcome) -> bool:
    """Whether a call with a mistake was refused."""
    return cell.case.mistake is not None and _left_framework(outcome)


def _left_framework(outcome: Outcome) -> bool:
    """Whether an exception that refuses something left the framework call."""
    error = outcome.error or {}
    return outcome.status == "error" and error.get("stage") == "framework" and error.get("type") not in UNCLEAR


def refusal(mistake: refusals.Name, outcome: Outcome, doubt: str) -> dict[str, Any]:
    """
    Verdict, message and class of a call that must be refused.

    doubt: why the exception may be about something else than the mistake.
    """
    if outcome.status == "reply":
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in outcome.outputs.items())
        message = f"{refusals.REFUSALS[mistake].sentence}: it returned {shapes}, where an error was due"
        return {"verdict": "fail", "message": message, "klass": NOT_REFUSED}
    if not _left_framework(outcome):
        return {"verdict": outcome.status, "message": outcome.reason}
    if doubt:
        return {"verdict": "inconclusive", "message": f"refused, but {doubt}"}
    return {"verdict": "pass", "message": f"refused, as it must be: {outcome.reason}"}
