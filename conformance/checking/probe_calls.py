"""The calls before a function is judged: plain cases for its arithmetic, and cases without consensus."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod

import numpy as np

from conformance.bounds.outputs import UnderivedBound
from conformance.bridge.profile import Profile
from conformance.checking.preflight import import_paths
from conformance.deviations.deviation import Dialect
from conformance.diagnosis.behaviour_profile import Probe
from conformance.diagnosis.evidence import Evidence, Remembered
from conformance.engine.adapters import Subject
from conformance.engine.cells import Cell, make_cell
from conformance.engine.environments import our_own
from conformance.engine.job import Job, Limits, Outcome, Started
from conformance.engine.judging import Judge
from conformance.engine.pool import Hooks, Pool
from conformance.engine.worker_plan import WorkerPlan, plan_workers
from conformance.spec.case import Case
from conformance.spec.materialise import HALF, materialise
from conformance.spec.problem import Problem
from conformance.verdicts.expectation import Expectation, compare_all


def plans_of(subjects: Sequence[Subject], workers: int) -> list[WorkerPlan]:
    """Return plans for this number of workers, which share the cases."""
    plan = plan_of(*subjects)
    if workers == 1:
        return [plan]
    named = (f"{plan.name} ({part + 1} of {workers})" for part in range(workers))
    return [replace(plan, name=name, part=part, parts=workers) for part, name in enumerate(named)]


def plan_of(*subjects: Subject) -> WorkerPlan:
    """
    Return the plan of one worker for all subjects.

    The worker gets the user's PYTHONPATH and user site-packages, which the function may need; workers of packaged
    adapters do not.
    """
    (plan,) = plan_workers(subjects, {"default": our_own()}, keep_compiled=True)
    return replace(plan, env={**plan.env, **import_paths()})


# The dtype with most cases, and with little doubt about the arithmetic, for a function that takes it.
BASIS = "float32"
# Maximum number of cases of a kind that are used to find an evident deviation.
ENOUGH = 12
# Maximum number of keys of a short case: in longer sums, a coarse accumulator looks like a coarse softmax.
SHORT = 16
# Maximum number of times that the process may die here; the judged run reports the crash.
DEATHS = 1

Answers = Sequence[tuple[Cell, Outcome]]


@dataclass
class Probing:
    """The calls for one worker, and what came back."""

    cases: Sequence[Case]
    subject: Subject
    answers: list[tuple[Cell, Outcome]] = field(default_factory=list)

    def hooks(self) -> Hooks:
        """Return the callbacks for the pool."""
        return Hooks(self._jobs, self._answered, lambda _: None)

    def _jobs(self, _plan: WorkerPlan, _started: Started) -> Iterator[Job]:
        self._cells: dict[int, Cell] = {}
        for case in self.cases:
            cell = make_cell(case, materialise(case), self.subject)
            if isinstance(cell, Cell):
                number = len(self._cells) + 1
                self._cells[number] = cell
                yield Job(number, cell.key, cell.call, case.requirements(), cell.reply_limit, cell.signature)

    def _answered(self, job: Job, outcome: Outcome) -> Iterable[Job] | None:
        if outcome.status == "reply":
            self.answers.append((self._cells[job.number], outcome))
        return None


def probe(cases: Sequence[Case], subject: Subject, pool: Pool, timeout: float) -> Answers:
    """
    Ask the cases of the subject and return the replies; calls without a reply are left to the judged run.

    pool: the process lives on in it.
    """
    probing = Probing(cases, subject)
    pool.go_on([plan_of(subject)], 1, Limits(first=timeout, call=timeout, deaths=DEATHS, starts=1))
    pool.run(probing.hooks(), keep=True)
    return probing.answers


def basis_of(cases: Iterable[Case]) -> str:
    """Return the dtype in which evident deviations are searched: that of most cases, which is BASIS if it is taken."""
    return Counter(case.dtype for case in cases).most_common(1)[0][0]


def is_plain(case: Case) -> bool:
    """
    Return whether a case shows the arithmetic only: no masks, no poison, no gain, and at most the weights requested.

    In half precision, a case that requests weights may have masks: weights show roundings that the last rounding of the
    output hides, and few cases request them.
    """
    usual = case.outputs[0] == "output" and {"output", "weights"}.issuperset(case.outputs)
    usual = usual and case.inputs.gain == 1.0 and case.inputs.poison is None
    return usual and (not case.masks or (case.dtype in HALF and "weights" in case.outputs))


def is_ordinary(case: Case, basis: str) -> bool:
    """Return whether a case in the dtype `basis` has boolean masks and no other special feature."""
    boolean = all(getattr(mask, "element", "bool") == "bool" and mask.kind != "additive" for mask in case.masks)
    usual = case.dtype == basis and case.inputs.distribution == "bell" and case.outputs == ("output",)
    return bool(case.masks) and boolean and usual and not case.verbatim


def is_open(case: Case, problem: Problem) -> bool:
    """Return whether a case needs a decision on which there is no consensus (`observation.OPEN_DECISIONS`)."""
    rectangular = case.seq_len_q != case.seq_len_k and any(mask.kind in ("causal", "window") for mask in case.masks)
    fully_masked = not problem.attended().any(axis=-1).all()
    finite = all(np.isfinite(each).all() for each in (problem.query, problem.key, problem.value))
    return rectangular or fully_masked or not finite


@dataclass(frozen=True)
class Expectations:
    """What is expected of the calls of one subject. judge: remembers it for the judged run, which makes them again."""

    judge: Judge = field(default_factory=Judge)
    _evidence: Remembered = field(default_factory=Remembered, init=False)

    def of(self, cell: Cell, dialect: Dialect, profile: Profile) -> Expectation:
        """
        Return what is expected of a call under a dialect and a profile.

        Raises:
            UnderivedBound: no bound is derived.
        """
        return self.judge.expectation(cell.case.id, cell.route.problem, {**cell.route.dialect, **dialect}, profile)

    def conforms(self, cell: Cell, outcome: Outcome, dialect: Dialect, profile: Profile) -> bool:
        """Return whether a reply is within the bound, or within a substitute if no bound is derived."""
        try:
            expected = self.of(cell, dialect, profile)
        except UnderivedBound:
            every = {**cell.route.dialect, **dialect}
            return self.reply(cell, outcome, {}, profile).suspect().conforms_under(every)
        return all(each.verdict == "pass" for each in compare_all(expected, outcome.outputs, profile))

    def reply(self, cell: Cell, outcome: Outcome, declared: Dialect, profile: Profile) -> Probe:
        """Return a reply with the expectation of its call under the declared dialect."""
        expected = self.of(cell, declared, profile)
        return Probe(cell.case.id, cell.call.facts, cell.route.problem, expected, profile, outcome.outputs)

    def evidence(self, cell: Cell, outcome: Outcome, declared: Dialect, profile: Profile) -> Evidence:
        """Return a reply as evidence: the same object each time, because it remembers what was computed for it."""

        def compute() -> Evidence:
            reply = self.reply(cell, outcome, declared, profile)
            return replace(reply, actual=None) if reply.suspect().conforms_under(reply.dialect) else reply

        return self._evidence.once((cell.key, frozenset(declared.items()), profile), compute)


def _of_each_mask(cases: Iterable[Case]) -> list[Case]:
    """Return the first case with each combination of masks."""
    found: dict[tuple[tuple[str, int | str | None], ...], Case] = {}
    for case in cases:
        found.setdefault(tuple((mask.kind, getattr(mask, "offset", None)) for mask in case.masks), case)
    return [*found.values()]


def shortest(cases: Sequence[Case]) -> list[Case]:
    """Return the short cases; if there is none, those with the fewest keys."""
    limit = max(SHORT, min((case.seq_len_k for case in cases), default=0))
    return [case for case in cases if case.seq_len_k <= limit]


def asked_first(cases: Sequence[Case], chosen: Sequence[Case]) -> list[Case]:
    """
    Return the cases to ask first: plain cases, some with ordinary masks, and those without consensus.

    cases: all of the operator. chosen: those that will be judged. What cannot matter to them is left out: plain cases
    in other dtypes, and the cases without consensus if none of them is chosen. In BASIS, whose arithmetic is hardly
    ever in doubt, few plain cases are enough; they have sizes of chosen cases if possible, because a framework may
    compile for each size. In half precision, long cases show roundings that short ones do not.
    """
    sizes = [case.axes for case in chosen]
    plain = [case for case in cases if is_plain(case)]
    short = shortest(plain)
    basis = [case for case in short if case.dtype == BASIS]
    basis.sort(key=lambda case: (case.axes not in sizes, prod(case.axes.values())))
    others = {case.dtype for case in chosen} - {BASIS}
    other = [case for case in plain if case.dtype in others and (case.dtype in HALF or case in short)]
    plain = [*basis[: 2 * ENOUGH], *other]
    dtype = basis_of(cases)
    closed = (case for case in cases if is_ordinary(case, dtype) and not is_open(case, materialise(case)))
    ordinary = sorted(_of_each_mask(closed), key=lambda case: len(case.masks))
    open_: list[Case] = []
    if any(is_open(case, materialise(case)) for case in chosen):
        open_ = [case for case in cases if not is_plain(case) and is_open(case, materialise(case))]
    return [*plain, *islice(ordinary, ENOUGH), *open_]
