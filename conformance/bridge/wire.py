"""
The frames between coordinator and worker: a fixed prefix, a strict JSON header, and raw buffers.

    prefix   magic "ACW1", length of the header (uint32), length of the body (uint64), little-endian
    header   UTF-8 JSON: {"kind": ..., "fields": {...}, "tensors": [[name, dtype, [size, ...]], ...]}
    body     the tensors in that order, C-contiguous, little-endian, each starting at a multiple of 64 bytes

Unlike pickle, nothing that is read is executed. bfloat16 is sent as its bits.
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import RawIOBase
from typing import Any

import numpy as np

from conformance.bridge.strict_json import plain_data, strict_json
from conformance.bridge.tensor import STORAGE, Tensor

MAGIC = b"ACW1"
PREFIX = struct.Struct("<4sIQ")
# Alignment of buffers in bytes: vector loads, and so the summation order of some kernels, depend on it.
ALIGNMENT = 64

# Maximum size of a header in bytes; it holds names, facts and a shortened traceback.
HEADER_LIMIT = 1 << 20

# Maximum size of a body in bytes, unless the reader sets a lower limit.
BODY_LIMIT = 1 << 32

_MAX_AXES = 32
_MAX_ELEMENTS = 1 << 56


class WireError(Exception):
    """The other side violated the protocol, or sent more than it was allowed to."""


@dataclass(frozen=True)
class Message:
    """One frame: its kind, its JSON fields, and its tensors by name."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def encode(message: Message) -> list["bytes | memoryview[Any]"]:
    """
    The chunks of a frame, in order; the buffers of tensors are not copied.

    Raises:
        WireError: the header is longer than HEADER_LIMIT.
    """
    header = _header(message)
    body: list[bytes | memoryview[Any]] = []
    length = 0
    for tensor in message.tensors.values():
        padding = -length % ALIGNMENT
        body += [bytes(padding), _buffer(tensor)]
        length += padding + tensor.bits.nbytes
    return [PREFIX.pack(MAGIC, len(header), length), header, *(chunk for chunk in body if len(chunk))]


def message_digest(message: Message) -> str:
    """
    The sha256 of what a frame says, in hexadecimal.

    Raises:
        WireError: as `encode`.
    """
    return hashlib.sha256(_header(message) + b"".join(each.digest for each in message.tensors.values())).hexdigest()


def _header(message: Message) -> bytes:
    listing = [[name, tensor.dtype, list(tensor.shape)] for name, tensor in message.tensors.items()]
    fields = {"kind": message.kind, "fields": plain_data(message.fields), "tensors": listing}
    header = json.dumps(fields, allow_nan=False, separators=(",", ":")).encode()
    if len(header) > HEADER_LIMIT:
        raise WireError(f"the header has {len(header)} bytes, more than the limit of {HEADER_LIMIT}")
    return header


def _buffer(tensor: Tensor) -> "memoryview[Any]":
    bits = np.ascontiguousarray(tensor.bits).reshape(-1)
    return bits.astype(bits.dtype.newbyteorder("<"), copy=False).view(np.uint8).data


def lengths(prefix: bytes, body_limit: int = BODY_LIMIT) -> tuple[int, int]:
    """
    The lengths of header and body in a prefix.

    Raises:
        WireError: the magic is wrong, or a length is beyond its limit.
    """
    magic, header, body = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise WireError(f"the frame begins with {magic!r}, expected {MAGIC!r}")
    if header > HEADER_LIMIT:
        raise WireError(f"the header has {header} bytes, more than the limit of {HEADER_LIMIT}")
    if body > body_limit:
        raise WireError(f"the body has {body} bytes, more than the limit of {body_limit}")
    return header, body


