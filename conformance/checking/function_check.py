"""Check a function: find out how it is called and what to judge it under, then judge it like any other subject."""

import datetime as dt
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path

from conformance import places
from conformance.checking.adapter_text import exclusive_in, slots
from conformance.checking.arithmetic import PROFILES, CoarserProfiles
from conformance.checking.case_sizes import in_sizes
from conformance.checking.check_report import (
    OTHER_DTYPE,
    CaseOutcome,
    CheckCause,
    accepted_notes,
    added_mask_notes,
    cause_lines,
    causes,
    dtype_notes,
    exclusive_notes,
    headline,
    outcomes,
    settled_notes,
    too_little,
    varying_notes,
)
from conformance.checking.declarations import Declared, is_declarable, read_declared
from conformance.checking.drop_in import adapt_drop_in, find_drop_in
from conformance.checking.observation import Varying, is_accepted
from conformance.checking.preflight import Calling, Inspection, inspecting, preflight
from conformance.checking.probe_calls import plans_of
from conformance.checking.settled_function import settle, write_adapter
from conformance.checking.signature import DTYPES, Alias, Signature, parameters_of, read_signature
from conformance.checking.target import CheckError, Target
from conformance.deviations.nonfinite import WHERE_ADDED
from conformance.disk import see_writable, unwritable
from conformance.engine import kept_cases
from conformance.engine.adapters import Subject, subjects_of
from conformance.engine.cell_records import RunListener
from conformance.engine.environments import our_own
from conformance.engine.job import Limits, StopRun
from conformance.engine.judging import Judge, Judged, KnownExpectations
from conformance.engine.logged_cell import LoggedKnown, Reviewed
from conformance.engine.pool import Pool
from conformance.engine.run_header import case_records, header
from conformance.engine.runlog import LOG, RunLog, RunLogError
from conformance.engine.second_look import Closeness
from conformance.engine.session import Session
from conformance.gate.decision import Decision, Objections, decide
from conformance.gate.known import Known
from conformance.gate.run_ending import Clock, ending, finish
from conformance.report import Run, write_reports
from conformance.report.findings import findings
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.mistakes import covered, near_glob, old_name_note
from conformance.spec.old_names import current_value
from conformance.spec.problem import Problem
from conformance.spec.texts import NOT_A_TIME_LIMIT, are, counted, is_time_limit, one_of

# Decisions about NaN and infinities in the inputs.
NONFINITE_DECISIONS = ("nonfinite_key", "nonfinite_value", "attended_nonfinite")

OF_FRAMEWORK = "how kernels of PyTorch and JAX treat NaN and infinities depends on shape and memory layout"
OF_ADDING = "NaN plus -inf and 0 times NaN are NaN in every implementation"
OF_BOUND = "under the declared or observed behaviour, rounding errors alone could be as large as the values"
OF_VALIDATION = "the bound was not validated for this operation or device"
OF_REFUSAL = "it is documented to refuse these calls (--declines)"
LINK = "https://github.com/pytorch/pytorch/issues/141128"


class Refusals:
    """Accepts exceptions with which the function is documented to refuse calls; declines: texts of such exceptions."""

    def __init__(self, declines: Sequence[str]) -> None:
        """Start with nothing accepted."""
        self._cases: dict[str, list[str]] = {text: [] for text in declines}

    def review(self, judged: Judged) -> Reviewed:
        """Accept a cell if its exception has one of the texts."""
        for text, cases in self._cases.items():
            if judged.verdict == "error" and text in judged.message:
                cases.append(judged.case)
                return Reviewed(LoggedKnown(reason=OF_REFUSAL, link="", entry="conformance check --declines"))
        return Reviewed()

    def notes(self) -> Iterator[str]:
        """Yield a sentence about each text."""
        for text, cases in self._cases.items():
            if cases:
                seen = f"{counted(len(cases), 'verdict')}, such as {cases[0]}"
                yield f"accepted: it raises {text!r} ({seen}): {OF_REFUSAL}"
            else:
                yield f"--declines {shlex.quote(text)}: no call raised an exception with this text"


