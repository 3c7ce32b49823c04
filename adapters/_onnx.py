"""
Graphs that a framework exports and onnxruntime runs: shared by the onnx.torch and onnx.keras adapters.

Each graph is exported once. It depends on the dtypes and widths of its inputs and on what its adapter adds; the batch
and the lengths are dynamic. The process keeps the sessions, and the folder that CONFORMANCE_CACHE names keeps the
models. The key of a model contains everything that could change the model.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conformance.bridge import Facts, Tensor, digest, kept

from ._ort import open_session, run_session
from ._versions import version

# Name -> the tensor, and a letter for each of its axes. The axes b, q, k and n (batch times heads) are dynamic.
Inputs = Mapping[str, tuple[Tensor, str]]

# Name -> dtype, and for each axis its size, or its letter if the axis is dynamic.
Described = Mapping[str, tuple[str, list[int | str]]]

OPEN = frozenset("bqkn")

# The key of a model, and whether the graph is optimised -> the session.
sessions: dict[tuple[str, bool], Any] = {}


@dataclass(frozen=True)
class Origin:
    """The origin of a graph: the exporter, the packages whose versions can change the graph, and the adapter's file."""

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
    """
    Return the session of a graph that `export` makes from a description of the inputs.

    signature: everything else that the graph depends on.
    """
    described = {
        name: (tensor.dtype, [axis if axis in OPEN else size for axis, size in zip(axes, tensor.shape, strict=True)])
        for name, (tensor, axes) in inputs.items()
    }
    made_by = [*(f"{name} {version(name)}" for name in origin.packages), _digest(origin.adapter)]
    key = json.dumps([made_by, origin.exporter, signature, described], sort_keys=True)
    if (key, optimised) not in sessions:
        model = kept(key, lambda: export(described), ".onnx")
        sessions[key, optimised] = open_session(model, facts.device, optimised=optimised)
    return sessions[key, optimised]


@cache
def _digest(adapter: str) -> str:
    return digest(Path(adapter))


def run(session: Any, inputs: Inputs) -> list[Any]:
    """Run the session on the arrays of the inputs."""
    return run_session(session, {name: tensor.bits for name, (tensor, _axes) in inputs.items()})
