"""`expect_reply` returns the same reply as `expect`, which also returns its bounds."""

from typing import Any

import numpy as np
import pytest

from conformance.bounds.outputs import UnderivedBound
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import candidates
from conformance.verdicts.expectation import expect, expect_reply
from tests.problems import random_sdpa

PROFILE = Profile.uniform("float32")


@pytest.mark.parametrize("outputs", [("output",), ("output", "weights"), ("grad_query", "grad_value")])
def test_the_reply_alone_is_the_expected_one_or_has_no_bound_either(outputs: tuple[str, ...]) -> None:
    rng = np.random.default_rng(11)
    gradient: dict[str, Any] = {"grad_output": rng.standard_normal((2, 3, 5, 13))} if "grad_query" in outputs else {}
    problem = random_sdpa(7, outputs=outputs, **gradient)
    derived = dict.fromkeys((True, False), 0)
    for deviation in candidates(problem):
        dialect = {deviation.decision: deviation.name}
        try:
            expected = expect(problem, dialect, PROFILE).reply
        except UnderivedBound as underived:
            with pytest.raises(UnderivedBound, match=str(underived)[:40]):
                expect_reply(problem, dialect, PROFILE)
            derived[False] += 1
            continue
        reply = expect_reply(problem, dialect, PROFILE)
        assert list(reply) == list(expected)
        for name, each in expected.items():
            assert each.dtype == reply[name].dtype
            assert np.array_equal(each.values, reply[name].values, equal_nan=True)
        derived[True] += 1
    assert derived[True] > 20
    assert (derived[False] > 20) is ("output" in outputs), "every gradient has a bound"
