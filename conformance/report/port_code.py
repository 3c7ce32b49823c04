"""
Programs that make the same call with different subjects, in plain framework code that imports nothing of this package.

Each program consists of shared inputs, the lines of one subject, and lines that print the output. Two programs of one
operator agree to float32 rounding; tests/report/test_port_code.py runs every one of them.
"""

from collections.abc import Mapping

SDPA = """\
import sys

import numpy as np

rng = np.random.default_rng(0)
batch, num_heads, seq_len, head_dim = 2, 3, 5, 8
query, key, value = (rng.standard_normal((batch, num_heads, seq_len, head_dim)).astype(np.float32) for _ in range(3))
attend = np.ones((batch, seq_len), dtype=bool)  # key padding: True attends
attend[1, -2:] = False
"""

MHA = """\
import sys

import numpy as np

rng = np.random.default_rng(0)
batch, num_heads, seq_len, head_dim = 2, 3, 5, 8
width = num_heads * head_dim
query, key, value = (rng.standard_normal((batch, seq_len, width)).astype(np.float32) for _ in range(3))
wq, wk, wv, wo = (rng.standard_normal((width, width)).astype(np.float32) / width**0.5 for _ in range(4))  # (in, out)
bq, bk, bv, bo = (rng.standard_normal(width).astype(np.float32) for _ in range(4))
attend = np.ones((batch, seq_len), dtype=bool)  # key padding: True attends
attend[1, -2:] = False
"""

PRINTED = """
print(output.shape, float(np.abs(output).sum()))
if len(sys.argv) > 1:
    np.save(sys.argv[1], output)
"""

_TORCH_SDPA = """
import torch

q, k, v = (torch.from_numpy(each) for each in (query, key, value))  # (batch, num_heads, seq_len, head_dim)
causal = torch.ones(seq_len, seq_len, dtype=torch.bool).tril()
mask = torch.from_numpy(attend)[:, None, None, :] & causal  # True attends; is_causal=True excludes attn_mask
output = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.0).numpy()
"""

_JAX_SDPA = """
import jax

q, k, v = (each.transpose(0, 2, 1, 3) for each in (query, key, value))  # (batch, seq_len, num_heads, head_dim)
mask = attend[:, None, None, :]  # True attends
output = jax.nn.dot_product_attention(q, k, v, mask=mask, is_causal=True)
output = np.asarray(output).transpose(0, 2, 1, 3)
"""

_KERAS_SDPA = """
import os

os.environ["KERAS_BACKEND"] = "{backend}"
import keras

q, k, v = (each.transpose(0, 2, 1, 3) for each in (query, key, value))  # (batch, seq_len, num_heads, head_dim)
mask = np.tril(np.ones((seq_len, seq_len), dtype=bool)) & attend[:, None, None, :]  # True attends
output = keras.ops.dot_product_attention(q, k, v, mask=mask)
output = keras.ops.convert_to_numpy(output).transpose(0, 2, 1, 3)
"""

_ORT_ATTENTION = """
import onnx
import onnxruntime
from onnx import TensorProto, helper

names = ("query", "key", "value")
inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, query.shape) for name in names]
inputs.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, (batch, 1, seq_len, seq_len)))
node = helper.make_node("Attention", [*names, "mask"], ["output"], is_causal=1)  # combined with the mask
outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)]
graph = helper.make_graph([node], "attention", inputs, outputs)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
mask = np.broadcast_to(attend[:, None, None, :], (batch, 1, seq_len, seq_len))  # True attends
feeds = {"query": query, "key": key, "value": value, "mask": np.ascontiguousarray(mask)}
(output,) = session.run(None, feeds)  # (batch, num_heads, seq_len, head_dim)
"""

_TORCH_MHA = """
import torch

layer = torch.nn.MultiheadAttention(width, num_heads, batch_first=True).eval()  # eval() disables dropout
with torch.no_grad():
    # (3 * embed_dim, embed_dim): the (out, in) weights of query, key and value are stacked
    layer.in_proj_weight.copy_(torch.from_numpy(np.concatenate([wq.T, wk.T, wv.T])))
    layer.in_proj_bias.copy_(torch.from_numpy(np.concatenate([bq, bk, bv])))
    layer.out_proj.weight.copy_(torch.from_numpy(wo.T))
    layer.out_proj.bias.copy_(torch.from_numpy(bo))
    output, _ = layer(
        *(torch.from_numpy(each) for each in (query, key, value)),
        key_padding_mask=torch.from_numpy(~attend),  # True ignores
        attn_mask=torch.ones(seq_len, seq_len, dtype=torch.bool).triu(1),  # True ignores
        need_weights=False,  # the default is True
    )
output = output.numpy()
"""

