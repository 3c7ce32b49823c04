"""
Known deviations: behaviour of today's frameworks that differs from their declaration, with a reason and a link.

The list is strict in both directions. An entry accepts a failing cell only if the reply is within the bound under the
declaration and the entry's delta. An entry that covers a conforming cell is too wide. An entry that covers cells and
matches none is dead. An entry whose date has passed is expired. All of these are red, and the message says what to do.
"""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Protocol

from packaging.specifiers import SpecifierSet

from conformance.bounds.outputs import UnderivedBound
from conformance.bridge.profile import Profile
from conformance.deviations.deviation import Dialect, Reply
from conformance.engine.judging import Judged
from conformance.engine.logged_cell import LoggedCell, LoggedKnown, Reviewed
from conformance.gate.known_file import Accept, KnownEntry
from conformance.spec.mistakes import matches
from conformance.spec.problem import Problem
from conformance.spec.texts import counted
from conformance.verdicts.expectation import Expectation, compare_all, expect, expect_reply
from conformance.verdicts.verdict import CONFORMING


class Oracle(Protocol):
    """What is expected of a case's routed problem under a dialect and a profile; `Judge` remembers it."""

    def expectation(self, case: str, problem: Problem, dialect: Dialect, profile: Profile) -> Expectation:
        """The expected reply with its bounds."""
        ...

    def reply(self, case: str, problem: Problem, dialect: Dialect, profile: Profile) -> Reply:
        """The expected reply alone."""
        ...


class _Anew:
    """Computes what is expected, and remembers nothing."""

    def expectation(self, _case: str, problem: Problem, dialect: Dialect, profile: Profile) -> Expectation:
        return expect(problem, dialect, profile)

    def reply(self, _case: str, problem: Problem, dialect: Dialect, profile: Profile) -> Reply:
        return expect_reply(problem, dialect, profile)


@dataclass
class Tally:
    """The results of one entry in a run."""

    entry: KnownEntry
    origin: str
    covered: int = 0
    matched: int = 0
    conforming: list[tuple[str, str]] = field(default_factory=list)

    @property
    def fixed(self) -> bool:
        """Whether everything that the entry covers conforms without it."""
        return 0 < self.covered == len(self.conforming)

    @cached_property
    def known(self) -> LoggedKnown:
        """What the record of an accepted cell says of the entry."""
        entry = self.entry
        known = LoggedKnown(reason=entry.reason, link=entry.link, entry=self.origin)
        decisions = entry.delta.decisions if entry.delta else {}
        stated = {"versions": entry.versions} if entry.versions else {}
        named = {"decisions": tuple(f"{each}={name}" for each, name in decisions.items())} if decisions else {}
        return known.model_copy(update={**stated, **named})

    def __str__(self) -> str:
        return f"{self.origin} ({' or '.join(self.entry.subject)}): {self.entry.reason}"


class Known:
    """The entries of a run and their results, counted as cells are judged."""

    def __init__(self, entries: Sequence[tuple[KnownEntry, str]], today: dt.date, oracle: Oracle | None = None) -> None:
        """
        Take the entries with their origins (`known.yaml:12`), and the date for expiry.

        oracle: the `Judge` of the run, which remembers what subjects share.
        """
        self.tallies = [Tally(entry, origin) for entry, origin in entries]
        self._today = today
        self._oracle = oracle or _Anew()
        self._naming: dict[str, list[Tally]] = {}

    def review(self, cell: Judged) -> Reviewed:
        """Count the entries that cover this cell, and return them with the one that accepts it."""
        known: LoggedKnown | None = None
        covered_by: dict[str, str] = {}
        for tally in self._about(cell.subject):
            if not _applies(tally.entry, cell):
                continue
            outcome = _outcome(tally.entry, cell, self._oracle)
            if outcome == "not covered":
                continue
            covered_by[tally.origin] = outcome
            self._count(tally, outcome, (cell.case, cell.subject))
            if outcome == "matched" and known is None and not self.expired(tally):
                known = tally.known
        return Reviewed(known, covered_by)

    def _about(self, subject: str) -> list[Tally]:
        """The entries that name a subject; cached because every cell is checked against them."""
        if subject not in self._naming:
            self._naming[subject] = [tally for tally in self.tallies if tally.entry.names(subject)]
        return self._naming[subject]

    def accepts(self, cell: Judged) -> LoggedKnown | None:
        """The entry that accepts a call that is not a cell of its own; nothing is counted."""
        for tally in self._about(cell.subject):
            if self.expired(tally) or not _applies(tally.entry, cell):
                continue
            # Not from the judge's memory: a changed call has the case's id but different arrays
            if _outcome(tally.entry, cell, _Anew()) == "matched":
                return tally.known
        return None

    def restore(self, cell: LoggedCell) -> None:
        """
        Count a cell of a resumed run, from what `review` put into its record.

        Raises:
            KeyError: the origin of an entry that covered the cell is not in these lists.
        """
        tallies = {tally.origin: tally for tally in self.tallies}
        for origin, outcome in cell.covered_by.items():
            self._count(tallies[origin], outcome, cell.key)

    @staticmethod
    def _count(tally: Tally, outcome: str, cell: tuple[str, str]) -> None:
        tally.covered += 1
        if outcome == "conforms":
            tally.conforming.append(cell)
        elif outcome == "matched":
            tally.matched += 1

    def expired(self, tally: Tally) -> bool:
        """Whether the entry's date has passed."""
        return tally.entry.expires is not None and tally.entry.expires < self._today

    def about(self) -> list[tuple[str, str, bool]]:
        """The properties of the list that records depend on: for each entry its origin, content and expiry."""
        return [(tally.origin, repr(tally.entry), self.expired(tally)) for tally in self.tallies]

    def problems(self, *, whole: bool) -> list[str]:
        """
        The problems of the list itself, each with its remedy. whole: no case was deselected.

        Only in a whole run is an entry dead that covered cells and matched none.
        """
        return [text for tally in self.tallies for text in self._problems_of(tally, whole=whole)]

    def _problems_of(self, tally: Tally, *, whole: bool) -> list[str]:
        found = []
        if self.expired(tally) and tally.matched:
            remedy = "fix the deviation, or extend the date and give a reason"
            found.append(f"{tally.origin}: expired on {tally.entry.expires}: {remedy}")
        if tally.conforming:
            case, subject = tally.conforming[0]
            where = f"{_cells(len(tally.conforming))} without it, first {case} on {subject}"
            if tally.fixed:
                remedy = "remove the entry, or state under `machine` or `versions` where it applies"
                return [*found, f"{tally.origin}: fixed here: no cell that it covers fails ({where}): {remedy}"]
            found.append(f"{tally.origin}: too wide: {where}: narrow `when`, `cases` or `versions`")
        if whole and tally.covered and not tally.matched:
            covered = f"it covers {counted(tally.covered, 'cell')}, and none fails in this way"
            found.append(f"{tally.origin}: dead: {covered}: remove the entry")
        return found

    def record(self, *, whole: bool) -> dict[str, Any]:
        """The record for the run log: the number of live entries; the dead, too wide, expired and unreached ones."""
        return {
            "live": sum(1 for t in self.tallies if t.matched and not t.conforming and not self.expired(t)),
            "dead": [str(t) for t in self.tallies if whole and t.covered and not t.matched],
            "too_wide": [str(t) for t in self.tallies if t.conforming and not (whole and not t.matched)],
            "expired": [str(t) for t in self.tallies if t.matched and self.expired(t)],
            "not_reached": [str(t) for t in self.tallies if not t.matched and not (whole and t.covered)],
        }


