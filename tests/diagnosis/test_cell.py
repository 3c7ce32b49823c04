"""A cell is judged under the declared dialect, compared with the canonical answer, and explained by one decision."""

import numpy as np
import pytest

from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.diagnosis.judgement import features, is_calibrated
from conformance.spec.problem import MaskOperand, Problem
from conformance.spec.rounding import round_to
from conformance.verdicts.verdict import GRAVITY, gravest

from ..problems import DIM, HEADS, KEYS, QUERIES, judge, random_sdpa, reply_under

FLOAT32 = Profile.uniform("float32")


def problem(*groups: MaskOperand, outputs: tuple[str, ...] = ("output",), kv_heads: int = HEADS) -> Problem:
    return random_sdpa(7, *groups, num_kv_heads=kv_heads, value_dim=DIM, outputs=outputs)


def fully_masked_row() -> MaskOperand:
    allowed = np.random.default_rng(5).random((1, 1, QUERIES, KEYS)) < 0.7
    allowed[0, 0, 2] = False
    return MaskOperand("attn_mask", ("attention",), "bool", allowed)


def test_a_canonical_reply_passes() -> None:
    asked = problem(fully_masked_row(), outputs=("output", "weights"))
    found = judge(asked, {}, FLOAT32, reply_under({}, asked, FLOAT32))
    assert found.verdict == "pass"
    assert 0 < found.budget < 1


def test_a_declared_difference_is_a_dialect_where_it_shows_and_a_pass_elsewhere() -> None:
    uniform = {"fully_masked_row": "uniform"}
    asked = problem(fully_masked_row())
    assert judge(asked, uniform, FLOAT32, reply_under(uniform, asked, FLOAT32)).verdict == "dialect"
    plain = problem()
    assert judge(plain, uniform, FLOAT32, reply_under(uniform, plain, FLOAT32)).verdict == "pass"


def test_a_stale_declaration_fails_and_says_what_was_observed() -> None:
    asked = problem(fully_masked_row())
    found = judge(asked, {"fully_masked_row": "uniform"}, FLOAT32, reply_under({}, asked, FLOAT32))
    assert (found.verdict, found.klass) == ("fail", "semantic")
    assert found.explanation is not None
    assert found.explanation.sentence == (
        "returns zeros for a fully masked row, although it is judged under fully_masked_row=uniform"
    )


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        ({"polarity[attn_mask]": "ignore"}, "reads True in attn_mask as: ignore this key"),
        ({"use[attn_mask]": "ignored"}, "ignores attn_mask"),
        ({"scale": "none"}, "does not scale the logits"),
        ({"fully_masked_row": "nan"}, "returns NaN for a fully masked row"),
        ({"fully_masked_row": "uniform"}, "returns the mean of V over all keys for a fully masked row"),
        ({"softmax_axis": "queries"}, "takes the softmax over the queries"),
        ({"value_path": "reversed"}, "applies the weights to the values in reverse key order"),
        ({"result_dtype": "float64"}, "returns float64"),
    ],
)
def test_one_decision_taken_otherwise_is_named(lie: dict[str, str], sentence: str) -> None:
    asked = problem(fully_masked_row())
    found = judge(asked, {}, FLOAT32, reply_under(lie, asked, FLOAT32))
    assert (found.verdict, found.klass) == ("fail", "semantic")
    assert found.explanation is not None
    assert found.explanation.sentence == sentence


def test_a_reply_to_large_logits_is_explained_where_no_bound_is_derived() -> None:
    # The queries are nearly equal: a row is saturated over its keys and has small errors; over queries, nothing is.
    asked = problem()
    loud = asked.but(query=round_to(asked.query[:, :, :1] * 100.0 + asked.query, "float32"))
    query, key, value = (array.astype(np.float32) for array in (loud.query, loud.key, loud.value))
    logits = query @ key.swapaxes(-1, -2) / np.sqrt(np.float32(DIM))
    weights = np.exp(logits - logits.max(axis=-2, keepdims=True))
    found = judge(loud, {}, FLOAT32, {"output": Tensor.of(weights / weights.sum(axis=-2, keepdims=True) @ value)})
    assert found.explanation is not None
    assert found.explanation.sentence == "takes the softmax over the queries"


def test_what_no_arithmetic_explains_is_impossible_and_what_it_nearly_does_is_precision() -> None:
    asked = problem()
    right = reply_under({}, asked, FLOAT32)["output"].bits
    wild = judge(asked, {}, FLOAT32, {"output": Tensor.of(right + np.float32(3.0))})
    assert (wild.verdict, wild.klass) == ("fail", "impossible")
    assert wild.explanation is None
    off = judge(asked, {}, FLOAT32, {"output": Tensor.of(right * np.float32(1 + 1e-6))})
    assert (off.verdict, off.klass) == ("fail", "precision")


def test_a_precision_failure_outside_the_calibrated_table_is_inconclusive() -> None:
    asked = problem().but(softcap=3.0, requirements=("softcap",))
    right = reply_under({}, asked, FLOAT32)["output"].bits
    found = judge(asked, {}, FLOAT32, {"output": Tensor.of(right * np.float32(1 + 1e-6))}, "cuda")
    assert (found.verdict, found.uncalibrated) == ("inconclusive", True)
    inverted = problem(fully_masked_row())
    lie = reply_under({"polarity[attn_mask]": "ignore"}, inverted, FLOAT32)
    assert judge(inverted, {}, FLOAT32, lie, "cuda").verdict == "fail"


def test_grouped_heads_are_calibrated_on_cpu_and_cuda_and_a_softcap_only_on_cpu() -> None:
    assert all(is_calibrated(problem(fully_masked_row(), kv_heads=1), device) for device in ("cpu", "cuda:0"))
    capped = problem().but(softcap=3.0, requirements=("softcap",))
    assert is_calibrated(capped, "cpu")
    assert not is_calibrated(capped, "cuda:0")
    assert not is_calibrated(problem(fully_masked_row()), "tpu")


@pytest.mark.parametrize("name", ["softcap", "residual", "relu", "no_output_projection"])
def test_what_adds_a_term_to_the_bound_was_measured_on_a_cpu_and_counts_as_a_feature(name: str) -> None:
    asked = problem(fully_masked_row()).but(requirements=(name,))
    assert name in features(asked)
    assert is_calibrated(asked, "cpu")


def test_a_feature_that_was_not_measured_is_not_calibrated() -> None:
    scores = problem(fully_masked_row()).but(outputs=("output", "scaled"))
    assert is_calibrated(scores, "cpu")
    assert not is_calibrated(scores.but(outputs=("output", "entropy")), "cpu")


def test_gravity_has_an_order_and_no_default() -> None:
    assert gravest(["pass", "inconclusive", "dialect"]) == "inconclusive"
    assert gravest(GRAVITY) == "crash"
    with pytest.raises(ValueError, match="nothing was judged"):
        gravest([])
    with pytest.raises(ValueError, match="not in tuple"):
        gravest(["ok"])
