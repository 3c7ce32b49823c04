"""
Arrays of a cell, packed for the page.

A blob is a header (JSON) and planes of bytes. Per output it holds what the subject got, the signed error taken in
float64, and the tolerance; the page forms expected = got - error. Where float32 would lose what is shown (float64
results, leaks of 1e5 beside expected values of 0.1) an array stays float64. Where a value is not finite the expected
one is carried as it is. Bytes are grouped by significance, which halves what gzip makes of them.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LARGEST_CELL = 4 * 1024 * 1024
"""Elements of one cell beyond which its arrays stay in the run folder."""


@dataclass
class Planes:
    """The binary part of a blob while it grows."""

    parts: list[bytes] = field(default_factory=list)

    def add(self, array: NDArray[Any]) -> dict[str, Any]:
        """Append `array`, its bytes grouped by significance; returns how to find its numbers again."""
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        grouped = little.reshape(-1).view(np.uint8).reshape(-1, little.itemsize).T
        self.parts.append(grouped.tobytes())
        return {"type": f"{little.dtype.kind}{little.itemsize}", "length": int(little.size)}


def pack(path: Path) -> tuple[bytes | None, str]:
    """The blob of a tensors file, or None and the reason why there is none."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name], dtype=np.float64) for name in archive.files}
    except FileNotFoundError:
        return None, f"{path.name} is not in the run folder"
    except Exception as error:  # noqa: BLE001 - a damaged archive fails in many ways; the report must still be written
        return None, f"{path.name} cannot be read: {error}"
    if (size := sum(array.size for array in arrays.values())) > LARGEST_CELL:
        return None, f"{size:,} numbers are too many for the page; they are in {path.name}"
    return blob(arrays), ""


def blob(arrays: dict[str, Array]) -> bytes:
    """Header length, header, planes."""
    planes = Planes()
    header = json.dumps([_output(name, arrays, planes) for name in _outputs(arrays)]).encode()
    return struct.pack("<I", len(header)) + header + b"".join(planes.parts)


def _outputs(arrays: dict[str, Array]) -> Iterator[str]:
    names = (name.rpartition(".") for name in arrays)
    yield from dict.fromkeys(output for output, _, part in names if part in ("expected", "actual"))


def _output(name: str, arrays: dict[str, Array], planes: Planes) -> dict[str, Any]:
    want, got = arrays.get(f"{name}.expected"), arrays.get(f"{name}.actual")
    if want is None or got is None or want.shape != got.shape:
        return {"name": name, "alone": {"want": _alone(want, planes), "got": _alone(got, planes)}}
    entry = {"name": name, "shape": list(want.shape)} | _pair(want, got, planes)
    tolerance = arrays.get(f"{name}.tolerance")
    if tolerance is not None:
        entry["tolerance"] = planes.add(_seven_digits(np.broadcast_to(tolerance, want.shape)))
    return entry


def _alone(array: Array | None, planes: Planes) -> dict[str, Any] | None:
    if array is None:
        return None
    return {"shape": list(array.shape)} | planes.add(_narrow(array))


def _pair(want: Array, got: Array, planes: Planes) -> dict[str, Any]:
    finite = np.isfinite(want) & np.isfinite(got)
    error = np.subtract(got, want, out=np.zeros_like(got), where=finite)
    kept, narrow = _narrow(got), _float32(error)
    exact = _restored(kept, narrow, want, finite)
    odd = np.flatnonzero(~finite).astype(np.uint32)
    return {
        "got": planes.add(kept),
        "error": planes.add(narrow if exact else error),
        "odd": planes.add(odd),
        "odd_want": planes.add(want.reshape(-1)[odd]),
    }


def _restored(got: NDArray[Any], error: NDArray[Any], want: Array, finite: NDArray[np.bool_]) -> bool:
    back = np.subtract(got, error, out=np.zeros_like(want), where=finite, dtype=np.float64)
    near = np.abs(back - np.where(finite, want, 0)) <= 1e-6 * np.abs(np.where(finite, want, 0))  # seven digits
    return bool(np.all(near | ~finite))


def _narrow(array: Array) -> NDArray[Any]:
    """float32 where that loses nothing."""
    narrow = _float32(array)
    return narrow if np.array_equal(narrow, array, equal_nan=True) else np.asarray(array)


def _seven_digits(array: Array) -> NDArray[Any]:
    """float32 unless a number would fall to zero or grow to inf by it."""
    narrow = _float32(array)
    same = np.array_equal(narrow == 0, array == 0) and np.array_equal(np.isinf(narrow), np.isinf(array))
    return narrow if same else np.asarray(array)


def _float32(array: Array) -> NDArray[np.float32]:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return array.astype(np.float32)
