"""Whatever an adapter does short of ending the process is an answer, and says where it came from."""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from conformance.bridge import Call, Declaration, Facts, Profile, Tensor, Unsupported, framework_call
from conformance.bridge.messages import Answer, Request
from conformance.bridge.serving import answer, evidence_of

ZEROS = Tensor.of(np.zeros((1, 2, 3, 5), np.float32))


def declare(facts: Facts) -> Declaration:
    return Declaration(Profile.uniform(facts.dtype))


def adapter(operator: Any = None, **names: Any) -> ModuleType:
    module = ModuleType("adapter")
    facts = {"CAPABILITIES": ["scale"], "VARIANTS": {"bare": {"CAPABILITIES": []}}}
    vars(module).update({"declare": declare, "sdpa": operator or called(output=np.ones(3)), **facts, **names})
    return module


def called(**outputs: Any) -> Any:
    def sdpa(_: Call) -> dict[str, Any]:
        with framework_call():
            return outputs

    return sdpa


def ask(module: ModuleType, *requirements: str, variant: str = "", outputs: tuple[str, ...] = ("output",)) -> Answer:
    facts = Facts("sdpa", "float32", "cpu", variant, outputs)
    return answer(module, Request(5, Call(facts, ZEROS, ZEROS, ZEROS), requirements, limit=1000))


def test_a_reply_carries_what_was_asked_for_and_what_it_rests_on() -> None:
    reply = ask(adapter(called(output=np.ones(3), weights=np.ones(4)), evidence=lambda: {"kernel": np.str_("loop")}))
    assert (reply.number, reply.status) == (5, "reply")
    assert list(reply.outputs) == ["output"]
    assert reply.evidence == {"kernel": "loop", "dtypes": {"output": "float64"}}
    assert reply.declaration == declare(Facts("sdpa", "float32", "cpu", "", ()))
    assert set(reply.seconds) == {"call", "cpu"}


def test_requirements_are_those_of_the_variant() -> None:
    assert ask(adapter(), "scale").status == "reply"
    assert ask(adapter(), "scale", variant="bare").reason == "does not honour: scale"
    assert ask(adapter(), "no_bias", "kdim").reason == "does not honour: kdim, no_bias"


def test_a_refusal_keeps_its_reason_and_its_declaration() -> None:
    def refuse(_: Call) -> Any:
        raise Unsupported("no float masks")

    refusal = ask(adapter(refuse))
    assert (refusal.status, refusal.reason) == ("unsupported", "no float masks")
    assert refusal.declaration is not None
    early = ask(adapter(declare=refuse))
    assert (early.status, early.declaration) == ("unsupported", None)


def test_a_refusal_after_the_framework_was_called_is_an_error() -> None:
    def look_then_refuse(_: Call) -> Any:
        with framework_call():
            pass
        raise Unsupported("I do not like what I see")

    late = ask(adapter(look_then_refuse))
    assert (late.status, late.error and late.error["stage"]) == ("error", "adapter")
    assert ask(adapter()).status == "reply", "the mark is forgotten before the next call"


def test_an_answer_without_a_framework_call_is_an_error() -> None:
    error = ask(adapter(lambda _: {"output": np.ones(3)})).error
    assert error is not None
    assert error["message"] == "returned without calling the framework inside framework_call()"


class _Unspeakable(Exception):  # noqa: N818 - what frameworks do
    def __str__(self) -> str:
        raise RuntimeError("not even its message")


@pytest.mark.parametrize(
    "raised",
    [ValueError("x: y"), MemoryError("2 EiB"), SystemExit(3), KeyboardInterrupt(), _Unspeakable(), RecursionError()],
)
def test_the_stage_is_where_it_was_raised(raised: BaseException) -> None:
    def before(_: Any) -> Any:
        raise raised

    def inside(_: Call) -> Any:
        with framework_call():
            raise raised

    stages = {"declare": adapter(declare=before), "adapter": adapter(before), "framework": adapter(inside)}
    for stage, module in stages.items():
        error = ask(module).error
        assert error is not None
        assert error["stage"] == stage
        assert error["type"] == type(raised).__name__
        assert f"in {before.__name__ if stage != 'framework' else inside.__name__}" in error["traceback"]


def test_a_message_is_kept_whole_and_without_its_type() -> None:
    def fail(_: Call) -> Any:
        raise ValueError("mask: expected 4 axes, got: 3")

    error = ask(adapter(fail)).error
    assert error is not None
    assert error["message"] == "mask: expected 4 axes, got: 3"


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "asked for output, weights, returned without output, weights"),
        ({"output": ZEROS}, "returned without weights"),
        ({"output": ZEROS, "weights": np.array(["a"])}, "cannot cross the bridge"),
        ({"output": ZEROS, "weights": np.zeros(1000)}, "a reply of 8120 bytes (output [1, 2, 3, 5], weights [1000])"),
    ],
)
def test_outputs_must_be_what_was_asked_for(outputs: dict[str, Any], message: str) -> None:
    error = ask(adapter(called(**outputs)), outputs=("output", "weights")).error
    assert error is not None
    assert message in error["message"]
    assert error["stage"] == "adapter"


def test_evidence_is_json() -> None:
    assert evidence_of(adapter()) == {}
    with pytest.raises(TypeError, match="is not a JSON value"):
        evidence_of(adapter(evidence=lambda: {"device": object()}))
    with pytest.raises(TypeError, match="evidence returned list"):
        evidence_of(adapter(evidence=lambda: [1]))