class AcceptedFailures:
    """Accepts deviations on non-finite inputs that come from the framework, unless the user declares the decision."""

    def __init__(self, signature: Signature, declared: Declared) -> None:
        """Start with nothing accepted."""
        self._of_framework = signature.framework != "numpy"
        self._declared = declared
        self._seen: dict[tuple[str, str], list[str]] = {}
        self._inconclusive: dict[str, list[str]] = {}

    def review(self, judged: Judged) -> Reviewed:
        """Accept a cell if such a deviation alone explains the reply."""
        verdict = judged.judgement
        if verdict is not None and verdict.verdict == "inconclusive":
            reason = OF_VALIDATION if verdict.uncalibrated else OF_BOUND
            self._inconclusive.setdefault(reason, []).append(judged.case)
            return Reviewed(LoggedKnown(reason=reason, link="", entry="conformance check"))
        if verdict is None or verdict.verdict != "fail" or verdict.explanation is None:
            return Reviewed()
        explanation = verdict.explanation
        if explanation.decision not in NONFINITE_DECISIONS or self._declared.pins(explanation.decision):
            return Reviewed()
        added = (each for each in (explanation, *verdict.ties) if each.name.endswith(WHERE_ADDED))
        explanation = next(added, explanation)  # the first explanation may hold where no mask adds -inf, too
        adds, sentence = explanation.name.endswith(WHERE_ADDED), explanation.sentence
        if not (adds or self._of_framework):
            return Reviewed()
        reason = OF_ADDING if adds else OF_FRAMEWORK
        self._seen.setdefault((sentence, reason), []).append(judged.case)
        return Reviewed(LoggedKnown(reason=reason, link=LINK, entry="conformance check"))

    def notes(self) -> Iterator[str]:
        """Yield a sentence about each accepted deviation, and about calls without a useful bound."""
        for reason, cases in self._inconclusive.items():
            yield f"accepted: {are(len(cases), 'verdict')} inconclusive, such as {cases[0]}: {reason}"
        for (sentence, reason), cases in self._seen.items():
            shown = f"{counted(len(cases), 'verdict')}, such as {cases[0]}"
            yield f"accepted: it {sentence} ({shown}): {reason}; use --declare to require one behaviour"


# Default time limit of one call, in seconds.
TIMEOUT = 30.0

# Default minimum share of the cases that must be judged.
MIN_JUDGED = 0.5

# Maximum number of times that the process of the function may die, so that a check of a crashing function ends.
DEATHS = 2


NOT_WITH_AS = (
    "--operator, --framework, --layout, --device, --map, --exclusive, --head-dim and --seq-len-multiple cannot be "
    "used with --as: the subject defines them"
)


@dataclass(frozen=True)
class CheckRequest:
    """
    The options of `conformance check`.

    inspection: of the function, if it has begun already. own_cases: cases to judge instead of the packaged ones;
    case_paths: the files that they are from, for the command.
    """

    target: Target
    like: str | None = None
    calling: Calling = field(default_factory=Calling)
    profile: str | None = None
    declare: Mapping[str, str] = field(default_factory=dict)
    globs: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    timeout: float = TIMEOUT
    min_judged: float = MIN_JUDGED
    stop: bool = False
    jobs: int = 1
    inspection: Inspection | None = None
    own_cases: tuple[Case, ...] = ()
    case_paths: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        """
        Check the values.

        Raises:
            CheckError: a value is not among the known ones or out of range, or two options exclude each other.
        """
        if self.like and replace(self.calling, declines=()) != Calling():
            raise CheckError(NOT_WITH_AS)
        if self.profile is not None and self.profile not in PROFILES:
            raise CheckError(f"there is no profile {self.profile!r}, only {', '.join(PROFILES)}")
        if unknown := [dtype for dtype in self.dtypes if dtype not in DTYPES]:
            raise CheckError(f"there is no dtype {unknown[0]!r}, only {', '.join(DTYPES)}")
        if not is_time_limit(self.timeout):
            raise CheckError(f"timeout: {NOT_A_TIME_LIMIT.format(self.timeout)}")
        if not 0 <= self.min_judged <= 1:
            raise CheckError(f"min_judged is a share from 0 to 1, not {self.min_judged}")

    @property
    def is_whole(self) -> bool:
        """Return whether every case is asked."""
        return not self.globs and not self.dtypes

    def cases(self, operator: str) -> list[Case]:
        """
        Return the cases of an operator among which a check chooses: the user's own, or else the packaged ones.

        Raises:
            CheckError: the user's files have no case of the operator.
        """
        own = [case for case in self.own_cases if case.operator == operator]
        if self.case_paths and not own:
            raise CheckError(f"{self.case_paths[0]} has no case of the operator {operator}")
        return own or load_cases(operator)

    @property
    def command(self) -> list[str]:
        """Return the command that repeats this check."""
        words = ["conformance", "check", self.target.given]
        calling = {f"--{name}": getattr(self.calling, name) for name in ("operator", "framework", "layout", "device")}
        for option, value in {"--as": self.like, **calling, "--profile": self.profile}.items():
            words += [option, value] if value else []
        words += [word for name, role in self.calling.mapping.items() for word in ("--map", f"{name}={role}")]
        words += ["--exclusive", ",".join(self.calling.exclusive)] if self.calling.exclusive else []
        sizes = self.calling.sizes
        words += [word for size in sizes.head_dims for word in ("--head-dim", str(size))]
        words += ["--seq-len-multiple", str(sizes.multiple)] if sizes.multiple > 1 else []
        words += [word for text in self.calling.declines for word in ("--declines", text)]
        words += [word for dtype in self.dtypes for word in ("--dtype", dtype)]
        for decision, name in self.declare.items():
            words += ["--declare", f"{decision}={name}"]
        return [*words, *(word for path in self.case_paths for word in ("--cases", str(path)))]

    def rerun(self, case: str) -> str:
        """Return the command that checks one case again, quoted for a shell."""
        return shlex.join([*self.command, "-k", case])


