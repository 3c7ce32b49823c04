"""Export of a torch function to ONNX, once for each signature: shared by the onnx.torch adapters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import torch

from conformance.bridge import Declaration, Facts, Profile

from ._onnx import Described, Inputs, Origin, exported
from ._ort import ort_evidence
from ._torch import torch_evidence

PACKAGES = ("torch", "onnxscript", "onnx-ir", "onnx")
# The lengths of the example inputs. They differ, and none is 1, because torch.export would make a length of 1 static.
LENGTHS = {"b": 2, "q": 3, "k": 5}


@dataclass(frozen=True)
class Exporter:
    """One way to export and run: the exporter, its opset (None: its default), and whether the graph is optimised."""

    dynamo: bool = True
    opset: int | None = None
    optimised: bool = True

    @property
    def name(self) -> str:
        """The exporter and the opset, the two fields that the exported graph depends on."""
        return f"{'dynamo' if self.dynamo else 'torchscript'}, {self.opset or 'default'}"


# Variant -> exporter.
EXPORTERS = {
    "dynamo": Exporter(),
    "unoptimised": Exporter(optimised=False),
    "opset23": Exporter(opset=23),
    "torchscript": Exporter(dynamo=False),
}

Function = Callable[[Mapping[str, Any]], Any]


class Named(torch.nn.Module):  # type: ignore[misc, unused-ignore]  # torch is untyped here
    """A torch module that passes its positional arguments to a function by name; torch.onnx.export needs a module."""

    def __init__(self, function: Function, names: tuple[str, ...]) -> None:
        super().__init__()
        self.function, self.names = function, names

    def forward(self, *tensors: Any) -> Any:
        """Call the function."""
        return self.function(dict(zip(self.names, tensors, strict=True)))


def session_of(function: Function, inputs: Inputs, signature: Mapping[str, Any], facts: Facts, adapter: str) -> Any:
    """An onnxruntime session that computes `function` of `inputs`, exported as the variant says."""
    lengths = LENGTHS | {"n": LENGTHS["b"] * facts.sizes["num_heads"]}
    exporter = EXPORTERS[facts.variant]

    def export(described: Described) -> bytes:
        return _export(function, described, lengths, exporter)

    origin = Origin(exporter.name, PACKAGES, adapter)
    return exported(inputs, signature, facts, origin, export, optimised=exporter.optimised)


def _export(function: Function, described: Described, lengths: Mapping[Any, int], exporter: Exporter) -> bytes:
    """Export the function, traced on example inputs of zeros, and return the ONNX model as bytes."""
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


def declare(facts: Facts) -> Declaration:
    """Declare what torch documents about the source call. The decomposed graph rounds after each operator."""
    half = facts.dtype == "float16"
    profile = Profile.naive("float16") if half else Profile.uniform(facts.dtype).but(scale="float32")
    return Declaration(profile, evidence="measured: docs/tolerance.md, section 5")


def evidence() -> dict[str, Any]:
    """Evidence of what ran: versions, where onnxruntime ran the nodes of the graph, and the evidence of torch."""
    found, ran = torch_evidence(), ort_evidence(*PACKAGES[1:])
    return {**found, **ran, "versions": found["versions"] | ran["versions"]}
