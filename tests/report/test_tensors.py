"""Arrays packed for the page are the arrays that were judged."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.report.page_data import blob, pack

Array = NDArray[np.float64]


def read(data: bytes) -> list[dict[str, Any]]:
    """Decode a blob in Python as the page's script does."""
    (size,) = struct.unpack("<I", data[:4])
    entries: list[dict[str, Any]] = json.loads(data[4 : 4 + size])
    start = 4 + size
    for entry in entries:
        sides = [side for side in entry.get("alone", {}).values() if side]
        for plane in sides or [
            entry[name] for name in ("got", "error", "odd", "odd_want", "tolerance") if name in entry
        ]:
            kind = np.dtype(f"<{plane['type']}")
            length = plane["length"] * kind.itemsize
            grouped = np.frombuffer(data[start : start + length], np.uint8).reshape(kind.itemsize, -1)
            plane["numbers"] = np.ascontiguousarray(grouped.T).reshape(-1).view(kind)
            start += length
    assert start == len(data)
    return entries


def wanted(entry: dict[str, Any]) -> Array:
    want = entry["got"]["numbers"].astype(np.float64) - entry["error"]["numbers"]
    want[entry["odd"]["numbers"]] = entry["odd_want"]["numbers"]
    return np.asarray(want.reshape(entry["shape"]))


def trip(want: Array, got: Array, tolerance: Array | None = None) -> dict[str, Any]:
    arrays = {"output.expected": want, "output.actual": got}
    if tolerance is not None:
        arrays["output.tolerance"] = tolerance
    (entry,) = read(blob(arrays))
    return entry


def test_float32_results_travel_as_two_narrow_arrays() -> None:
    rng = np.random.default_rng(0)
    want = rng.normal(size=(2, 3, 5))
    got = want.astype(np.float32).astype(np.float64)
    entry = trip(want, got, np.full(want.shape, 1e-7))
    assert [entry[name]["type"] for name in ("got", "error", "tolerance")] == ["f4", "f4", "f4"]
    assert np.array_equal(entry["got"]["numbers"], got.reshape(-1))
    np.testing.assert_allclose(wanted(entry), want, rtol=1e-7)
    np.testing.assert_allclose(entry["error"]["numbers"], (got - want).reshape(-1), rtol=1e-6)


def test_float64_results_keep_their_digits() -> None:
    want = np.array([[1 / 3]])
    entry = trip(want, want + 1e-16)
    assert entry["got"]["type"] == "f8"
    assert wanted(entry)[0, 0] == want[0, 0]


def test_a_leak_does_not_blur_what_was_expected() -> None:
    want, got = np.array([[0.1234567]]), np.array([[1e5]])
    entry = trip(want, got)
    assert entry["error"]["type"] == "f8"
    np.testing.assert_allclose(wanted(entry), want, rtol=1e-9)


def test_values_that_are_not_finite_survive() -> None:
    values = [0.5, np.nan, np.inf, -np.inf]
    want = np.repeat(values, 4).reshape(4, 4)
    got = np.tile(values, 4).reshape(4, 4)
    entry = trip(want, got, np.full((4, 4), np.inf))
    assert np.array_equal(wanted(entry), want, equal_nan=True)
    assert np.array_equal(entry["got"]["numbers"].reshape(4, 4), got, equal_nan=True)
    assert np.all(np.isinf(entry["tolerance"]["numbers"]))


def test_tolerances_do_not_vanish_in_float32() -> None:
    zeros = np.zeros((1, 2))
    assert trip(zeros, zeros, np.array([[1e-60, 0.0]]))["tolerance"]["type"] == "f8"


def test_arrays_of_different_shapes_stand_alone() -> None:
    entry = trip(np.zeros((2, 3)), np.ones((3, 2)))
    assert [entry["alone"][side]["shape"] for side in ("want", "got")] == [[2, 3], [3, 2]]
    assert entry["alone"]["got"]["numbers"].tolist() == [1.0] * 6


def test_an_output_without_a_reply_is_shown_alone() -> None:
    (entry,) = read(blob({"a.b.expected": np.zeros((2, 3))}))
    assert entry["name"] == "a.b"
    assert entry["alone"]["got"] is None


def test_empty_and_single_arrays_travel() -> None:
    for shape in ((0, 3), (), (4,)):
        zeros = np.zeros(shape)
        assert trip(zeros, zeros)["shape"] == list(shape)


def test_a_missing_a_broken_and_a_huge_file_are_told(tmp_path: Path) -> None:
    assert pack(tmp_path / "none.npz") == (None, "none.npz is not in the run folder")
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 no archive")
    assert pack(broken)[1].startswith("broken.npz cannot be read")
    huge = tmp_path / "huge.npz"
    np.savez_compressed(huge, allow_pickle=False, **{"output.expected": np.zeros((3000, 2000), np.float16)})
    assert pack(huge)[1] == "the page cannot hold 6,000,000 numbers; they are in huge.npz"


def test_pickled_objects_are_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "pickle.npz"
    np.savez(path, **{"output.expected": np.array([{"a": 1}], dtype=object)})  # type: ignore[arg-type]
    assert "cannot be read" in pack(path)[1]