@dataclass(frozen=True)
class Checked:
    """
    A finished check.

    notes: how the function was called and what was observed, as sentences. example: any problem of the operator.
    """

    request: CheckRequest
    run: Run
    decision: Decision
    notes: tuple[str, ...]
    example: Problem

    @property
    def causes(self) -> tuple[CheckCause, ...]:
        """Return the causes of rejected verdicts."""
        return causes(findings(self.run), self._is_declarable)

    @property
    def outcomes(self) -> dict[str, CaseOutcome]:
        """Return the outcome of each case."""
        return outcomes(self.run, self.request.rerun, self._is_declarable)

    def _is_declarable(self, decision: str, name: str) -> bool:
        """Return whether a decision that is not declared yet can be; with --as the subject says what is meant."""
        given = self.request
        return not given.like and decision not in given.declare and is_declarable(decision, name, self.example)

    def lines(self) -> list[str]:
        """Return the lines to print: whether the function conforms, the causes if not, and the notes."""
        found, given = self.causes, self.request.target.given
        again = {cause.case: self.request.rerun(cause.case) for cause in found}
        first = headline(given, self.run, found, conforms=self.decision.conforms)
        return [first, *cause_lines(found, again), *self.notes]


# Invariants about non-finite values are left out: this behaviour is a decision, which separate cases observe.
WITHOUT_CONSENSUS = frozenset({"poisoned_key", "poisoned_value"})

FOLDER_IN_USE = "{} has a run already: choose another --out"


def see_writable_folder(folder: Path) -> None:
    """
    Create the run folder, and check that its log can be written.

    Raises:
        CheckError: it cannot be written.
    """
    try:
        see_writable(folder / LOG)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links; ValueError: a NUL
        raise CheckError(unwritable(folder, error)) from error


# Given whether every case was asked, it returns what the comparison with a baseline objects to.
FurtherProblems = Callable[[bool], Objections]


def check(
    request: CheckRequest, folder: Path, watch: RunListener, further_problems: FurtherProblems = lambda _: Objections()
) -> Checked:
    """
    Judge the function, and write the run folder.

    further_problems: is called when all verdicts are logged, before the decision; it returns further reasons to reject.

    Raises:
        CheckError: the function cannot be checked. KeyboardInterrupt: the cells judged so far are in the log.
    """
    clock = Clock()
    if (folder / LOG).exists():
        raise CheckError(FOLDER_IN_USE.format(folder))
    with _begun(request, folder) as begun:
        return _checked(request, folder, begun, clock, watch, further_problems)


