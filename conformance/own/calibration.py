"""Which arithmetic a function has: read off plain, unmasked cases alone, and frozen before anything is judged."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from conformance.bridge.profile import Profile
from conformance.deviations.deviation import Dialect
from conformance.judge.arithmetic import hardly_within
from conformance.judge.evidence import Change, Evidence
from conformance.judge.expectation import expect
from conformance.judge.explanation import CANONICAL
from conformance.judge.joint import first_look
from conformance.judge.reading import Probe
from conformance.own.probing import BASIS, ENOUGH, Answers, conforms, is_open, is_ordinary, is_plain, reply_of
from conformance.own.profiles import CANDIDATES, HALF, PROFILES, ordinary

SHORT = 16
"""Keys of a call with short sums."""


def evident_cause(answers: Answers, declared: Dialect, profile: Profile) -> dict[str, str]:
    """
    What is wrong already with plain cases, or with ordinary masks: what the diagnosis finds first in most of them.

    Else what it finds in those with ordinary masks that fail. Arithmetic and decisions without consensus are read
    beside it, and it is judged like any other mistake.
    """

    def smallest(some: Answers, number: int = ENOUGH) -> list[Evidence]:
        ordered = sorted(some, key=lambda answer: answer[0].reply_limit)
        return [_evidence(reply_of(*answer, declared, profile)) for answer in ordered[:number]]

    masked = [(cell, outcome) for cell, outcome in answers if is_ordinary(cell.case)]
    closed = [(cell, outcome) for cell, outcome in masked if not is_open(cell.case, cell.route.problem)]
    failing = [answer for answer in closed if not conforms(*answer, declared, profile)]
    for group in (_plain(answers, BASIS), masked, failing):
        cells = smallest(group)
        if cells and 2 * sum(cell.actual is not None for cell in cells) >= len(cells):
            alike = _first(cells)
            basis = [(cell, outcome) for cell, outcome in answers if cell.case.dtype == BASIS]
            further = smallest(basis, 4 * ENOUGH) if len(alike) > 1 else []
            best = max(alike, key=lambda change: sum(_suits(cell, change) for cell in further), default=())
            return {decision: name for decision, name in best if name != CANONICAL}
    return {}


def _evidence(probe: Probe) -> Evidence:
    """Without the reply of a call that is as declared."""
    return replace(probe, actual=None) if probe.suspect().holds(probe.dialect) else probe


def _first(cells: Sequence[Evidence]) -> list[Change]:
    """What explains most of the failing cells, and what small calls do not tell from it."""
    wrong = sum(cell.actual is not None for cell in cells)
    best = max(first_look(cells), key=lambda cause: len(cause.cells), default=None)
    if best is None or 2 * len(best.cells) <= wrong:
        return []
    return [each.candidate.change for each in (best, *best.ties)]


def _suits(cell: Evidence, change: Change) -> bool:
    return not cell.contradicts(change) if cell.actual is None else cell.held_by(change)


def calibrated(answers: Answers, declared: Dialect, cause: Dialect | None = None) -> dict[str, str]:
    """
    The name of a profile by dtype: that under which most plain cases conform, if none speaks for a finer one.

    cause: what is wrong already with plain cases. Then the coarser profile is taken if it explains more cases: weights
    may be saturated under the cause, and near to those of finer arithmetic for that. A dtype in which none conforms is
    left out.
    """
    found = {dtype: _best(_plain(answers, dtype), dtype, declared, cause or {}) for dtype in CANDIDATES}
    return {dtype: name for dtype, name in found.items() if name is not None}


def _plain(answers: Answers, dtype: str) -> Answers:
    """Those with short sums: a coarse accumulator grows with them, and would pass for a coarse softmax otherwise."""
    return [
        (cell, outcome)
        for cell, outcome in answers
        if cell.case.dtype == dtype and is_plain(cell.case) and cell.route.problem.seq_len_k <= SHORT
    ]


def _best(plain: Answers, dtype: str, declared: Dialect, cause: Dialect) -> str | None:
    dialect = {**declared, **cause}
    best: tuple[str, Answers] = CANDIDATES[dtype][0], ()
    for name in CANDIDATES[dtype]:
        profile = PROFILES[name](dtype)
        found = [(cell, outcome) for cell, outcome in plain if conforms(cell, outcome, dialect, profile)]
        if len(found) > len(best[1]) and (cause or not _too_near(best, dtype, dialect, profile)):
            best = name, found
    return best[0] if best[1] else None


def _too_near(best: tuple[str, Answers], dtype: str, dialect: Dialect, coarser: Profile) -> bool:
    """Whether replies that conform to finer arithmetic are nearer than those of coarser arithmetic would be."""
    name, found = best
    for cell, _ in found:
        near, far = (
            expect(cell.route.problem, {**cell.route.dialect, **dialect}, profile).bounds["output"]
            for profile in (PROFILES[name](dtype), coarser)
        )
        if hardly_within(near, far, far.judged):
            return True
    return False


def fallback(dtype: str) -> str:
    """Where nothing conforms, the function is wrong: the coarsest for half precision, so that its cause is seen."""
    return CANDIDATES[dtype][-1] if dtype in HALF else ordinary(dtype)


def profiles_named(names: Mapping[str, str]) -> dict[str, Profile]:
    """The profiles themselves."""
    return {dtype: PROFILES[name](dtype) for dtype, name in names.items()}
