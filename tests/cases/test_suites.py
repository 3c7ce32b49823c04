"""The shipped suites: many distinct problems, few compilations for every subject, and every case can be judged."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conformance.bounds.outputs import bound_reply
from conformance.bridge.contract import Call, Facts
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import evaluate
from conformance.diagnosis.detectability import missing_pairs
from conformance.engine.adapters import Subject, read_adapters, subjects_of
from conformance.engine.cells import Cell, make_cell, signature
from conformance.spec.case import ArrayMask, Case
from conformance.spec.loader import load
from conformance.spec.materialise import distinct, duplicates, materialise
from conformance.spec.problem import Problem

PROJECT = Path(__file__).parents[2]
ROOT = PROJECT / "cases"
THEMES = {
    *("shapes", "masks", "verbatim", "causal", "combined", "degenerate"),
    *("numerics", "parameters", "gradients", "published"),
}
OPERATORS = ("sdpa", "mha")
BUDGETS = ("", "printed", "paired")
HALF = ("float16", "bfloat16")

DISTINCT = 300
SHAPES = 31
PRINTED_SHAPES = 12
# Published texts have the shapes that they print. These come on top of the budget: docs/architecture.md.
PRINTED_SIGNATURES = 6
PAIRED_SHAPES = 11
# So do the suites that combine every pair of arguments, in every dtype.
PAIRED_SIGNATURES = 66
# Compilations per subject, without aliases and dense routes (jax.sdpa[lengths], whose lengths are arrays, has 130).
SIGNATURES = 130
# Exports per subject: signatures without shapes (jax.sdpa[lengths], whose lengths are arrays, has 64).
FORMS = 64
SHAPES_IN_ANOTHER_PRECISION = 10
SHAPES_WITH_WEIGHTS = 9
SHAPES_WITH_GRADIENTS = 2
KERNEL_LENGTH = 128
COVERAGE = 0.9
# Minimum share of the cases of its operators that a subject judges. The export of Keras layers, which is only in
# float32, judges fewest.
JUDGED = 0.48
# Minimum number of cases of the theme `published` that every text judges.
TOLD = 1
WIDE = 0.15

# Features that few subjects support and that change the compiled program, with the maximum number of compilations
# that each may add: docs/architecture.md.
RARITIES = {
    **dict.fromkeys(("bias_kv", "zero_key", "relu", "residual", "no_output_projection", "dropout"), 7),
    "softcap": 28,
    "grouped_heads": 23,
    "gradients": 25,
    "mistakes": 11,
    "mistaken_heads": 1,
}

CASES = load([ROOT], ROOT)
ADAPTERS = sorted(path for path in (PROJECT / "adapters").glob("*.py") if not path.name.startswith("_"))


@cache
def problem_of(case: Case) -> Problem:
    return materialise(case)


def shape(case: Case) -> tuple[int, ...]:
    return tuple(problem_of(case).sizes().values())


def of(operator: str) -> list[Case]:
    return [case for case in CASES if case.operator == operator]


def theme(case: Case) -> str:
    return case.suite.partition("/")[0]


def printed(case: Case) -> bool:
    return theme(case) == "published"


def paired(case: Case) -> bool:
    """Whether the case exists to combine arguments (docs/coverage/)."""
    return case.suite.endswith("/arguments")


def on_top(case: Case) -> str:
    """Return the separate budget that a case counts toward; empty for the ordinary one."""
    return "printed" if printed(case) else "paired" if paired(case) else ""


def has_fully_masked_row(problem: Problem) -> bool:
    return not bool(problem.attended().any(axis=-1).all())


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.yaml"))


# ---- the contents --------------------------------------------------------------------------------------------


def test_problems_are_many_and_none_is_there_twice() -> None:
    assert distinct(CASES) >= DISTINCT
    assert duplicates(CASES) == ()


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_theme_asks_both_operators(operator: str) -> None:
    assert {theme(case) for case in of(operator)} == THEMES


def test_operators_have_about_half_of_the_cases_each() -> None:
    assert 0.45 <= len(of("mha")) / len(CASES) <= 0.55


@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_suite_names_its_schema_and_says_what_it_is_about(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# yaml-language-server: $schema=../case.schema.json\n")
    for case in load([path], ROOT):
        assert case.summary.endswith(".")
        assert case.summary.count(". ") == 0


def test_smoke_cases_are_few_cheap_and_of_every_theme() -> None:
    smoke = [case for case in CASES if "smoke" in case.tags]
    assert 20 <= len(smoke) <= 35
    assert {theme(case) for case in smoke} == THEMES
    assert {case.operator for case in smoke} == set(OPERATORS)
    assert all(case.seq_len_k < KERNEL_LENGTH for case in smoke)


def test_whatever_sends_a_call_another_way_is_asked_together_with_whatever_else_does() -> None:
    """
    A mistake that needs two features at once shows in no case that has only one of them.

    Few functions support a feature that needs its own argument, so the other features are also combined without any.
    """
    ours = [case for case in CASES if theme(case) not in ("published", "gradients") and not case.mistake]
    assert missing_pairs(map(problem_of, ours)) == {"sdpa": (), "mha": ()}
    plain = [case for case in ours if set(case.requirements()) <= {"layout"} and case.outputs == ("output",)]
    plain = [case for case in plain if all(mask.kind != "additive" for mask in case.masks)]
    assert missing_pairs(map(problem_of, plain)) == {"sdpa": (), "mha": ()}


# ---- the budget of compilations --------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", OPERATORS)
def test_shapes_are_few(operator: str) -> None:
    shapes = {budget: {shape(case) for case in of(operator) if on_top(case) == budget} for budget in BUDGETS}
    assert len(shapes[""]) <= SHAPES
    assert len(shapes["printed"] - shapes[""]) <= PRINTED_SHAPES
    assert len(shapes["paired"] - shapes[""]) <= PAIRED_SHAPES


@pytest.mark.parametrize("operator", OPERATORS)
def test_other_precisions_and_weights_are_asked_on_few_shapes(operator: str) -> None:
    cases = [case for case in of(operator) if not on_top(case)]
    precise = {shape(case) for case in cases if case.dtype != "float32"}
    weighing = {shape(case) for case in cases if not {"output", "gradients"}.issuperset(case.outputs)}
    differentiated = {shape(case) for case in cases if "gradients" in case.outputs}
    assert len(precise) <= SHAPES_IN_ANOTHER_PRECISION
    assert len(weighing) <= SHAPES_WITH_WEIGHTS
    assert len(differentiated) <= SHAPES_WITH_GRADIENTS


@pytest.mark.parametrize("operator", OPERATORS)
def test_three_shapes_are_longer_than_a_block_of_a_kernel(operator: str) -> None:
    sizes = {shape(case): case for case in of(operator)}.values()
    assert sum(case.seq_len_k > KERNEL_LENGTH and case.head_dim in (16, 64) for case in sizes) >= 3


def test_half_of_the_mha_shapes_fit_torch() -> None:
    shapes = {shape(case): case for case in of("mha") if not paired(case)}
    assert sum(set(case.requirements()) <= {"no_bias"} for case in shapes.values()) >= len(shapes) / 2


@pytest.mark.parametrize("operator", OPERATORS)
def test_unusual_widths_are_few(operator: str) -> None:
    unusual = {"value_dim", "kdim", "query_dim", "output_dim", "grouped_heads"}
    cases = [case for case in of(operator) if not paired(case)]
    wide = [case for case in cases if unusual & set(case.requirements())]
    assert 0 < len(wide) <= WIDE * len(cases)


@cache
def cells(subject: Subject) -> tuple[Cell, ...]:
    """Return the cells that the subject can judge: those that can be routed and whose requirements it supports."""
    made = [
        make_cell(case, problem_of(case), subject)
        for case in CASES
        if set(case.requirements()) <= set(subject.capabilities)
    ]
    return tuple(cell for cell in made if isinstance(cell, Cell))


def signatures(subject: Subject, rarity: str | None = None, *, budget: str = "") -> set[str]:
    """Return the signatures of ordinary calls, or of calls with this rarity, in the cases with this budget."""
    own = [cell for cell in cells(subject) if on_top(cell.case) == budget]
    return compiled(cell for cell in own if (not rarities(cell) if rarity is None else rarity in rarities(cell)))


def compiled(made: Iterable[Cell]) -> set[str]:
    return {signature(replace(each.call, facts=_plain(each.call.facts))) for each in made}


def _plain(facts: Facts) -> Facts:
    return replace(facts, alias="none", layout="contiguous")


def rarities(cell: Cell) -> set[str]:
    facts = cell.call.facts
    return RARITIES.keys() & {*facts.requirements, "gradients" if facts.gradients else ""}


def forms(subject: Subject) -> set[object]:
    return {_form(cell.call) for cell in cells(subject) if not rarities(cell) and not on_top(cell.case)}


def _form(call: Call) -> object:
    arguments = {
        slot: (value.dtype, len(value.shape)) if isinstance(value, Tensor) else value
        for slot, value in call.arguments.items()
    }
    flags = (call.scale is not None, "bq" in call.params)
    return call.facts.dtype, tuple(sorted(arguments.items())), call.facts.outputs, flags


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: path.stem)
def test_a_subject_judges_most_cases_and_compiles_few(path: Path) -> None:
    for subject in subjects_of(read_adapters([path])):
        if subject.dense:
            continue
        ordinary = [case for case in CASES if case.mistake is None and not on_top(case)]
        asked = [case for case in ordinary if case.operator in subject.operators]
        if subject.framework == "published":  # a text supports only its own call: not one without its ReLU, for example
            assert sum(printed(cell.case) for cell in cells(subject)) >= TOLD, subject.name
        else:
            judged = [cell for cell in cells(subject) if cell.case in asked]
            assert len(judged) >= JUDGED * len(asked), subject.name
        if "from ._node import" in path.read_text(encoding="utf-8"):  # graphs of one node are made in 0.1 ms
            continue
        assert len(signatures(subject)) <= SIGNATURES, subject.name
        assert len(signatures(subject, budget="printed") - signatures(subject)) <= PRINTED_SIGNATURES, subject.name
        assert len(compiled(cell for cell in cells(subject) if paired(cell.case))) <= PAIRED_SIGNATURES, subject.name
        assert len(forms(subject)) <= FORMS, subject.name
        for rarity, limit in RARITIES.items():
            assert len(signatures(subject, rarity)) <= limit, (subject.name, rarity)


# ---- whether it can be judged ------------------------------------------------------------------------------------


def profiles(dtype: str) -> tuple[Profile, ...]:
    return (Profile.fused(dtype), Profile.naive(dtype)) if dtype in HALF else (Profile.uniform(dtype),)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_tolerance_means_something_nearly_everywhere(operator: str) -> None:
    blunt = []
    for case in of(operator):
        for profile in profiles(case.dtype):
            bounds = bound_reply(evaluate(problem_of(case), score=profile.score), profile)
            blunt += [case.id for bound in bounds.values() if bound.coverage < COVERAGE or not bound.judged.all()]
    assert blunt == []


def test_fully_masked_rows_are_a_theme_of_their_own() -> None:
    dead = {case.id for case in CASES if has_fully_masked_row(problem_of(case))}
    assert dead
    assert {theme(case) for case in CASES if case.id in dead} == {"degenerate", "gradients", "published"}


@pytest.mark.parametrize("operator", OPERATORS)
def test_fully_masked_rows_have_a_twin_with_large_hidden_values(operator: str) -> None:
    large = [case for case in of(operator) if case.inputs.clean is False]
    assert large
    assert all(np.abs(problem_of(case).key).max() > 1e4 for case in large)
    assert all(has_fully_masked_row(problem_of(case)) for case in large)


def test_a_verbatim_mask_has_no_fully_masked_row_in_either_reading() -> None:
    for case in CASES:
        for mask, group in zip(case.masks, problem_of(case).mask_operands, strict=True):
            if isinstance(mask, ArrayMask) and mask.verbatim and mask.kind != "additive":
                zero = group.values == 0
                assert bool(zero.any(axis=-1).all()), case.id
                assert bool((~zero).any(axis=-1).all()), case.id


def test_a_verbatim_mask_comes_in_every_element_and_reading() -> None:
    seen: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for case in CASES:
        for mask in case.masks:
            if isinstance(mask, ArrayMask) and mask.verbatim:
                seen[case.operator, mask.kind].add((mask.element, mask.true_means))
    both = {(element, reading) for element in ("bool", "int", "float") for reading in ("attend", "ignore")}
    for operator in OPERATORS:
        assert seen[operator, "key_padding"] == both
        assert seen[operator, "attention"] == both
