"""The detectability of deviations by a set of cases, and the pairs of features that no case combines."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf, prod

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import TABLE, OracleAnswer, candidates, evaluate, evaluate_deviations
from conformance.deviations.deviation import Deviation, Reply
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.names import INVISIBLE
from conformance.spec.masks import KINDS
from conformance.spec.problem import Problem
from conformance.verdicts.compare import distance

# Number of keys above which a call has more than one tile of the smallest usual size.
LONG_SEQUENCE = 16

Facet = Callable[[Problem], bool]
Pair = tuple[str, str]


def _has(kind: str) -> Facet:
    return lambda problem: any(kind in operand.kinds for operand in problem.mask_operands)


def _in(*dtypes: str) -> Facet:
    return lambda problem: problem.dtype in dtypes


# Name of a feature that an ordinary call does not have -> whether a problem has it.
FACETS: Mapping[str, Facet] = {
    "float64": _in("float64"),
    "half precision": _in("float16", "bfloat16"),
    "an attention mask": _has("attention"),
    "padding": _has("key_padding"),
    "a bias": _has("additive"),
    "a causal mask": _has("causal"),
    "a window": _has("window"),
    "a mask for each head": lambda problem: any(operand.values.shape[1] > 1 for operand in problem.mask_operands),
    "a fully masked row": lambda problem: not bool(problem.attended().any(axis=-1).all()),
    "a softcap": lambda problem: problem.softcap is not None,
    "a scale": lambda problem: problem.scale is not None,
    "grouped heads": lambda problem: 1 < problem.num_kv_heads < problem.num_heads,
    "weights": lambda problem: bool({"weights", "weights_mean"} & set(problem.outputs)),
    "one batch element": lambda problem: problem.batch == 1,
    "one head": lambda problem: problem.num_heads == 1,
    "one query": lambda problem: problem.seq_len_q == 1,
    "more queries than keys": lambda problem: problem.seq_len_q > problem.seq_len_k,
    "even lengths": lambda problem: problem.seq_len_q % 2 == problem.seq_len_k % 2 == 0,
    "many keys": lambda problem: problem.seq_len_k > LONG_SEQUENCE,
    "a non-contiguous layout": lambda problem: problem.layout != "contiguous",
    "one tensor": lambda problem: problem.alias == "qkv",
}

# Pairs that no call can have. With one tensor, the numbers of queries and keys are equal, and so are those of heads.
NEVER = frozenset(
    frozenset(pair)
    for pair in (
        ("float64", "half precision"),
        ("one head", "grouped heads"),
        ("one head", "a mask for each head"),
        ("one query", "more queries than keys"),
        ("one query", "even lengths"),
        ("one tensor", "more queries than keys"),
        ("one tensor", "one query"),
        ("one tensor", "grouped heads"),
    )
)


def missing_pairs(problems: Iterable[Problem]) -> dict[str, tuple[Pair, ...]]:
    """Operator -> the pairs of FACETS that no problem combines, though each of the two occurs in some problem."""
    seen: dict[str, set[frozenset[str]]] = {}
    for problem in problems:
        present = [name for name, facet in FACETS.items() if facet(problem)]
        seen.setdefault(problem.operator, set()).update(
            map(frozenset, [*combinations(present, 2), *((name,) for name in present)])
        )
    return {
        operator: tuple(
            pair
            for pair in combinations([name for name in FACETS if frozenset((name,)) in found], 2)
            if frozenset(pair) not in found | NEVER
        )
        for operator, found in seen.items()
    }


# Minimum difference, in bounds, of a deviation that a case distinguishes.
FACTOR = 10.0

# The dtypes whose cases count for pinning down a deviation.
SHARP = ("float64", "float32")

# Deviations of the shape or dtype of a reply; every case detects them.
FORMS = frozenset(deviation.key for deviation in TABLE if deviation.stage == "reply")


@dataclass(frozen=True)
class Detection:
    """
    A case that distinguishes a deviation from the canonical answer.

    bounds: the difference in bounds; inf if shape, dtype or non-finite values differ. size: the number of logits.
    """

    case: str
    operator: str
    dtype: str
    bounds: float
    size: int


@dataclass(frozen=True)
class Detectability:
    """
    The deviations that a set of cases detects.

    detections: deviation -> every case that detects it, in any dtype; has a key for every deviation. powerless: cases
    that detect only deviations of the shape or dtype of a reply, which every case detects.
    """

    detections: Mapping[str, tuple[Detection, ...]]
    powerless: tuple[str, ...]

    def sharp(self, key: str) -> tuple[Detection, ...]:
        """The detections of a deviation by cases in float64 or float32."""
        return tuple(detection for detection in self.detections[key] if detection.dtype in SHARP)

    def simplest(self, key: str) -> Detection | None:
        """The detection by the smallest of these cases, the first of equal ones; None if there is none."""
        return min(self.sharp(key), key=lambda detection: detection.size, default=None)

    @property
    def unpinned(self) -> tuple[str, ...]:
        """Deviations that a case could detect and that no case in float64 or float32 detects."""
        return tuple(key for key in self.detections if key not in INVISIBLE and not self.sharp(key))

    @property
    def undecided(self) -> tuple[str, ...]:
        """Decisions with detectable deviations of which none is pinned down."""
        detectable = dict.fromkeys(_decision(key) for key in self.detections if key not in INVISIBLE)
        pinned = {_decision(key) for key in self.detections if self.sharp(key)}
        return tuple(decision for decision in detectable if decision not in pinned)


def _decision(key: str) -> str:
    return key.rpartition("=")[0]


def all_deviations() -> tuple[Deviation, ...]:
    """All deviations; those of a mask argument once for each kind of mask."""
    return (*(deviation for kind in KINDS for deviation in slot_deviations(kind)), *TABLE)


def by_kind(problem: Problem) -> Problem:
    """Give each mask its own argument, named after its kind."""
    return problem.but(
        mask_operands=tuple(replace(operand, slot=operand.kinds[0]) for operand in problem.mask_operands)
    )


def detectability(problems: Iterable[tuple[str, Problem]], enough: float = inf) -> Detectability:
    """
    Determine which cases detect which deviations.

    problems: case id and problem, not routed. enough: a deviation is not tried any more on problems of an operator
    after so many of them in float64 or float32 have detected it.
    """
    detections: dict[str, list[Detection]] = {deviation.key: [] for deviation in all_deviations()}
    powerless = []
    counts: Counter[tuple[str, str]] = Counter()
    for case, problem in problems:
        pinned = {key for (key, operator), count in counts.items() if operator == problem.operator and count >= enough}
        found = dict(_distinguished(by_kind(problem), pinned))
        for key, bounds in found.items():
            detections[key].append(Detection(case, problem.operator, problem.dtype, bounds, prod(problem.logits_shape)))
        counts.update((key, problem.operator) for key in found if problem.dtype in SHARP)
        if not found.keys() - FORMS and not (pinned and distinguishes_any(problem)):
            powerless.append(case)
    return Detectability({key: tuple(seen) for key, seen in detections.items()}, tuple(powerless))


def distinguished(problem: Problem) -> dict[str, float]:
    """Deviation -> its difference in bounds, for those with a difference of at least FACTOR."""
    return dict(_distinguished(problem))


def distinguishes_any(problem: Problem) -> bool:
    """Whether a problem, not routed, detects a deviation other than of the shape or dtype of the reply."""
    return any(key not in FORMS for key, _ in _distinguished(by_kind(problem)))


def _distinguished(problem: Problem, without: Collection[str] = ()) -> Iterator[tuple[str, float]]:
    return ((key, bounds) for key, bounds in distances(problem, without) if bounds is not None and bounds >= FACTOR)


def distances(problem: Problem, without: Collection[str] = ()) -> Iterator[tuple[str, float | None]]:
    """The difference of each deviation except `without` in bounds; None if it does not change the problem."""
    profile = Profile.ordinary(problem.dtype)
    right = evaluate(problem, score=profile.score)
    bounds = bound_reply(right, profile)
    for deviation in (each for each in candidates(problem) if each.key not in without):
        if not deviation.changes(problem):
            yield deviation.key, None
            continue
        wrong = evaluate_deviations(problem, (deviation,), profile.score)
        yield deviation.key, bounds_apart(right, wrong.reply, bounds)


def bounds_apart(right: OracleAnswer, wrong: Reply, bounds: Mapping[str, Bound]) -> float:
    """The largest difference of a reply from an answer, in bounds; inf if shape, dtype or kinds differ."""
    return max(distance(right.reply[name], wrong[name], bounds[name]) for name in right.reply)
