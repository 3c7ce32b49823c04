"""Who can be judged here: the subjects that were asked for, and what is missing for the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import places
from conformance.cli.errors import UsageError
from conformance.engine.adapters import AdapterError, Subject, read_adapters, subjects_of
from conformance.engine.environments import (
    Environment,
    Unusable,
    examine,
    missing,
    our_own,
    parse_environments,
)
from conformance.engine.header import not_offered_record
from conformance.engine.plan import WorkerPlan
from conformance.engine.selection import SelectionError, adapter_file, select

SLOWEST_FIRST = ("onnx", "jax", "keras", "tensorflow", "torch")
"""Frameworks in the order of what a run of theirs takes; a hint for scheduling and nothing else."""


@dataclass(frozen=True)
class Offer:
    """Subjects that can run here, and what is missing for the others."""

    subjects: tuple[Subject, ...]
    environments: Mapping[str, Environment]
    not_offered: tuple[dict[str, Any], ...]
    incomplete: tuple[str, ...]


def make_offer(patterns: Sequence[str], environments: Sequence[str], device: str) -> Offer:
    """
    Choose the subjects that were asked for; without a choice, all whose packages are installed.

    Raises:
        UsageError: an adapter file, a pattern or an environment that cannot be used as it is written.
    """
    named = [adapter_file(pattern) for pattern in patterns]
    files = list(dict.fromkeys(found[0] for found in named if found))
    ours = [places.adapters()] if not patterns or None in named else []
    usable, incomplete = _environments(environments)
    try:
        adapters = read_adapters([*ours, *existing(files)])
        chosen = select(subjects_of(adapters, device, list(usable)), patterns)
    except (AdapterError, SelectionError) as error:
        raise UsageError(str(error)) from error
    return _offered(chosen, usable, incomplete, asked=bool(patterns), device=device)


def _environments(given: Sequence[str]) -> tuple[dict[str, Environment], list[str]]:
    try:
        pairs = parse_environments(given)
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = [examine(name, python) for name, python in pairs]
    usable = {each.name: each for each in found if isinstance(each, Environment)}
    unusable = [f"environment {each.name}: {each.reason}" for each in found if isinstance(each, Unusable)]
    return {"default": our_own(), **usable}, unusable


def _offered(
    chosen: Sequence[Subject],
    environments: Mapping[str, Environment],
    incomplete: Sequence[str],
    *,
    asked: bool,
    device: str,
) -> Offer:
    offered, refused, problems = [], {}, list(incomplete)
    for subject in chosen:
        lacking = missing(subject, environments[subject.environment])
        if device not in subject.devices:
            reason = f"{subject.name}: its adapter runs on {', '.join(subject.devices)}, not on {device}"
        elif lacking:
            reason = f"{subject.name}: needs {', '.join(lacking)}{_remedy(subject)}"
        else:
            offered.append(subject)
            continue
        if lacking and subject.counted and subject.environment == "default":
            refused[subject.short_name] = not_offered_record(subject.adapter, subject.variant, lacking)
        if asked and subject.counted:
            problems.append(reason)
    if device != "cpu" and not offered:
        problems.append(f"no subject can run on device {device!r} here")
    return Offer(tuple(offered), environments, tuple(refused.values()), tuple(problems))


def _remedy(subject: Subject) -> str:
    extra = subject.extra
    return f": python -m pip install 'attention-conformance[{extra}]'" if extra else ""


def existing(paths: Sequence[Path]) -> list[Path]:
    """
    Give back files that were asked for.

    Raises:
        UsageError: one of them is not there.
    """
    for path in paths:
        if not path.is_file():
            raise UsageError(f"there is no file {path}")
    return list(paths)


def cost(plan: WorkerPlan) -> int:
    """Where a plan stands among the others: those that take longest first."""
    framework = plan.name.partition(".")[0]
    return SLOWEST_FIRST.index(framework) if framework in SLOWEST_FIRST else len(SLOWEST_FIRST)
