"""The arithmetic of a checked function: named profiles, calibration on plain cases, and coarser alternatives."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from conformance.bounds.outputs import UnderivedBound
from conformance.bridge.profile import Profile
from conformance.checking.probe_calls import (
    BASIS,
    ENOUGH,
    Answers,
    Expectations,
    is_open,
    is_ordinary,
    is_plain,
    shortest,
)
from conformance.deviations.deviation import Dialect
from conformance.diagnosis.coarser_arithmetic import ARITHMETIC, hardly_within, misfit_under
from conformance.diagnosis.diagnosis import first_look
from conformance.diagnosis.evidence import Change, Evidence
from conformance.diagnosis.explanation import CANONICAL
from conformance.engine.judging import Judged
from conformance.spec.materialise import HALF
from conformance.verdicts.expectation import compare_all, expect


def _stepwise(dtype: str) -> Profile:
    """Return NumPy's half precision: every operator rounds, also inside softmax; dot products accumulate in float32."""
    return Profile.naive(dtype).but(soft=dtype, sum=dtype)


def _for_half(make: Callable[[str], Profile]) -> Callable[[str], Profile]:
    return lambda dtype: make(dtype) if dtype in HALF else Profile.uniform(dtype)


# Name of a profile -> the profile for a dtype under test.
PROFILES: dict[str, Callable[[str], Profile]] = {
    "uniform": Profile.uniform,
    "float32": lambda dtype: Profile.uniform("float32") if dtype == "float64" else Profile.ordinary(dtype),
    "fused": _for_half(Profile.fused),
    "naive": _for_half(Profile.naive),
    "stepwise": _for_half(_stepwise),
    "tf32x3": lambda dtype: Profile.ordinary(dtype).but(mm="tf32x3"),
    "tf32": lambda dtype: Profile.ordinary(dtype).but(mm="tf32"),
    "tf32_truncated": lambda dtype: Profile.ordinary(dtype).but(mm="tf32_truncated"),
    "bfloat16_operands": lambda dtype: Profile.ordinary(dtype).but(mm="bfloat16"),
    "float16_accumulation": lambda dtype: Profile.ordinary(dtype).but(acc="float16"),
    "float16_scores": lambda dtype: Profile.ordinary(dtype).but(score="float16"),
    "float16_softmax": lambda dtype: Profile.ordinary(dtype).but(score="float16", soft="float16", prob="float16"),
    "float16": lambda _: Profile.uniform("float16"),
}

# Name of a profile that calibration tries -> what the function does, to follow "it".
ROUNDING = {
    "uniform": "computes in the dtype of its inputs",
    "float32": "computes in float32",
    "fused": "computes in float32 and rounds only its results",
    "naive": "rounds after every operation outside the softmax",
    "stepwise": "rounds after every operation, also inside the softmax",
}

# Name of a profile -> the dtypes to which --profile NAME applies; names that are not listed apply to float32.
SPEAKS_OF = {"uniform": ("float64", "float32", *HALF), "float32": ("float64",)} | dict.fromkeys(
    ("fused", "naive", "stepwise"), HALF
)

# The profiles that calibration tries for each dtype, in this order.
CANDIDATES = {
    "float32": ("uniform",),
    "float64": ("uniform", "float32"),
    "float16": ("fused", "naive", "stepwise"),
    "bfloat16": ("fused", "naive", "stepwise"),
}

# The coarser profiles that are tried on failures and only suggested, the least coarse first.
ALTERNATIVES = (
    *("naive", "stepwise"),
    *("tf32x3", "tf32", "tf32_truncated", "bfloat16_operands"),
    *("float16_scores", "float16_softmax", "float16_accumulation", "float16"),
)


# The other alignment of a causal mask that some calls may be made with, whatever is declared.
ANCHOR = ("causal_alignment", "bottom_right")


def ordinary(dtype: str) -> str:
    """Return the name of the default profile of a dtype."""
    return CANDIDATES[dtype][0]


def profiles_by_dtype(name: str, dtypes: Iterable[str]) -> dict[str, str]:
    """Return dtype -> name for those of the dtypes to which --profile NAME applies."""
    return dict.fromkeys((dtype for dtype in dtypes if dtype in SPEAKS_OF.get(name, ("float32",))), name)


# A profile is not tried any more if it fails to explain more than this number of failures.
MAX_MISSES = 10
# Maximum number of profiles that are named if they explain the same failures.
MAX_PROFILES = 2
# Minimum share of the failures that a profile must explain to be suggested.
MIN_SHARE = 0.9