def _cells(number: int) -> str:
    return "1 cell conforms" if number == 1 else f"{number:,} cells conform"


def versions_hold(conditions: Mapping[str, str], versions: Mapping[str, str]) -> bool:
    """Whether the installed versions meet every condition (distribution -> PEP 440 specifier)."""
    return all(package in versions and _contains(spec, versions[package]) for package, spec in conditions.items())


# Cached: every cell asks the same of the entries about its subject.
@lru_cache(maxsize=1024)
def _contains(spec: str, version: str) -> bool:
    return SpecifierSet(spec, prereleases=True).contains(version)


def _applies(entry: KnownEntry, cell: Judged) -> bool:
    """Whether an entry that names the subject is about this cell."""
    return (
        entry.has(cell.case)
        and (entry.platform == "*" or matches(entry.platform, cell.platform))
        and versions_hold(entry.versions, cell.versions)
        and (not entry.machine.model_fields_set or entry.machine.holds(cell.machine))
        and entry.when.holds(cell.facts, cell.problem)
    )


def _outcome(entry: KnownEntry, cell: Judged, oracle: Oracle) -> str:
    """The outcome: `not covered`, `conforms` (without the entry), `matched`, or `other` (fails in another way)."""
    if entry.accept is not None:
        return _accepted(entry.accept, cell)
    try:
        return _under_delta(entry, cell, oracle)
    except UnderivedBound:
        return "not covered"  # without a bound under the delta, the entry accepts nothing


def _under_delta(entry: KnownEntry, cell: Judged, oracle: Oracle) -> str:
    """
    The outcome of an entry with a delta.

    Raises:
        UnderivedBound: there is no bound under the delta.
    """
    if entry.delta is None or cell.declared is None or cell.profile is None:
        return "not covered"
    profile = cell.profile.but(**entry.delta.profile)
    asked = (cell.case, cell.problem, entry.delta.applied_to(cell.declared.dialect), profile)
    if not entry.delta.profile:
        if not cell.declared.separates(oracle.reply(*asked)):
            return "not covered"
        if cell.verdict in CONFORMING:
            return "conforms"
    within = all(c.verdict != "fail" for c in compare_all(oracle.expectation(*asked), cell.actual, profile))
    if cell.verdict in CONFORMING:
        # Coarser arithmetic includes the declared one: a cell that conforms under both does not contradict the entry.
        return "not covered" if within else "conforms"
    return "matched" if within and cell.verdict == "fail" else "other"


def _accepted(accept: Accept, cell: Judged) -> str:
    mistaken = cell.problem.mistake is not None
    if accept.verdict != "inconclusive" and (accept.verdict == "fail") != mistaken:
        return "not covered"  # a call with a mistake must raise an error; its reply is the failure
    if cell.verdict in CONFORMING:
        return "conforms"
    if cell.verdict == accept.verdict and re.search(accept.message, cell.message):
        return "matched"
    return "not covered" if cell.verdict == "unsupported" else "other"
