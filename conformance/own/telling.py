"""A check in plain words: the first lines on the terminal, and what a failing assertion says."""

from collections.abc import Collection, Iterator

from conformance.engine.run import Run
from conformance.own.causes import Cause
from conformance.own.observation import Varying
from conformance.own.profiles import ordinary
from conformance.own.settling import Settled
from conformance.spec.counting import counted

VARIES = "one way here and another there, where either is fine but not both (another mistake can do that)"
SHOWN = 8
"""So many causes; the report has them all."""
SHOWN_TIES = 3
"""So many others that a cause is not told from."""


def settled_notes(settled: Settled) -> tuple[str, ...]:
    """How the function was called, and what was found about it before it was judged."""
    signature, observed = settled.signature, settled.observed
    notes = []
    if signature.defaults:
        notes.append(f"left at its default, since check does not know it: {', '.join(signature.defaults)}")
    if signature.mask is None:
        notes.append("it takes no mask: cases that need one are left out")
    named = settled.read.items()
    notes += [f"arithmetic: {dtype} is judged as {name}" for dtype, name in named if name != ordinary(dtype)]
    for decision, name in observed.dialect.items():
        notes.append(f"observed: {decision}={name} (fine; --declare {decision}={name} pins it down)")
    return tuple(notes)


def varying_notes(varies: Varying, named: Collection[str]) -> Iterator[str]:
    """
    The decisions that are taken now one way and now another.

    named: cases with a named cause. Where an example is among them, that it varies is a consequence, and not told.
    """
    told = [
        f"{decision}={name} in {case}"
        for decision, examples in varies.items()
        if not set(examples.values()) & set(named)
        for name, case in examples.items()
    ]
    if told:
        yield f"{VARIES}: {'; '.join(told)}"


def headline(given: str, run: Run, causes: tuple[Cause, ...], *, conforms: bool) -> str:
    """Whether it conforms, in the first line."""
    judged = sum(cell.verdict != "unsupported" for cell in run.cells.values())
    if conforms:
        left = len(run.cells) - judged
        return f"{given} conforms: {counted(judged, 'call')} judged, {left:,} left out that it does not take."
    if causes:
        return f"{given} does not conform: {_found(causes)} in {counted(judged, 'call')}."
    return f"{given} was not judged{' to the end' if judged else ''}: see below."


def _found(causes: tuple[Cause, ...]) -> str:
    """How many causes, and how many verdicts have none."""
    named = sum(cause.explained for cause in causes)
    left = counted(sum(cause.count for cause in causes if not cause.explained), "verdict")
    if not named:
        return f"{left} without a known cause"
    return counted(named, "cause") + (f", and {left} without one," if named < len(causes) else "")


def cause_lines(causes: tuple[Cause, ...], again: dict[str, str]) -> list[str]:
    """Each cause, what to change, and the command that shows it again."""
    lines = []
    for number, cause in enumerate(causes[:SHOWN], 1):
        lines.append(f"{number}. {cause} ({counted(cause.count, 'verdict')})")
        if cause.remedy:
            lines.append(f"   fix: {cause.remedy}")
        lines.append(f"   again: {again[cause.case]}")
        lines += [f"   ambiguous: {other}" for other in cause.ambiguous[:SHOWN_TIES]]
    if len(causes) > SHOWN:
        lines.append(f"and {counted(len(causes) - SHOWN, 'more cause')} in the report")
    return lines
