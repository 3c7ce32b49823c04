"""
keras.layers.MultiHeadAttention, exported to ONNX by keras.Model.export(format="onnx"), run by onnxruntime.

What this adapter translates, and nothing else:
* what keras.mha translates, except `query_mask`, `key_mask`, attached masks, an `attention_mask` with an axis of the
  heads, `sliding_window`, dropout and gradients.
* parameters: inputs of the graph (Layer.stateless_call).
* batch and lengths: dynamic in the graph (None).
* arguments that are one object: one input of the model.

There is no variant on JAX. The export on JAX (jax2onnx 0.17.1) refuses a causal argument or two masks if lengths are
dynamic. It also includes masked keys in the softmax and removes their weights only afterwards. A large masked logit
then leaves no weight for the other keys.
"""

NAME = "onnx.keras_mha"
OPERATORS = ["mha"]
REQUIRES = ["keras>=3.14", "onnx>=1.17", "onnxruntime>=1.20"]
EXTRA = "onnx"
OUTPUTS = ["output", "weights"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["value_dim", "kdim", "query_dim", "output_dim", "no_bias"]
DECLINES = {
    "float64": "Model.export says: the dtype policy must be float32",
    "float16": "Model.export says: the dtype policy must be float32",
    "bfloat16": "Model.export says: the dtype policy must be float32",
    "dropout": "an exported graph is for inference, where the layer has none",
    "layout": "onnxruntime's Python interface copies what is not contiguous: "
    "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/python/onnxruntime_pybind_mlvalue.cc",
}
SLOTS = {
    "value_mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"},
    "attention_mask": {
        "role": "mask",
        "takes": ["attention", "causal", "window"],
        "axes": [["q", "k"], ["b", "q", "k"]],
        "bool": "attend",
        "int": "attend",
        "float": "undocumented",
    },
    "use_causal_mask": {"role": "causal", "alignment": "top_left"},
}
VARIANTS = {
    "torch": {
        "summary": "on PyTorch: torch.onnx.export with dynamo=False, since lengths are open",
        "env": {"KERAS_BACKEND": "torch"},
        "REQUIRES": ["keras>=3.15", "torch>=2.6", "onnx>=1.17", "onnxruntime>=1.20"],
        "EXTRA": "keras,onnx",
    },
    "tensorflow": {
        "summary": "on TensorFlow: tf2onnx",
        "env": {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        "REQUIRES": ["keras>=3.14", "tensorflow>=2.18", "tf2onnx>=1.17", "onnx>=1.17", "onnxruntime>=1.20"],
        "EXTRA": "keras,tf2onnx",
    },
}

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import keras

from conformance.bridge import Call, Declaration, Facts, Profile, Tensor, framework_call

from ._keras import keras_evidence, mha_layer, mha_sizes
from ._layers import PARAMETERS, parameters
from ._onnx import Described, Origin, exported, run
from ._ort import ort_evidence

CONVERTERS = {"torch": ["torch"], "tensorflow": ["tensorflow", "tf2onnx"]}
AXES = {"query": "bqe", "value": "bke", "key": "bke", "value_mask": "bk", "attention_mask": "bqk"}
# facts.alias (which arguments are one object) -> the arrays that are inputs of the graph.
DISTINCT = {"none": ("query", "value", "key"), "kv": ("query", "value"), "qkv": ("query",)}


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention, as keras.mha does."""
    return Declaration(Profile.uniform(facts.dtype), evidence="measured: docs/tolerance.md, section 5")


def mha(call: Call) -> dict[str, Any]:
    """Answer the call with the exported graph."""
    facts = call.facts
    flags = {
        "use_causal_mask": bool(call.arguments.get("use_causal_mask", False)),
        "return_attention_scores": "weights" in facts.outputs,
    }
    given = {name: getattr(call, name) for name in DISTINCT[facts.alias]}
    given |= {name: tensor for name, tensor in call.arguments.items() if name in AXES}
    inputs = {name: (tensor, AXES[name][-len(tensor.shape) :]) for name, tensor in given.items()}
    inputs |= {name: (Tensor.of(array), "w" * array.ndim) for name, array in parameters(call).items()}
    origin = Origin(facts.variant, ("keras", "onnx", *CONVERTERS[facts.variant]), __file__)
    signature = {**flags, "sizes": mha_sizes(facts)}
    with framework_call():
        results = run(exported(inputs, signature, facts, origin, partial(export, facts, flags)), inputs)
    return {name: results[("output", "weights").index(name)] for name in facts.outputs}


class Attend(keras.layers.Layer):  # type: ignore[misc, unused-ignore]  # keras is untyped here
    """A MultiHeadAttention layer as a function of named tensors, which include its parameters."""

    def __init__(self, layer: Any, flags: Mapping[str, bool]) -> None:
        super().__init__()
        self.attention, self.flags = layer, flags

    def call(self, given: Mapping[str, Any]) -> Any:
        """Call the layer."""
        state = [given[name] for name in PARAMETERS if name in given]
        query = given["query"]
        value = given.get("value", query)
        masks = {name: given[name] for name in ("value_mask", "attention_mask") if name in given}
        inputs = {"query": query, "value": value, "key": given.get("key", value)}
        return self.attention.stateless_call(state, [], **inputs, **masks, **self.flags)[0]


def export(facts: Facts, flags: Mapping[str, bool], described: Described) -> bytes:
    """Build a Keras model of the layer, export it, and return the ONNX model."""
    layer = mha_layer(mha_sizes(facts), facts.dtype, biases="bq" in described)
    shapes = {
        name: [size if isinstance(size, int) else None for size in sizes] for name, (_, sizes) in described.items()
    }
    inputs = {
        name: keras.Input(batch_shape=shapes[name], dtype=dtype, name=name) for name, (dtype, _) in described.items()
    }
    specs = {name: keras.InputSpec(dtype, shapes[name], name=name) for name, (dtype, _) in described.items()}
    model = keras.Model(inputs, Attend(layer, flags)(inputs))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        model.export(file, format="onnx", verbose=False, input_signature=[specs])
        return file.read_bytes()


def evidence() -> dict[str, Any]:
    """The evidence of Keras, combined with that of onnxruntime: versions, and where the nodes of the graph ran."""
    found, ran = keras_evidence(), ort_evidence("onnx")
    return {**found, **ran, "versions": found["versions"] | ran["versions"]}