class CoarserProfiles:
    """Counts the otherwise unexplained failures that would conform under each coarser profile."""

    def __init__(self) -> None:
        """Start with no failures."""
        self._seen = 0
        self._conforming = dict.fromkeys(ALTERNATIVES, 0)

    def count(self, judged: Judged) -> None:
        """Count one judged cell."""
        found = judged.judgement
        if found is not None and found.verdict == "fail" and found.explanation is None:
            for name, count in self._conforming.items():
                if self._seen - count <= MAX_MISSES:
                    self._conforming[name] += _would_conform(judged, name)
            self._seen += 1

    def notes(self, named: Iterable[str] = ()) -> list[str]:
        """
        Return a sentence that suggests the profiles that explain most failures, the least coarse first.

        named: the coarser arithmetic that causes name. The profile that is most like it is the only one suggested.
        """
        enough = {name: count for name, count in self._conforming.items() if count >= max(1, MIN_SHARE * self._seen)}
        coarser = dict(field for each in ARITHMETIC if each.name in named for field in each.fields.items())
        if coarser and enough:
            nearest = min(enough, key=lambda name: _differing(name, coarser))
            enough = {nearest: enough[nearest]}
        names = [name for name, count in enough.items() if count == max(enough.values())][:MAX_PROFILES]
        if not names:
            return []
        of = f"{enough[names[0]]} of {self._seen} verdicts" if self._seen > 1 else "the verdict"
        which = of if coarser else f"{of} without a known cause"
        return [f"{which} would conform under {' or '.join(names)}; if this is intended, use --profile {names[0]}"]


def _differing(name: str, coarser: Mapping[str, str | bool]) -> int:
    """Return the number of fields in which a profile differs from the ordinary one with coarser fields, in BASIS."""
    fields = Profile.ordinary(BASIS).record() | dict(coarser)
    return sum(fields[field] != value for field, value in PROFILES[name](BASIS).record().items())


def _would_conform(judged: Judged, name: str) -> bool:
    """Return whether a failed cell would conform under the named profile, if the profile applies to its dtype."""
    if judged.declared is None or not profiles_by_dtype(name, [judged.facts.dtype]):
        return False
    profile = PROFILES[name](judged.facts.dtype)
    expected = expect(judged.problem, judged.declared.dialect, profile)
    return all(each.verdict == "pass" for each in compare_all(expected, judged.actual, profile))


def evident_cause(
    answers: Answers, expected: Expectations, declared: Dialect, basis: str, profile: Profile
) -> dict[str, str] | None:
    """
    Return the deviations that are evident; {} if there are none, and None if plain calls show a mistake without a name.

    Such a mistake shows in all other calls too, and hides any other.

    One is shown by most plain cases, or else by most cases with ordinary masks. Another one is shown by most of the
    cases with ordinary masks that fail nevertheless; if it explains the others alone, it is the only one. Calibration
    and observation assume both; they are still judged like any other mistake.

    basis: the dtype of these calls. profile: their arithmetic.
    """
    plain_calls = [answer for answer in _plain(answers, basis) if not answer[0].case.masks]
    masked = [(cell, outcome) for cell, outcome in answers if is_ordinary(cell.case, basis)]
    closed = [(cell, outcome) for cell, outcome in masked if not is_open(cell.case, cell.route.problem)]
    every = [(cell, outcome) for cell, outcome in answers if cell.case.dtype == basis]

    def smallest(some: Answers, dialect: Dialect, number: int = ENOUGH) -> list[Evidence]:
        ordered = sorted(some, key=lambda answer: answer[0].reply_limit)
        return [expected.evidence(*answer, dialect, profile) for answer in ordered[:number]]

    def shown(group: Answers, dialect: Dialect) -> dict[str, str] | None:
        """The deviations that most calls show; {} if most conform, and None if no deviation explains the others."""
        cells = smallest(group, dialect)
        if 2 * sum(cell.actual is not None for cell in cells) < max(len(cells), 1):
            return {}
        further = smallest(every, dialect, 4 * ENOUGH)
        if not (tied := _first([*cells, *(cell for cell in further if cell.actual is None)])):
            return None
        best = max(tied, key=lambda change: sum(_suits(cell, change) for cell in further))
        return {decision: name for decision, name in best if name != CANONICAL}

    if (plain := shown(plain_calls, declared)) is None:
        return None
    cause = plain or shown(masked, declared) or {}
    dialect = {**declared, **cause}
    failing = [answer for answer in closed if not expected.conforms(*answer, dialect, profile)]
    with suppress(UnderivedBound):  # a deviation without a derived bound hides a second one
        alone = shown(failing, declared) if cause else None
        if alone and all(cell.actual is None for cell in smallest(masked, {**declared, **alone})):
            return alone
        cause |= shown(failing, dialect) or {}
    return cause


def _first(cells: Sequence[Evidence]) -> list[Change]:
    """
    Return the change that explains at least half of the failing cells without a condition, and those that tie with it.

    In the other half, it may leave a row without a key. Then the reply also shows a decision without consensus.
    """
    wrong = sum(cell.actual is not None for cell in cells)
    causes = [cause for cause in first_look(cells) if not cause.guards[0].words]
    best = max(causes, key=lambda cause: len(cause.cells), default=None)
    if best is None or 2 * len(best.cells) < wrong:
        return []
    return [each.candidate.change for each in (best, *best.ties)]


def _suits(cell: Evidence, change: Change) -> bool:
    return not cell.contradicts(change) if cell.actual is None else cell.loosely_conforms_under(change)


