"""Facts about wrong effective weights: each kind of phrase on a few numbers, worked by hand."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.deviations.catalogue import evaluate
from conformance.deviations.positions import mask_tiles, named_positions
from conformance.diagnosis.weight_facts import weight_facts
from conformance.spec.problem import Array, MaskOperand, Problem

from ..problems import BATCH, HEADS, QUERIES, random_sdpa

KEYS = 11
PLACES = dict([*named_positions(), *mask_tiles()])


def problem_of(*masks: MaskOperand, queries: int = QUERIES, keys: int = KEYS) -> Problem:
    return random_sdpa(3, *masks, dtype="float64", seq_len_q=queries, seq_len_k=keys, head_dim=7)


def masked(allowed: Array) -> Problem:
    queries, keys = allowed.shape
    return problem_of(MaskOperand("mask", ("attention",), "bool", allowed[None, None]), queries=queries, keys=keys)


def causal(queries: int, keys: int) -> Problem:
    return masked(np.tri(queries, keys, dtype=bool))


def weights(problem: Problem) -> Array:
    return evaluate(problem.but(outputs=("weights",))).reply["weights"].values


def softmax(logits: Array) -> Array:
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def said(problem: Problem, actual: Array) -> tuple[str, ...]:
    """All facts that are reported for these weights, with a relative tolerance of 1e-9."""
    expected = weights(problem)
    return weight_facts(problem, expected, actual, 1e-9 * expected + 1e-12)


def first(problem: Problem, actual: Array) -> str:
    return next(iter(said(problem, actual)), "")


def keys_of(problem: Problem) -> Array:
    return np.arange(problem.seq_len_k)


def test_right_weights_point_behind_themselves() -> None:
    assert said(problem_of(), weights(problem_of())) == ("are right; the error arises in or after the product with V",)


@pytest.mark.parametrize(
    ("met", "words"),
    [
        (
            lambda value: np.broadcast_to(value[:1], value.shape),
            "those of the first batch element for every batch element",
        ),
        (lambda value: np.roll(value, -1, axis=1), "those of head (h + 1) mod num_heads for head h"),
        (lambda value: value[:, :, ::-1], "those of key seq_len_k - 1 - k for key k"),
    ],
)
def test_values_that_right_weights_met_are_named(met: Callable[[Array], Array], words: str) -> None:
    problem = problem_of()
    expected = weights(problem)
    output = expected @ met(problem.value)
    tolerance = np.full(output.shape, 1e-9)
    told = weight_facts(problem, expected, expected, 1e-9 * expected, output=(output, tolerance))
    assert f"are right, but are multiplied by the wrong values: {words}" in told
    output[0, 1, 2, 3] += 1e-6
    told = weight_facts(problem, expected, expected, 1e-9 * expected, output=(output, tolerance))
    assert told == ("are right; the error arises in or after the product with V",)


def test_nothing_is_said_of_weights_that_follow_no_rule() -> None:
    noise = np.exp(np.random.default_rng(7).normal(size=(BATCH, HEADS, QUERIES, KEYS)))
    assert said(problem_of(), softmax(np.log(weights(problem_of()) * noise))) == ()


def test_nothing_is_said_where_one_weight_breaks_the_rule() -> None:
    problem = problem_of()
    actual = softmax(2.0 * evaluate(problem).state.logits)
    assert first(problem, actual) == "look as if the logits were multiplied by 2"
    actual[1, 2, 3, 4:6] += [1e-6, -1e-6]
    assert said(problem, actual) == ()


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (lambda _, key: key == 0, "for the first key"),
        (lambda query, key: key == query, "for the key at the query's own position"),
        (lambda query, key: key > query, "for keys after the query"),
        (lambda query, key: key // 4 != query // 4, "for keys outside of the query's own block of 4"),
        (lambda _, key: key >= 4, "for keys after the first 4"),
        (lambda _, key: key % 2 == 1, "for every second key"),
        (lambda query, key: (query == 0) & (key == 10), "for the last key in rows of the first query"),
        (lambda query, key: (query == 1) & (key == 6), "at 6 of 330 positions"),
    ],
)
def test_lost_places_have_the_plainest_name(lost: Any, words: str) -> None:
    problem = problem_of()
    actual = np.where(lost(np.arange(QUERIES)[:, None], keys_of(problem)), 0.0, weights(problem))
    assert first(problem, actual) == f"are wrongly zero {words}"


def test_a_causal_loop_that_ends_early_loses_a_part_of_the_block() -> None:
    problem = causal(16, 16)
    query, key = np.arange(16)[:, None], np.arange(16)
    actual = np.where((key // 8 == query // 8) & (key % 8 >= 4), 0.0, weights(problem))
    assert first(problem, actual) == "are wrongly zero for keys of the query's own block of 8 after its first 4"


def test_leaked_places_are_those_of_the_mask() -> None:
    problem = causal(5, 5)
    assert first(problem, np.full((BATCH, HEADS, 5, 5), 0.2)) == "are wrongly nonzero for every key"
    actual = weights(problem)
    actual[..., 3, 4] = 0.5
    assert first(problem, actual) == "are wrongly nonzero at 6 of 60 positions"


def test_a_tile_that_is_looked_up_by_its_first_query_leaks() -> None:
    """In a window of two, query 4 attends keys 3 and 4; tiles of 4 x 4 that it attends in part are left unmasked."""
    query, key = np.arange(8)[:, None], np.arange(8)
    problem = masked((key <= query) & (key >= query - 1))
    seen = np.array([[1, 0], [1, 1]], dtype=bool).repeat(4, axis=0).repeat(4, axis=1)  # by query 0 and by query 4
    actual = np.where(seen, 0.125, weights(problem))
    told = "are wrongly nonzero for tiles of 4 queries and 4 keys in which the first query attends some key"
    assert told in said(problem, actual)


def test_places_by_hand() -> None:
    attended = np.ones((1, 1, 1, 13), dtype=bool)
    found = {name: np.flatnonzero(places(attended)).tolist() for name, places in PLACES.items()}
    assert found["keys after the last full block of 4"] == [12]
    assert found["those of the last 4 keys that are in a full block of 4"] == [9, 10, 11]
    assert found["the last key of each block of 4"] == [3, 7, 11]
    assert found["every second block of 4 keys"] == [4, 5, 6, 7, 12]
    assert found["keys after the query, both counted from the end"] == []
    assert found["the first 4 keys of the query's own block of 8"] == [0, 1, 2, 3]


def test_rows_that_add_up_to_one_number() -> None:
    problem = problem_of()
    assert said(problem, 0.5 * weights(problem)) == ("sum to 0.5, in the right proportions",)


def test_rows_that_add_up_to_less_have_a_name() -> None:
    problem = problem_of()
    factors = np.array([0.5, 0.25, 1.0, 0.5, 0.25])[:, None]
    words = "sum to less than 1 in 24 of 30 rows, in the right proportions"
    assert said(problem, factors * weights(problem)) == (words,)
    factors = np.array([0.5, 1.0, 1.0, 1.0, 1.0])[:, None]
    assert first(problem, factors * weights(problem)).startswith("sum to 0.5 in exactly the rows of the first query,")


def test_a_zero_key_that_nobody_asked_for() -> None:
    """The sum of the exponentials is S; with two more terms of 1 it is S + 2."""
    problem = problem_of()
    total = np.exp(evaluate(problem).state.logits).sum(axis=-1, keepdims=True)
    actual = weights(problem) * total / (total + 2.0)
    assert first(problem, actual) == "sum to less than 1, as if 2 more keys had logit 0 and value 0"


def test_hidden_blocks_that_count_as_keys() -> None:
    allowed = np.ones((QUERIES, KEYS), dtype=bool)
    allowed[1, :4] = allowed[2, :8] = False
    problem = masked(allowed)
    total = np.exp(evaluate(problem).state.logits).sum(axis=-1, keepdims=True)
    actual = weights(problem) * total / (total + np.array([0.0, 1.0, 2.0, 0.0, 0.0])[:, None])
    words = "as if each fully masked block of 4 keys were one more key of logit 0 and value 0"
    assert first(problem, actual) == f"sum to less than 1, {words}"


def test_keys_that_count_twice() -> None:
    problem = problem_of()
    actual = weights(problem) * np.where((keys_of(problem) >= 7) & (keys_of(problem) < 8), 2.0, 1.0)
    actual /= actual.sum(axis=-1, keepdims=True)
    words = "look as if those of the last 4 keys that are in a full block of 4 counted 2 times in the softmax"
    assert first(problem, actual) == words
    assert first(problem, 3.0 * actual) == f"sum to 3, and {words}"


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (2.0, "multiplied by 2"),
        (0.5, "multiplied by 1/2"),
        (-1.0, "multiplied by -1"),
        (0.0, "all 0"),
        (0.7, "multiplied by 0.7"),
        (7**-0.5, "multiplied by the scale (0.378)"),
        (np.log(2.0), "multiplied by ln 2 (0.693)"),
    ],
)
def test_logits_that_are_multiplied(times: float, words: str) -> None:
    problem = problem_of()
    assert first(problem, softmax(times * evaluate(problem).state.logits)) == f"look as if the logits were {words}"


def test_a_bias_that_is_multiplied() -> None:
    bias = np.random.default_rng(11).normal(size=(1, 1, QUERIES, KEYS))
    problem = problem_of(MaskOperand("bias", ("additive",), "float", bias))
    state = evaluate(problem).state
    assert first(problem, softmax(state.capped + 3.0 * bias)) == "look as if the bias were multiplied by 3"
    assert (
        first(problem, softmax(3.0 * state.capped + bias))
        == "look as if the logits before the bias were multiplied by 3"
    )


def test_logits_of_some_keys_that_are_multiplied() -> None:
    problem = problem_of()
    logits = evaluate(problem).state.logits
    actual = softmax(np.where(keys_of(problem) == 0, 3.0, 1.0) * logits)
    assert first(problem, actual) == "look as if the logits of the first key were multiplied by 3"


def test_logits_that_are_multiplied_once_more_in_each_block() -> None:
    problem = problem_of(keys=13)
    logits = evaluate(problem).state.logits
    start = "look as if the logits in the n-th block of 4 keys (n = 0, 1, ...) were multiplied by"
    words = f"{start} the n-th power of the scale (0.378)"
    assert said(problem, softmax(logits * 7 ** (-0.5 * (keys_of(problem) // 4)))) == (words,)


def test_features_that_do_not_count() -> None:
    problem = problem_of()
    for kept, words in ((slice(4), "last 3"), (slice(3, None), "first 3")):
        products = problem.query[..., kept] @ problem.key[..., kept].swapaxes(-1, -2)
        told = f"look as if the {words} of 7 indices of head_dim were left out of the product of query and key"
        assert first(problem, softmax(products * problem.applied_scale)) == told


HEAD, QUERY, KEY = (np.arange(length) for length in (HEADS, QUERIES, KEYS))


@pytest.mark.parametrize(
    ("added", "words"),
    [
        (0.125 * KEY, "0.125 times the key position"),
        (-0.3 * np.abs(QUERIES - KEY), "a number that depends only on the key position"),
        ((0.5**HEAD)[:, None, None] * KEY, "a multiple of the key position, another for each head,"),
        (np.sin(3 * KEY + HEAD[:, None, None]), "a number that depends only on the head and the key position"),
        (-0.25 * np.abs(KEY - QUERY[:, None]), "a number that depends only on the distance of key and query"),
        (
            -(0.5**HEAD)[:, None, None] * np.abs(KEY - QUERY[:, None]),
            "a number that depends only on the head and the distance of key and query",
        ),
    ],
)
def test_numbers_that_are_added_by_position(added: Array, words: str) -> None:
    problem = problem_of()
    assert (
        first(problem, softmax(evaluate(problem).state.logits + added))
        == f"look as if {words} were added to the logits"
    )


def test_a_number_that_depends_on_query_and_key_in_another_way_is_not_named() -> None:
    problem = problem_of()
    added = np.sin(QUERY[:, None] * KEY)
    assert said(problem, softmax(evaluate(problem).state.logits + added)) == ()


def test_blocks_that_are_right_in_themselves() -> None:
    problem = problem_of(keys=16)
    factors = np.exp(np.random.default_rng(13).normal(size=(BATCH, HEADS, QUERIES, 2))).repeat(8, axis=-1)
    told = said(problem, softmax(np.log(weights(problem) * factors)))
    assert told[0] == "are in the right proportion within each block of 8 keys, but not between blocks"


@pytest.mark.parametrize(
    ("order", "axis", "words"),
    [
        ([1, 2, 0], 1, "those of head (h + 1) mod num_heads for head h"),
        ([2, 1, 0], 1, "those of head num_heads - 1 - h for head h"),
        ([0, 0, 0], 1, "those of the first head for every head"),
        ([1, 0], 0, "those of batch element batch - 1 - b for batch element b"),
        ([4, 0, 1, 2, 3], 2, "those of query (q - 1) mod seq_len_q for query q"),
        (list(range(KEYS))[::-1], 3, "those of key seq_len_k - 1 - k for key k"),
    ],
)
def test_weights_of_others(order: list[int], axis: int, words: str) -> None:
    assert first(problem_of(), weights(problem_of()).take(order, axis=axis)) == f"are {words}"


def test_heads_that_keep_the_weights_of_those_before_them() -> None:
    problem = problem_of()
    actual = weights(problem)
    actual[:, 2] = 0.5 * actual[:, 2] + 0.2 * actual[:, 1] + 0.3 * actual[:, 0]
    actual[:, 1] = 0.75 * actual[:, 1] + 0.25 * actual[:, 0]
    assert first(problem, actual) == "are for each head a mixture of its own weights and those of the preceding heads"


def test_weights_of_zero_are_those_of_no_other_row() -> None:
    """A fully masked row has only zeros, too, and zeros are a mixture of whatever weights."""
    allowed = np.ones((QUERIES, KEYS), dtype=bool)
    allowed[0] = False
    problem = masked(allowed)
    expected = weights(problem)
    assert first(problem, np.zeros_like(expected)) == "are wrongly zero for every key"
    without_last = expected * (np.arange(HEADS) < HEADS - 1)[:, None, None]
    assert first(problem, without_last) == "are wrongly zero for every key in rows of the last head"


def test_weights_that_are_no_numbers() -> None:
    problem = problem_of()
    actual = weights(problem)
    actual[:, :, 0] = np.nan
    assert first(problem, actual) == "are NaN in exactly the rows of the first query"
    assert first(problem, np.full((BATCH, HEADS, QUERIES, KEYS), np.inf)) == "are not finite in every row"
