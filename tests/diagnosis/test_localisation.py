"""The location of unexplained failures: worked by hand on a few rows."""

from dataclasses import replace

import numpy as np
import pytest

from conformance.bridge.contract import Facts
from conformance.bridge.profile import Profile
from conformance.deviations.positions import named_rows
from conformance.diagnosis.condition_fit import Guards, condition_of
from conformance.diagnosis.conditions import Condition
from conformance.diagnosis.diagnosis import diagnose
from conformance.diagnosis.evidence import Evidence
from conformance.diagnosis.localisation import Localisation, localise
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor
from conformance.verdicts.expectation import expect

from ..problems import BATCH, DIM, HEADS, KEYS, QUERIES, random_sdpa

PROFILE = Profile.ordinary("float32")
ROWS = dict(named_rows())


def problem(allowed: Array | None = None, outputs: tuple[str, ...] = ("output",)) -> Problem:
    masks = () if allowed is None else (MaskOperand("mask", ("attention",), "bool", allowed),)
    return random_sdpa(5, *masks, value_dim=DIM, outputs=outputs)


def cell(asked: Problem, wrong: dict[str, Array] | None = None, name: str = "case") -> Evidence:
    """A call whose reply differs by `wrong` from the expected one; without `wrong`, a call that conforms."""
    declared = expect(asked, {}, PROFILE)
    facts = Facts("sdpa", "float32", "cpu", "", asked.outputs, sizes=asked.sizes())
    judged = Evidence(name, facts, asked, declared, PROFILE)
    if wrong is None:
        return judged
    off = {name: each.values + wrong.get(name, np.zeros(1)) for name, each in declared.reply.items()}
    actual = {name: to_tensor(round_to(each, "float32"), "float32") for name, each in off.items()}
    return replace(judged, actual=actual)


def in_rows(*places: tuple[int | slice, ...]) -> dict[str, Array]:
    off = np.zeros((BATCH, HEADS, QUERIES, DIM))
    for place in places:
        off[place] = 1.0
    return {"output": off}


def holes(*hidden: tuple[int, int]) -> Array:
    allowed = np.ones((1, 1, QUERIES, KEYS), dtype=bool)
    for query, key in hidden:
        allowed[0, 0, query, key] = False
    return allowed


EVERY = slice(None)
TWICE = "every wrong number is 2 times the expected number"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (in_rows((EVERY, EVERY, 0)), "in exactly the rows of the first query"),
        (in_rows((EVERY, EVERY, 4)), "in exactly the rows of the last query"),
        (in_rows((1, EVERY, 4)), "only in some of the rows of the last query"),
        (in_rows((EVERY, EVERY, 0), (EVERY, EVERY, 4)), "in exactly the rows of the first query of each block of 4"),
        (in_rows((1,)), "in exactly the rows of the last batch element"),
        (in_rows((EVERY, slice(1, 3))), "in exactly the rows of heads after the first"),
        (in_rows((EVERY, EVERY, 3, 2), (0, 1, 4)), ""),  # rows of most queries are not reported as a place
        (in_rows((EVERY,)), ""),  # everywhere
    ],
)
def test_rows_are_named_by_their_place(wrong: dict[str, Array], words: str) -> None:
    assert localise([cell(problem(), wrong)], (), 0).words == words


def test_the_rows_must_hold_in_every_cell() -> None:
    one = cell(problem(), in_rows((EVERY, EVERY, 0)))
    other = cell(problem(), in_rows((EVERY, EVERY, 3)))
    assert localise([one], (), 0).rows == "of the first query"
    assert localise([one, other], (), 0).rows == ""


def test_rows_are_named_by_what_they_attend() -> None:
    allowed = holes((2, 2), (3, 0), (4, 6))
    expected = {
        "in which the key at the position of the query is masked": [False, False, True, False, False],
        "in which the first key is masked": [False, False, False, True, False],
        "in which the last key is masked": [False, False, False, False, True],
        "in which some key is masked": [False, False, True, True, True],
        "that attend to every key": [True, True, False, False, False],
        "that are fully masked": [False] * 5,
    }
    assert {name: ROWS[name](allowed)[0, 0].tolist() for name in expected} == expected


