"""The replies of one subject, each read under what explains it: its declaration, or a cause of the joint diagnosis."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from conformance.judge.candidates import Cause
from conformance.judge.diagnose import explain
from conformance.judge.evidence import Evidence
from conformance.judge.explanation import Way
from conformance.judge.joint import diagnose
from conformance.judge.reading import Probe, Reading, read


def readings(probes: Sequence[Probe]) -> tuple[Reading, ...]:
    """
    Read every reply, in order.

    A reply that is not as declared is read under the cause that the diagnosis finds for it. Where other replies
    contradict every cause, it is read under the likeliest single way that explains it; else under nothing.
    """
    cells = [_cell(probe) for probe in probes]
    causes = {cell: cause for cause in diagnose(cells).causes for cell in cause.cells}
    return tuple(_reading(probe, cell, causes.get(cell)) for probe, cell in zip(probes, cells, strict=True))


def _cell(probe: Probe) -> Evidence:
    """What the reply says for and against a cause; one that is as declared needs no reply."""
    suspect = probe.suspect()
    if suspect.holds(probe.dialect):
        return replace(probe, actual=None)
    found = explain(probe.problem, probe.declared, probe.profile, suspect.actual)
    return replace(probe, found=tuple(each.way for each in found))


def _reading(probe: Probe, cell: Evidence, cause: Cause | None) -> Reading:
    if cell.actual is None:
        return read(probe, probe.dialect)
    change = cause.candidate.change if cause is not None else cell.found[:1]
    return read(probe, probe.under(change), _alike(cause, cell)) if change else Reading(probe, None)


def _alike(cause: Cause | None, cell: Evidence) -> Iterator[Way]:
    """The single ways that explain the reply and that the diagnosis does not tell apart."""
    if cause is None:
        yield from cell.found
        return
    for each in (cause, *cause.ties):
        if len(each.candidate.change) == 1:
            yield from each.candidate.change
