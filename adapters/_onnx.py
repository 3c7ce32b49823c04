"""
Graphs that a framework exports, each made once and run by onnxruntime: shared by onnx.torch and onnx.keras adapters.

A graph depends on the dtypes and widths of its inputs and on what its adapter adds; lengths and batch are open. Models
are kept in the process, and in the folder that CONFORMANCE_CACHE names, under everything that could change them.
"""

import importlib.metadata
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conformance.bridge import Facts, Tensor, digest, kept

from ._ort import open_session, run_session

# Name -> the tensor and a letter for each of its axes: b, q, k and n (batch times heads) are dynamic.
Inputs = Mapping[str, tuple[Tensor, str]]

# Name -> dtype, and for each axis its width, or its letter where that is open.
Described = Mapping[str, tuple[str, list[int | str]]]

OPEN = frozenset("bqkn")

sessions: dict[str, Any] = {}


@dataclass(frozen=True)
class Origin:
    """What makes a graph: a way of exporting, the distributions whose versions count, the adapter's file."""

    exporter: str
    packages: Sequence[str]
    adapter: str


def exported(
    inputs: Inputs,
    signature: Mapping[str, Any],
    facts: Facts,
    origin: Origin,
    export: Callable[[Described], bytes],
    *,
    optimised: bool = True,
) -> Any:
    """A session for what `export` makes of inputs so described; `signature` has whatever else the graph depends on."""
    described = {
        name: (tensor.dtype, [axis if axis in OPEN else size for axis, size in zip(axes, tensor.shape, strict=True)])
        for name, (tensor, axes) in inputs.items()
    }
    made_by = [*_versions(tuple(origin.packages)), _digest(origin.adapter)]
    key = json.dumps([made_by, origin.exporter, signature, described], sort_keys=True)
    if key not in sessions:
        sessions[key] = open_session(kept(key, lambda: export(described), ".onnx"), facts.device, optimised=optimised)
    return sessions[key]


@cache
def _digest(adapter: str) -> str:
    return digest(Path(adapter))


@cache
def _versions(packages: tuple[str, ...]) -> list[str]:
    return [f"{name} {importlib.metadata.version(name)}" for name in packages]


def run(session: Any, inputs: Inputs) -> list[Any]:
    """Run the session on NumPy arrays."""
    return run_session(session, {name: tensor.bits for name, (tensor, _axes) in inputs.items()})
