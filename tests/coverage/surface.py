"""
What installed frameworks offer: arguments, outputs and states of entry points, and exported names of attention.

`nox -s coverage` writes it to surface.yaml. This module imports the frameworks; reading the file needs none.
"""

import argparse
import ast
import importlib
import importlib.metadata
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from conformance.engine.adapters import Adapter, Subject, read_adapters

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("surface.yaml")
HEADER = "# Written by `nox -s coverage` from the installed frameworks: do not edit.\n"

Found = dict[str, Any]
Arguments = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Python:
    """A function, or a class whose constructor and method `call` take arguments; `states` reads the class's states."""

    module: str
    name: str
    call: str | None = None
    states: Callable[[Any], Iterable[str]] | None = None

    def read(self) -> Found:
        """Read the arguments from the signatures."""
        target = getattr(importlib.import_module(self.module), self.name)
        found: Found = {"entry": f"{self.module}.{self.name}"}
        if self.call is None:
            return found | {"arguments": merged({"call": signature(target)}), "outputs": ["output"]}
        parts = {"constructor": signature(target.__init__), "call": signature(getattr(target, self.call))}
        states = () if self.states is None else self.states(target)
        return found | {"arguments": merged(parts), "outputs": ["output"], "states": sorted(states)}


@dataclass(frozen=True)
class Aten:
    """A built-in function of PyTorch, which has a schema instead of a signature."""

    name: str

    def read(self) -> Found:
        """Read the arguments from the schema."""
        torch = importlib.import_module("torch")
        (schema,) = torch._C._jit_get_schemas_for_operator(f"aten::{self.name}")
        given = {
            argument.name: repr(argument.default_value) if argument.has_default_value() else None
            for argument in schema.arguments
        }
        entry = f"torch.nn.functional.{self.name}"
        return {"entry": entry, "arguments": merged({"call": given}), "outputs": ["output"]}


@dataclass(frozen=True)
class Operator:
    """The newest schema of an operator, as registered in onnx or onnxruntime."""

    registry: str
    domain: str
    name: str

    def read(self) -> Found:
        """Read the inputs, attributes and outputs from the schema."""
        known = [each for each in schemas(self.registry) if (each.domain, each.name) == (self.domain, self.name)]
        schema = max(known, key=lambda each: int(each.since_version))
        inputs = {each.name: None if str(each.option).endswith("Single") else "absent" for each in schema.inputs}
        attributes = {
            name: None if schema.attributes[name].required else "absent" for name in sorted(schema.attributes)
        }
        since = "" if self.domain else f", opset {schema.since_version}"
        return {
            "entry": f"{self.domain or 'ai.onnx'}.{self.name}{since}",
            "arguments": merged({"input": inputs, "attribute": attributes}),
            "outputs": [each.name for each in schema.outputs],
        }


@dataclass(frozen=True)
class Printed:
    """Functions of a published text in an adapter: `function` or `Class.method`; `named`: arguments from a tuple."""

    file: str
    names: tuple[str, ...]
    outputs: tuple[str, ...] = ("output",)
    named: tuple[str, ...] = ()

    def read(self) -> Found:
        """Read the arguments from the source of the adapter."""
        body = ast.parse((ROOT / "adapters" / self.file).read_bytes()).body
        given: dict[str, str | None] = dict.fromkeys(self.named)
        for name in self.names:
            given |= printed_arguments(body, name.split("."))
        entry = f"{' and '.join(self.names)} of the text"
        return {"entry": entry, "arguments": merged({"call": given}), "outputs": list(self.outputs)}


@dataclass(frozen=True)
class Own:
    """Our own reference, which takes a call unchanged: its arguments are the slots and capabilities that it lists."""

    adapter: str

    def read(self) -> Found:
        """Read the arguments from the facts of the adapter."""
        subject = Subject(adapters()[self.adapter])
        given = [name for name in (*subject.slots, *subject.capabilities) if name != "mistakes"]
        arguments = merged({"call": dict.fromkeys(given, "absent")})
        return {"entry": self.adapter, "arguments": arguments, "outputs": list(subject.outputs)}


def adapters() -> Mapping[str, Adapter]:
    """The shipped adapters by name."""
    return {adapter.name: adapter for adapter in read_adapters([ROOT / "adapters"])}


def signature(function: Any) -> dict[str, str | None]:
    """Return name -> default, or None for a required argument."""
    parameters = [each for name, each in inspect.signature(function).parameters.items() if name != "self"]
    return {each.name: default_of(each) for each in parameters}


def default_of(parameter: inspect.Parameter) -> str | None:
    """Return the default as text that is the same in every process."""
    if parameter.kind is parameter.VAR_KEYWORD:
        return "absent"
    if parameter.default is parameter.empty:
        return None
    plain = (bool, int, float, str, tuple, type(None))
    return repr(parameter.default) if isinstance(parameter.default, plain) else type(parameter.default).__name__


