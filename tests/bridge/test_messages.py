"""Calls and answers survive the round trip, and malformed messages are refused."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.bridge import Call, Declaration, Deviation, Facts, MaskFacts, Profile, Tensor
from conformance.bridge.messages import (
    NUMBERS,
    OPTIONAL,
    Answer,
    Request,
    answer_message,
    read_answer,
    read_request,
    request_message,
)
from conformance.bridge.wire import PREFIX, Message, WireError, decode, encode, lengths

NAMES = st.text(min_size=1, max_size=8)


def crossed(message: Message) -> Message:
    frame = b"".join(bytes(chunk) for chunk in encode(message))
    header, _body = lengths(frame[: PREFIX.size])
    return decode(frame[PREFIX.size : PREFIX.size + header], frame[PREFIX.size + header :])


@st.composite
def calls(draw: st.DrawFn, tensors: Any) -> Call:
    alias = draw(st.sampled_from(["none", "kv", "qkv"]))
    masks = st.builds(MaskFacts, NAMES, st.lists(NAMES).map(tuple), NAMES, st.booleans())
    facts = Facts(
        operator=draw(st.sampled_from(["sdpa", "mha"])),
        dtype=draw(NAMES),
        device="cpu",
        variant=draw(NAMES),
        outputs=tuple(draw(st.lists(NAMES, max_size=3))),
        alias=alias,
        masks=tuple(draw(st.lists(masks, max_size=3))),
        sizes=draw(st.dictionaries(NAMES, st.integers(0, 99), max_size=4)),
        requirements=tuple(draw(st.lists(NAMES, max_size=3))),
        layout=draw(NAMES),
    )
    query, key, value = draw(tensors), draw(tensors), draw(tensors)
    key = query if alias == "qkv" else key
    value = value if alias == "none" else key
    window = st.tuples(st.none() | st.integers(), st.none() | st.integers())
    arguments = st.dictionaries(NAMES, tensors | st.just(True) | window, max_size=3)
    params = draw(st.dictionaries(NAMES, tensors, max_size=3))
    numbers = {name: draw(st.none() | st.floats()) for name in NUMBERS}
    more: dict[str, Any] = numbers | {name: draw(st.none() | tensors) for name in OPTIONAL}
    return Call(facts, query, key, value, params, draw(arguments), **more)


@given(data=st.data(), number=st.integers(0, 2**40))
def test_a_request_comes_back(data: st.DataObject, number: int, any_tensor: Any, same_bits: Any) -> None:
    request = Request(number, data.draw(calls(any_tensor)), ("scale", "kdim"), limit=2**33)
    again = read_request(crossed(request_message(request)))
    one, other = request.call, again.call
    assert (again.number, again.requirements, again.limit) == (number, ("scale", "kdim"), 2**33)
    assert other.facts == one.facts
    for name in NUMBERS:
        number = getattr(one, name)
        assert getattr(other, name) == number or (number is not None and math.isnan(number))
    assert all(same_bits(getattr(one, name), getattr(other, name)) for name in ("query", "key", "value"))
    assert (other.key is other.query) == (one.facts.alias == "qkv")
    assert (other.value is other.key) == (one.facts.alias != "none")
    for name in OPTIONAL:
        sent, came = getattr(one, name), getattr(other, name)
        assert (sent is None and came is None) or same_bits(sent, came)
    assert other.params.keys() == one.params.keys()
    assert other.arguments.keys() == one.arguments.keys()
    for slot, given_ in one.arguments.items():
        assert same_bits(given_, other.arguments[slot]) or given_ == other.arguments[slot]


DECLARATION = Declaration(
    Profile.fused("bfloat16").but(exp_ulp=math.inf, mm="tf32"),
    (Deviation("fully_masked_row", "nan", "https://example.org/docs"),),
    "measured",
)


def test_an_answer_comes_back(same_bits: Any) -> None:
    answer = Answer(
        number=7,
        status="reply",
        declaration=DECLARATION,
        outputs={"output": Tensor.of(np.array([1, np.nan, -0.0], np.float32))},
        evidence={"kernel": "math", "worst": math.inf},
        seconds={"call": 0.25, "cpu": math.nan},
        peak=2**34,
    )
    again = read_answer(crossed(answer_message(answer)))
    assert again.declaration == DECLARATION
    assert same_bits(again.outputs["output"], answer.outputs["output"])
    assert again.evidence == {"kernel": "math", "worst": "inf"}
    assert (again.number, again.status, again.peak, again.seconds["call"]) == (7, "reply", 2**34, 0.25)
    assert math.isnan(again.seconds["cpu"])


def test_an_error_and_a_refusal_come_back() -> None:
    error = Answer(
        1, "error", error={"type": "ValueError", "message": "no \udcff", "traceback": "...", "stage": "adapter"}
    )
    assert read_answer(crossed(answer_message(error))) == error
    refusal = Answer(2, "unsupported", DECLARATION, reason="no float masks")
    assert read_answer(crossed(answer_message(refusal))) == refusal


ERROR = dict(answer_message(Answer(1, "error")).fields)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("call", {}), "expected reply or unsupported or error, got 'call'"),
        (Message("reply", {}), "a malformed 'reply' message: KeyError: 'declaration'"),
        (Message("reply", {"declaration": 3, "error": None}), "a malformed 'reply' message"),
        (
            Message("error", ERROR | {"seconds": {"call": "soon"}}),
            "'soon' is not a number",
        ),
        (
            Message("error", ERROR | {"seconds": {"call": True}}),
            "True is not a number",
        ),
        (Message("error", ERROR | {"error": 1}), "a malformed 'error' message"),
    ],
)
def test_what_is_no_answer_is_refused(message: Message, reason: str) -> None:
    with pytest.raises(WireError) as caught:
        read_answer(message)
    assert reason in str(caught.value)


def test_a_profile_of_unknown_roundings_is_refused() -> None:
    fields = crossed(answer_message(Answer(1, "reply", DECLARATION))).fields
    fields["declaration"]["profile"]["acc"] = "float128"
    with pytest.raises(WireError, match="profile field acc: 'float128' is not one of"):
        read_answer(Message("reply", fields))


def test_what_is_no_request_is_refused() -> None:
    with pytest.raises(WireError, match="expected call, got 'reply'"):
        read_request(Message("reply"))
    with pytest.raises(WireError, match="a malformed 'call' message"):
        read_request(Message("call", {"number": 1, "facts": {}}))
