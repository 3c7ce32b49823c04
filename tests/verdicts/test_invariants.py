"""Relations between two replies: each holds for the oracle and is broken by a liar that is written for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np
import pytest

from conformance import places
from conformance.bridge import Profile, Tensor
from conformance.deviations.catalogue import evaluate
from conformance.deviations.edges import causal as causal_mask
from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor
from conformance.verdicts.expectation import expect
from conformance.verdicts.invariants import INVARIANTS, Invariant, RelatedReply, Relation, relate
from conformance.verdicts.problem_changes import is_changeable

from ..problems import BATCH, DIM, HEADS, KEYS, QUERIES, VALUE_DIM, mha, random_sdpa

BY_NAME = {each.name: each for each in INVARIANTS}
PROFILE = Profile.uniform("float32")
Reply = Mapping[str, Tensor]
Implementation = Callable[[Problem], Mapping[str, Array]]


def problem(**more: object) -> Problem:
    """Return a problem in which the last keys of each batch element are masked."""
    allowed = np.arange(KEYS) < np.array([5, 3])[:, None, None, None]
    return random_sdpa(11, MaskOperand("mask", ("key_padding",), "bool", allowed)).but(**more)


def causal() -> Problem:
    operand = MaskOperand("is_causal", ("causal",), "flag", causal_mask(QUERIES, KEYS, 0), offset=0)
    return problem(mask_operands=(operand,))


def honest(asked: Problem) -> Mapping[str, Array]:
    return {name: each.values for name, each in evaluate(asked).reply.items()}


def side(asked: Problem, implementation: Implementation) -> RelatedReply:
    reply = {name: to_tensor(round_to(values, "float32"), "float32") for name, values in implementation(asked).items()}
    return RelatedReply(asked, expect(asked, {}, PROFILE), reply)


def related(name: str, asked: Problem, implementation: Implementation) -> Relation:
    changed = BY_NAME[name].change(asked)
    assert changed is not None
    return relate(BY_NAME[name], side(asked, implementation), side(changed, implementation))


def under(change: Callable[[Problem], Problem]) -> Implementation:
    return lambda asked: honest(change(asked))


def seeing(asked: Problem, allowed: Array) -> Problem:
    return asked.but(
        mask_operands=(MaskOperand("mask", ("attention",), "bool", np.broadcast_to(allowed, asked.logits_shape)),)
    )


def without_the_last_visible_key(asked: Problem) -> Problem:
    allowed = asked.attended()
    last = allowed.shape[-1] - 1 - np.argmax(allowed[..., ::-1], axis=-1)
    return seeing(asked, allowed & (np.arange(allowed.shape[-1]) != last[..., None]))


def with_positions(asked: Problem) -> Problem:
    places_ = np.broadcast_to(0.1 * np.arange(asked.seq_len_k), asked.logits_shape)
    return asked.but(mask_operands=(*asked.mask_operands, MaskOperand("more", ("additive",), "float", places_)))


def with_heads_told_apart(asked: Problem) -> Problem:
    heads = (1 + 0.1 * np.arange(asked.num_heads))[:, None, None]
    return asked.but(query=asked.query * heads)


def with_batch_elements_told_apart(asked: Problem) -> Problem:
    elements = (1 + 0.1 * np.arange(asked.batch))[:, None, None, None]
    return asked.but(query=asked.query * elements)


def wrong_if(condition: Callable[[Problem], bool]) -> Implementation:
    return lambda asked: {name: values * (2 if condition(asked) else 1) for name, values in honest(asked).items()}


LIARS: Sequence[tuple[str, Problem, Implementation]] = [
    ("visible_keys", problem(), under(without_the_last_visible_key)),
    ("key_order", problem(), under(with_positions)),
    ("head_order", problem(), under(with_heads_told_apart)),
    ("batch_order", problem(), under(with_batch_elements_told_apart)),
    ("batch_of_one", problem(), wrong_if(lambda asked: asked.batch == 1)),
    ("padded_key", problem(), wrong_if(lambda asked: asked.seq_len_k % 8 == 0)),
    ("last_key", causal(), under(lambda asked: seeing(asked, asked.attended() | (np.arange(KEYS) == KEYS - 1)))),
    ("mask_convention", problem(), wrong_if(lambda asked: asked.mask_operands[0].element == "float")),
    ("poisoned_key", problem(), lambda asked: {"output": honest(asked)["output"] + 0 * asked.key.sum()}),
    ("poisoned_value", problem(), lambda asked: {"output": honest(asked)["output"] + 0 * asked.value.sum()}),
]


def test_there_is_a_liar_for_every_relation() -> None:
    assert [name for name, _, _ in LIARS] == [each.name for each in INVARIANTS]


@pytest.mark.parametrize(("name", "asked", "liar"), LIARS, ids=[name for name, _, _ in LIARS])
def test_a_relation_holds_for_the_oracle_and_is_broken_by_its_liar(
    name: str, asked: Problem, liar: Implementation
) -> None:
    assert related(name, asked, honest).found == "holds"
    broken = related(name, asked, liar)
    assert broken.found == "broken"
    assert broken.sentence == BY_NAME[name].sentence
    assert broken.where.startswith("output: ")
    assert " at [" in broken.where


def test_the_place_and_the_numbers_of_a_broken_relation_are_told() -> None:
    def doubled(asked: Problem) -> Mapping[str, Array]:
        output = np.zeros((asked.batch, HEADS, QUERIES, VALUE_DIM))
        output[0, 2, 1, 3] = 0.5 if asked.batch == 1 else 0.25
        return {"output": output}

    asked = problem()
    silent = asked.but(query=np.zeros_like(asked.query), value=np.zeros_like(asked.value))
    found = related("batch_of_one", silent, doubled)
    assert (
        found.where
        == "output: 1 of 195 elements differ; 0.5 at [0, 2, 1, 3], 0 before the change, allowed difference 0"
    )


def test_what_does_not_follow_under_the_declaration_is_not_asked() -> None:
    """If a fully masked row is the mean of V over all keys, one more key changes it."""
    fully_masked = problem(
        mask_operands=(MaskOperand("mask", ("key_padding",), "bool", np.zeros((BATCH, 1, 1, KEYS), dtype=bool)),)
    )
    padded = BY_NAME["padded_key"]
    changed = padded.change(fully_masked)
    assert changed is not None
    dialect = {"fully_masked_row": "uniform"}
    sides = [RelatedReply(asked, expect(asked, dialect, PROFILE), {}) for asked in (fully_masked, changed)]
    assert relate(padded, sides[0], sides[1]) == Relation("padded_key", "not asked")


def test_a_leak_that_is_declared_is_no_break() -> None:
    asked = problem()
    poisoned = BY_NAME["poisoned_value"]
    changed = poisoned.change(asked)
    assert changed is not None
    dialect = {"nonfinite_value": "leaks"}
    leaking = [
        RelatedReply(
            each,
            (expected := expect(each, dialect, PROFILE)),
            _rounded({n: e.values for n, e in expected.reply.items()}),
        )
        for each in (asked, changed)
    ]
    assert relate(poisoned, leaking[0], leaking[1]).found == "not asked"


def _rounded(reply: Mapping[str, Array]) -> Reply:
    return {name: to_tensor(round_to(values, "float32"), "float32") for name, values in reply.items()}


@pytest.mark.parametrize("invariant", INVARIANTS, ids=[each.name for each in INVARIANTS])
def test_no_relation_is_broken_by_the_oracle_in_any_suite(
    invariant: Invariant, sides: tuple[RelatedReply, ...]
) -> None:
    found = [
        relate(invariant, first, side(changed, honest))
        for first in sides
        if is_changeable(first.problem) and (changed := invariant.change(first.problem)) is not None
    ]
    assert [relation.where for relation in found if relation.found == "broken"] == []
    assert sum(relation.found == "holds" for relation in found) >= 3


@pytest.fixture(scope="module")
def sides() -> tuple[RelatedReply, ...]:
    """The smallest float32 case of every suite and operator, with the oracle's reply."""
    smallest: dict[tuple[str, str], Case] = {}
    for case in sorted(load([places.cases()], places.cases()), key=lambda each: prod(each.axes.values())):
        if case.dtype == "float32" and not case.verbatim:
            smallest.setdefault((case.suite, case.operator), case)
    return tuple(side(materialise(case), honest) for case in smallest.values())


