"""Replies are checked against their call in one place; a fault is reported in a sentence."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.bridge import Call, Declaration, Deviation, Profile, Tensor
from conformance.bridge.messages import Answer
from conformance.engine.job import Job
from conformance.engine.replies import answer_fault, evidence_fault, hello_fault

OUTPUT = Tensor.of(np.zeros(3, np.float32))
DECLARED = Declaration(Profile.uniform("float32"), (Deviation("scale", "none", "https://example.org"),), "a page")
GOOD = Answer(1, "reply", DECLARED, {"output": OUTPUT}, seconds={"call": 0.5, "cpu": 0.25}, peak=7)
ERROR = {"type": "ValueError", "message": "no", "traceback": "...", "stage": "framework"}
HALF = "caf\udce9"


@pytest.fixture
def job(call_of: Callable[..., Call]) -> Job:
    return Job(1, ("case", "subject"), call_of(2))


def test_honest_answers_are_believed(job: Job) -> None:
    assert answer_fault(GOOD, job) == ""
    assert answer_fault(Answer(1, "unsupported", reason="no"), job) == ""
    assert answer_fault(Answer(1, "error", error=ERROR), job) == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outputs": {}}, "replied without output; the call requests output"),
        (
            {"outputs": {"output": OUTPUT, "weights": OUTPUT}},
            "replied with 'weights', which was not requested; the call",
        ),
        ({"outputs": {"outptu": OUTPUT}}, "replied without output and with 'outptu', which was not requested"),
        ({"declaration": None}, "replied without a declaration"),
        ({"error": ERROR}, "sent a reply that has an error"),
        ({"status": "unsupported", "reason": "no"}, "sent outputs with the status 'unsupported'"),
        ({"status": "unsupported", "outputs": {}}, "declined without giving a reason"),
        ({"status": "error", "outputs": {}}, "sent an error without type, message, traceback, stage"),
        (
            {"status": "error", "outputs": {}, "error": ERROR | {"stage": "x"}},
            "sent an error with the unknown stage 'x'",
        ),
        (
            {"seconds": {"call": float("nan")}},
            "sent nan seconds for 'call', expected non-negative numbers for call and cpu",
        ),
        ({"seconds": {"judge": 1.0}}, "sent 1 seconds for 'judge'"),
        ({"peak": -1}, "sent a peak memory of -1 bytes"),
        ({"reason": HALF}, "sent a text with a lone surrogate, \\udce9: 'caf\\udce9'"),
        ({"evidence": {HALF: 1}}, "sent a text with a lone surrogate"),
        ({"evidence": {"x": [[HALF]]}}, "sent a text with a lone surrogate"),
        ({"declaration": replace(DECLARED, evidence=HALF)}, "sent a text with a lone surrogate"),
        (
            {"declaration": replace(DECLARED, dialect=(Deviation("scale", HALF, ""),))},
            "sent a text with a lone surrogate",
        ),
        ({"evidence": {"ran_on": "cpu"}}, "invalid evidence: ran_on: expected a list, got 'cpu'"),
    ],
)
def test_what_is_odd_is_told(change: Mapping[str, Any], said: str, job: Job) -> None:
    assert said in answer_fault(replace(GOOD, **change), job)


def test_how_deep_a_value_may_be_nested(job: Job) -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    assert answer_fault(replace(GOOD, evidence={"x": value}), job) == "sent a value that is nested deeper than 16"


HELLO: dict[str, Any] = {
    "protocol": 1,
    "digest": "x",
    "python": "3.11",
    "versions": {"numpy": "2"},
    "device": "cpu",
    "evidence": {},
    "cpu": 0.5,
    "peak": 3,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"versions": {"numpy": 2}}, "numpy: expected a string, got 2"),
        ({"cpu": "much"}, "cpu: expected a number, got 'much'"),
        ({"evidence": {"libraries": 5}}, "invalid evidence: libraries: expected a mapping, got 5"),
        ({"python": HALF}, "sent a text with a lone surrogate"),
    ],
)
def test_a_greeting_is_held_against_its_form(change: dict[str, Any], said: str) -> None:
    assert hello_fault(HELLO | change).startswith(said)
    assert bool(hello_fault(HELLO | change)) == bool(said)


def test_what_frameworks_say_of_themselves_is_not_odd() -> None:
    assert not evidence_fault({"libraries": {"torch": "AVX2"}, "environment": {"XLA_FLAGS": None}, "threads": "1"})
    assert not evidence_fault({"ran_on": ["cpu"], "nodes": {"CPUExecutionProvider": {"Softmax": 1}}, "kernel": [1, {}]})
