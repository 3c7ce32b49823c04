"""Which arithmetic a function has: read off plain, unmasked cases alone, and frozen before anything is judged."""

from collections.abc import Mapping, Sequence

from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import candidates
from conformance.deviations.deviation import Dialect
from conformance.deviations.names import FRAMEWORK_BITS, prior
from conformance.judge.arithmetic import hardly_within
from conformance.judge.expectation import expect
from conformance.judge.solving import solved
from conformance.judge.suspect import Suspect
from conformance.own.probing import (
    BASIS,
    ENOUGH,
    Answers,
    conforms,
    is_open,
    is_ordinary,
    is_plain,
    suits,
    suspect,
)
from conformance.own.profiles import CANDIDATES, HALF, PROFILES, ordinary

FIRST = 3
"""A deviation is tried on so many cells; if it explains any of them, on all."""

SHORT = 16
"""Keys of a call with short sums."""


def evident_cause(answers: Answers, declared: Dialect, profile: Profile) -> dict[str, str]:
    """
    What is wrong already with plain cases, or with ordinary masks: the one deviation that explains most of them.

    Else what explains most of those with ordinary masks that fail. Arithmetic and decisions without consensus are read
    beside it, and it is judged like any other mistake.
    """
    masked = [(cell, outcome) for cell, outcome in answers if is_ordinary(cell.case)]
    closed = [(cell, outcome) for cell, outcome in masked if not is_open(cell.case, cell.route.problem)]
    failing = [answer for answer in closed if not suits(suspect(*answer, profile), declared)]
    for group in (_plain(answers, BASIS), masked, failing):
        suspects = _smallest(group, profile, ENOUGH)
        if suspects and _explained(declared, suspects) <= len(suspects) / 2:
            found = _causes(suspects, declared)
            basis = [(cell, outcome) for cell, outcome in answers if cell.case.dtype == BASIS]
            further = _smallest(basis, profile, 4 * ENOUGH) if len(found) > 1 else []
            return max(found, key=lambda each: _explained({**declared, **each}, further), default={})
    return {}


def _smallest(answers: Answers, profile: Profile, number: int) -> list[Suspect]:
    ordered = sorted(answers, key=lambda answer: answer[0].reply_limit)
    return [suspect(cell, outcome, profile) for cell, outcome in ordered[:number]]


def _explained(dialect: Dialect, suspects: Sequence[Suspect]) -> int:
    return sum(suits(each, dialect) for each in suspects)


def _causes(suspects: Sequence[Suspect], declared: Dialect) -> list[dict[str, str]]:
    """The deviations that explain most of them: several where small calls do not tell them apart."""
    rows = dict.fromkeys(row for each in suspects for row in candidates(each.problem))
    plain = (row for row in rows if prior(row.decision, row.name) <= FRAMEWORK_BITS)
    numbers = (way for each in suspects[:FIRST] for way in solved(each))
    found = [
        {decision: name} for decision, name in dict.fromkeys((*((row.decision, row.name) for row in plain), *numbers))
    ]
    likely = [each for each in found if _explained({**declared, **each}, suspects[:FIRST])]
    counts = [_explained({**declared, **each}, suspects) for each in likely]
    most = max(counts, default=0)
    return [each for each, count in zip(likely, counts, strict=True) if count == most > len(suspects) / 2]


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
