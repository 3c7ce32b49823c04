"""
Repeats one recorded call without the harness, from a folder that `conformance repro` wrote, and judges the reply.

The folder contains call.npz, facts.json and the adapter. The reply is compared as in docs/tolerance.md, sections 1 and
4.
"""

import importlib.metadata
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bridge.loading import load
from conformance.bridge.messages import Answer, read_request
from conformance.bridge.serving import answer
from conformance.bridge.tensor import Tensor
from conformance.bridge.wire import Message, encode, read

# Prefixes of the names of arrays in call.npz.
CALL, EXPECTED, TOLERANCE, VARIANCE = "call", "expected", "tolerance", "variance"

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


def reproduce(folder: Path, facts: Mapping[str, Any]) -> "tuple[list[str], int]":
    """Make the call; return lines about its reply, and 0 if the reply is within the tolerance, else 1."""
    head = [f"{facts['case']} on {facts['subject']}"]
    head += [f"{name} {_version(name)} (in the run: {version})" for name, version in facts["versions"].items()]
    with np.load(folder / "call.npz", allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    found = _answered(folder, facts, arrays)
    if found.status == "reply":
        lines, beyond = _judged(found, facts, arrays)
    elif found.error is not None and facts["mistake"] and found.error["stage"] == "framework":
        lines, beyond = [f"refused, as it must be: {found.error['type']}: {found.error['message']}"], False
    elif found.error is not None:
        message = f"error in {found.error['stage']}: {found.error['type']}: {found.error['message']}"
        lines, beyond = [found.error["traceback"], message], True
    else:
        lines, beyond = [f"unsupported: {found.reason}"], True
    return [*head, *lines, f"in the run: {facts['recorded']}", f"with conformance: {facts['rerun']}"], int(beyond)


def _judged(found: Answer, facts: Mapping[str, Any], arrays: Arrays) -> "tuple[list[str], bool]":
    """Lines about each output and the conclusion, and whether an output is beyond its tolerance."""
    lines = [f"{name} {list(got.shape)} {got.dtype}: {_first(got)}" for name, got in found.outputs.items()]
    if facts["mistake"]:
        return [*lines, f"the call has a mistake ({facts['mistake']}) and must be refused, but it has a reply"], True
    if not facts["outputs"]:
        return [*lines, "no comparison: the run has no declaration for this call"], True
    each = [compared(name, found.outputs[name], about, arrays) for name, about in facts["outputs"].items()]
    beyond = any(is_beyond for is_beyond, _ in each)
    conclusion = "beyond the tolerance" if beyond else "within the tolerance"
    return [*lines, *(text for _, text in each), conclusion], beyond


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


def _answered(folder: Path, facts: Mapping[str, Any], arrays: Arrays) -> Answer:
    """Call the adapter through an encoded frame, as a worker does, so that buffers have the same alignment."""
    tensors = {name: Tensor(dtype, arrays[f"{CALL}.{name}"]) for name, dtype in facts["tensors"].items()}
    frame = BytesIO(b"".join(encode(Message("call", facts["call"], tensors))))
    message = read(frame)  # type: ignore[arg-type]  # read() uses only readinto()
    if message is None:
        raise ValueError("call.npz contains no call")
    return answer(load(folder / facts["adapter"]), read_request(message))


def _first(tensor: Tensor) -> str:
    numbers = tensor.float64().reshape(-1)
    return ", ".join(f"{number:.6g}" for number in numbers[:4]) + (", ..." if numbers.size > 4 else "")  # noqa: PLR2004 - the first few


def compared(name: str, actual: Tensor, about: Mapping[str, Any], arrays: Arrays) -> "tuple[bool, str]":
    """Whether an output is beyond its tolerance, and a line with the numbers."""
    expected, tolerance = (arrays[f"{part}.{name}"] for part in (EXPECTED, TOLERANCE))
    if actual.shape != expected.shape:
        return True, f"{name}: shape {actual.shape}, expected {expected.shape}"
    if actual.dtype != about["dtype"]:
        return True, f"{name}: dtype {actual.dtype}, expected {about['dtype']}"
    values, judged = actual.float64(), np.isfinite(tolerance)
    finite = np.isfinite(values) & np.isfinite(expected)
    same = finite | (values == expected) | (np.isnan(values) & np.isnan(expected))
    if (different := judged & ~same).any():
        at = _position(different)
        return True, f"{name}: {values[at]:.9g} at {list(map(int, at))}, expected {expected[at]:.9g}"
    error = np.where(finite & judged, np.abs(np.where(finite, values, 0.0) - np.where(finite, expected, 0.0)), 0.0)
    return _numbers(
        name, values, expected, error, tolerance, _root_mean_square(error, arrays[f"{VARIANCE}.{name}"], about)
    )


def _root_mean_square(error: Array, variance: Array, about: Mapping[str, Any]) -> float:
    """The root mean square as a fraction of its limit, 0 without a limit; elements of variance 0 do not count."""
    counted = variance > 0
    if about["rms_limit"] is None or not counted.any():
        return 0.0
    return float(np.sqrt(np.mean(error[counted] ** 2 / variance[counted]))) / float(about["rms_limit"])


def _numbers(
    name: str, values: Array, expected: Array, error: Array, tolerance: Array, rms: float
) -> "tuple[bool, str]":
    with np.errstate(divide="ignore", invalid="ignore"):
        used = np.where(error == 0, 0.0, error / tolerance)
    at = _position(used == used.max(initial=0.0)) if used.size else ()
    worst = max(float(used.max(initial=0.0)), rms)
    text = f"{name}: max error {error.max(initial=0.0):.3g}; {worst:.3g} of the allowed error used"
    if used.size:
        position = list(map(int, at))
        numbers = f"{values[at]:.9g}, expected {expected[at]:.9g}, allowed {tolerance[at]:.3g}"
        text += f", {error[at]:.3g} at {position} ({numbers})"
    if rms > 1.0:
        text += f"; root mean square {rms:.3g} of its limit"
    return worst > 1.0, text


def _position(where: Array) -> "tuple[Any, ...]":
    return tuple(np.argwhere(where)[0])