def _checked(
    request: CheckRequest,
    folder: Path,
    begun: "_Begun",
    clock: Clock,
    watch: RunListener,
    further_problems: FurtherProblems,
) -> Checked:
    """Make the session, and finish it."""
    subjects, chosen = begun.subjects, begun.cases
    try:
        log = RunLog.create(folder / LOG)
    except FileExistsError as error:  # another check has started there in the meantime
        raise CheckError(FOLDER_IN_USE.format(folder)) from error
    except RunLogError as error:
        raise CheckError(str(error)) from error
    log.append(header(folder.name, request.command, subjects[0].device, chosen, subjects, {"default": our_own()}))
    for record in case_records(chosen):
        log.append(record)
    alternatives = CoarserProfiles()

    def review(judged: Judged) -> Reviewed:
        alternatives.count(judged)
        return begun.review(judged)

    session = Session(
        cases=chosen,
        subjects=subjects,
        log=log,
        folder=folder,
        review=review,
        rerun=lambda key: request.rerun(key[0]),
        suite=lambda: load_cases(chosen[0].operator),
        judge=begun.judge,
        watch=replace(watch, stop=request.stop),
        closeness=Closeness(reshape=True, left_out=WITHOUT_CONSENSUS),
        keeps_cases=True,
        accepted_way=begun.accepts,
        evident=begun.evident,
    )
    with ending(session):
        return _finished(request, session, begun, alternatives, clock, watch, further_problems)


def _finished(
    request: CheckRequest,
    session: Session,
    begun: "_Begun",
    alternatives: CoarserProfiles,
    clock: Clock,
    watch: RunListener,
    further_problems: FurtherProblems,
) -> Checked:
    """Judge every case, decide, and write the reports."""
    subjects = begun.subjects
    watch.total(session.total)
    limits = Limits(first=request.timeout, call=request.timeout, deaths=DEATHS, starts=1)
    stopped = False
    begun.pool.go_on(plans_of(subjects, request.jobs), request.jobs, limits)
    try:
        session.run(begun.pool)
    except StopRun:
        stopped = True
    known = Known((), dt.datetime.now(tz=dt.UTC).date())
    little = too_little(session.logged_cells, request.min_judged) if request.is_whole and not stopped else ()
    found = further_problems(request.is_whole and not stopped)
    decision = decide(
        session.cells,
        [*session.missing, *little],
        found.rejected,
        known.record(whole=False),
        uncompared=found.uncompared,
        stopped=stopped,
    )
    finish(session, decision, clock)
    run = write_reports(session.folder)
    named = {case for finding in findings(run) if finding.explained for case, _ in finding.cells}
    named |= {case for (case, _), cell in run.judged.items() if cell.known is not None}
    unsettled = begun.unsettled.notes() if begun.unsettled else ()
    diagnoses, dtypes = run.diagnoses.values(), {case.id: case.dtype for case in begun.cases}
    is_own, raises = not request.like, any(cell.verdict == "error" for cell in run.judged.values())
    further = (
        *accepted_notes(diagnoses),
        *varying_notes(begun.varies, named, {case for case, _ in run.judged}),
        *added_mask_notes(diagnoses, begun.mask),
        *(exclusive_notes(session.logged_cells) if is_own and raises else ()),
        *dtype_notes(_in_dtypes(run, dtypes, named)),
    )
    coarser = {cause.arithmetic for each in diagnoses for cause in each.reported}
    notes = (*begun.notes, *further, *begun.refusals.notes(), *unsettled, *alternatives.notes(coarser))
    return Checked(request, run, decision, notes, materialise(begun.cases[0]))


