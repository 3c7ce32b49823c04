"""
A torch module, exported once for each signature and run by onnxruntime: shared by the onnx.torch adapters.

A signature is what the graph depends on; lengths and batch are dynamic. Exported models are kept in the process, and
in the folder that CONFORMANCE_CACHE names, under everything that could change them.
"""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import torch

from conformance.bridge import Facts, Tensor
from conformance.bridge.loading import digest

from ._ort import open_session, ort_evidence, run_session
from ._torch import torch_evidence

PACKAGES = ("torch", "onnxscript", "onnx-ir", "onnx")
LENGTHS = {"b": 2, "q": 3, "k": 5}
"""Lengths of the example that is traced: different, and none of them 1, which torch.export would fix."""


@dataclass(frozen=True)
class Exporter:
    """One way from torch to a session: the exporter, its opset (None is its default), and graph optimisation."""

    dynamo: bool = True
    opset: int | None = None
    optimised: bool = True

    @property
    def name(self) -> str:
        """What the graph depends on of it."""
        return f"{'dynamo' if self.dynamo else 'torchscript'}, {self.opset or 'default'}"


EXPORTERS = {
    "dynamo": Exporter(),
    "unoptimised": Exporter(optimised=False),
    "opset23": Exporter(opset=23),
    "torchscript": Exporter(dynamo=False),
}
"""By the name of the variant."""

Function = Callable[[Mapping[str, Any]], Any]
Inputs = Mapping[str, tuple[Tensor, str]]
"""Name -> the tensor and a letter for each of its axes: b, q, k and n (batch times heads) are dynamic."""

sessions: dict[str, Any] = {}


class Named(torch.nn.Module):  # type: ignore[misc, unused-ignore]  # torch is untyped here
    """A function of named tensors as a module of positional ones, which is what can be exported."""

    def __init__(self, function: Function, names: tuple[str, ...]) -> None:
        super().__init__()
        self.function, self.names = function, names

    def forward(self, *tensors: Any) -> Any:
        """Call the function."""
        return self.function(dict(zip(self.names, tensors, strict=True)))


def exported(function: Function, inputs: Inputs, signature: Mapping[str, Any], facts: Facts, adapter: str) -> Any:
    """A session for `function` of `inputs`; whatever else the graph depends on is in `signature`."""
    lengths = LENGTHS | {"n": LENGTHS["b"] * facts.sizes["num_heads"]}
    described = {
        name: (tensor.dtype, [a if a in lengths else n for a, n in zip(axes, tensor.shape, strict=True)])
        for name, (tensor, axes) in inputs.items()
    }
    exporter = EXPORTERS[facts.variant]
    key = json.dumps([_origin(adapter), exporter.name, signature, described], sort_keys=True)
    if key not in sessions:
        model = _kept(key, lambda: _export(function, described, lengths, exporter))
        sessions[key] = open_session(model, facts.device, optimised=exporter.optimised)
    return sessions[key]


@cache
def _origin(adapter: str) -> list[str]:
    """What made the graph, beside the signature and the exporter: versions, the adapter's source."""
    return [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES] + [
        digest(Path(adapter)),
    ]


def _kept(key: str, make: Callable[[], bytes]) -> bytes:
    """The model from the cache folder, if there is one and it has it."""
    folder = os.environ.get("CONFORMANCE_CACHE")
    if not folder:
        return make()
    file = Path(folder) / f"{hashlib.sha256(key.encode()).hexdigest()}.onnx"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_bytes(make())
        unfinished.replace(file)
    return file.read_bytes()


def _export(
    function: Function, described: Mapping[str, tuple[str, list[Any]]], lengths: Mapping[str, int], exporter: Exporter
) -> bytes:
    """Trace the function on an example and return the model."""
    examples = [
        torch.zeros([lengths.get(size, size) for size in sizes], dtype=getattr(torch, dtype))
        for dtype, sizes in described.values()
    ]
    open_axes = [{i: size for i, size in enumerate(sizes) if size in lengths} for _dtype, sizes in described.values()]
    names = tuple(described)
    common = {"input_names": list(names), "opset_version": exporter.opset, "verbose": False}
    with torch.no_grad():
        if exporter.dynamo:
            dynamic = tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in open_axes)
            program = torch.onnx.export(
                Named(function, names), tuple(examples), dynamic_shapes=(dynamic,), dynamo=True, **common
            )
            return bytes(program.model_proto.SerializeToString())
        written = BytesIO()
        axes = dict(zip(names, open_axes, strict=True))
        torch.onnx.export(Named(function, names), tuple(examples), written, dynamic_axes=axes, dynamo=False, **common)
    return written.getvalue()


def run(session: Any, inputs: Inputs) -> list[Any]:
    """Run the session on NumPy arrays."""
    return run_session(session, {name: tensor.bits for name, (tensor, _axes) in inputs.items()})


def onnx_evidence() -> dict[str, Any]:
    """What runs: versions, and where the nodes of the graph ran, beside what torch says."""
    found, ran = torch_evidence(), ort_evidence(*PACKAGES[1:])
    return {**found, **ran, "versions": found["versions"] | ran["versions"]}
