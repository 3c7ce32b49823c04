"""Whatever an adapter does, unless it ends the process, becomes an answer; an error names its stage."""

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
    assert ask(adapter(), "scale", variant="bare").reason == "does not support: scale"
    assert ask(adapter(), "no_bias", "kdim").reason == "does not support: kdim, no_bias"


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
    assert error["message"] == "the adapter returned without calling the framework inside framework_call()"


def test_an_exception_without_a_text_is_told_by_the_line_that_raised_it() -> None:
    def refuse(call: Call) -> Any:
        if call.scale is None:
            raise AssertionError
        return {}

    error = ask(adapter(refuse)).error
    assert error is not None
    assert (error["type"], error["message"]) == ("AssertionError", "raise AssertionError")


class _Unspeakable(Exception):  # noqa: N818 - frameworks use such names
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
        reply = ask(module)
        error = reply.error
        assert error is not None
        assert error["stage"] == stage
        assert set(reply.seconds) == (set() if stage == "declare" else {"call", "cpu"}), "the time of a failed call"
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
        ({}, "the call requests output, weights; the adapter returned no output, weights"),
        ({"output": ZEROS}, "the adapter returned no weights"),
        ({"output": ZEROS, "weights": np.array(["a"])}, "is not supported"),
        (
            {"output": ZEROS, "weights": np.zeros(1000)},
            "the reply has 8120 bytes (output [1, 2, 3, 5], weights [1000])",
        ),
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
    with pytest.raises(TypeError, match=r"evidence\(\) returned list"):
        evidence_of(adapter(evidence=lambda: [1]))


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (
            np.ma.masked_array(np.zeros((2, 3), np.float32), mask=True),
            "6 of 6 elements of a masked array have no value",
        ),
        (np.ma.masked, "1 of 1 elements of a masked array have no value"),
        (np.ma.masked_array([1.0, 2.0], [False, True]), "1 of 2 elements of a masked array have no value"),
    ],
)
def test_a_masked_array_has_no_values_to_judge(array: Any, said: str) -> None:
    lost = ask(adapter(called(output=array)))
    assert (lost.status, lost.error and lost.error["type"]) == ("error", "ValueError")
    assert said in str(lost.error)
    assert ask(adapter(called(output=np.ma.masked_array([1.0, 2.0])))).outputs["output"].bits.tolist() == [1.0, 2.0]


def test_halves_of_characters_in_an_exception_are_escaped() -> None:
    def broken(_: Call) -> Any:
        raise ValueError("cannot open caf\udce9")

    error = ask(adapter(broken)).error
    assert error is not None
    assert error["message"] == "cannot open caf\\udce9"
    assert "".join(error.values()).encode()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"store": 3}, "profile field store: 3 is not one of float64"),
        ({"store": None}, "profile field store: None is not one of float64"),
        ({"exp_ulp": "float32"}, "profile field exp_ulp: 'float32' is not a number of at least 0"),
        ({"exp_ulp": float("nan")}, "profile field exp_ulp: nan is not a number of at least 0"),
        ({"exp_ulp": True}, "profile field exp_ulp: True is not a number of at least 0"),
        ({"ftz": "yes"}, "profile field ftz: 'yes' is not True or False"),
    ],
)
def test_every_field_of_a_profile_has_its_type(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Profile.uniform("float32").but(**fields)
    assert Profile.uniform("float32").but(mm=None, pre="tf32", exp_ulp=0, ftz=True)
