"""What a set of cases can tell: the deviations that change an answer, and pairs of features that none combines."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import TABLE, candidates
from conformance.deviations.deviation import Deviation, Reply
from conformance.deviations.evaluate import Answer, evaluate, evaluate_deviations
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.names import INVISIBLE
from conformance.spec.masks import KINDS
from conformance.spec.problem import Problem
from conformance.verdicts.compare import distance

# Calls with more keys have more than one tile, as far as the smallest usual ones go.
LONG_SEQUENCE = 16

Facet = Callable[[Problem], bool]
Pair = tuple[str, str]


def _has(kind: str) -> Facet:
    return lambda problem: any(kind in operand.kinds for operand in problem.mask_operands)


def _in(*dtypes: str) -> Facet:
    return lambda problem: problem.dtype in dtypes


# Name of what an ordinary call has not -> whether a call has it.
FACETS: Mapping[str, Facet] = {
    "float64": _in("float64"),
    "half precision": _in("float16", "bfloat16"),
    "an attention mask": _has("attention"),
    "padding": _has("key_padding"),
    "a bias": _has("additive"),
    "a causal mask": _has("causal"),
    "a window": _has("window"),
    "masks of heads": lambda problem: any(operand.values.shape[1] > 1 for operand in problem.mask_operands),
    "a fully masked row": lambda problem: not bool(problem.attended().any(axis=-1).all()),
    "a softcap": lambda problem: problem.softcap is not None,
    "a scale": lambda problem: problem.scale is not None,
    "grouped heads": lambda problem: 1 < problem.num_kv_heads < problem.num_heads,
    "weights": lambda problem: bool({"weights", "weights_mean"} & set(problem.outputs)),
    "one item": lambda problem: problem.batch == 1,
    "one head": lambda problem: problem.num_heads == 1,
    "one query": lambda problem: problem.seq_len_q == 1,
    "more queries than keys": lambda problem: problem.seq_len_q > problem.seq_len_k,
    "even lengths": lambda problem: problem.seq_len_q % 2 == problem.seq_len_k % 2 == 0,
    "many keys": lambda problem: problem.seq_len_k > LONG_SEQUENCE,
    "another layout": lambda problem: problem.layout != "contiguous",
    "one tensor": lambda problem: problem.alias == "qkv",
}

# Pairs that no call can have; one tensor for query, key and value has as many queries as keys, and as many heads.
NEVER = frozenset(
    frozenset(pair)
    for pair in (
        ("float64", "half precision"),
        ("one head", "grouped heads"),
        ("one head", "masks of heads"),
        ("one query", "more queries than keys"),
        ("one query", "even lengths"),
        ("one tensor", "more queries than keys"),
        ("one tensor", "one query"),
        ("one tensor", "grouped heads"),
    )
)


def missing_pairs(problems: Iterable[Problem]) -> dict[str, tuple[Pair, ...]]:
    """Operator -> the pairs of FACETS that no problem of it has, though some have either."""
    seen: dict[str, set[frozenset[str]]] = {}
    for problem in problems:
        here = [name for name, facet in FACETS.items() if facet(problem)]
        seen.setdefault(problem.operator, set()).update(
            map(frozenset, [*combinations(here, 2), *((name,) for name in here)])
        )
    return {
        operator: tuple(
            pair
            for pair in combinations([name for name in FACETS if frozenset((name,)) in found], 2)
            if frozenset(pair) not in found | NEVER
        )
        for operator, found in seen.items()
    }


# How many bounds away is told apart.
FACTOR = 10.0

# The dtypes in which a deviation counts as pinned down.
SHARP = ("float64", "float32")

# Deviations of the form of a reply: a shape or a dtype shows in every case.
FORMS = frozenset(deviation.key for deviation in TABLE if deviation.stage == "reply")


@dataclass(frozen=True)
class Detection:
    """
    One case that tells a deviation apart.

    bounds: how far away it is, inf for another shape, dtype or pattern. size: how many logits the case has.
    """

    case: str
    operator: str
    dtype: str
    bounds: float
    size: int


@dataclass(frozen=True)
class Detectability:
    """
    What a set of cases tells apart.

    sights: deviation -> every case that tells it apart, in any dtype; every deviation that there is has a key.
    powerless: cases that tell nothing apart but the form of the reply, which every case tells.
    """

    sights: Mapping[str, tuple[Detection, ...]]
    powerless: tuple[str, ...]

    def sharp(self, key: str) -> tuple[Detection, ...]:
        """The cases in float64 or float32 that tell a deviation apart."""
        return tuple(sight for sight in self.sights[key] if sight.dtype in SHARP)

    def simplest(self, key: str) -> Detection | None:
        """The smallest of these cases, the first of equal ones; None if there is none."""
        return min(self.sharp(key), key=lambda sight: sight.size, default=None)

    @property
    def unpinned(self) -> tuple[str, ...]:
        """Deviations that no case in float64 or float32 tells apart, though one could."""
        return tuple(key for key in self.sights if key not in INVISIBLE and not self.sharp(key))

    @property
    def undecided(self) -> tuple[str, ...]:
        """Decisions of which not a single deviation is pinned down, though one could be."""
        could = dict.fromkeys(_decision(key) for key in self.sights if key not in INVISIBLE)
        pinned = {_decision(key) for key in self.sights if self.sharp(key)}
        return tuple(decision for decision in could if decision not in pinned)


def _decision(key: str) -> str:
    return key.rpartition("=")[0]


def all_deviations() -> tuple[Deviation, ...]:
    """Every deviation that there is, those of an argument once for each kind of mask."""
    return (*(deviation for kind in KINDS for deviation in slot_deviations(kind)), *TABLE)


def by_kind(problem: Problem) -> Problem:
    """Give each mask an argument of its own, called like its kind."""
    return problem.but(
        mask_operands=tuple(replace(operand, slot=operand.kinds[0]) for operand in problem.mask_operands)
    )


def detectability(problems: Iterable[tuple[str, Problem]]) -> Detectability:
    """Look at every pair of a case (its id and problem, not routed) and a deviation."""
    sights: dict[str, list[Detection]] = {deviation.key: [] for deviation in all_deviations()}
    powerless = []
    for case, problem in problems:
        found = distinguished(by_kind(problem))
        for key, bounds in found.items():
            sights[key].append(Detection(case, problem.operator, problem.dtype, bounds, prod(problem.logits_shape)))
        if not found.keys() - FORMS:
            powerless.append(case)
    return Detectability({key: tuple(seen) for key, seen in sights.items()}, tuple(powerless))


def distinguished(problem: Problem) -> dict[str, float]:
    """Deviation -> how many bounds away it is, for those that are at least FACTOR away."""
    return dict(_distinguished(problem))


def distinguishes_any(problem: Problem) -> bool:
    """Whether a call, not routed, tells apart more than the form of its reply."""
    return any(key not in FORMS for key, _ in _distinguished(by_kind(problem)))


def _distinguished(problem: Problem) -> Iterator[tuple[str, float]]:
    return ((key, away) for key, away in distances(problem) if away is not None and away >= FACTOR)


def distances(problem: Problem) -> Iterator[tuple[str, float | None]]:
    """How many bounds away each deviation is; None for one that leaves the problem as it is."""
    profile = Profile.ordinary(problem.dtype)
    right = evaluate(problem, score=profile.score)
    bounds = bound_reply(right, profile)
    for deviation in candidates(problem):
        if not _reaches(deviation, problem):
            yield deviation.key, None
            continue
        wrong = evaluate_deviations(problem, (deviation,), profile.score)
        yield deviation.key, bounds_apart(right, wrong.reply, bounds)


def _reaches(deviation: Deviation, problem: Problem) -> bool:
    """Whether the deviation can change anything: what leaves the problem as it is needs no oracle."""
    return deviation.problem is None or deviation.posed(problem) is not problem


def bounds_apart(right: Answer, wrong: Reply, bounds: Mapping[str, Bound]) -> float:
    """How many bounds of an answer another reply is away from it; inf where shape, dtype or pattern differ."""
    return max(distance(right.reply[name], wrong[name], bounds[name]) for name in right.reply)
