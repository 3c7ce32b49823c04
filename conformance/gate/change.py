"""The kind of change between two observations of one cell."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.gate.observations import INVARIANT, Observed
from conformance.verdicts.compare import NON_REPRODUCIBLE
from conformance.verdicts.verdict import LOST

# Every kind of change and its meaning, the most severe first.
KINDS: dict[str, str] = {
    "regressed": "conformed before and does not conform any more",
    "fails_otherwise": "failed before and now fails in another way",
    "dialect_changed": "makes a decision differently than before, whatever the verdict",
    "support_lost": "was judged before and is declined now",
    "accepted": "changed as a known deviation describes for these versions",
    "fixed": "did not conform before and conforms now",
    "support_gained": "was declined before and is judged now",
    "drifted": "conforms as before, with different numbers",
    "added": "is new",
    "deleted": "no longer exists",
    "case_changed": "makes another call under the same case id, so it is not compared",
    "judge_changed": "has another verdict, but the judging code differs too, so it is not compared",
}

# Kinds that the gate rejects; the others are reported only.
FAILING = ("regressed", "fails_otherwise", "dialect_changed", "support_lost")

# Minimum factor between two budgets that is reported as drift.
DRIFT = 2.0

# Budgets below this share of the bound are noise and are not reported as drift.
FLOOR = 0.1

# Minimum factor between errors that indicates another dtype; float16 to float32 is 8,192.
PRECISION = 1000.0

DECLINED = "unsupported"


@dataclass(frozen=True)
class Change:
    """
    One cell that changed.

    text: what changed if no way says it; for drifted cells `coarser`, `finer`, `budget` or `bits`.
    """

    kind: str
    case: str
    subject: str
    base: Observed | None
    candidate: Observed | None
    text: str = ""


def change_of(base: Observed, candidate: Observed, *, same_machine: bool) -> tuple[str, str] | None:
    """The kind of a change and, for a drift, what drifted; None if both observations show the same."""
    kind = _kind(base, candidate)
    if kind is not None:
        return kind, ""
    if base.conforms and candidate.conforms:
        if moved(base.budget, candidate.budget):
            return "drifted", _precision(base.budget or 0.0, candidate.budget or 0.0)
        if same_machine and base.bits and candidate.bits and base.bits != candidate.bits:
            return "drifted", "bits"
    return None


def moved(base: float | None, candidate: float | None) -> bool:
    """Whether two budgets differ by more than the factor DRIFT, above FLOOR."""
    low, high = sorted((base or 0.0, candidate or 0.0))
    return high > FLOOR and high > DRIFT * max(low, FLOOR / DRIFT)


def _precision(base: float, candidate: float) -> str:
    """What a drifted budget indicates: coarser or finer arithmetic, or only another order of operations."""
    if 0 < base * PRECISION < candidate:
        return "coarser"
    return "finer" if 0 < candidate * PRECISION < base else "budget"


def _kind(base: Observed, candidate: Observed) -> str | None:
    if _is_unchecked(base, candidate) or _is_unchecked(candidate, base):
        return None
    if DECLINED in (base.verdict, candidate.verdict):
        return _support(base, candidate)
    if base.conforms != candidate.conforms:
        return "fixed" if candidate.conforms else "regressed"
    if base.conforms:
        return None if same_dialect(base, candidate) else "dialect_changed"
    return None if same_failure(base, candidate) else _another_failure(base, candidate)


def _is_unchecked(one: Observed, other: Observed) -> bool:
    """Whether `one` breaks a relation between replies that was not checked for `other`, which conforms."""
    return one.klass == INVARIANT and other.conforms and not other.looked


def _support(base: Observed, candidate: Observed) -> str | None:
    if base.verdict == candidate.verdict:
        return None
    if candidate.verdict == DECLINED:
        return "support_lost"
    return "support_gained" if candidate.conforms or candidate.known else "regressed"


def _another_failure(base: Observed, candidate: Observed) -> str:
    """
    The kind of change between two different failures.

    If the gate accepts both as known deviations, nothing is red: only the dialect changed. If it accepts only the
    candidate, the unknown failure is fixed and a known one remains, unless both are about the same decision. A known
    error, timeout or crash is no improvement over a wrong reply, so it is only `accepted`.
    """
    if candidate.known and not base.known and not _decisions(base) & _decisions(candidate):
        return "accepted" if candidate.verdict in LOST else "fixed"
    accepted = base.known and candidate.known and base.ways and candidate.ways
    return "dialect_changed" if accepted else "fails_otherwise"


def _decisions(observed: Observed) -> set[str]:
    return {way.partition("=")[0] for way in observed.ways}


def effective(observed: Observed) -> Mapping[str, str]:
    """The decisions that a conforming reply takes otherwise than canonical."""
    return observed.declared if observed.verdict == "dialect" else {}


def same_dialect(base: Observed, candidate: Observed) -> bool:
    """Whether two conforming replies take the same decisions; if the declarations differ, the arrays are compared."""
    if base.bits and base.bits == candidate.bits:
        return True
    if effective(base) == effective(candidate):
        return True
    return base.verdict == candidate.verdict and bool(same_arrays(base, candidate))


def same_failure(base: Observed, candidate: Observed) -> bool:
    """
    Whether two replies that do not conform fail in the same way.

    Releases change the class and the text of an exception. If one known deviation accepts both, they are the same.
    """
    if base.verdict != candidate.verdict:
        return False
    if base.verdict != "fail":
        same_root = bool(base.root) and base.root == candidate.root
        return same_root or base.error == candidate.error or (bool(base.known) and base.known == candidate.known)
    if base.bits and base.bits == candidate.bits:
        return True
    if base.klass == candidate.klass and base.klass in NON_REPRODUCIBLE:
        return True
    if base.ways or candidate.ways:
        return bool(set(base.ways) & set(candidate.ways))
    same = same_arrays(base, candidate)
    return base.klass == candidate.klass and (not moved(base.budget, candidate.budget) if same is None else same)


def same_arrays(base: Observed, candidate: Observed) -> bool | None:
    """Whether the candidate's arrays are within the base's tolerance of the base's; None if they are not stored."""
    before, now = _actual(base.tensors), _actual(candidate.tensors)
    if not before or before.keys() != now.keys():
        return None
    return all(_close(before[name][0], now[name][0], before[name][1]) for name in before)


def _actual(path: Path | None) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    if path is None or not path.is_file():
        return {}
    with np.load(path) as arrays:
        names = [name.removesuffix(".actual") for name in arrays.files if name.endswith(".actual")]
        names = [name for name in names if name != "pattern"]  # exists for some cells only
        return {name: (arrays[f"{name}.actual"], arrays[f"{name}.tolerance"]) for name in names}


def _close(before: np.ndarray, now: np.ndarray, tolerance: np.ndarray) -> bool:
    if before.shape != now.shape:
        return False
    finite = np.isfinite(before)
    if not np.array_equal(before[~finite], now[~finite], equal_nan=True) or not np.isfinite(now[finite]).all():
        return False
    allowed = np.broadcast_to(tolerance, before.shape) if tolerance.ndim == 0 else tolerance
    if allowed.shape != before.shape:
        return bool(np.array_equal(before[finite], now[finite]))
    return bool((np.abs(before - now)[finite] <= allowed[finite]).all())
