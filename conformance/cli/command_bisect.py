"""`conformance bisect`: find the package release that changed the result of a case on a subject."""

import argparse
import contextlib
import hashlib
import io
import json
import shlex
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import InvalidVersion, Version

from conformance import places
from conformance.cli import provisioning
from conformance.cli.argument_parser import UsageError
from conformance.cli.case_choice import one_case
from conformance.cli.command_run import run
from conformance.cli.parser import build_parser
from conformance.diagnosis.explanation import sentence
from conformance.engine.adapters import Subject
from conformance.engine.judging import judge_digest
from conformance.engine.package_pins import NEVER_NEWEST, Locked, PinError, Sides, read_pins, recipes
from conformance.engine.provision import (
    FirstDifference,
    ProvisionError,
    Recipe,
    State,
    between,
    bisect,
    provision,
    released,
)
from conformance.engine.runlog import RunLogError
from conformance.gate.change import FAILING, change_of
from conformance.gate.decision import CONFORMS, INCOMPLETE
from conformance.gate.observations import Observed, read_side
from conformance.spec.materialise import materialise, problem_digest


class NotJudgedError(Exception):
    """A release gives no verdict: it cannot be installed, does not start, or declines the case."""


@dataclass
class Trials:
    """Judges one case on one subject under several releases of a package; runs that exist already are reused."""

    arguments: argparse.Namespace
    subject: Subject
    case: str
    digest: str
    python: str
    sides: Sides
    locked: Locked
    package: str
    seen: dict[str, Observed] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    withdrawn: set[str] = field(default_factory=set)

    def recipe(self, version: str) -> Recipe:
        """Return the recipe of the environment with one release of the package."""
        sides = Sides({self.package: version}, {self.package: version}, self.sides.both)
        return recipes(self.python, self.subject.requires, sides, self.locked)[0]

    def shared(self) -> str:
        """Return the interpreter of the base environment that all releases share."""
        base = self.recipe("0").over
        if base is None:
            raise AssertionError("the recipe has no base environment")
        with provisioning.PipProgress() as progress:
            return provision(base, provisioning.cache(), progress).python

    def folder(self, version: str) -> Path:
        """Return the folder of the run under one release; it depends on case, adapter, judge and environment."""
        about = [
            self.digest,
            self.subject.adapter.digest,
            judge_digest(),
            self.recipe(version).digest,
            self.subject.name,
        ]
        return places.cache() / "bisect" / hashlib.sha256(json.dumps(about).encode()).hexdigest()[:20]

    def observe(self, version: str) -> Observed:
        """
        Return the result of the case under one release.

        Raises:
            NotJudgedError: there is no verdict; the reason is stored in `skipped`.
        """
        if version not in self.seen:
            try:
                self.seen[version] = self._judged(version)
            except (NotJudgedError, ProvisionError) as error:
                self.skipped[version] = str(error)
                print(f"{self.package} {version}: skipped: {error}", file=sys.stderr)
                raise NotJudgedError(str(error)) from None
            print(f"{self.package} {version}: {trial_text(self.seen[version])}", file=sys.stderr)
        return self.seen[version]

    def _judged(self, version: str) -> Observed:
        with provisioning.PipProgress() as progress:
            made = provision(self.recipe(version), provisioning.cache(), progress)
        if made.yanked:
            self.withdrawn.add(version)
            raise NotJudgedError("withdrawn (yanked) by its maintainers")
        folder = self.folder(version)
        if (observed := _stored(folder)) is not None:
            return self._judged_result(observed)
        shutil.rmtree(folder, ignore_errors=True)
        words = [
            "run",
            *map(str, self.arguments.cases),
            "-a",
            *provisioning.patterns_of([self.subject]),
            "-k",
            self.case,
        ]
        words += ["--env", f"default={made.python}", "--out", str(folder), "--device", self.arguments.device]
        words += ["--timeout", str(self.arguments.timeout), "--start-timeout", str(self.arguments.start_timeout)]
        words += ["--exit-zero"]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            run(build_parser().parse_args(words))
        observed = _stored(folder)
        if observed is None:
            why = read_side(folder).missing
            shutil.rmtree(folder, ignore_errors=True)
            raise NotJudgedError(why[0].removeprefix(f"{folder}: ") if why else "gave no verdict")
        return self._judged_result(observed)

    def _judged_result(self, observed: Observed) -> Observed:
        if observed.verdict == "unsupported":
            raise NotJudgedError(f"unsupported: {observed.text}")
        return observed

    def state(self, version: str, *, reference: Observed, fixed: bool) -> State:
        """Return whether a release behaves like the good one, `reference`; fixed: the good release is the newer one."""
        try:
            observed = self.observe(version)
        except NotJudgedError:
            return "skip"
        return "after" if differs(reference, observed) != fixed else "before"


def _stored(folder: Path) -> Observed | None:
    """Return the one cell of a finished run, None if there is none; the plain form wins over the dense form."""
    try:
        side = read_side(folder)
    except (OSError, RunLogError):
        return None
    cells = sorted(side.cells.items(), key=lambda item: "dense]" in item[0][1])
    return next((seen for _, seen in cells), None) if not side.missing else None


