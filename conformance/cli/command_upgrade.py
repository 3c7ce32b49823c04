"""`conformance upgrade`: make two environments, judge the affected subjects in both, and tell what changed."""

import argparse
import contextlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.cli import provisioning
from conformance.cli.command_compare import annotate_changes, compare_folders
from conformance.cli.command_run import Again, one_cell, run
from conformance.cli.errors import UsageError, see_writable_files
from conformance.cli.output_folder import new_folder
from conformance.cli.parser import build_parser
from conformance.engine.adapters import Subject
from conformance.engine.environments import Environment, examine
from conformance.engine.package_pins import PinError, Sides, read_pins, recipes
from conformance.engine.provision import Provisioned, ProvisionError, Recipe, is_made, provision
from conformance.gate.decision import CONFORMS, INTERNAL, INTERRUPTED, REJECTED, USAGE

SIDES = ("base", "candidate")
# Distributions that are named where more differ than was asked for.
MAX_NAMED = 8


def upgrade(arguments: argparse.Namespace) -> int:
    """Judge before and after, write the page, and return the exit code."""
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
        raise UsageError("nothing is left to judge")
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
    about = (f"Upgrade: {sides}", *((f"also differs, since pip had to: {also}",) if also else ()))
    found = compare_folders(out / "base", out / "candidate", out, skip_budget=arguments.skip_budget, about=about)
    annotate_changes(found, arguments)
    return CONFORMS if found.exit_code == REJECTED and arguments.exit_zero else found.exit_code


def _affected(arguments: argparse.Namespace, sides: Sides) -> list[Subject]:
    """Those that were asked for; without a choice, those that require what changes."""
    subjects = provisioning.named_subjects(arguments.subject, arguments.device)
    found = subjects if arguments.subject else provisioning.affected(subjects, sides)
    if not found:
        names = ", ".join(sides.candidate)
        known = sorted({name for subject in subjects for name in provisioning.requirement_names(subject)})
        raise UsageError(f"no adapter requires {names}, only {', '.join(known)}; choose subjects with -a to judge them")
    return found


def _provisioned(sides: Sequence[Recipe]) -> list[Provisioned]:
    """
    Make the environments, or find them.

    Raises:
        UsageError: one cannot be made.
    """
    made = []
    with provisioning.PipProgress() as telling:
        for name, recipe in zip(SIDES, sides, strict=True):
            try:
                made.append(provision(recipe, provisioning.cache(), telling))
            except (ProvisionError, OSError) as error:
                raise UsageError(f"{name}: {error}") from error
            for warning in made[-1].warnings:
                print(f"{name}: pip says: {warning}", file=sys.stderr)
    return made


def _also(made: Sequence[Provisioned], sides: Sides) -> str:
    """What else has another version in the two environments, which nobody asked for."""
    before, now = (
        found.distributions for found in (examine(e.python, e.python) for e in made) if isinstance(found, Environment)
    )
    names = sorted({name for name, _ in before.items() ^ now.items()} - sides.candidate.keys())
    told = [f"{name} {before.get(name, 'absent')} -> {now.get(name, 'absent')}" for name in names[:MAX_NAMED]]
    return ", ".join([*told, *([f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else [])])


def _again(arguments: argparse.Namespace, sides: Sides) -> Again:
    """What makes the command that judges one cell on both sides: it works where these environments do not lie."""
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
    arguments: argparse.Namespace, subjects: Sequence[Subject], environment: Provisioned, out: Path, again: Again
) -> int:
    """One side: an ordinary run in its environment, told on stderr."""
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
