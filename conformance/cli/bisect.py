"""`conformance bisect`: which release of a package changed what a subject makes of a case."""

import argparse
import shlex

from conformance.cli import provisioning
from conformance.cli.choice import one_case
from conformance.cli.errors import UsageError
from conformance.cli.trials import NotJudgedError, Trials, differs, told
from conformance.engine.bisection import Border, bisect
from conformance.engine.pins import PinError, read_pins
from conformance.engine.provision import ProvisionError
from conformance.engine.releases import between, released
from conformance.gate.decide import CONFORMS, INCOMPLETE
from conformance.gate.side import Observed
from conformance.spec.digest import problem_digest
from conformance.spec.materialise import materialise


def bisect_releases(arguments: argparse.Namespace) -> int:
    """Find the release, print the diagnosis of both sides, and return the exit code."""
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
    """The release as the registry writes it: 3.15 is 3.15.0."""
    return between(releases, version, version)[0]


def _trials(arguments: argparse.Namespace) -> Trials:
    python, locked = provisioning.maker(arguments)
    try:
        pins = [f"{arguments.package}=={version}" for version in (arguments.good, arguments.bad)]
        sides = read_pins(pins, arguments.both, locked)
    except PinError as error:
        raise UsageError(str(error)) from error
    subject = provisioning.named_subjects([arguments.subject], arguments.device)[0]
    kept, notes = provisioning.divided([subject], sides, locked)
    if not kept:
        raise UsageError(notes[0])
    case = one_case(arguments.cases, arguments.case)
    if case.operator not in subject.operators:
        raise UsageError(
            f"{case.id} asks for {case.operator}, and {subject.name} answers {', '.join(subject.operators)}"
        )
    digest = problem_digest(materialise(case))
    return Trials(arguments, subject, case.id, digest, python, sides, locked, next(iter(sides.base)))


def _check_ends(package: str, arguments: argparse.Namespace, good: Observed, bad: Observed) -> None:
    """
    See that there is something to find.

    Raises:
        UsageError: good is bad, or bad is good.
    """
    ends = f"{package} {arguments.good}: {told(good)}\n{package} {arguments.bad}: {told(bad)}"
    if not good.conforms and not good.known:
        swap = "; the two are the wrong way round: swap --good and --bad" if bad.conforms else ""
        raise UsageError(f"{package} {arguments.good} is not good{swap}\n{ends}")
    if not differs(good, bad):
        raise UsageError(f"{package} {arguments.bad} is not bad: it does what {arguments.good} does\n{ends}")


def _lines(trials: Trials, border: Border, count: int, *, fixed: bool) -> list[str]:
    """The conclusion, both diagnoses, and what to run to see more."""
    name = trials.package
    what = ("bad", "good") if fixed else ("good", "bad")
    lines = [f"{name} {border.first} is the first {what[1]} release, {border.last} the last {what[0]} one"]
    if unknown := [version for version in border.skipped if version not in trials.withdrawn]:
        lines[0] = f"{name}: the first {what[1]} release is one of {', '.join((*unknown, border.first))}"
    lines += [f"  {version}: {told(trials.seen[version])}" for version in (border.last, border.first)]
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