def _in_dtypes(run: Run, dtypes: Mapping[str, str], named: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the dtype and the verdict of each call, or that its output has another dtype; named: cases with a cause."""
    for (case, subject), judged in run.judged.items():
        asked = judged.verdict == "fail" and case not in named
        outputs = run.cells[case, subject].outputs if asked else ()
        yield dtypes[case], OTHER_DTYPE if any(each.dtype != dtypes[case] for each in outputs) else judged.verdict


@dataclass(frozen=True)
class _Begun:
    """
    The subjects and cases to judge, and what is known before: notes as sentences, and inconsistent decisions.

    pool: may have a process that serves them. judge: knows already what is expected of the calls that were made before.
    mask: the function's name for its mask. accepts: whether a deviation that shows beside another cause is accepted.
    evident: deviations that the first calls showed together.
    """

    subjects: list[Subject]
    cases: list[Case]
    notes: tuple[str, ...]
    pool: Pool
    varies: Varying = field(default_factory=dict)
    unsettled: AcceptedFailures | None = None
    refusals: Refusals = field(default_factory=lambda: Refusals(()))
    judge: Judge = field(default_factory=Judge)
    mask: str | None = None
    accepts: Callable[[tuple[str, str]], bool] = lambda _: False
    evident: tuple[tuple[str, str], ...] = ()

    def review(self, judged: Judged) -> Reviewed:
        """Return the accepted deviation or exception of a cell, if any."""
        if judged.verdict == "error" or self.unsettled is None:
            return self.refusals.review(judged)
        return self.unsettled.review(judged)


@contextmanager
def _begun(request: CheckRequest, folder: Path) -> Iterator[_Begun]:
    """Begin a check. All processes end with the block, except those of an inspection that had begun before."""
    if request.like:
        with Pool([], request.jobs) as pool:
            yield _begin_drop_in(request, folder, pool)
    elif request.inspection is not None:
        yield _begin_own(request, folder, request.inspection)
    else:
        with inspecting(request.target, request.calling, request.timeout) as inspection:
            yield _begin_own(request, folder, inspection)


def _begin_own(request: CheckRequest, folder: Path, inspection: Inspection) -> _Begun:
    signature, pool = exclusive_in(inspection.signature(), request.calling.exclusive), inspection.pool
    cases = _of_dtypes(adapted(load_cases(signature.operator), signature), request.dtypes)
    offered = _of_dtypes(adapted(request.cases(signature.operator), signature), request.dtypes)
    chosen = _chosen(offered, request.globs)
    declared = read_declared(request.declare, slots(signature, {}), materialise(cases[0]))
    signature = replace(signature, always_causal=declared.always_causal)
    judge = Judge(expectations=_known_expectations(tuple(cases)))
    settled = settle(
        request.target, signature, declared, request.profile, (cases, chosen), request.timeout, judge, pool
    )
    subject = write_adapter(folder, settled.files(request.target), signature.device)
    unsettled = AcceptedFailures(signature, declared)
    return _Begun(
        subjects_of([subject.adapter], signature.device),
        chosen,
        (*_old_name_notes(request, offered), *settled_notes(settled)),
        pool,
        settled.observed.varies,
        unsettled,
        Refusals(request.calling.declines),
        judge,
        signature.mask,
        partial(is_accepted, declared),
        settled.evident,
    )


# Maximum number of expectations that are kept for the next check of the process.
MAX_KEPT_EXPECTATIONS = 2_000


@lru_cache(maxsize=2)
def _expectations_of(_cases: tuple[Case, ...]) -> KnownExpectations:
    return {}


def _known_expectations(cases: tuple[Case, ...]) -> KnownExpectations:
    """What earlier checks of the same cases have computed: a test suite checks many functions in one process."""
    known = _expectations_of(cases)
    if sum(map(len, known.values())) > MAX_KEPT_EXPECTATIONS:
        known.clear()
    return known


def _begin_drop_in(request: CheckRequest, folder: Path, pool: Pool) -> _Begun:
    drop_in = find_drop_in(str(request.like))
    cases = _of_dtypes(request.cases(drop_in.operator), request.dtypes)
    chosen = _chosen(cases, request.globs)
    example = materialise(cases[0])
    subjects = adapt_drop_in(drop_in, request.target, folder, request.declare, request.profile, example)
    notes = (*_old_name_notes(request, cases), drop_in.note)
    return _Begun(subjects, chosen, notes, pool, refusals=Refusals(request.calling.declines))


def _old_name_notes(request: CheckRequest, cases: Sequence[Case]) -> Iterator[str]:
    """Yield a note for each old name in the request."""
    yield from filter(None, (old_name_note(glob, [case.id for case in cases]) for glob in request.globs))
    for decision, name in request.declare.items():
        if (new := current_value(decision, name)) != name:
            yield f"--declare {decision}={name}: {name} is now called {new}"


def chosen_cases(request: CheckRequest) -> list[Case]:
    """
    Return the cases that a check asks; of a function written with `def` only the parameters are read.

    Raises:
        CheckError: the parameters do not fit an operator, a declaration is not valid, or no case matches.
    """
    if request.like:
        cases = request.cases(find_drop_in(request.like).operator)
        return _chosen(_of_dtypes(cases, request.dtypes), request.globs)
    signature = exclusive_in(_read(request), request.calling.exclusive)
    cases = _of_dtypes(adapted(request.cases(signature.operator), signature), request.dtypes)
    read_declared(request.declare, slots(signature, {}), materialise(cases[0]))
    return _chosen(cases, request.globs)


def _read(request: CheckRequest) -> Signature:
    """Return how the function is called; of one written with `def`, what its parameters tell."""
    calling, target = request.calling, request.target
    if target.definition is None:
        return preflight(target, calling, request.timeout)
    return read_signature(target.function, parameters_of(target.definition), calling.operator, calling.mapping)


def load_cases(operator: str) -> list[Case]:
    """Load the packaged cases of an operator."""
    return [case for case in _built_in(places.cases()) if case.operator == operator]


@cache
def _built_in(folder: Path) -> tuple[Case, ...]:
    """Load the packaged cases once: a test suite needs them for each function."""
    return kept_cases.load_cases([folder], folder)


def adapted(cases: list[Case], signature: Signature) -> list[Case]:
    """
    Adapt cases to a function that does not take float32, and to one without the argument `params`.

    A function that does not take float32 gets the cases of that dtype in the first dtype that it takes. A layer, or a
    function with an argument for each weight, may take one array as query, key and value, or as key and value: it gets
    the cases that allow this. Without biases or an output projection, it gets the cases without them. A function with
    limits to its sizes gets the cases in sizes that it takes.
    """
    if signature.sizes.are_limited:
        cases = [in_sizes(case, signature.sizes) for case in cases]
    cases = cases if "float32" in signature.dtypes else [_in_dtype(each, signature.dtypes[0]) for each in cases]
    if not signature.has_own_weights:
        return cases
    return [_of_projections(each, signature) for each in _with_one_array(cases, signature.alias)]


def _in_dtype(case: Case, dtype: str) -> Case:
    """Return a case of float32 in another dtype, unless its dtype is part of its id or it has published numbers."""
    free = case.published is None and case.inputs.file is None and "dtype=" not in case.id
    return replace(case, dtype=dtype) if case.dtype == "float32" and free else case


def _with_one_array(cases: Iterable[Case], alias: Alias) -> Iterator[Case]:
    """Yield the cases in which these arrays can be one, with one array for them."""
    arrays = {"none": (), "kv": ("key", "value"), "qkv": ("query", "key", "value")}[alias]
    for case in cases:
        if not arrays or (alias == "kv" and case.inputs.alias == "qkv"):
            yield case
        elif _can_be_one(case, arrays):
            yield replace(case, inputs=replace(case.inputs, alias=alias))


def _can_be_one(case: Case, arrays: Sequence[str]) -> bool:
    """Return whether these arrays can be one: equal shapes, and no entry about one of them."""
    inputs = case.inputs
    drawn = inputs.query is None and inputs.key is None and inputs.value is None and inputs.file is None
    free = case.mistake is None and not case.past and inputs.poison is None and inputs.gain == 1.0
    wanted = not any(name.startswith("grad_") for name in case.outputs)
    return (
        free and drawn and wanted and case.published is None and len({case.input_shapes[name] for name in arrays}) == 1
    )


def _of_projections(case: Case, signature: Signature) -> Case:
    """Return a case without the biases and the output projection that a layer lacks, if it has no published numbers."""
    if case.published is not None or case.inputs.file is not None or case.mistake is not None:
        return case
    if not signature.biased:
        case = replace(case, biases=frozenset())
    if not signature.projected:
        case = replace(case, output_projection=False, output_dim=case.num_heads * case.value_dim)
    return case


def _of_dtypes(cases: list[Case], dtypes: Sequence[str]) -> list[Case]:
    """
    Return the cases in these dtypes.

    Raises:
        CheckError: there is none.
    """
    found = [case for case in cases if not dtypes or case.dtype in dtypes]
    if not found:
        raise CheckError(f"no case is in {one_of(dtypes)}")
    return found


def _chosen(cases: Sequence[Case], globs: Sequence[str]) -> list[Case]:
    """
    Return the cases whose id matches a glob; an exact id wins, as in `conformance run`.

    Raises:
        CheckError: no case matches.
    """
    if not globs:
        return list(cases)
    matching = covered({case.id for case in cases}, globs)
    chosen = [case for case in cases if case.id in matching]
    if not chosen:
        near = near_glob(globs[0], {case.id for case in cases})
        hint = f"did you mean {near!r}?" if near else "see conformance list cases"
        raise CheckError(f"no {cases[0].operator} case matches {', '.join(globs)}; {hint}")
    return chosen
