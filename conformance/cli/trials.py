"""One case on one subject under many releases of a package: each judged once, and kept."""

import argparse
import contextlib
import hashlib
import io
import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from conformance import places
from conformance.cli import provisioning
from conformance.cli.parser import build_parser
from conformance.cli.run import run
from conformance.engine.adapters import Subject
from conformance.engine.bisection import State
from conformance.engine.judging import judge_digest
from conformance.engine.pins import Locked, Sides, recipes
from conformance.engine.provision import ProvisionError, Recipe, provision
from conformance.engine.runlog import RunLogError
from conformance.gate.change import FAILING, change_of
from conformance.gate.side import Observed, read_side
from conformance.judge.telling import sentence


class NotJudgedError(Exception):
    """A release that gives no verdict: it cannot be installed, does not start, or declines the case."""


@dataclass
class Trials:
    """Judges one case on one subject under releases of a package; what was judged before is read again."""

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
        """The environment with one release of the package."""
        sides = Sides({self.package: version}, {self.package: version}, self.sides.both)
        return recipes(self.python, self.subject.requires, sides, self.locked)[0]

    def shared(self) -> str:
        """The interpreter of the environment that all of them lie over."""
        under = self.recipe("0").over
        if under is None:
            raise AssertionError("recipes lie over one that they share")
        with provisioning.Telling() as telling:
            return provision(under, provisioning.cache(), telling).python

    def folder(self, version: str) -> Path:
        """Where the run under one release is kept: another case, adapter, judge or environment is another place."""
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
        What the subject makes of the case under one release.

        Raises:
            NotJudgedError: there is no verdict; the reason is kept in `skipped`.
        """
        if version not in self.seen:
            try:
                self.seen[version] = self._judged(version)
            except (NotJudgedError, ProvisionError) as error:
                self.skipped[version] = str(error)
                print(f"{self.package} {version}: skipped: {error}", file=sys.stderr)
                raise NotJudgedError(str(error)) from None
            print(f"{self.package} {version}: {told(self.seen[version])}", file=sys.stderr)
        return self.seen[version]

    def _judged(self, version: str) -> Observed:
        with provisioning.Telling() as telling:
            made = provision(self.recipe(version), provisioning.cache(), telling)
        if made.yanked:
            self.withdrawn.add(version)
            raise NotJudgedError("withdrawn (yanked) by its maintainers")
        folder = self.folder(version)
        if (found := _kept(folder)) is not None:
            return self._verdict(found)
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
        found = _kept(folder)
        if found is None:
            why = read_side(folder).missing
            shutil.rmtree(folder, ignore_errors=True)
            raise NotJudgedError(why[0].removeprefix(f"{folder}: ") if why else "gave no verdict")
        return self._verdict(found)

    def _verdict(self, found: Observed) -> Observed:
        if found.verdict == "unsupported":
            raise NotJudgedError(f"unsupported: {found.text}")
        return found

    def state(self, version: str, *, reference: Observed, fixed: bool) -> State:
        """Whether a release is like the good one; `fixed` says that the good one is the newer end."""
        try:
            found = self.observe(version)
        except NotJudgedError:
            return "skip"
        return "after" if differs(reference, found) != fixed else "before"


def _kept(folder: Path) -> Observed | None:
    """The one cell of a run that came to its end: of a call and its dense form, which may be told first, the call."""
    try:
        side = read_side(folder)
    except (OSError, RunLogError):
        return None
    cells = sorted(side.cells.items(), key=lambda item: "dense]" in item[0][1])
    return next((seen for _, seen in cells), None) if not side.missing else None


def differs(good: Observed, found: Observed) -> bool:
    """Whether a verdict is a change for the worse from the good one."""
    change = change_of(good, found, same_machine=False)
    return change is not None and change[0] in FAILING


def told(found: Observed) -> str:
    """A verdict in a line, with the cause in words where it has one."""
    if found.conforms:
        return found.verdict if found.budget is None else f"{found.verdict}, {found.budget:.2g} of the bound"
    decision, _, way = (found.ways or ("",))[0].partition("=")
    cause = f"; it {sentence(decision, way)}" if decision else ""
    return f"{found.verdict}{' (a known deviation)' if found.known else ''}: {found.text}{cause}"
