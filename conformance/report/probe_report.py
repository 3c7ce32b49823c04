"""The report of `conformance probe`, on the terminal, as JSON and as Markdown: declared next to observed behaviour."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.deviations.names import CANONICAL_NAMES, slot_of
from conformance.diagnosis.behaviour_profile import BehaviourProfile, Line, Observation
from conformance.diagnosis.explanation import CANONICAL, Way
from conformance.report.summary import code, words

# Names of canonical behaviour in decisions for which the oracle has none, mostly those of a mask argument.
ARGUMENT_NAMES = {
    "polarity": "attend",
    "float_mask": "added",
    "number_mask": "non-zero attends",
    "penalty": "-inf",
    "argument_fill": "-inf",
    "use": "used",
    "mask_axes": "as given",
    "lengths": "as given",
    "output_axes": "as those of the query",
}

REMARKS = {"contradicted": "CONTRADICTED", "accepted": "known deviation", "agrees": ""}
# Maximum width of a column on the terminal; a longer text shifts the rest of its line.
MAX_WIDTH = 40

# The name of the records in the run folder.
FILE = "probe.json"

HEADINGS = ("decision", "declared", "observed", "")


@dataclass(frozen=True)
class Pictured:
    """
    A subject with its behaviour profile.

    undocumented: decisions that its documentation does not mention. broken: cases that raised, crashed or hung. rerun:
    case -> the command that runs it again. asked: the number of cases for it.
    """

    name: str
    behaviour: BehaviourProfile
    undocumented: frozenset[str]
    broken: tuple[str, ...]
    rerun: Mapping[str, str]
    asked: int


def way_name(decision: str, name: str) -> str:
    """A way in words; each decision has its own name for canonical behaviour."""
    if name != CANONICAL:
        return name
    family, _ = slot_of(decision)
    return ARGUMENT_NAMES.get(family, CANONICAL_NAMES.get(decision, CANONICAL))


def declared_text(picture: Pictured, line: Line) -> str:
    """What is declared, with the circumstances if it differs between calls."""
    if line.decision in picture.undocumented:
        return "undocumented"
    texts = [" or ".join(way_name(line.decision, name) for name in each.declared) for each in line.observations]
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(_under(text, each) for text, each in zip(texts, line.observations, strict=True))


def observed_text(line: Line) -> str:
    """What is observed, with the circumstances if it differs between calls."""
    texts = [
        f"varies: {', '.join(way_name(line.decision, name) for name in each.observed)}"
        if each.varies
        else way_name(line.decision, each.observed[0])
        for each in line.observations
    ]
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(_under(text, each) for text, each in zip(texts, line.observations, strict=True))


def _under(text: str, observation: Observation) -> str:
    return f"{text} ({observation.circumstance})" if observation.circumstance else text


def indistinct(line: Line) -> tuple[str, ...]:
    """Ways that the calls do not distinguish from the observed one; those of other decisions as `decision=way`."""
    found: dict[str, None] = {}
    for each in line.observations:
        if not each.varies:
            found |= dict.fromkeys(way_name(line.decision, name) for name in each.observed[1:])
        found |= dict.fromkeys("=".join(way) for way in each.alike)
    return tuple(found)


def remark(line: Line) -> str:
    """The status unless declared and observed agree, and the ways that are not distinguished."""
    others = indistinct(line)
    return "; ".join(filter(None, (REMARKS[line.status], f"not distinguished: {', '.join(others)}" if others else "")))


def shown(picture: Pictured) -> list[Line]:
    """The decisions that were reached: contradicted ones first, then accepted ones, then the others."""
    order = {status: rank for rank, status in enumerate(REMARKS)}
    return sorted((line for line in picture.behaviour.lines if line.observations), key=lambda line: order[line.status])


def rows(picture: Pictured) -> list[tuple[str, str, str, str]]:
    """The rows of the table: decision, declared, observed, remark."""
    return [(line.decision, declared_text(picture, line), observed_text(line), remark(line)) for line in shown(picture)]


def table(picture: Pictured) -> Iterator[str]:
    """The lines of the terminal report: conclusion, table, notes."""
    cells = [HEADINGS, *rows(picture)]
    widths = [max(len(row[column]) for row in cells if len(row[column]) <= MAX_WIDTH) for column in range(3)]
    yield f"{picture.name}: {conclusion(picture)}"
    for row in cells:
        yield "  ".join((*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3])).rstrip()
    yield from notes(picture)


def conclusion(picture: Pictured) -> str:
    """Say in one sentence whether observed and declared behaviour agree."""
    number = len(picture.behaviour.contradicted)
    read = f"{len(picture.behaviour.readings)} of {picture.asked} probe cases answered"
    if number:
        return f"{read}; {number} {'decision contradicts' if number == 1 else 'decisions contradict'} the declaration"
    return f"{read}; every observed decision is as declared or a known deviation"


def notes(picture: Pictured) -> Iterator[str]:
    """The notes below the table: what was not reached, blinded, unexplained or has no reply, and rerun commands."""
    lines = picture.behaviour.lines
    if unreached := [line.decision for line in lines if line.status == "not reached"]:
        yield f"not reached: {', '.join(unreached)}"
    for line in lines:
        if line.blinded_by:
            yield f"blinded: {line.decision}, by {' and '.join(map('='.join, line.blinded_by))}"
    for what, cases in (("unexplained", picture.behaviour.unexplained), ("no reply", picture.broken)):
        if cases:
            yield f"{what}: {', '.join(cases)}"
    for line in picture.behaviour.contradicted:
        yield f"{line.decision}: {_rerun(picture, line.against)}"


def _rerun(picture: Pictured, against: Sequence[str]) -> str:
    case = against[0]
    return picture.rerun.get(case, case)


def record(picture: Pictured) -> dict[str, Any]:
    """The report as JSON values."""
    return {
        "subject": picture.name,
        "asked": picture.asked,
        "answered": len(picture.behaviour.readings),
        "decisions": [_line(picture, line) for line in picture.behaviour.lines],
        "unexplained": list(picture.behaviour.unexplained),
        "no_reply": list(picture.broken),
        "conclusion": conclusion(picture),
        "table": [list(row) for row in rows(picture)],
        "notes": list(notes(picture)),
    }


def _line(picture: Pictured, line: Line) -> dict[str, Any]:
    about: dict[str, Any] = {"decision": line.decision, "status": line.status}
    if line.observations:
        about["documented"] = line.decision not in picture.undocumented
        about["observations"] = [_observation(line.decision, each) for each in line.observations]
    if line.against:
        about["against"] = list(line.against)
        about["rerun"] = _rerun(picture, line.against)
    if line.blinded_by:
        about["blinded_by"] = ["=".join(way) for way in line.blinded_by]
    return about


def _observation(decision: str, each: Observation) -> dict[str, Any]:
    seen = [way_name(decision, name) for name in each.observed]
    return {
        "circumstance": each.circumstance,
        "declared": [way_name(decision, name) for name in each.declared],
        "observed": seen if each.varies else seen[:1],
        "varies": each.varies,
        "not_distinguished": [] if each.varies else [*seen[1:], *map("=".join, each.alike)],
        "cases": list(each.cases),
    }


def markdown(pictures: Iterable[Pictured]) -> Iterator[str]:
    """The report as a Markdown page with a section for each subject."""
    yield "# Declared and observed"
    for picture in pictures:
        yield ""
        yield f"## {code(picture.name)}"
        yield ""
        yield f"{words(conclusion(picture))}."
        yield ""
        yield "| decision | declared | observed | |"
        yield "|---|---|---|---|"
        for decision, *others in rows(picture):
            yield f"| {code(decision)} | {' | '.join(map(words, others))} |"
        for note in notes(picture):
            yield ""
            yield words(note)


__all__ = ["Pictured", "Way", "declared_text", "indistinct", "markdown", "observed_text", "record", "table", "way_name"]
