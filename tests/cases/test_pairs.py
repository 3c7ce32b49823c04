"""Any two decisions can be combined: a diagnosis tries pairs of them, and no pair may make it fail."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from conformance.deviations.catalogue import evaluate
from conformance.diagnosis.detectability import by_kind
from conformance.diagnosis.explanation import ways
from conformance.spec.loader import load
from conformance.spec.materialise import materialise

ROOT = Path(__file__).parents[2] / "cases"
CASES = {case.id: case for case in load([ROOT], ROOT)}


@pytest.mark.parametrize(
    "case",
    [
        "combined/padding/with_additive[operator=sdpa]",
        "parameters/appended_keys/both_under_padding[dtype=float32]",
        *(
            pytest.param(case, marks=pytest.mark.measurement)
            for case in (
                "shapes/self_attention/one_tensor[operator=mha]",
                "masks/attention_2d/square_holes[operator=mha]",
                "parameters/grouped_heads/two_groups[operator=mha]",
            )
        ),
    ],
)
def test_every_pair_of_decisions_has_an_answer(case: str) -> None:
    problem = by_kind(materialise(CASES[case]))
    pairs = [pair for pair in combinations(ways(problem, {}), 2) if pair[0][0] != pair[1][0]]
    assert len(pairs) > 3000
    for pair in pairs:
        reply = evaluate(problem, dict(pair), "float32").reply
        assert all(isinstance(each.values, np.ndarray) for each in reply.values()), pair
