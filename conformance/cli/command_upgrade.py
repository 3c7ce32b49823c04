"""`conformance upgrade`: create two environments, judge the affected subjects in both, and report what changed."""

import argparse
import contextlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.cli import provisioning
from conformance.cli.argument_parser import UsageError, see_writable_files
from conformance.cli.command_compare import annotate_changes, compare_folders
from conformance.cli.command_run import RerunCommand, one_cell, run
from conformance.cli.output_folder import new_folder
from conformance.cli.parser import build_parser
from conformance.engine.adapters import Subject
from conformance.engine.environments import Environment, examine
from conformance.engine.package_pins import PinError, Sides, read_pins, recipes
from conformance.engine.provision import Provisioned, ProvisionError, Recipe, is_made, provision
from conformance.gate.decision import CONFORMS, INTERNAL, INTERRUPTED, REJECTED, USAGE

SIDES = ("base", "candidate")
# Maximum number of packages that are listed if more differ than the user gave.
MAX_NAMED = 8


def upgrade(arguments: argparse.Namespace) -> int:
    """Judge both sides, write the comparison, and return the exit code."""
    see_writable_files(arguments.junit)
    python, locked = provisioning.maker(arguments)
    try:
        sides = read_pins(arguments.pins, arguments.both, locked)
    except PinError as error:
        raise UsageError(str(error)) from error
    kept, notes = provisioning.divided(_affected(arguments, sides), sides, locked)
    for note in notes:
        print(note)
    if not kept:
        raise UsageError("no subject is left to judge")
    out = arguments.out or new_folder("upgrade-")
    requires = [choice for subject in kept for choice in subject.requires]
    wanted = recipes(python, requires, sides, locked)
    if not all(is_made(recipe, provisioning.cache()) for recipe in wanted):
        provisioning.refuse_absent(python, sides)
    made = _provisioned(wanted)
    for side, environment in zip(SIDES, made, strict=True):
        code = _judge(arguments, kept, environment, out / side, _again(arguments, sides))
        if code in (INTERNAL, INTERRUPTED, USAGE):
            return code
    also = _also(made, sides)
    about = (f"Upgrade: {sides}", *((f"pip also changed: {also}",) if also else ()))
    comparison = compare_folders(out / "base", out / "candidate", out, skip_budget=arguments.skip_budget, about=about)
    annotate_changes(comparison, arguments)
    return CONFORMS if comparison.exit_code == REJECTED and arguments.exit_zero else comparison.exit_code


def _affected(arguments: argparse.Namespace, sides: Sides) -> list[Subject]:
    """Return the subjects of -a; without -a, all subjects that require a changed package."""
    subjects = provisioning.named_subjects(arguments.subject, arguments.device)
    chosen = subjects if arguments.subject else provisioning.affected(subjects, sides)
    if not chosen:
        names = ", ".join(sides.candidate)
        known = sorted({name for subject in subjects for name in provisioning.requirement_names(subject)})
        raise UsageError(f"no adapter requires {names}, only {', '.join(known)}; choose subjects with -a")
    return chosen


def _provisioned(sides: Sequence[Recipe]) -> list[Provisioned]:
    """
    Create the environments, unless they exist already.

    Raises:
        UsageError: an environment cannot be created.
    """
    made = []
    with provisioning.PipProgress() as progress:
        for name, recipe in zip(SIDES, sides, strict=True):
            try:
                made.append(provision(recipe, provisioning.cache(), progress))
            except (ProvisionError, OSError) as error:
                raise UsageError(f"{name}: {error}") from error
            for warning in made[-1].warnings:
                print(f"{name}: pip says: {warning}", file=sys.stderr)
    return made


def _also(made: Sequence[Provisioned], sides: Sides) -> str:
    """Return the packages whose versions differ between the two environments although the user did not give them."""
    before, now = (
        found.distributions for found in (examine(e.python, e.python) for e in made) if isinstance(found, Environment)
    )
    names = sorted({name for name, _ in before.items() ^ now.items()} - sides.candidate.keys())
    listed = [f"{name} {before.get(name, 'absent')} -> {now.get(name, 'absent')}" for name in names[:MAX_NAMED]]
    return ", ".join([*listed, *([f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else [])])


def _again(arguments: argparse.Namespace, sides: Sides) -> RerunCommand:
    """Return a function that makes the command that judges one cell on both sides, on any machine."""
    words = ["conformance", "upgrade"]
    for name, version in sides.candidate.items():
        words += [f"{name}=={sides.base[name]}", f"{name}=={version}"]
    options: dict[str, Sequence[Any]] = {
        "--both": [f"{name}=={version}" for name, version in sides.both.items()],
        "--cases": arguments.cases,
        "--constraint": [arguments.constraint] if arguments.constraint else [],
        "--python": [arguments.python] if arguments.python else [],
        "--device": [arguments.device] if arguments.device != "cpu" else [],
    }
    words += [word for option, values in options.items() for value in values for word in (option, str(value))]
    return lambda key, offer: shlex.join([*words, *one_cell(key, offer, arguments.subject)])


def _judge(
    arguments: argparse.Namespace, subjects: Sequence[Subject], environment: Provisioned, out: Path, again: RerunCommand
) -> int:
    """Judge one side: an ordinary run in its environment, which prints on stderr."""
    words = ["run", *map(str, arguments.cases), "--env", f"default={environment.python}", "--out", str(out)]
    words += ["--device", arguments.device, "--jobs", str(arguments.jobs), "--timeout", str(arguments.timeout)]
    words += ["--start-timeout", str(arguments.start_timeout)]
    words += ["--thorough"] if arguments.thorough else []
    words += ["--no-cache"] if arguments.no_cache else []
    for option, values in (
        ("-a", provisioning.patterns_of(subjects)),
        ("-k", arguments.case),
        ("--known", arguments.known),
    ):
        words += [word for value in values for word in (option, str(value))]
    print(f"judging {out.name}", file=sys.stderr)
    with contextlib.redirect_stdout(sys.stderr):
        return run(build_parser().parse_args(words, argparse.Namespace(again=again)))
