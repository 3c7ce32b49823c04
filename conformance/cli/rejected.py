"""`--last-failed`: what the newest run rejected."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from conformance.cli.errors import UsageError
from conformance.cli.offer import Offer
from conformance.engine.run import load_run
from conformance.engine.runlog import RunLogError
from conformance.spec.case import Case
from conformance.spec.counting import counted

LATEST = Path("reports") / "latest"

Rejected = frozenset[tuple[str, str]]
"""Cells: (case id, subject name)."""


def last_rejected() -> Rejected:
    """
    The cells that the newest run rejected.

    Raises:
        UsageError: there is no such run, or it rejected nothing.
    """
    try:
        found = load_run(LATEST, whole=False).rejected
    except (RunLogError, OSError) as error:
        raise UsageError(f"--last-failed asks again what {LATEST} rejected: {error}") from error
    if not found:
        raise UsageError(f"--last-failed: {LATEST} rejected nothing: leave the option out")
    return found


def of_subjects(offer: Offer, rejected: Rejected) -> Offer:
    """
    The subjects with a rejected cell.

    Raises:
        UsageError: none of them is among those that were asked for.
    """
    names = {subject for _, subject in rejected}
    kept = tuple(subject for subject in offer.subjects if subject.name in names)
    if not kept:
        raise UsageError(f"--last-failed: {LATEST} rejected {', '.join(sorted(names))}, which -a does not choose here")
    return replace(offer, subjects=kept)


def of_cases(cases: Sequence[Case], rejected: Rejected) -> tuple[Case, ...]:
    """
    The cases of rejected cells.

    Raises:
        UsageError: none of them is among those that were asked for.
    """
    ids = {case for case, _ in rejected}
    kept = tuple(case for case in cases if case.id in ids)
    if not kept:
        what = f"{counted(len(ids), 'case')}, first {min(ids)}"
        raise UsageError(f"--last-failed: {LATEST} rejected {what}, and none is chosen here")
    return kept
