"""
Frames between coordinator and worker: a fixed prefix, a strict JSON header, raw buffers.

    prefix   magic "ACW1", length of the header (uint32), length of the body (uint64), little-endian
    header   UTF-8 JSON: {"kind": ..., "fields": {...}, "tensors": [[name, dtype, [size, ...]], ...]}
    body     the tensors in that order, C-contiguous, little-endian, each starting at a multiple of 64 bytes

Nothing here executes what it reads (as pickle does), and bfloat16 crosses as its bits.
"""

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
# Where buffers start: vector loads, and with them the summation order of some kernels, depend on it.
ALIGNMENT = 64

# The largest header in bytes: names, facts, a shortened traceback.
HEADER_LIMIT = 1 << 20

# The largest body in bytes that a reader takes unless it is told less.
BODY_LIMIT = 1 << 32

_MAX_AXES = 32
_MAX_ELEMENTS = 1 << 56


class WireError(Exception):
    """The other side did not speak this protocol, or said more than it was allowed to."""


@dataclass(frozen=True)
class Message:
    """One frame: what kind it is, its JSON fields, its tensors by name."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def encode(message: Message) -> list["bytes | memoryview[Any]"]:
    """
    The chunks of the frame, in order; the buffers of the tensors are not copied.

    Raises:
        WireError: the header is longer than HEADER_LIMIT.
    """
    listing = [[name, tensor.dtype, list(tensor.shape)] for name, tensor in message.tensors.items()]
    fields = {"kind": message.kind, "fields": plain_data(message.fields), "tensors": listing}
    header = json.dumps(fields, allow_nan=False, separators=(",", ":")).encode()
    if len(header) > HEADER_LIMIT:
        raise WireError(f"a header of {len(header)} bytes is longer than {HEADER_LIMIT}")
    body: list[bytes | memoryview[Any]] = []
    length = 0
    for tensor in message.tensors.values():
        padding = -length % ALIGNMENT
        body += [bytes(padding), _buffer(tensor)]
        length += padding + tensor.bits.nbytes
    return [PREFIX.pack(MAGIC, len(header), length), header, *(chunk for chunk in body if len(chunk))]


def _buffer(tensor: Tensor) -> "memoryview[Any]":
    bits = np.ascontiguousarray(tensor.bits).reshape(-1)
    return bits.astype(bits.dtype.newbyteorder("<"), copy=False).view(np.uint8).data


def lengths(prefix: bytes, body_limit: int = BODY_LIMIT) -> tuple[int, int]:
    """
    Lengths of header and body that a prefix announces.

    Raises:
        WireError: the magic is another, or one of the lengths is beyond its limit.
    """
    magic, header, body = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise WireError(f"a frame begins with {MAGIC!r}, not with {magic!r}")
    if header > HEADER_LIMIT:
        raise WireError(f"a header of {header} bytes is longer than {HEADER_LIMIT}")
    if body > body_limit:
        raise WireError(f"a body of {body} bytes is longer than the {body_limit} that were asked for")
    return header, body


def decode(header: bytes, body: "bytes | memoryview[Any]") -> Message:
    """
    The message of a header and a body; the tensors are views of `body`.

    Raises:
        WireError: the header is no strict JSON of the right form, or the body has another length than it says.
    """
    try:
        fields = strict_json(header)
    except ValueError as error:
        raise WireError(f"a header is {error}") from None
    if not (isinstance(fields, dict) and set(fields) == {"kind", "fields", "tensors"}):
        raise WireError("a header has kind, fields and tensors, and nothing else")
    kind, entries, listing = fields["kind"], fields["fields"], fields["tensors"]
    if not (isinstance(kind, str) and isinstance(entries, dict) and isinstance(listing, list)):
        raise WireError("a header's kind is a string, its fields an object, its tensors a list")
    return Message(kind, entries, _tensors(listing, body))


def _tensors(listing: list[Any], body: "bytes | memoryview[Any]") -> dict[str, Tensor]:
    placed = {}
    end = 0
    for entry in listing:
        name, dtype, shape = _announced(entry)
        if name in placed:
            raise WireError(f"tensor {name!r} stands twice")
        start = end + -end % ALIGNMENT
        end = start + math.prod(shape) * np.dtype(STORAGE[dtype]).itemsize
        placed[name] = (dtype, shape, start)
    if end != len(body):
        raise WireError(f"the header announces {end} bytes of tensors, the body has {len(body)}")
    return {name: _tensor(body, *place) for name, place in placed.items()}


def _announced(entry: Any) -> tuple[str, str, tuple[int, ...]]:
    if not (isinstance(entry, list) and len(entry) == 3):  # noqa: PLR2004 - name, dtype, shape
        raise WireError(f"{entry!r} is not [name, dtype, shape]")
    name, dtype, shape = entry
    if not isinstance(name, str):
        raise WireError(f"{name!r} is not the name of a tensor")
    if not isinstance(dtype, str) or dtype not in STORAGE:
        raise WireError(f"tensor {name!r} has the unknown dtype {dtype!r}")
    sizes = shape if isinstance(shape, list) else [-1]
    whole = len(sizes) <= _MAX_AXES and all(type(n) is int and n >= 0 for n in sizes)
    if not whole or (0 in sizes and math.prod(n for n in sizes if n) > _MAX_ELEMENTS):  # NumPy refuses these, too
        raise WireError(f"tensor {name!r} has no shape: {shape!r}")
    return name, dtype, tuple(shape)


def _tensor(body: "bytes | memoryview[Any]", dtype: str, shape: tuple[int, ...], start: int) -> Tensor:
    storage = np.dtype(STORAGE[dtype]).newbyteorder("<")
    count = math.prod(shape)
    if not count:
        return Tensor(dtype, np.empty(shape, STORAGE[dtype]))
    bits = np.frombuffer(body, storage, count, start)
    if dtype == "bool" and bits.view(np.uint8).max() > 1:
        raise WireError("a bool is neither 0 nor 1")
    return Tensor(dtype, bits.reshape(shape))


def read(stream: RawIOBase, body_limit: int = BODY_LIMIT) -> "Message | None":
    """
    Wait for one frame; None where the stream ends between two. The tensors can be written to, and are aligned.

    Raises:
        WireError: what came is no frame, or the stream ended inside one.
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
        raise WireError(f"the stream ended after {got} of {length} bytes of a frame's part")


def write(stream: RawIOBase, message: Message) -> None:
    """Write one frame completely."""
    for chunk in encode(message):
        view = memoryview(chunk)
        while view:
            view = view[stream.write(view) :]
