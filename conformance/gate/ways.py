"""The two ways that a changed cell shows, in words: what it does now, and what it did."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from textwrap import shorten

from conformance.engine.records import Key
from conformance.gate.change import PRECISION, Change, effective
from conformance.gate.side import AND, INVARIANT, Observed
from conformance.judge.causes import fewest
from conformance.judge.diagnose import OF_NONFINITE
from conformance.judge.explanation import CANONICAL
from conformance.judge.invariants import INVARIANTS
from conformance.judge.telling import UNSTEADY, sentence, turned

SHOWN = 160
"""Characters of a message."""


@dataclass(frozen=True)
class Ways:
    """
    From what to what: keys that cells of one cause share (`fully_masked_row=nan`), and sentences after "it".

    short: "a fully masked row is zero", "NaN" where the decision is one and has short names. condition: under which the
    new way shows, "" where none is known.
    """

    before: str
    now: str
    before_text: str
    now_text: str
    short: tuple[str, str] | None = None
    condition: str = ""


def ways_of(changes: Iterable[Change]) -> dict[Key, Ways]:
    """
    The ways of every change, of as few causes as possible.

    A cell of which no diagnosis speaks goes to the way that explains most of the subject's other cells.
    """
    by_key = {(change.case, change.subject): change for change in _named_by_root(list(changes))}
    before = _chosen({key: _likely(change.base, change.candidate) for key, change in by_key.items()})
    now = _chosen({key: _likely(change.candidate, change.base) for key, change in by_key.items()})
    return {key: _ways(change, before.get(key, ""), now.get(key, "")) for key, change in by_key.items()}


def _named_by_root(changes: list[Change]) -> Iterator[Change]:
    """The changes, with one class for all exceptions of one root: releases raise the same under other classes."""
    sides = [side for change in changes for side in (change.base, change.candidate) if side is not None]
    classes = {side.root: side.error for side in reversed(sides) if side.root}

    def named(side: Observed | None) -> Observed | None:
        return side if side is None else replace(side, error=classes.get(side.root, side.error))

    yield from (replace(change, base=named(change.base), candidate=named(change.candidate)) for change in changes)


def _likely(cell: Observed | None, other: Observed | None) -> tuple[str, ...]:
    """
    The ways of one side that are worth telling: what the diagnosis of its run says, if it speaks of the cell.

    Else first those of a decision that the other side takes in another way, then those that a reply shows by itself: a
    fill that would come to the same is only concluded.
    """
    if cell is not None and cell.cause:
        return (cell.cause,)
    ways = cell.ways if cell is not None else ()
    elsewhere = {_decision(way) for way in (other.ways if other is not None else ())}
    for told in (elsewhere, OF_NONFINITE):
        if chosen := tuple(way for way in ways if _decision(way) in told):
            return chosen
    return ways


def _decision(way: str) -> str:
    return way.partition("=")[0]


def _chosen(cells: Mapping[Key, tuple[str, ...]]) -> dict[Key, str]:
    by_subject: dict[str, dict[Key, tuple[str, ...]]] = {}
    for key, ways in cells.items():
        by_subject.setdefault(key[1], {})[key] = ways
    return {key: way for found in by_subject.values() for key, way in fewest(found).items()}


def _ways(change: Change, before: str, now: str) -> Ways:
    base, candidate = change.base, change.candidate
    if base is None or candidate is None:
        return Ways("", "", "", "")
    if change.kind in ("drifted", "judge_changed", "case_changed"):
        return Ways("", change.text, "", DRIFTS.get(change.text, ""))
    taken = [way for ways in (now, before) if ways for way in ways.split(AND)]
    decisions = [_decision(way) for way in taken if _decision(way) not in (INVARIANT, "arithmetic")]
    if not decisions and base.conforms and candidate.conforms:
        decisions = sorted(_differing(effective(base), effective(candidate)))
    first, second = _side(base, before, decisions), _side(candidate, now, decisions)
    condition = candidate.condition if now and now == candidate.ways[0] else ""
    return Ways(first[0], second[0], first[1], second[1], _short(first[0], second[0]), condition)


DRIFTS = {
    "coarser": f"computes in a narrower dtype, by its errors (over {PRECISION:,.0f} times larger, within the bound),",
    "finer": f"computes in a wider dtype, by its errors (over {PRECISION:,.0f} times smaller),",
    "budget": "uses another part of the bound",
    "bits": "conforms with other bits",
}


def _differing(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    return {d for d in {*before, *now} if before.get(d, CANONICAL) != now.get(d, CANONICAL)}


def _side(observed: Observed, way: str, decisions: list[str]) -> tuple[str, str]:
    """Key and sentence of one side."""
    if way:
        return way, _sentence(way)
    if observed.conforms and decisions:
        taken = [f"{decision}={observed.declared.get(decision, CANONICAL)}" for decision in dict.fromkeys(decisions)]
        return ", ".join(taken), ", ".join(map(_sentence, taken))
    if observed.conforms:
        return "conforms", "conforms"
    kind = f"{observed.verdict}, {observed.klass}" if observed.klass else observed.verdict
    return f"{kind}: {observed.error}" if observed.error else kind, _happened(observed)


def _sentence(way: str) -> str:
    """What a way, or several together, come to."""
    return " and ".join(map(_single, way.split(AND)))


def _single(way: str) -> str:
    decision, _, name = way.partition("=")
    if decision == "arithmetic":
        return f"computes more coarsely than declared ({name})"
    if decision == INVARIANT:
        return next((each.sentence for each in INVARIANTS if each.name == name), f"breaks the relation {name}")
    try:
        return sentence(decision, name)
    except KeyError:  # written by another version of the table
        return f"takes {decision} as {name}"


def _happened(observed: Observed) -> str:
    text = f": {shorten(observed.text, SHOWN, placeholder=' …')}" if observed.text else ""
    match observed.verdict:
        case "unsupported":
            return f"is declined{text}"
        case "error":
            return f"raises {observed.error or 'an error'}{text}"
        case "crash":
            return f"dies{text}"
        case "timeout":
            return "does not answer in time"
        case "inconclusive":
            return f"cannot be judged{text}"
    unexplained = f"is outside the bound, and no single decision explains it ({observed.klass or 'fail'})"
    return UNSTEADY.get(observed.klass, unexplained)


def _short(before: str, now: str) -> tuple[str, str] | None:
    decision, _, name = now.partition("=")
    other, _, earlier = before.partition("=")
    same = decision == other and name and earlier and not {",", "&"} & set(before + now)
    return turned(decision, earlier, name) if same else None
