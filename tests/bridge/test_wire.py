"""Messages are read back bit for bit, and whatever is not a frame is refused with WireError."""

import io
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.bridge.tensor import STORAGE, Tensor
from conformance.bridge.wire import (
    ALIGNMENT,
    HEADER_LIMIT,
    MAGIC,
    PREFIX,
    Message,
    WireError,
    decode,
    encode,
    lengths,
    message_digest,
    read,
    write,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.dictionaries(st.text(), JSON, max_size=4)


def stream(frame: bytes) -> Any:
    return io.BytesIO(frame)


def frame_of(message: Message) -> bytes:
    out = io.BytesIO()
    write(out, message)  # type: ignore[arg-type]  # only the method `write` of the stream is used
    return out.getvalue()


def made(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return PREFIX.pack(MAGIC, len(text), len(body)) + text + body


def announcing(*tensors: object) -> dict[str, object]:
    return {"kind": "call", "fields": {}, "tensors": list(tensors)}


@given(kind=st.text(), fields=FIELDS, data=st.data())
def test_a_message_comes_back(
    kind: str, fields: dict[str, Any], data: st.DataObject, any_tensor: Any, same_bits: Any
) -> None:
    tensors = data.draw(st.dictionaries(st.text(), any_tensor, max_size=4))
    again = read(stream(frame_of(Message(kind, fields, tensors))))
    assert again is not None
    assert (again.kind, again.fields) == (kind, fields)
    assert list(again.tensors) == list(tensors)
    assert all(same_bits(again.tensors[name], tensor) for name, tensor in tensors.items())


@given(data=st.data())
def test_tensors_are_aligned_and_can_be_written_to(data: st.DataObject, any_tensor: Any) -> None:
    tensors = dict(enumerate(data.draw(st.lists(any_tensor, max_size=4))))
    again = read(stream(frame_of(Message("call", {}, {str(n): tensor for n, tensor in tensors.items()}))))
    assert again is not None
    for tensor in again.tensors.values():
        assert tensor.bits.flags.writeable
        assert tensor.bits.flags.c_contiguous
        assert tensor.bits.size == 0 or tensor.bits.ctypes.data % ALIGNMENT == 0


@given(data=st.data(), fields=FIELDS)
def test_a_frame_that_ends_early_is_refused(data: st.DataObject, fields: dict[str, Any], any_tensor: Any) -> None:
    frame = frame_of(Message("reply", fields, {"output": data.draw(any_tensor)}))
    cut = data.draw(st.integers(1, len(frame) - 1))
    with pytest.raises(WireError, match="the stream ended inside a frame"):
        read(stream(frame[:cut]))


@given(data=st.data())
def test_a_corrupted_frame_is_a_message_or_a_wire_error_and_nothing_else(data: st.DataObject, any_tensor: Any) -> None:
    frame = bytearray(frame_of(Message("reply", {"number": 3, "list": [1.5]}, {"output": data.draw(any_tensor)})))
    for place in data.draw(st.lists(st.integers(0, len(frame) - 1), min_size=1, max_size=4)):
        frame[place] = data.draw(st.integers(0, 255))
    try:
        again = read(stream(bytes(frame)), body_limit=1 << 16)
    except WireError:
        return
    assert again is None or isinstance(again, Message)


@given(junk=st.binary(min_size=PREFIX.size))
def test_what_is_no_frame_is_refused(junk: bytes) -> None:
    with pytest.raises(WireError, match=r"the frame begins with .*, expected b'ACW1'"):
        read(stream(b"x" + junk))


def test_the_end_between_two_frames_is_no_error() -> None:
    frame = frame_of(Message("bye"))
    both = stream(frame + frame)
    assert read(both) == read(both) == Message("bye")
    assert read(both) is None


def test_more_than_was_asked_for_is_refused_before_it_is_read() -> None:
    frame = frame_of(Message("reply", {}, {"output": Tensor.of(np.zeros(100))}))
    body = lengths(frame[: PREFIX.size])[1]
    assert read(stream(frame), body_limit=body) is not None
    with pytest.raises(WireError, match=f"the body has {body} bytes, more than the limit of {body - 1}"):
        read(stream(frame[: PREFIX.size]), body_limit=body - 1)
    with pytest.raises(WireError, match="the header has 4294967295 bytes, more than the limit of"):
        read(stream(PREFIX.pack(MAGIC, 0xFFFFFFFF, 0)))
    with pytest.raises(WireError, match="more than the limit of"):
        encode(Message("error", {"traceback": "x" * HEADER_LIMIT}))


HEADERS = {
    "invalid header: not strict JSON: NaN": made(b'{"kind": "call", "fields": {"scale": NaN}, "tensors": []}'),
    "invalid header: not strict JSON: an object has a duplicate key": made(
        b'{"kind": "a", "kind": "b", "fields": {}, "tensors": []}'
    ),
    "invalid header: not strict JSON: maximum recursion depth": made(b"[" * 100_000),
    "invalid header: not strict JSON: 'utf-8' codec": made(b'{"kind": "\xff"}'),
    "invalid header: expected exactly the keys kind, fields and tensors": made({"kind": "call"}),
    "invalid header: kind must be a string": made({"kind": 1, "fields": {}, "tensors": []}),
    "has the unknown dtype 'complex64'": made(announcing(["q", "complex64", [1]]), b"12345678"),
    "has the unknown dtype ['float32']": made(announcing(["q", ["float32"], [1]]), b"1234"),
    "tensor 'q' has the invalid shape [-1]": made(announcing(["q", "int8", [-1]])),
    "tensor 'q' has the invalid shape [True]": made(announcing(["q", "int8", [True]]), b"1"),
    "duplicate tensor 'q'": made(announcing(["q", "int8", [0]], ["q", "int8", [0]])),
    "expected [name, dtype, shape]": made(announcing(["q"])),
    "invalid tensor name 1": made(announcing([1, "int8", []]), b"1"),
    "the tensors in the header need 8 bytes, but the body has 4": made(announcing(["q", "float64", [1]]), b"1234"),
    f"the tensors in the header need {10**20} bytes": made(announcing(["q", "int8", [10**10, 10**10]]), b"1"),
    "the tensors in the header need 0 bytes": made(announcing(["q", "int8", [10**10, 0]]), b"1"),
    "a bool tensor has a byte other than 0 and 1": made(announcing(["q", "bool", [2]]), b"\x01\x02"),
}


@pytest.mark.parametrize("message", HEADERS)
def test_a_malformed_frame_is_refused_with_its_reason(message: str) -> None:
    with pytest.raises(WireError) as caught:
        read(stream(HEADERS[message]))
    assert message in str(caught.value)


def test_bits_cross_whatever_they_mean() -> None:
    patterns = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    for dtype in ("bfloat16", "float16"):
        bits = patterns.view(STORAGE[dtype])
        again = read(stream(frame_of(Message("call", {}, {"q": Tensor(dtype, bits)}))))
        assert again is not None
        assert np.array_equal(again.tensors["q"].bits.view(np.uint16), patterns)


def test_other_byte_orders_and_strides_cross_as_their_values() -> None:
    array = np.arange(12, dtype=">f4").reshape(3, 4)
    again = read(stream(frame_of(Message("call", {}, {"q": Tensor("float32", array.T)}))))
    assert again is not None
    assert np.array_equal(again.tensors["q"].bits, array.T)


def test_numbers_that_json_lacks_are_words() -> None:
    again = read(stream(frame_of(Message("call", {"scale": math.inf, "more": [math.nan, -math.inf, np.float32(1.5)]}))))
    assert again is not None
    assert again.fields == {"scale": "inf", "more": ["nan", "-inf", 1.5]}


def test_read_and_decode_agree() -> None:
    frame = frame_of(Message("call", {"a": 1}, {"q": Tensor.of(np.arange(3))}))
    header, body = lengths(frame[: PREFIX.size])
    start = PREFIX.size + header
    again = decode(frame[PREFIX.size : start], frame[start:])
    assert len(frame) == start + body
    assert np.array_equal(again.tensors["q"].bits, np.arange(3))


def of(**changed: Any) -> Message:
    tensors = {"query": Tensor("float32", np.arange(6, dtype=np.float32).reshape(2, 3))}
    return Message(**{"kind": "call", "fields": {"number": 2, "scale": 0.5}, "tensors": tensors, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "other"},
        {"fields": {"number": 2, "scale": 0.25}},
        {"tensors": {"key": Tensor("float32", np.arange(6, dtype=np.float32).reshape(2, 3))}},
        {"tensors": {"query": Tensor("float32", np.arange(6, dtype=np.float32).reshape(3, 2))}},
        {"tensors": {"query": Tensor("int32", np.arange(6, dtype=np.float32).reshape(2, 3).view(np.int32))}},
        {"tensors": {"query": Tensor("float32", -np.arange(6, dtype=np.float32).reshape(2, 3))}},
        {"tensors": {}},
    ],
)
def test_messages_that_differ_have_different_digests(changed: dict[str, Any]) -> None:
    assert message_digest(of()) == message_digest(of())
    assert message_digest(of(**changed)) != message_digest(of())


def test_a_message_whose_header_is_too_long_has_no_digest() -> None:
    with pytest.raises(WireError, match=f"more than the limit of {HEADER_LIMIT}"):
        message_digest(of(fields={"text": "x" * HEADER_LIMIT}))


def test_the_digest_of_a_tensor_is_of_its_bits_in_c_order() -> None:
    turned = np.arange(6, dtype=np.float32).reshape(3, 2).T
    assert Tensor("float32", turned).digest == Tensor("float32", turned.copy(order="C")).digest


def test_zeros_of_opposite_signs_have_different_digests() -> None:
    zeros = np.zeros(3, np.float32)
    assert Tensor("float32", zeros).digest != Tensor("float32", -zeros).digest
