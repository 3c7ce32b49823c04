"""The arithmetic of a checked function: profiles by name, calibration on plain cases, and coarser profiles."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from conformance.bridge.profile import Profile
from conformance.checking.probe_calls import BASIS, ENOUGH, Answers, conforms, is_open, is_ordinary, is_plain, reply_of
from conformance.deviations.deviation import Dialect
from conformance.diagnosis.coarser_arithmetic import hardly_within
from conformance.diagnosis.diagnosis import first_look
from conformance.diagnosis.evidence import Change, Evidence
from conformance.diagnosis.explanation import CANONICAL
from conformance.diagnosis.reading import Probe
from conformance.engine.judging import Judged
from conformance.verdicts.expectation import compare_all, expect

HALF = ("float16", "bfloat16")


def _stepwise(dtype: str) -> Profile:
    """NumPy in half precision: every operator rounds, also within the softmax; dot products accumulate in float32."""
    return Profile.naive(dtype).but(soft=dtype, sum=dtype)


def _for_half(make: Callable[[str], Profile]) -> Callable[[str], Profile]:
    return lambda dtype: make(dtype) if dtype in HALF else Profile.uniform(dtype)


# Every name, and what it is for a dtype under test.
PROFILES: dict[str, Callable[[str], Profile]] = {
    "uniform": Profile.uniform,
    "float32": lambda dtype: Profile.uniform("float32") if dtype == "float64" else Profile.ordinary(dtype),
    "fused": _for_half(Profile.fused),
    "naive": _for_half(Profile.naive),
    "stepwise": _for_half(_stepwise),
    "tf32": lambda dtype: Profile.ordinary(dtype).but(mm="tf32"),
    "bfloat16_operands": lambda dtype: Profile.ordinary(dtype).but(mm="bfloat16"),
    "float16_accumulation": lambda dtype: Profile.ordinary(dtype).but(acc="float16"),
    "float16_scores": lambda dtype: Profile.ordinary(dtype).but(score="float16"),
    "float16_softmax": lambda dtype: Profile.ordinary(dtype).but(score="float16", soft="float16", prob="float16"),
    "float16": lambda _: Profile.uniform("float16"),
}

# The dtypes for which --profile NAME says anything; the names that are not here speak of float32.
SPEAKS_OF = {"uniform": ("float64", "float32", *HALF), "float32": ("float64",)} | dict.fromkeys(
    ("fused", "naive", "stepwise"), HALF
)

# What calibration tries for each dtype, in this order.
CANDIDATES = {
    "float32": ("uniform",),
    "float64": ("uniform", "float32"),
    "float16": ("fused", "naive", "stepwise"),
    "bfloat16": ("fused", "naive", "stepwise"),
}

# What a failure is tried under afterwards, and only told; the least coarse first.
ALTERNATIVES = ("tf32", "bfloat16_operands", "float16_scores", "float16_softmax", "float16_accumulation", "float16")


def ordinary(dtype: str) -> str:
    """The name of what is declared where nothing speaks for anything else."""
    return CANDIDATES[dtype][0]


def profiles_by_dtype(name: str, dtypes: Iterable[str]) -> dict[str, str]:
    """Of some dtypes, those for which --profile NAME says anything."""
    return dict.fromkeys((dtype for dtype in dtypes if dtype in SPEAKS_OF.get(name, ("float32",))), name)


# A profile that explains so many failures less than there are is not tried any more.
MAX_MISSES = 10
# So many profiles that explain the same are named.
MAX_PROFILES = 2
# What explains a smaller part of the failures is not worth telling.
MIN_SHARE = 0.9


class CoarserProfiles:
    """Counts, while cells are judged, under which profiles the failures that nothing else explains would conform."""

    def __init__(self) -> None:
        """Begin with nothing seen."""
        self._seen = 0
        self._conforming = dict.fromkeys(ALTERNATIVES, 0)

    def review(self, judged: Judged) -> Mapping[str, Any]:
        """Look at one cell; nothing is added to its record."""
        found = judged.judgement
        if found is not None and found.verdict == "fail" and found.explanation is None:
            for name, count in self._conforming.items():
                if self._seen - count <= MAX_MISSES:
                    self._conforming[name] += _would_conform(judged, name)
            self._seen += 1
        return {}

    def notes(self) -> list[str]:
        """The profiles that explain most; those that are alike are all named, the least coarse first."""
        count = max(self._conforming.values())
        if not count or count < MIN_SHARE * self._seen:
            return []
        names = [name for name, number in self._conforming.items() if number == count][:MAX_PROFILES]
        of = f"{count} of {self._seen} verdicts" if self._seen > 1 else "the verdict"
        under = " or ".join(names)
        return [f"{of} that no decision explains would conform under {under}; if intended, --profile {names[0]}"]


def _would_conform(judged: Judged, name: str) -> bool:
    """Whether it would, of a dtype for which --profile takes the name."""
    if judged.declared is None or not profiles_by_dtype(name, [judged.facts.dtype]):
        return False
    profile = PROFILES[name](judged.facts.dtype)
    expected = expect(judged.problem, judged.declared.dialect, profile)
    return all(each.verdict == "pass" for each in compare_all(expected, judged.actual, profile))


# Keys of a call with short sums.
SHORT = 16


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