def calibrated(
    answers: Answers, expected: Expectations, declared: Dialect, cause: Dialect | None = None
) -> dict[str, str]:
    """
    Return for each dtype the name of the profile under which most plain cases conform; a finer one wins if in doubt.

    cause: the deviation that plain cases already show. With a cause, a coarser profile is chosen whenever it explains
    more cases, because saturated weights can look like those of finer arithmetic. A dtype in which no case conforms is
    left out.
    """
    found: dict[str, str] = {}
    for dtype in CANDIDATES:
        plain = _plain(answers, dtype)
        cases = shortest([cell.case for cell, _ in plain])
        short = [answer for answer in plain if answer[0].case in cases]
        shown = cause if cause and _shows(plain, expected, dtype, declared) else {}
        if (name := _best(short, expected, dtype, declared, shown)) is not None:
            found[dtype] = name
            with suppress(UnderivedBound):  # a substitute bound does not tell two kinds of arithmetic apart
                found[dtype] = _of_long_calls(name, plain, expected, {**declared, **shown})
    return found


def _shows(plain: Answers, expected: Expectations, dtype: str, declared: Dialect) -> bool:
    """Return whether a cause shows in a dtype: without it, the plain calls do not all conform under any profile."""
    profiles = (PROFILES[name](dtype) for name in CANDIDATES[dtype])
    return not any(all(expected.conforms(*answer, declared, profile) for answer in plain) for profile in profiles)


def _plain(answers: Answers, dtype: str) -> Answers:
    """Return the answers to plain cases in a dtype."""
    return [(cell, outcome) for cell, outcome in answers if cell.case.dtype == dtype and is_plain(cell.case)]


def _best(plain: Answers, expected: Expectations, dtype: str, declared: Dialect, cause: Dialect) -> str | None:
    # A cause may need a condition: without the condition, a reply is as declared. Few calls in half precision show the
    # arithmetic, and some of them are causal.
    dialects = [*([{**declared, **cause}] if cause else []), declared, {**declared, **dict([ANCHOR])}]
    best: tuple[str, Answers] = ordinary(dtype), ()
    for name in CANDIDATES[dtype]:
        profile = PROFILES[name](dtype)
        found = [answer for answer in plain if any(expected.conforms(*answer, each, profile) for each in dialects)]
        if len(found) > len(best[1]) and (cause or not _too_near(best, expected, dtype, declared, profile)):
            best = name, found
    return best[0] if best[1] else None


def _too_near(
    best: tuple[str, Answers], expected: Expectations, dtype: str, dialect: Dialect, coarser: Profile
) -> bool:
    """Return whether the replies that conform to the best profile are too accurate for the coarser profile."""
    name, found = best
    for cell, _ in found:
        near, far = (
            expected.of(cell, dialect, profile).bounds["output"] for profile in (PROFILES[name](dtype), coarser)
        )
        if hardly_within(near, far, far.judged):
            return True
    return False


def _of_long_calls(name: str, plain: Answers, expected: Expectations, dialect: Dialect) -> str:
    """
    Return the coarser profile that long calls show, if they are not within the bound of the one that short calls show.

    Its simulated errors are nearer to those of the reply than if dot products were summed in half precision: that would
    be a mistake. Replies within the finer bound are not too accurate for it.
    """
    dtype = plain[0][0].case.dtype
    finer = PROFILES[name](dtype)
    within = [answer for answer in plain if expected.conforms(*answer, dialect, finer)]
    beyond = [answer for answer in plain if answer not in within]
    misfits: dict[str, list[float]] = {}
    for other in CANDIDATES[dtype][CANDIDATES[dtype].index(name) + 1 :] if beyond else ():
        profile = PROFILES[other](dtype)
        if not _too_near((name, within), expected, dtype, dialect, profile):
            explained = [answer for answer in beyond if expected.conforms(*answer, dialect, profile)]
            replies = (expected.reply(*answer, dialect, finer) for answer in explained)
            misfits[other] = [off for reply in replies if (off := _nearer(reply, profile)) is not None]
    return min(
        (other for other in misfits if misfits[other]),
        key=lambda other: (-len(misfits[other]), sum(misfits[other])),
        default=name,
    )


def _nearer(reply: Evidence, profile: Profile) -> float | None:
    """Return the misfit of a simulation; None if coarse accumulators have a smaller one, or there is no simulation."""
    accumulated = misfit_under(profile.but(acc=profile.store), reply)
    off = misfit_under(profile, reply)
    return None if off is None or accumulated is None or accumulated <= off else off


def fallback(dtype: str) -> str:
    """Return the profile if nothing conforms: the coarsest one for half precision, so that the mistake stands out."""
    return CANDIDATES[dtype][-1] if dtype in HALF else ordinary(dtype)


def profiles_named(names: Mapping[str, str]) -> dict[str, Profile]:
    """Return the profile of each dtype from its name."""
    return {dtype: PROFILES[name](dtype) for dtype, name in names.items()}
