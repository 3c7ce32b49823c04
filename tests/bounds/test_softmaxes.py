"""Bounds of a softmax over the heads, and of one that subtracts no maximum, compared with float32 in NumPy."""

from collections.abc import Callable

import numpy as np
import pytest

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import evaluate
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.verdicts.compare import compare

from ..problems import BATCH, DIM, KEYS, QUERIES, one_query, random_sdpa

FLOAT32 = Profile.uniform("float32")
SEEDS = range(40)
BIG, SMALL = 30.0, 2.0**-126


def problem(seed: int, loudness: float = 1.0, outputs: tuple[str, ...] = ("output",)) -> Problem:
    rng = np.random.default_rng(seed)
    plain = random_sdpa(rng, outputs=outputs)
    allowed = rng.random((BATCH, 1, QUERIES, KEYS)) < 0.7
    allowed[..., 3] = True
    mask = MaskOperand("mask", ("attention",), "bool", allowed)
    return plain.but(query=plain.query * loudness, mask_operands=(mask,))


def logits(case: Problem, fill: float) -> Array:
    query, key = case.query.astype(np.float32), case.key.astype(np.float32)
    products = query @ key.swapaxes(-1, -2) / np.sqrt(np.float32(DIM))
    return np.where(case.attended(), products, np.float32(fill))


def over_heads(case: Problem) -> dict[str, Array]:
    found = logits(case, -1e10)
    exponentials = np.exp(found - found.max(axis=1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=1, keepdims=True)
    return {"weights": weights, "output": weights @ case.value.astype(np.float32)}


def unshifted(case: Problem) -> dict[str, Array]:
    with np.errstate(over="ignore", invalid="ignore"):
        exponentials = np.exp(logits(case, -np.inf))
        weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
        return {"weights": weights, "output": weights @ case.value.astype(np.float32)}


HEADS_DIALECT = {"softmax_axis": "heads", "mask_fill": "finite_minimum"}
RAW_DIALECT = {"softmax_maximum": "missing"}
TAKEN = {"heads": (over_heads, HEADS_DIALECT), "unshifted": (unshifted, RAW_DIALECT)}


def budgets(case: Problem, compute: Callable[[Problem], dict[str, Array]], dialect: dict[str, str]) -> dict[str, float]:
    answer = evaluate(case, dialect, "float32")
    bounds = bound_reply(answer, FLOAT32)
    got = compute(case)
    return {
        name: compare(name, expected, Tensor.of(got[name]), bounds[name], rms_gate=False).budget
        for name, expected in answer.reply.items()
    }


@pytest.mark.parametrize("taken", sorted(TAKEN))
@pytest.mark.parametrize("loudness", [0.25, 1.0, 4.0])
def test_float32_stays_within_a_bound_that_is_not_far_off(taken: str, loudness: float) -> None:
    used = [budgets(problem(seed, loudness, ("output", "weights")), *TAKEN[taken]) for seed in SEEDS]
    for name in ("output", "weights"):
        assert 0.02 < max(each[name] for each in used) <= 1.0


@pytest.mark.parametrize("taken", sorted(TAKEN))
def test_a_weight_that_is_wrong_by_a_thousandth_is_beyond_the_bound(taken: str) -> None:
    compute, dialect = TAKEN[taken]

    def wrong(case: Problem) -> dict[str, Array]:
        weights = compute(case)["weights"] * np.float32(1.001)
        return {"weights": weights, "output": weights @ case.value.astype(np.float32)}

    used = budgets(problem(1, outputs=("output", "weights")), wrong, dialect)
    assert min(used.values()) > 1.0


def test_exponentials_that_overflow_are_no_numbers_and_nothing_else_is() -> None:
    seen = set()
    for seed in SEEDS:
        case = problem(seed, BIG)
        answer = evaluate(case, RAW_DIALECT, "float32")
        bound = bound_reply(answer, FLOAT32)["output"]
        got = unshifted(case)["output"]
        known = bound.judged
        assert known.mean() > 0.9
        assert np.array_equal(np.isnan(got)[known], np.isnan(answer.reply["output"].values)[known])
        seen |= set(np.isnan(got)[known].tolist())
    assert seen == {True, False}


def one_row(*row: float) -> tuple[Array, Bound]:
    """Return the output for one query with these logits and all values 1, and its bound."""
    case = one_query(row, np.ones(len(row)), dtype="float32")
    answer = evaluate(case, RAW_DIALECT, "float32")
    return answer.reply["output"].values, bound_reply(answer, FLOAT32)["output"]


def test_by_hand() -> None:
    assert one_row(89.0, 0.0)[0].item() != one_row(89.0, 0.0)[0].item()  # NaN: e^89 is more than 3.4e38
    assert one_row(88.5, 88.5)[0].item() == 0.0  # each fits (e^88.5 = 2.7e38), but their sum does not
    assert one_row(88.0, 0.0)[0].item() == 1.0
    assert np.isnan(one_row(-110.0, -120.0)[0].item())  # both exponentials are 0
    assert not one_row(88.722835, 0.0)[1].judged.any()  # log of the largest float32 number, to its last digit
    assert one_row(-100.0, -100.0)[1].tolerance.item() > 1.0  # subnormals may be flushed