def test_without_a_wrong_element_no_place_is_named() -> None:
    assert localise([cell(problem(), in_rows())], (), 0).words == ""


def test_rows_of_blocks() -> None:
    attended = np.ones((1, 1, 13, KEYS), dtype=bool)
    attended[0, 0, 3, :4] = False
    places = {name: np.flatnonzero(rows(attended)).tolist() for name, rows in ROWS.items()}
    assert places["in which the first 4 keys are masked"] == [3]
    assert places["in which the first 8 keys are masked"] == []  # there are only 7 keys
    assert places["of the first 4 queries"] == [0, 1, 2, 3]
    assert places["of queries after the first 8"] == [8, 9, 10, 11, 12]
    assert places["of queries after the last full block of 4"] == [12]


def test_a_padded_query_is_seen_by_its_own_key() -> None:
    """Keys 3 and 4 are masked for all queries; an outer product of the padding masks queries 3 and 4, too."""
    padding = np.ones((1, 1, 1, KEYS), dtype=bool)
    padding[..., 3:5] = False
    found = localise([cell(problem(padding), in_rows((EVERY, EVERY, slice(3, 5))))], (), 0)
    assert found.words == "in exactly the rows in which the key at the position of the query is masked"


def test_an_output_that_is_wrong_alone_is_named() -> None:
    asked = problem(outputs=("output", "weights"))
    off = np.zeros((BATCH, HEADS, QUERIES, KEYS))
    off[:, :, 4] = 0.5
    found = localise([cell(asked, {"weights": off})], (), 0)
    assert found.words == "with errors only in weights, in exactly the rows of the last query"
    assert localise([cell(problem(), in_rows((EVERY,)))], (), 0).outputs == ()


def test_mean_weights_have_no_heads() -> None:
    asked = problem(outputs=("output", "weights_mean"))
    off = np.zeros((BATCH, QUERIES, KEYS))
    off[:, 0] = 0.5
    assert localise([cell(asked, {"weights_mean": off})], (), 0).rows == "of the first query"


def test_another_shape_has_no_rows() -> None:
    judged = cell(problem(), in_rows((EVERY, EVERY, 0)))
    cut = replace(judged, actual={"output": to_tensor(np.zeros((BATCH, HEADS, QUERIES)), "float32")})
    assert localise([cut], (Condition(masks=True),), 0).words == "only with a mask"


def test_what_conforms_there_is_counted() -> None:
    assert Localisation((Condition(masks=True),), 3).words == "only with a mask (but 3 such calls conform)"
    assert Localisation((Condition(masks=True),), 1).words == "only with a mask (but 1 such call conforms)"


def test_a_condition_of_exceptions_says_how_many_calls_have_a_reply() -> None:
    plain, masked, weighed = cell(problem()), cell(problem(holes((0, 1)))), cell(problem(None, ("output", "weights")))
    masked = replace(masked, facts=replace(masked.facts, dtype="float16"))
    assert condition_of([weighed], [plain, masked]) == "only with weights requested"
    assert condition_of([weighed], [plain, masked, weighed, plain]) == (
        "only with weights requested (where 1 call has a reply)"
    )
    more = [plain, masked, weighed, weighed, plain]
    assert condition_of([weighed], more) == "only with weights requested (where 2 calls have a reply)"