def printed_arguments(body: list[ast.stmt], names: list[str]) -> dict[str, str | None]:
    """The arguments of a function in the source."""
    node: Any = next(each for each in body if getattr(each, "name", None) == names[0])
    if names[1:]:
        return printed_arguments(node.body, names[1:])
    taken = [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
    return {name: None for name in taken if name != "self"}


def merged(parts: Mapping[str, Mapping[str, str | None]]) -> Arguments:
    """Return one row for each name, even if several parts have it; a row without a default is a required argument."""
    found: Arguments = {}
    for part, given in parts.items():
        for name, default in given.items():
            row = found.setdefault(name, {"given": part} | ({} if default is None else {"default": default}))
            if part not in row["given"]:
                row["given"] += f" and {part}"
    return found


def schemas(registry: str) -> list[Any]:
    """All schemas that a package registers."""
    if registry == "onnx":
        return list(importlib.import_module("onnx").defs.get_all_schemas_with_history())
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    return list(state.get_all_operator_schema())


def torch_states(layer: Any) -> Iterator[str]:
    """Yield the mode of the module and its buffers."""
    made = layer(4, 2)
    yield "training"
    yield from dict(made.named_buffers())


def keras_states(layer: Any) -> Iterator[str]:
    """Yield the non-trainable variables of a layer with dropout, which keeps a state for its random numbers."""
    numpy = importlib.import_module("numpy")
    made = layer(*(2,) * (3 if layer.__name__ == "GroupedQueryAttention" else 2), dropout=0.5)
    made(*(numpy.zeros((1, 2, 4), "float32"),) * 2)
    yield from (getattr(each, "path", each.name).rpartition("/")[2] for each in made.non_trainable_variables)


def linen_states(layer: Any) -> Iterator[str]:
    """Yield the variables of all collections except the parameters."""
    jax = importlib.import_module("jax")
    made = layer(num_heads=2, decode=True).init(jax.random.key(0), jax.numpy.zeros((1, 3, 4)))
    yield from (f"{group}: {name}" for group in made if group != "params" for name in made[group])


def nnx_states(layer: Any) -> Iterator[str]:
    """Yield the variables that are not parameters: the cache and the random number state."""
    nnx = importlib.import_module("flax.nnx")
    made = layer(2, 4, decode=True, dropout_rate=0.5, rngs=nnx.Rngs(0))
    made.init_cache((1, 3, 4))
    for path, variable in nnx.to_flat_state(nnx.state(made)):
        if not isinstance(variable, nnx.Param):
            yield ".".join(map(str, path))


def equinox_states(layer: Any) -> Iterator[str]:
    """Yield the flags of the layer that equinox.nn.inference_mode changes."""
    jax = importlib.import_module("jax")
    made = layer(2, 4, key=jax.random.key(0))
    yield from (f"dropout.{name}" for name in vars(made.dropout) if name == "inference")


TORCH_MHA = Python("torch.nn", "MultiheadAttention", "forward", torch_states)
TORCH_SDPA = Aten("scaled_dot_product_attention")
KERAS_MHA = Python("keras.layers", "MultiHeadAttention", "call", keras_states)
BERT = "transformers.models.bert.modeling_bert"

# Adapter -> source of its arguments. If the variants of an adapter call different functions, each has a line.
ENTRY_POINTS: Mapping[str, Any] = {
    "equinox.mha": Python("equinox.nn", "MultiheadAttention", "__call__", equinox_states),
    "flax.mha[linen]": Python("flax.linen", "MultiHeadDotProductAttention", "__call__", linen_states),
    "flax.mha[nnx]": Python("flax.nnx", "MultiHeadAttention", "__call__", nnx_states),
    "jax.sdpa": Python("jax.nn", "dot_product_attention"),
    "keras.grouped_mha": Python("keras.layers", "GroupQueryAttention", "call", keras_states),
    "keras.mha": KERAS_MHA,
    "keras.sdpa": Python("keras.ops", "dot_product_attention"),
    "numpy.mha": Own("numpy.mha"),
    "numpy.sdpa": Own("numpy.sdpa"),
    "onnx.attention": Operator("onnx", "", "Attention"),
    "onnx.keras_mha": KERAS_MHA,
    "onnx.torch_mha": TORCH_MHA,
    "onnx.torch_sdpa": TORCH_SDPA,
    "openvino.sdpa": Python("openvino.opset13", "scaled_dot_product_attention"),
    "ort.attention": Operator("onnxruntime", "", "Attention"),
    "ort.contrib_attention": Operator("onnxruntime", "com.microsoft", "Attention"),
    "ort.contrib_gqa": Operator("onnxruntime", "com.microsoft", "GroupQueryAttention"),
    "ort.contrib_mha": Operator("onnxruntime", "com.microsoft", "MultiHeadAttention"),
    "published.bert_numpy": Printed("published_bert_numpy.py", ("self_attention",)),
    "published.stepwise_torch": Printed("published_stepwise_torch.py", ("multihead",), ("output", "weights")),
    "published.tf1_manual": Printed("published_tf1_manual.py", ("multihead",), named=("raw_keys",)),
    "published.tf_mha": Printed("published_tf_mha.py", ("MultiHeadAttention.call",), ("output", "weights")),
    "published.tf_sdpa": Printed("_published_tf.py", ("attention",), ("output", "weights")),
    "published.torch_manual": Printed(
        "published_torch_manual.py", ("MultiheadAttention.__init__", "MultiheadAttention.forward")
    ),
    "tf_keras.mha": Python("tf_keras.layers", "MultiHeadAttention", "call", keras_states),
    "torch.flex_sdpa": Python("torch.nn.attention.flex_attention", "flex_attention"),
    "torch.mha": TORCH_MHA,
    "torch.sdpa": TORCH_SDPA,
    "transformers.bert": Python(BERT, "BertSelfAttention", "forward"),
    "transformers.gemma2": Python("transformers.models.gemma2.modeling_gemma2", "eager_attention_forward"),
}

# First part of an adapter's name -> package, where the two differ.
PACKAGES = {"ort": "onnxruntime"}

# Package -> its public modules that could have entry points.
NAMESPACES = {
    "torch": (
        *("torch.nn", "torch.nn.functional", "torch.nn.attention", "torch.nn.attention.bias"),
        *("torch.nn.attention.flex_attention", "torch.nn.attention.varlen"),
    ),
    "keras": ("keras.layers", "keras.ops", "keras.ops.nn"),
    "tf_keras": ("tf_keras.layers",),
    "jax": ("jax.nn",),
    "flax": ("flax.linen", "flax.nnx"),
    "equinox": ("equinox.nn",),
    "openvino": tuple(f"openvino.opset{number}" for number in range(1, 17)),
}

ATTENDS = re.compile(r"attention|attend|attn|multi_?head|scaled_?dot|transformer|sdpa", re.IGNORECASE)


def exported(package: str) -> Iterator[str]:
    """Yield the public functions, layers and operators whose names indicate attention."""
    if package in ("onnx", "onnxruntime"):
        for schema in schemas(package):
            if ATTENDS.search(schema.name) and (package == "onnx") == (schema.domain == ""):
                yield f"{schema.domain or 'ai.onnx'}.{schema.name}"
    for module in NAMESPACES.get(package, ()):
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for name in getattr(found, "__all__", vars(found)):
            if ATTENDS.search(name) and callable(getattr(found, name)) and not name.startswith("_"):
                yield f"{module}.{name}"


def package_of(entry: str) -> str:
    """The package whose release decides what an entry point offers."""
    first = entry.partition(".")[0]
    return {"published": "numpy", "onnx": "onnx"}.get(first, PACKAGES.get(first, first))


def owners(entry: str) -> str:
    """The package that defines the signature: for an exported layer, its framework."""
    exporting = {"onnx.torch_mha": "torch", "onnx.torch_sdpa": "torch", "onnx.keras_mha": "keras"}
    return exporting.get(entry, package_of(entry))


def installed(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return importlib.metadata.version(package).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def surface(packages: Iterable[str]) -> dict[str, Any]:
    """What these packages offer."""
    wanted = sorted(packages)
    return {
        "versions": {name: installed(name) for name in wanted if name != "numpy"},
        "entry_points": {name: ENTRY_POINTS[name].read() for name in ENTRY_POINTS if owners(name) in wanted},
        "exported": {name: sorted(set(exported(name))) for name in wanted if name != "numpy"},
    }


def all_packages() -> list[str]:
    """Every package that has an entry point."""
    return sorted({owners(name) for name in ENTRY_POINTS})


@cache
def stored() -> dict[str, Any]:
    """The content of surface.yaml."""
    return dict(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def written(found: Mapping[str, Any]) -> str:
    """The text of surface.yaml."""
    return HEADER + yaml.safe_dump(dict(found), sort_keys=False, width=120, default_flow_style=None)


def main(words: list[str]) -> int:
    """Write the file; all packages must be installed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args(words)
    absent = [name for name in all_packages() if installed(name) is None]
    if absent:
        print(f"not installed: {', '.join(absent)}", file=sys.stderr)
        return 2
    FILE.write_text(written(surface(all_packages())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