_KERAS_MHA = """
import os

os.environ["KERAS_BACKEND"] = "{backend}"
import keras

layer = keras.layers.MultiHeadAttention(num_heads, key_dim=head_dim)  # key_dim is embed_dim // num_heads
layer.build(query.shape, value.shape, key.shape)
inward = [  # kernels are (embed_dim, num_heads, key_dim), biases (num_heads, key_dim)
    array
    for weight, bias in ((wq, bq), (wk, bk), (wv, bv))
    for array in (weight.reshape(width, num_heads, head_dim), bias.reshape(num_heads, head_dim))
]
layer.set_weights([*inward, wo.reshape(num_heads, head_dim, width), bo])
output = layer(  # (query, value, key): the value comes before the key
    query,
    value,
    key,
    attention_mask=np.broadcast_to(attend[:, None, :], (batch, seq_len, seq_len)),  # True attends
    use_causal_mask=True,
)  # weights only with return_attention_scores=True
output = keras.ops.convert_to_numpy(output)
"""

_FLAX_MHA = """
import flax.linen as nn

layer = nn.MultiHeadDotProductAttention(num_heads=num_heads, qkv_features=width, out_features=width, deterministic=True)
params = {  # kernels are (embed_dim, num_heads, head_dim); the output kernel is (num_heads, head_dim, embed_dim)
    name: {"kernel": weight.reshape(width, num_heads, head_dim), "bias": bias.reshape(num_heads, head_dim)}
    for name, weight, bias in (("query", wq, bq), ("key", wk, bk), ("value", wv, bv))
}
params["out"] = {"kernel": wo.reshape(num_heads, head_dim, width), "bias": bo}
mask = np.tril(np.ones((seq_len, seq_len), dtype=bool)) & attend[:, None, None, :]  # True attends
output = np.asarray(layer.apply({"params": params}, query, key, value, mask=mask))
"""

# The inputs with which every program of an operator begins.
INPUTS = {"sdpa": SDPA, "mha": MHA}

# Adapter -> its operator, and the lines that make the call.
LINES: dict[str, tuple[str, str]] = {
    "torch.sdpa": ("sdpa", _TORCH_SDPA),
    "jax.sdpa": ("sdpa", _JAX_SDPA),
    "keras.sdpa": ("sdpa", _KERAS_SDPA),
    "ort.attention": ("sdpa", _ORT_ATTENTION),
    "torch.mha": ("mha", _TORCH_MHA),
    "keras.mha": ("mha", _KERAS_MHA),
    "flax.mha": ("mha", _FLAX_MHA),
}

# Variants of the Keras subjects; the first is the default.
BACKENDS = ("torch", "jax", "tensorflow")


class NoCodeError(Exception):
    """No program exists for a subject; the text lists the adapters that have one."""


def program(name: str) -> str:
    """
    The program that makes the call with a subject, given its name, such as `torch.mha` or `keras.mha[jax]`.

    Raises:
        NoCodeError: there is no program for this subject.
    """
    adapter, _, variant = name.partition("[")
    if adapter not in LINES:
        raise NoCodeError(f"--code: there is no program for {name}, only for {', '.join(LINES)}")
    operator, lines = LINES[adapter]
    words = [word for word in variant.rstrip("]").split(",") if word in BACKENDS]
    called = lines.replace("{backend}", words[0] if words else BACKENDS[0])
    return f'"""One call of {name}: a padded batch under a causal mask."""\n\n{INPUTS[operator]}{called}{PRINTED}'


def before_and_after(here: str, there: str) -> Mapping[str, str]:
    """
    Two programs that print the same result, by file name.

    Raises:
        NoCodeError: there is no program for one of the two, or they compute different operators.
    """
    operators = [LINES[name.partition("[")[0]][0] for name in (here, there) if name.partition("[")[0] in LINES]
    if len(set(operators)) > 1:
        raise NoCodeError(f"--code: {here} and {there} compute different operators: {' and '.join(operators)}")
    return {"before.py": program(here), "after.py": program(there)}
