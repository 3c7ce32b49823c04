"""Which things that real implementations treat in paths of their own no case asks together."""

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations

from conformance.spec.problem import Problem

LONG = 16
"""Calls with more keys have more than one tile, as far as the smallest usual ones go."""

Facet = Callable[[Problem], bool]
Pair = tuple[str, str]


def _has(kind: str) -> Facet:
    return lambda problem: any(kind in group.kinds for group in problem.groups)


def _in(*dtypes: str) -> Facet:
    return lambda problem: problem.dtype in dtypes


FACETS: Mapping[str, Facet] = {
    "float64": _in("float64"),
    "half precision": _in("float16", "bfloat16"),
    "an attention mask": _has("attention"),
    "padding": _has("key_padding"),
    "a bias": _has("additive"),
    "a causal mask": _has("causal"),
    "a window": _has("window"),
    "masks of heads": lambda problem: any(group.values.shape[1] > 1 for group in problem.groups),
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
    "many keys": lambda problem: problem.seq_len_k > LONG,
    "another layout": lambda problem: problem.layout != "contiguous",
    "one tensor": lambda problem: problem.alias == "qkv",
}
"""Name of what an ordinary call has not -> whether a call has it."""

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
"""Pairs that no call can have; one tensor for query, key and value has as many queries as keys, and as many heads."""


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