def test_the_smallest_condition_around_the_failures() -> None:
    """
    Of four calls without weights, one has a scale; all calls with weights have one.

    The failing calls return weights. If calls with one batch element conform, their condition needs batch > 1 as well.
    If only one call fails, some second condition fits by chance, so it is not told.
    """
    plain = [cell(problem()) for _ in range(3)]
    scaled = cell(problem().but(scale=0.5))
    weighing = problem(outputs=("output", "weights")).but(scale=0.5)
    single = weighing.but(query=weighing.query[:1], key=weighing.key[:1], value=weighing.value[:1])
    cells = [*plain, scaled, cell(weighing), cell(single)]
    alone, left = Guards(cells[:-1]).around([4], [0, 1, 2, 3])
    assert (alone[0].record(), left) == ({"outputs": ["weights"]}, 0)
    more = Guards([*cells, cell(single)])
    both, left = more.around([4] * 20, [0, 1, 2, 3, 5, 6])
    assert (both[0].record(), left) == ({"outputs": ["weights"], "sizes_above": {"batch": 1}}, 0)
    one, left = more.around([4], [0, 1, 2, 3, 5, 6])
    assert (one[0].record(), left) == ({"outputs": ["weights"]}, 2)
    most, left = Guards(cells).around([3, 4] * 20, [0, 1, 2, 5])
    assert (most[0].record(), left) == ({"scaled": True, "sizes_above": {"batch": 1}}, 0)


def test_nothing_is_said_of_what_holds_for_most_calls() -> None:
    """One of four equal calls fails: there is no condition and no place."""
    sine = {
        "output": np.sin(np.arange(BATCH * HEADS * QUERIES * DIM, dtype=float)).reshape(BATCH, HEADS, QUERIES, DIM)
        + 2.0
    }
    found = diagnose([cell(problem(), sine, "0"), *(cell(problem(), None, str(n)) for n in (1, 2, 3))])
    assert len(found.unexplained) == 1
    assert found.where.words == ""


def test_a_diagnosis_says_where_its_unexplained_cells_lie() -> None:
    """Two calls with a scale are wrong in the last query; calls without a scale conform."""
    off = {"output": np.zeros((BATCH, HEADS, QUERIES, DIM))}
    off["output"][:, :, 4] = np.arange(1.0, DIM + 1.0)
    wrong = [cell(problem().but(scale=scale), off, f"scaled {scale}") for scale in (0.25, 0.5)]
    found = diagnose([*wrong, *(cell(problem(), None, str(n)) for n in range(3))])
    assert [each.case for each in found.unexplained] == ["scaled 0.25", "scaled 0.5"]
    assert found.where.words == "only with a scale given, in exactly the rows of the last query"


def times(factor: float, columns: slice = EVERY) -> Evidence:
    """A call in which these columns are `factor` times their expected values."""
    asked = problem()
    right = expect(asked, {}, PROFILE).reply["output"].values
    off = np.zeros_like(right)
    off[..., columns] = (factor - 1.0) * right[..., columns]
    return cell(asked, {"output": off})


@pytest.mark.parametrize(
    ("factor", "columns", "words"),
    [
        (
            2.0,
            slice(7, 8),
            f"in exactly the columns of the last 4 that lie in a full block of 4, {TWICE}",
        ),
        (0.0, slice(4, None), "in exactly the columns after the first 4, every wrong number is zero"),
        (-1.0, EVERY, "every wrong number is the expected number with the opposite sign"),
        (1 / 3, EVERY, "every wrong number is 0.3333 times the expected number"),
        (
            1.4142,
            slice(10, None),
            "in exactly the columns at the last position, every wrong number is 1.414 times the expected number",
        ),
    ],
)
def test_columns_and_the_factor_are_told(factor: float, columns: slice, words: str) -> None:
    assert localise([times(factor, columns)], (), 0).words == words


def test_two_factors_are_none() -> None:
    assert localise([times(2.0), times(3.0)], (), 0).words == ""
    assert localise([times(2.0), times(2.0)], (), 0).amount == "2 times the expected number"


def test_columns_must_be_the_same_in_every_cell() -> None:
    assert localise([times(2.0, slice(0, 1)), times(2.0, slice(1, 2))], (), 0).columns == ""
