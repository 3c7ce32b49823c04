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
from functools import cache
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
    key = json.dumps([_origin(adapter), signature, described], sort_keys=True)
    if key not in sessions:
        model = _kept(key, lambda: _export(function, described, lengths))
        sessions[key] = open_session(model, facts.device)
    return sessions[key]


@cache
def _origin(adapter: str) -> list[str]:
    """What made the graph, beside the signature: versions, the exporter and its opset, the adapter's source."""
    return [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES] + [
        "dynamo, default",
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


def _export(function: Function, described: Mapping[str, tuple[str, list[Any]]], lengths: Mapping[str, int]) -> bytes:
    """Trace the function on an example and return the model."""
    examples = [
        torch.zeros([lengths.get(size, size) for size in sizes], dtype=getattr(torch, dtype))
        for dtype, sizes in described.values()
    ]
    dynamic = [
        {i: torch.export.Dim.DYNAMIC for i, size in enumerate(sizes) if size in lengths}
        for _dtype, sizes in described.values()
    ]
    names = tuple(described)
    with torch.no_grad():
        program = torch.onnx.export(
            Named(function, names),
            tuple(examples),
            input_names=list(names),
            dynamic_shapes=(tuple(dynamic),),
            dynamo=True,
            verbose=False,
        )
    return bytes(program.model_proto.SerializeToString())


def run(session: Any, inputs: Inputs) -> list[Any]:
    """Run the session on NumPy arrays."""
    return run_session(session, {name: tensor.bits for name, (tensor, _axes) in inputs.items()})


def onnx_evidence() -> dict[str, Any]:
    """What runs: versions, and where the nodes of the graph ran, beside what torch says."""
    found, ran = torch_evidence(), ort_evidence(*PACKAGES[1:])
    return {**found, **ran, "versions": found["versions"] | ran["versions"]}
