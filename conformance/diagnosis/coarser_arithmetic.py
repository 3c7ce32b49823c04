"""Coarser arithmetic than declared as a cause: failing cells that would conform under another profile."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, inf, log
from statistics import fmean

import numpy as np

from conformance.bounds.bound import Bound
from conformance.bridge.profile import UNIT, Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Dialect
from conformance.deviations.names import ARITHMETIC_LINES
from conformance.deviations.nonfinite import where_added
from conformance.diagnosis.evidence import Evidence
from conformance.reference.simulated import Rounded, simulated
from conformance.reference.steps import State
from conformance.spec.materialise import HALF
from conformance.spec.problem import Array
from conformance.spec.rounding import round_to
from conformance.verdicts.expectation import Expectation, compare_all, expect

# Dtypes that results may be rounded to.
STORED = ("float32", *HALF)
# Minimum standard deviation, in tolerances, of errors that would certainly have been seen.
CERTAIN = 4.0
# Minimum number of elements that must show it.
ENOUGH = 16


# Fields of the profile that affect only the weights.
WEIGHING = frozenset(("score", "scale", "soft", "sum", "prob", "lse"))

# Maximum sum of the other weights next to a weight that rounds to 1 in half precision.
ALL = 2.0**-12

TINY = 1e-300
# The root mean square of error / standard deviation under the arithmetic that was used (measured: 0.5 to 1).
TYPICAL = 0.75
# Maximum mean difference of the logarithms of it for which two kinds of arithmetic are not distinguished.
ALIKE = 0.1
# Maximum distance from a simulation of errors that resemble it: independent, and four times smaller, since some of the
# products may be exact.
RESEMBLING = 1.0 + log(4.0)
# The distance of independent errors of the same size. Rounded numbers have nearly the errors of a simulation.
INDEPENDENT = 1.0
# Fields of the profile that are accumulators, and the softmax, whose sum has most of its errors.
ACCUMULATING = frozenset(("acc", "sum", "bias_sum", "soft"))
# The arithmetic of the oracle.
WITHOUT_ROUNDING = Profile.uniform("float64")
# Maximum error of a simulation without roundings, in tolerances; beyond it, the call is not one that is simulated.
EXACT_ENOUGH = 1e-3
MAX_PROFILES = 3


@dataclass(frozen=True, eq=False)
class CoarserArithmetic:
    """
    Fields of the profile that are coarser than declared.

    sentence: what the implementation does; completes "it ...". remedy: what its user can do, or "".
    """

    name: str
    sentence: str
    remedy: str
    fields: Mapping[str, str | bool]

    def of(self, profile: Profile) -> Profile | None:
        """The declared profile with the fields that are coarser here; None if no field is."""
        declared = profile.record() | {"bias_sum": profile.bias_sum or profile.acc}
        coarser: dict[str, str | bool] = {
            name: dtype
            for name, dtype in self.fields.items()
            if isinstance(dtype, str) and UNIT[dtype] > UNIT[declared[name] or profile.store]
        }
        if "truncated" in self.fields and profile.store in HALF and not profile.truncated:
            coarser["truncated"] = True
        return profile.but(**coarser) if coarser else None

    def explains(self, cell: Evidence) -> bool:
        """Whether the failing reply would conform under it."""
        return self.rms(cell) is not None

    def rms(self, cell: Evidence) -> float | None:
        """
        The root mean square of error / standard deviation under it; None if the failing reply would not conform.

        It is near TYPICAL under the arithmetic that was used, and smaller under coarser arithmetic.
        """
        return cell.of_reply.once(("rms", self.name), lambda: self._rms(cell))

    def _rms(self, cell: Evidence) -> float | None:
        profile = self.of(cell.profile)
        if profile is None or cell.actual is None or (self.rounds_results and not lies_on(profile.store, cell)):
            return None
        for dialect in _with_added(cell):
            expected = expect(cell.problem, dialect, profile)
            compared = compare_all(expected, cell.actual, profile)
            if not any(each.verdict == "fail" for each in compared) and _is_judged(cell, expected, cell.actual):
                return max(float(each.numbers["rms"]) for each in compared)
        return None

    def misfit(self, cell: Evidence) -> float | None:
        """
        How far the errors of a failing reply are from those of a simulation: in size, and element by element.

        None if the call cannot be simulated; infinite if the simulation overflows and the reply did not.
        """
        return cell.of_reply.once(("misfit", self.name), lambda: self._misfit(cell))

    def resembles(self, cell: Evidence) -> bool:
        """Whether a failing reply would conform under it, with errors of about the size that a simulation has."""
        return self.explains(cell) and ((off := self.misfit(cell)) is None or off <= RESEMBLING)

    def _misfit(self, cell: Evidence) -> float | None:
        profile = self.of(cell.profile)
        return None if profile is None else misfit_under(profile, cell, inputs=not self.rounds_results)

    @property
    def furthest(self) -> float:
        """The largest distance from a simulation at which it is told. In which order sums are formed is not known."""
        return RESEMBLING if ACCUMULATING.issuperset(self.fields) else INDEPENDENT

    @property
    def rounds_results(self) -> bool:
        """Whether it only rounds results."""
        return set(self.fields) == {"store"}

    def stores_in(self, dtype: str) -> bool:
        """Whether it rounds results to `dtype` or to a coarser dtype."""
        return "store" in self.fields and UNIT[str(self.fields["store"])] >= UNIT[dtype]

    def contradicts(self, cell: Evidence) -> bool:
        """Whether a conforming reply is too accurate for this arithmetic."""
        return cell.of_call.once(("too coarse", self.name), lambda: self._contradicts(cell))

    def _contradicts(self, cell: Evidence) -> bool:
        profile = self.of(cell.profile)
        if profile is None:
            return False
        bounds = expect(cell.problem, cell.declared.dialect, profile).bounds
        shown = {name: bounds[name].judged & self._shows_in(cell, name) for name in bounds}
        return any(
            hardly_within(declared, bounds[name], shown[name]) for name, declared in cell.declared.bounds.items()
        )

    def _shows_in(self, cell: Evidence, output: str) -> Array | bool:
        """
        The elements of an output that could show it: not where keys with equal logits take all the weight, or no key.

        The exponentials of such keys are exactly 1, however coarse the arithmetic is. An online softmax rounds the
        weights ahead of normalisation, and divides the output by their sum.
        """
        if not WEIGHING.issuperset(self.fields):
            return True
        greatest = _greatest(_state(cell, cell.profile.score).probs)
        has_others = np.asarray((greatest > 0.0) & (greatest <= 1.0 - ALL))
        if output == "weights" or (output == "output" and cell.problem.operator == "sdpa"):
            return np.asarray(has_others[..., None])
        if output in ("output", "weights_mean"):
            return np.asarray(has_others.any(axis=1))[..., None]
        return bool(has_others.all())


def _is_judged(cell: Evidence, expected: Expectation, actual: Mapping[str, Tensor]) -> bool:
    """Whether no wrong element has an infinite tolerance under other arithmetic, within which any number would be."""
    for name, declared in cell.declared.bounds.items():
        with np.errstate(invalid="ignore"):
            wrong = np.abs(actual[name].float64() - cell.declared.reply[name].values) > declared.tolerance
        if np.any(wrong & ~expected.bounds[name].judged):
            return False
    return True


def _state(cell: Evidence, score: str) -> State:
    return evaluate(cell.problem, cell.declared.dialect, score).state


def misfit_under(profile: Profile, cell: Evidence, *, inputs: bool = True) -> float | None:
    """
    How far the errors of a failing reply are from those of a simulation under a profile.

    inputs: whether the inputs are rounded, too. None if the call cannot be simulated.
    """
    if not (observed := observed_errors(cell)):
        return None
    state = _state(cell, profile.score)
    made = [simulated(state, Rounded(profile, inputs=inputs, fused=fused)) for fused in (False, True)]
    return fmean(
        min(_distance(errors, _errors(cell, name, each[name])) for each in made) for name, errors in observed.items()
    )


def observed_errors(cell: Evidence) -> dict[str, Array]:
    """The finite errors of each output of a failing reply, in tolerances; {} if the call cannot be simulated."""
    return cell.of_reply.once("errors", lambda: _observed_errors(cell))


def _observed_errors(cell: Evidence) -> dict[str, Array]:
    expected = cell.declared.reply
    if cell.actual is None or any(cell.actual[name].shape != each.values.shape for name, each in expected.items()):
        return {}
    exact = simulated(_state(cell, cell.profile.score), Rounded(WITHOUT_ROUNDING))
    if not all(_size(_errors(cell, name, exact[name])) <= EXACT_ENOUGH for name in exact):
        return {}
    found = {name: _errors(cell, name, cell.actual[name].float64()) for name in exact}
    return found if all(np.isfinite(errors).all() for errors in found.values()) else {}


def _errors(cell: Evidence, name: str, values: Array) -> Array:
    """The errors of the judged elements of an output, in tolerances; NaN where an element is not finite."""
    bound = cell.declared.bounds[name]
    judged = bound.judged & (bound.tolerance > 0.0) & np.isfinite(bound.tolerance)
    with np.errstate(invalid="ignore"):
        return np.asarray((values - cell.declared.reply[name].values)[judged] / bound.tolerance[judged])


def _size(errors: Array) -> float:
    """The root mean square; 0 without elements."""
    return float(np.sqrt(np.mean(errors**2))) if errors.size else 0.0


def _distance(one: Array, other: Array) -> float:
    """
    The distance of the errors of a reply from those of a simulation, which are infinite if it overflows.

    It is the absolute logarithm of the ratio of their sizes, plus a number from 0 for equal errors to 1 for independent
    ones: an implementation that rounds the same numbers has nearly the same errors.
    """
    if not np.isfinite(other).all():
        return inf
    first, second, apart = _size(one), _size(other), _size(one - other)
    return abs(log(max(first, TINY) / max(second, TINY))) + min(apart / max(hypot(first, second), TINY), 1.0)


def _with_added(cell: Evidence) -> Iterator[Dialect]:
    """The declared dialect, and those in which NaN plus -inf is NaN."""
    yield cell.declared.dialect
    yield from (cell.under((way,)) for way in where_added(cell.problem))


def _greatest(probs: Array) -> Array:
    """The sum of the greatest weight of each row and those that equal it up to rounding."""
    top = probs.max(axis=-1, keepdims=True)
    return np.asarray(np.where(probs >= (1.0 - ALL) * top, probs, 0.0).sum(axis=-1))


def lies_on(dtype: str, cell: Evidence) -> bool:
    """Whether an output of a failing reply has only values of a narrower `dtype`, and the expected output does not."""
    for name, expected in cell.declared.reply.items():
        got = cell.actual[name].float64() if cell.actual else expected.values
        if got.shape != expected.values.shape:
            continue
        with np.errstate(invalid="ignore"):
            shown = np.isfinite(got) & np.isfinite(expected.values)
            shown &= round_to(expected.values, dtype) != round_to(expected.values, expected.dtype)
        if np.sum(shown) >= ENOUGH and np.array_equal(round_to(got[shown], dtype), got[shown]):
            return True
    return False


def hardly_within(bound: Bound, coarser: Bound, shown: Array) -> bool:
    """Whether coarser arithmetic would show in at least ENOUGH of these elements, so one would be beyond the bound."""
    return int(np.sum(shown & (coarser.sigma > CERTAIN * bound.tolerance))) >= ENOUGH


def _fields(dtype: str, names: Sequence[str]) -> dict[str, str | bool]:
    return {name: True if name == "truncated" else dtype for name in names}


# All kinds of coarser arithmetic; of several that explain a cell, the least coarse is reported.
ARITHMETIC: tuple[CoarserArithmetic, ...] = tuple(
    CoarserArithmetic(name.replace("DTYPE", dtype), sentence.replace("DTYPE", dtype), remedy, _fields(dtype, fields))
    for dtypes, group in ARITHMETIC_LINES
    for dtype in dtypes
    for name, sentence, remedy, fields in group
)


def tightest(cells: Sequence[Evidence], conforming: Sequence[Evidence] = ()) -> list[CoarserArithmetic]:
    """
    The least coarse arithmetic under which most of these failing replies would conform, and any that is hardly coarser.

    The replies are also within the bounds of much coarser arithmetic, but their errors are far smaller than that would
    make them. If most replies have only values of a narrower dtype, only arithmetic that rounds results to it is
    considered.

    conforming: cells that may contradict an arithmetic; one without contradictions is preferred.
    """
    narrower = [dtype for dtype in STORED if 2 * sum(lies_on(dtype, cell) for cell in cells) > len(cells)]
    among = [each for each in ARITHMETIC if all(each.stores_in(dtype) for dtype in narrower)]
    found = {each: [rms for cell in cells if (rms := each.rms(cell)) is not None] for each in among}
    common = _most_common({each: len(explained) for each, explained in found.items()}, conforming)
    off = {each: _misfit(each, cells, found[each]) for each in common}
    least = min(off.values(), default=0.0)
    near = [each for each in off if off[each] <= least + ALIKE]
    if any(observed_errors(cell) for cell in cells):
        near = [each for each in near if off[each] <= (RESEMBLING if narrower else each.furthest)]
    return sorted(near, key=lambda each: off[each])[:MAX_PROFILES]


def _misfit(arithmetic: CoarserArithmetic, cells: Sequence[Evidence], rms: Sequence[float]) -> float:
    """The mean difference of the errors from a simulation, as logarithms; without one, from the standard deviation."""
    found = [off for cell in cells if (off := arithmetic.misfit(cell)) is not None]
    return fmean(found) if found else fmean(abs(log(max(each, TINY) / TYPICAL)) for each in rms)


def _most_common(counts: Mapping[CoarserArithmetic, int], conforming: Sequence[Evidence]) -> list[CoarserArithmetic]:
    """Those that explain most among those that no conforming cell contradicts; if none, those that explain most."""
    levels = [[each for each in counts if counts[each] == count] for count in sorted({*counts.values()} - {0})[::-1]]
    for level in levels:
        if free := [each for each in level if not any(each.contradicts(cell) for cell in conforming)]:
            return free
    return levels[0] if levels else []
