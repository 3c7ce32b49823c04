"""
torch.nn.MultiheadAttention, exported to ONNX (torch.onnx.export, dynamo, default opset), run by onnxruntime.

What this adapter translates, and nothing else:
* what torch.mha translates, in eval mode
* the parameters are inputs of the graph (torch.func.functional_call), batch and lengths are dynamic
"""

NAME = "onnx.torch_mha"
OPERATORS = ["mha"]
REQUIRES = ["torch", "onnx", "onnxscript", "onnxruntime"]
EXTRA = "onnx"
OUTPUTS = ["output", "weights", "weights_mean"]
DTYPES = ["float64", "float32", "float16"]
DEVICES = ["cpu"]
CAPABILITIES = ["kdim", "no_bias"]
SLOTS = {
    "key_padding_mask": {
        "role": "mask",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "bool": "ignore",
        "float": "add",
        "same_element_as": ["attn_mask"],
    },
    "attn_mask": {
        "role": "mask",
        "takes": ["attention", "causal", "window", "additive"],
        "axes": [["q", "k"], ["b*h", "q", "k"]],
        "bool": "ignore",
        "float": "add",
        "same_element_as": ["key_padding_mask"],
    },
    "is_causal": {"role": "causal", "alignment": "top_left", "hint": True, "requires": ["attn_mask"]},
}

