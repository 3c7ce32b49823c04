"""`--collect-only`: what would be asked of whom; no framework is started."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from conformance.cli.offer import Offer
from conformance.engine.cells import Cell, Refused, make_cell
from conformance.gate.decide import CONFORMS, INCOMPLETE
from conformance.spec.case import Case
from conformance.spec.counting import counted
from conformance.spec.materialise import materialise

Found: TypeAlias = Cell | Refused


def collect(cases: Sequence[Case], offer: Offer, *, every: bool) -> int:
    """Print a line for each subject, with `every` also one for each cell, and return the exit code."""
    calls: Counter[str] = Counter()
    declined: Counter[str] = Counter()
    for cell in _cells(cases, offer):
        (declined if isinstance(cell, Refused) else calls)[cell.subject.name] += 1
        if every:
            why = f"declined: {cell.reason}" if isinstance(cell, Refused) else "asked"
            print(f"{cell.case.id} on {cell.subject.name}: {why}")
    width = max((len(subject.name) for subject in offer.subjects), default=0)
    for subject in offer.subjects:
        if calls[subject.name] or declined[subject.name]:
            print(f"{subject.name.ljust(width)}  {calls[subject.name]:5} asked  {declined[subject.name]:5} declined")
    for sentence in offer.incomplete:
        print(f"incomplete: {sentence}")
    asked = counted(len({*calls, *declined}), "subject")
    print(
        f"{counted(calls.total(), 'call')}, and {declined.total():,} declined without asking, for "
        f"{counted(len(cases), 'case')} on {asked}; nothing was started"
    )
    return INCOMPLETE if offer.incomplete else CONFORMS


def _cells(cases: Sequence[Case], offer: Offer) -> Iterator[Found]:
    for case in cases:
        problem = materialise(case)
        for subject in offer.subjects:
            if (cell := make_cell(case, problem, subject)) is not None:
                yield cell
