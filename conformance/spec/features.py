"""What a case has that others may lack, by name: kinds of mask, dtypes, outputs, how its sizes compare."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations

from conformance.spec.case import ArrayMask, Case

SIZES = ("batch", "num_heads", "num_kv_heads", "seq_len_q", "seq_len_k", "head_dim", "value_dim")
WIDTHS = ("query_dim", "kdim", "vdim", "output_dim")
"""Sizes of mha alone."""


def features(case: Case) -> frozenset[str]:
    """
    Name everything that a case has: operator, dtype, outputs, alias, requirements, masks, relations of sizes.

    A mask has its kind, how it is handed over, and whether as it stands; two sizes are equal or one is the smaller.
    """
    plain = (f"operator {case.operator}", f"dtype {case.dtype}", f"alias {case.inputs.alias}")
    outputs = (f"output {name}" for name in case.outputs)
    wrong = () if case.mistake is None else (f"mistake {case.mistake}",)
    needed = (f"requirement {name}" for name in case.requirements())
    return frozenset((*plain, *wrong, *outputs, *needed, *_masks(case), *_relations(case)))


def asked(case: Case) -> tuple[str, ...]:
    """What a case asks of a subject beyond its operator, in order: features without the relations of sizes."""
    ordinary = {f"operator {case.operator}", "alias none", *_relations(case)}
    return tuple(sorted(features(case) - ordinary))


def _masks(case: Case) -> Iterator[str]:
    for mask in case.masks:
        yield f"mask {mask.kind}"
        yield f"mask {mask.kind} as {mask.element}"
        if isinstance(mask, ArrayMask) and mask.verbatim:
            yield f"mask {mask.kind} verbatim as {mask.element}"
        if isinstance(mask, ArrayMask) and mask.attached:
            yield f"mask {mask.kind} attached"


def _relations(case: Case) -> Iterator[str]:
    names = SIZES if case.operator == "sdpa" else (*SIZES, *WIDTHS)
    for name in names:
        if getattr(case, name) == 1:
            yield f"{name} = 1"
    for one, other in combinations(names, 2):
        first, second = getattr(case, one), getattr(case, other)
        yield f"{one} {'=' if first == second else '<' if first < second else '>'} {other}"


def ordinary(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Cases of which every feature is also that of another."""
    known = {case.id: (case, features(case)) for case in cases}
    counted = Counter(feature for _, having in known.values() for feature in having)
    return tuple(case for case, having in known.values() if all(counted[feature] > 1 for feature in having))