def decode(header: bytes, body: "bytes | memoryview[Any]") -> Message:
    """
    The message with this header and body; its tensors are views of `body`.

    Raises:
        WireError: the header is not strict JSON of the right form, or the length of the body does not match it.
    """
    try:
        fields = strict_json(header)
    except ValueError as error:
        raise WireError(f"invalid header: {error}") from None
    if not (isinstance(fields, dict) and set(fields) == {"kind", "fields", "tensors"}):
        raise WireError("invalid header: expected exactly the keys kind, fields and tensors")
    kind, entries, listing = fields["kind"], fields["fields"], fields["tensors"]
    if not (isinstance(kind, str) and isinstance(entries, dict) and isinstance(listing, list)):
        raise WireError("invalid header: kind must be a string, fields an object, tensors a list")
    return Message(kind, entries, _tensors(listing, body))


def _tensors(listing: list[Any], body: "bytes | memoryview[Any]") -> dict[str, Tensor]:
    placed = {}
    end = 0
    for entry in listing:
        name, dtype, shape = _announced(entry)
        if name in placed:
            raise WireError(f"duplicate tensor {name!r}")
        start = end + -end % ALIGNMENT
        end = start + math.prod(shape) * np.dtype(STORAGE[dtype]).itemsize
        placed[name] = (dtype, shape, start)
    if end != len(body):
        raise WireError(f"the tensors in the header need {end} bytes, but the body has {len(body)}")
    return {name: _tensor(body, *about) for name, about in placed.items()}


def _announced(entry: Any) -> tuple[str, str, tuple[int, ...]]:
    if not (isinstance(entry, list) and len(entry) == 3):  # noqa: PLR2004 - name, dtype, shape
        raise WireError(f"invalid tensor entry {entry!r}, expected [name, dtype, shape]")
    name, dtype, shape = entry
    if not isinstance(name, str):
        raise WireError(f"invalid tensor name {name!r}, expected a string")
    if not isinstance(dtype, str) or dtype not in STORAGE:
        raise WireError(f"tensor {name!r} has the unknown dtype {dtype!r}")
    sizes = shape if isinstance(shape, list) else [-1]
    whole = len(sizes) <= _MAX_AXES and all(type(n) is int and n >= 0 for n in sizes)
    if not whole or (0 in sizes and math.prod(n for n in sizes if n) > _MAX_ELEMENTS):  # NumPy rejects these too
        raise WireError(f"tensor {name!r} has the invalid shape {shape!r}")
    return name, dtype, tuple(shape)


def _tensor(body: "bytes | memoryview[Any]", dtype: str, shape: tuple[int, ...], start: int) -> Tensor:
    storage = np.dtype(STORAGE[dtype]).newbyteorder("<")
    count = math.prod(shape)
    if not count:
        return Tensor(dtype, np.empty(shape, STORAGE[dtype]))
    bits = np.frombuffer(body, storage, count, start)
    if dtype == "bool" and bits.view(np.uint8).max() > 1:
        raise WireError("a bool tensor has a byte other than 0 and 1")
    return Tensor(dtype, bits.reshape(shape))


def read(stream: RawIOBase, body_limit: int = BODY_LIMIT) -> "Message | None":
    """
    Wait for one frame; None if the stream ends between two frames. The tensors are writable and aligned.

    Raises:
        WireError: the bytes are not a frame, or the stream ended inside one.
    """
    prefix = bytearray(PREFIX.size)
    got = _fill(stream, memoryview(prefix))
    if not got:
        return None
    _whole(got, len(prefix))
    header_length, body_length = lengths(bytes(prefix), body_limit)
    header = bytearray(header_length)
    _whole(_fill(stream, memoryview(header)), header_length)
    room = np.empty(body_length + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    body = room[start : start + body_length].data
    _whole(_fill(stream, body), body_length)
    return decode(bytes(header), body)


def _fill(stream: RawIOBase, view: "memoryview[Any]") -> int:
    done = 0
    while done < len(view):
        got = stream.readinto(view[done:])
        if not got:
            break
        done += got
    return done


def _whole(got: int, length: int) -> None:
    if got != length:
        raise WireError(f"the stream ended inside a frame: {got} of {length} bytes of a part were read")


def write(stream: RawIOBase, message: Message) -> None:
    """Write one frame completely, with one call if the pipe has room: each further call would wake the reader."""
    view = memoryview(b"".join(encode(message)))
    while view:
        view = view[stream.write(view) :]