def test_relations_are_asked_of_output_and_weights_and_not_of_a_batch_that_is_one_item() -> None:
    assert is_changeable(problem(layout="transposed"))
    assert not is_changeable(problem(layout="expanded"))
    assert not any(is_changeable(problem(outputs=("output", name))) for name in ("present_key", "scaled", "logits"))
    assert not is_changeable(problem(outputs=("output", "grad_query")))


def test_heads_stay_where_a_parameter_is_unknown() -> None:
    unknown = problem(params={"bias_k": np.zeros(HEADS * DIM)})
    assert BY_NAME["head_order"].change(unknown) is None


def merged(**more: object) -> Problem:
    """Two concatenated heads of width 1, no output projection: the context of each head is the mean of its values."""
    rows = np.array([[[1.0, 3.0], [5.0, 11.0]]])
    params = {name: np.eye(2) if name == "wv" else np.zeros((2, 2)) for name in ("wq", "wk", "wv")}
    return mha(rows[:, :1], rows, rows, params, 2, dtype="float32", requirements=("no_output_projection",), **more)


def test_heads_that_stay_side_by_side_move_in_the_output() -> None:
    first = honest(merged())["output"]
    np.testing.assert_array_equal(first, [[[3.0, 7.0]]])
    assert related("head_order", merged(), honest).found == "holds"
    fixed = related("head_order", merged(), lambda _: {"output": first})
    assert fixed.where.startswith("output: 2 of 2 elements differ; 3 at [0, 0, 0], 7 before the change, allowed ")
    assert BY_NAME["head_order"].change(merged(residual=True)) is None


def test_replies_may_differ_by_what_the_oracle_differs_beside_their_bounds() -> None:
    """The changed problem's oracle moves by 0.9 times the sum of both tolerances, so the limit is 1.9 times the sum."""
    asked = problem()
    changed = BY_NAME["batch_of_one"].change(asked)
    assert changed is not None
    sides = [side(each, honest) for each in (asked, changed)]
    allowed = sides[0].expected.bounds["output"].tolerance[1:] + sides[1].expected.bounds["output"].tolerance
    expected = sides[1].expected.reply["output"]
    moved = replace(sides[1].expected, reply={"output": replace(expected, values=expected.values + 0.9 * allowed)})
    for reach, found in ((1.8, "holds"), (2.0, "broken")):
        reply = _rounded({"output": sides[0].actual["output"].float64()[1:] + reach * allowed})
        assert relate(BY_NAME["batch_of_one"], sides[0], RelatedReply(changed, moved, reply)).found == found