def differs(good: Observed, observed: Observed) -> bool:
    """Return whether a result is worse than the good one."""
    change = change_of(good, observed, same_machine=False)
    return change is not None and change[0] in FAILING


def trial_text(observed: Observed) -> str:
    """Return a result as one line, with its cause in words if it has one."""
    if observed.conforms:
        verdict = observed.verdict
        return verdict if observed.budget is None else f"{verdict}, {observed.budget:.2g} of the bound"
    decision, _, way = (observed.ways or ("",))[0].partition("=")
    cause = f"; it {sentence(decision, way)}" if decision else ""
    return f"{observed.verdict}{' (a known deviation)' if observed.known else ''}: {observed.text}{cause}"


def bisect_releases(arguments: argparse.Namespace) -> int:
    """Find the release that changed the result, print both results, and return the exit code."""
    trials = _trials(arguments)
    provisioning.refuse_absent(trials.python, trials.sides, ("--good", "--bad", "--both"))
    try:
        releases = between(released(trials.shared(), trials.package), arguments.good, arguments.bad)
    except ProvisionError as error:
        raise UsageError(str(error)) from error
    fixed = releases[0] != _same(releases, arguments.good)
    try:
        good, bad = (trials.observe(_same(releases, version)) for version in (arguments.good, arguments.bad))
    except NotJudgedError:
        (version, reason), *_ = trials.skipped.items()
        print(f"{trials.package} {version} cannot be judged: {reason}\nchoose another --good or --bad")
        return INCOMPLETE
    _check_ends(trials.package, arguments, good, bad)
    border = bisect(releases, lambda version: trials.state(version, reference=good, fixed=fixed))
    print("\n".join(_lines(trials, border, len(releases), fixed=fixed)))
    return CONFORMS


def _same(releases: list[str], version: str) -> str:
    """Return the version as the package index writes it: 3.15 becomes 3.15.0."""
    return between(releases, version, version)[0]


def _trials(arguments: argparse.Namespace) -> Trials:
    for option, version in (("--good", arguments.good), ("--bad", arguments.bad)):
        try:
            Version(version)
        except InvalidVersion:
            raise UsageError(f"{option} {version}: expected a version, such as 3.15.0") from None
    python, locked = provisioning.maker(arguments)
    try:
        pins = [f"{arguments.package}=={version}" for version in (arguments.good, arguments.bad)]
        sides = read_pins(pins, arguments.both, locked)
    except PinError as error:
        raise UsageError(str(error)) from error
    package = next(iter(sides.base))
    subjects = provisioning.named_subjects([arguments.subject], arguments.device)
    kept, notes = provisioning.divided(subjects, sides, locked)
    if not kept:
        raise UsageError(notes[0])
    subject = kept[0]
    if package in NEVER_NEWEST and package not in provisioning.requirement_names(subject):
        raise UsageError(
            f"{subject.name} does not require {package}, and {NEVER_NEWEST[package]}: give another --package"
        )
    case = one_case(arguments.cases, arguments.case)
    if case.operator not in subject.operators:
        raise UsageError(
            f"{case.id} is a case of {case.operator}, but {subject.name} computes {', '.join(subject.operators)}"
        )
    digest = problem_digest(materialise(case))
    return Trials(arguments, subject, case.id, digest, python, sides, locked, package)


def _check_ends(package: str, arguments: argparse.Namespace, good: Observed, bad: Observed) -> None:
    """
    Check that the two ends differ in the right direction.

    Raises:
        UsageError: the good release fails, or the bad release is not worse than the good one.
    """
    ends = f"{package} {arguments.good}: {trial_text(good)}\n{package} {arguments.bad}: {trial_text(bad)}"
    if not good.conforms and not good.known:
        swap = "; swap --good and --bad" if bad.conforms else ""
        raise UsageError(f"{package} {arguments.good} is not good{swap}\n{ends}")
    if not differs(good, bad):
        raise UsageError(f"{package} {arguments.bad} is not bad: it behaves like {arguments.good}\n{ends}")


def _lines(trials: Trials, border: FirstDifference, count: int, *, fixed: bool) -> list[str]:
    """Return the conclusion, the results of both releases, and a command that shows more."""
    name = trials.package
    what = ("bad", "good") if fixed else ("good", "bad")
    lines = [f"{name} {border.first} is the first {what[1]} release, {border.last} the last {what[0]} one"]
    if unknown := [version for version in border.skipped if version not in trials.withdrawn]:
        lines[0] = f"{name}: the first {what[1]} release is one of {', '.join((*unknown, border.first))}"
    lines += [f"  {version}: {trial_text(trials.seen[version])}" for version in (border.last, border.first)]
    lines += [f"  {version}: skipped: {trials.skipped[version]}" for version in border.skipped]
    lines.append(f"{len(trials.seen)} of {count} releases judged")
    pins = [f"{name}=={border.last}", f"{name}=={border.first}"]
    words = [*pins, "-a", *provisioning.patterns_of([trials.subject]), "-k", trials.case]
    for option in ("both", "cases", "constraint", "python"):
        given = getattr(trials.arguments, option)
        words += [
            word
            for value in (given if isinstance(given, list) else [given] if given else [])
            for word in (f"--{option}", str(value))
        ]
    lines.append(f"see: {shlex.join(['conformance', 'upgrade', *words])}")
    return lines
