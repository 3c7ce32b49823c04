"""The replies of one subject, each read under what explains it: its declaration, or a cause of the joint diagnosis."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from conformance.judge.candidates import Cause
from conformance.judge.diagnose import OF_NONFINITE, explain
from conformance.judge.evidence import OF_FILL, Change, Evidence
from conformance.judge.explanation import Way
from conformance.judge.joint import diagnose
from conformance.judge.reading import Probe, Reading, read


def readings(probes: Sequence[Probe]) -> tuple[Reading, ...]:
    """
    Read every reply, in order.

    A reply that is not as declared is read under the cause that the diagnosis finds for it. Where other replies
    contradict every cause, it is read under the likeliest single way that explains it; else under nothing.
    """
    return read_under(probes, [_cell(probe) for probe in probes], lambda cells: diagnose(cells).causes)


def read_under(
    probes: Sequence[Probe],
    cells: Sequence[Evidence],
    causes: Callable[[Sequence[Evidence]], Iterable[Cause]],
    decisions: Collection[str] | None = None,
) -> tuple[Reading, ...]:
    """
    Read every reply under its cause.

    cells: the same replies, without that of a call that is as declared. decisions: only these are read, if given.
    """
    found = {cell: cause for cause in causes(cells) for cell in cause.cells}
    return tuple(_reading(probe, cell, found.get(cell), decisions) for probe, cell in zip(probes, cells, strict=True))


def _cell(probe: Probe) -> Evidence:
    """What the reply says for and against a cause; one that is as declared needs no reply."""
    suspect = probe.suspect()
    if suspect.holds(probe.dialect):
        return replace(probe, actual=None)
    found = explain(probe.problem, probe.declared, probe.profile, suspect.actual)
    return replace(probe, found=tuple(each.way for each in found))


def _reading(probe: Probe, cell: Evidence, cause: Cause | None, decisions: Collection[str] | None) -> Reading:
    if cell.actual is None:
        return read(probe, probe.dialect, decisions=decisions)
    change = cell.found[:1] if cause is None else (_shown(cell, cause) or cause.candidate.change)
    dialect = probe.under(change) if change else None
    return read(probe, dialect, _alike(cause, cell), decisions)


def _shown(cell: Evidence, cause: Cause) -> Change:
    """
    What a reply shows by itself, where the cause is a fill that would come to the same: that is only concluded.

    Not where the fill is needed for a reply that shows no such thing.
    """
    if any(decision != OF_FILL for decision, _ in cause.candidate.change):
        return ()
    seen = [[way for way in each.found if way[0] in OF_NONFINITE] for each in (cell, *cause.cells)]
    return tuple(seen[0][:1]) if all(seen) else ()


def _alike(cause: Cause | None, cell: Evidence) -> Iterator[Way]:
    """The single ways that explain the reply and that the diagnosis does not tell apart."""
    if cause is None:
        yield from cell.found
        return
    for each in (cause, *cause.ties):
        if len(each.candidate.change) == 1:
            yield from each.candidate.change
