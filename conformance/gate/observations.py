"""One side of a comparison: what was observed for each case and subject, and in which environment."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from conformance.engine.adapters import without_environment
from conformance.engine.logged_cell import LoggedCell
from conformance.engine.records import Key, LoggedDiagnosis, LoggedSubject, native
from conformance.engine.run_folder import Run, load_run
from conformance.engine.runlog import LOG
from conformance.spec.refusals import REFUSALS
from conformance.verdicts.verdict import CONFORMING, NOT_REFUSED, gist, root

# Separator of the ways of a cause that consists of several.
AND = " & "

# Verdicts on calls that were judged.
JUDGED = (*CONFORMING, "fail", "inconclusive")

# The class of a fail that breaks a relation between replies.
INVARIANT = "invariant"


@dataclass(frozen=True)
class Observed:
    """
    What one cell showed.

    ways: the deviations (`decision=name`) that explain a fail, the preferred one first, or the broken relations between
    replies (`invariant=name`). looked: whether such relations were checked, which is done for some cells only.
    not_refused: what a call with a mistake does in place of an error, "" for all others; completes "it ...".
    declared: decisions that are declared otherwise than canonical. klass: the class of a fail. error: the type of an
    exception. root: the part of its message that is the same in other releases. text: what happened, in one line. bits,
    problem, judge: digests of the output bits, of the problem and of the judging code. cause, condition: the way and
    the condition, such as "only in float16", from the subject's joint diagnosis. known: why the gate accepts the cell,
    if a known deviation does; since: the version conditions of that deviation. tensors: the file with its arrays.
    where: its circumstances, if they differ from those of the subject's other cells.
    """

    verdict: str
    budget: float | None = None
    ways: tuple[str, ...] = ()
    declared: Mapping[str, str] = field(default_factory=dict)
    klass: str = ""
    error: str = ""
    root: str = ""
    text: str = ""
    bits: str = ""
    problem: str = ""
    judge: str = ""
    uncalibrated: bool = False
    looked: bool = False
    not_refused: str = ""
    cause: str = ""
    condition: str = ""
    known: str = ""
    since: Mapping[str, str] = field(default_factory=dict)
    rerun: str = ""
    tensors: Path | None = None
    where: "Circumstances | None" = None

    @property
    def judged(self) -> bool:
        """Whether there was a reply, or a refusal that was required."""
        return self.verdict in JUDGED

    @property
    def conforms(self) -> bool:
        """Whether it is as declared, as far as this can be judged."""
        return self.verdict in CONFORMING or (self.verdict == "inconclusive" and self.uncalibrated)


@dataclass(frozen=True)
class Circumstances:
    """
    Where a subject was judged.

    versions: of distributions. machine: the other properties that output bits depend on. adapter: digest of the
    adapter. settings: environment variables of the worker that choose threads, instruction sets or kernels.
    """

    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    adapter: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparedRun:
    """
    A run, or the part of one that a baseline records.

    cases: id -> digest of the problem, or "". asked: the subjects that were to be judged. missing: sentences that say
    what was not judged and why. sources: id -> `file:line` of the case. not_offered: subjects that could not be judged
    -> what they lack. not_working: subjects without a reply to any valid call -> the sentence that says so. left_out:
    how many cases it left out because only a thorough run asks them. is_check: whether `conformance check` judged it.
    """

    name: str
    cases: Mapping[str, str]
    asked: Mapping[str, Circumstances]
    cells: Mapping[Key, Observed]
    missing: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    not_offered: Mapping[str, str] = field(default_factory=dict)
    not_working: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0
    is_check: bool = False

    def works(self, subject: str) -> bool:
        """Whether a subject (for a dense form, its native subject) had a reply to some valid call."""
        return native(subject) not in self.not_working

    def asks(self, subject: str) -> bool:
        """Whether it was asked for a subject; a check always asks for dense forms, even if the function has none."""
        return subject in self.asked or (self.is_check and native(subject) in self.asked)

    def circumstances(self, subject: str, cell: Observed | None) -> Circumstances | None:
        """The circumstances in which a cell was judged."""
        return cell.where if cell is not None and cell.where is not None else self.asked.get(subject)


class AmbiguousRunError(ValueError):
    """A run judged one subject in several environments, so it is not clear which one to compare."""


def read_side(folder: Path) -> ComparedRun:
    """
    Read a run folder.

    Raises:
        RunLogError: its log is not a run log of this schema. OSError: it cannot be read. AmbiguousRunError: see there.
    """
    run = load_run(folder, whole=False)
    incomplete = f"{folder / LOG}: the run was cut off before its end: {_remedy(run)}"
    return side_of(run, () if run.footer else (incomplete,))


def _remedy(run: Run) -> str:
    command = " ".join(run.header.command) or "conformance run ..."
    given = f" --out {run.folder}" if "--out" not in command else ""
    return f"resume it with `{command}{given} --resume`, or run it again"


def side_of(run: Run, missing: tuple[str, ...] = (), *, plain: bool = True) -> ComparedRun:
    """
    Convert a run to a side of a comparison. plain: name subjects without their environment.

    Raises:
        AmbiguousRunError: two subjects have the same plain name.
    """
    name, header = str(run.folder), run.header
    names = _plain_names(header.subjects, name) if plain else {subject: subject for subject in header.subjects}
    joint = _joint(run.diagnoses.values())
    incomplete = run.footer.gate.incomplete if run.footer else ()
    not_working = run.footer.gate.not_working if run.footer else {}
    return ComparedRun(
        name=name,
        cases={case: short(about.digest) for case, about in header.cases.items()},
        asked=_circumstances(run, names),
        cells={
            (cell.case, names[cell.subject]): observed(cell, run.folder, header.judge, joint)
            for cell in run.cells.values()
        },
        missing=(*missing, *(f"{name}: {text}" for text in incomplete)),
        sources={case: about.source for case, about in header.cases.items()},
        not_offered={each.adapter: ", ".join(each.missing) for each in header.not_offered},
        not_working={names[subject]: sentence for subject, sentence in not_working.items()},
        left_out=header.left_out,
        is_check=header.command[1:2] == ("check",),
    )


def _plain_names(subjects: Mapping[str, LoggedSubject], side: str) -> dict[str, str]:
    """Names without environments, so that `x@cpu:base` and `x@cpu:candidate` are the same subject."""
    plain = {name: without_environment(name) for name in subjects}
    if len(set(plain.values())) < len(plain):
        twice = next(name for name in plain.values() if list(plain.values()).count(name) > 1)
        raise AmbiguousRunError(
            f"{side}: {twice} was judged in several environments; write each environment to its own run folder"
        )
    return plain


def _circumstances(run: Run, names: Mapping[str, str]) -> dict[str, Circumstances]:
    platform = run.header.platform
    workers = {subject: each for each in run.workers if each.status == "ready" for subject in each.subjects}
    found = {}
    for name, about in run.header.subjects.items():
        worker = workers.get(name)
        evidence = worker.evidence if worker else {}
        machine = {
            "platform": f"{platform.get('system')}-{platform.get('machine')}",
            "cpu_features": " ".join(platform.get("cpu_features", ())),
            "device": evidence.get("device", about.device),
            "threads": evidence.get("threads"),
        }
        if libraries := evidence.get("libraries"):
            machine["libraries"] = ", ".join(f"{name}: {library}" for name, library in sorted(libraries.items()))
        versions = {**evidence.get("versions", {}), **(worker.versions if worker else {})}
        python = {"python": worker.python} if worker and worker.python else {}
        found[names[name]] = Circumstances(
            {**versions, **python}, machine, about.digest, worker.settings if worker else {}
        )
    return found


def observed(
    cell: LoggedCell, folder: Path, judge: str, joint: Mapping[Key, tuple[str, str]] = MappingProxyType({})
) -> Observed:
    """
    Convert a cell of a run log.

    joint: the way and the condition from the subject's joint diagnosis, by cell. The way is "" for a cell that it
    leaves without a cause, even if something explains the cell alone. If a known deviation accepts the cell and there
    is no diagnosis, the decisions of the known deviation are used.
    """
    cause, condition = joint.get(cell.key, ("", ""))
    way = cause or (AND.join(cell.known.decisions) if cell.known else "")
    ruled_out = cell.key in joint and not cause and cell.fail_class != INVARIANT
    ways = () if ruled_out else _ways(cell)
    return Observed(
        verdict=cell.verdict,
        budget=cell.budget,
        ways=tuple(dict.fromkeys((way, *ways) if way else ways)),
        declared={each.decision: each.name for each in cell.dialect},
        klass=cell.fail_class,
        error=cell.error.kind if cell.error else "",
        root=root(cell.error.message) if cell.error else "",
        text=_line(gist(cell.error.message) if cell.error else cell.reason),
        bits=short(cell.digests.get("outputs", "")),
        problem=short(cell.digests.get("problem", "")),
        judge=short(cell.digests.get("judge", judge)),
        uncalibrated=cell.uncalibrated,
        looked=cell.invariants is not None,
        not_refused=REFUSALS[cell.mistake].sentence if cell.mistake and cell.fail_class == NOT_REFUSED else "",
        cause=cause,
        condition=condition,
        known=cell.known.reason if cell.known else "",
        since=cell.known.versions if cell.known else {},
        rerun=cell.rerun,
        tensors=folder / cell.tensors if cell.tensors else None,
    )


def _joint(diagnoses: Iterable[LoggedDiagnosis]) -> dict[Key, tuple[str, str]]:
    """
    The way (`decision=name & decision=name`) and condition of each cell, from the subjects' joint diagnoses.

    The condition of a cell without a cause is what all such cells have in common; that of an exception, what all calls
    with the same exception have in common.
    """
    found: dict[Key, tuple[str, str]] = {}
    for diagnosis in diagnoses:
        for cause in diagnosis.causes:
            taken = [f"{decision}={name}" for decision, name in cause.decisions.items()]
            way = AND.join(taken) or f"arithmetic={cause.arithmetic}"
            for case in cause.cells:
                found[case, diagnosis.subject] = (way, cause.condition)
        found |= {(case, diagnosis.subject): ("", diagnosis.unexplained_where) for case in diagnosis.unexplained}
        found |= {(case, diagnosis.subject): ("", each.condition) for each in diagnosis.errors for case in each.cells}
    return found


def _ways(cell: LoggedCell) -> tuple[str, ...]:
    if cell.fail_class == INVARIANT:
        return tuple(f"{INVARIANT}={each.name}" for each in cell.invariants or () if each.found == "broken")
    if cell.explanation:
        return (f"{cell.explanation.decision}={cell.explanation.name}", *cell.ties)
    return ()


def short(digest: str) -> str:
    """The first 16 digits of a digest, enough to distinguish two."""
    return digest.removeprefix("sha256:")[:16]


def _line(text: str) -> str:
    """A text on one line, without colours and without addresses, which change from run to run."""
    line = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
    return re.sub(r"0x[0-9a-fA-F]+", "0x…", line)[:300]
