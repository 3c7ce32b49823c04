"""
The self attention of a published BERT in NumPy, in two versions: as it was printed, and repaired.

What this adapter translates, and nothing else:
* x: the function takes one sequence x (seq_len, hidden). The adapter takes only calls whose query, key and value are
  one object, and calls the function once for each batch element.
* weights: a call has them as (in, out) and BERT stores (out, in), so they are transposed.
* masks: the function has no mask.
* [repaired]: the softmax subtracts the maximum. [as_printed]: it does not.
"""

from typing import Any

NAME = "published.bert_numpy"
OPERATORS = ["mha"]
REQUIRES = ["numpy"]
EXTRA = ""
OUTPUTS = ["output"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES: list[str] = []
DECLINES = {
    "kdim": "one x, and one hidden size",
    "query_dim": "one x, and one hidden size",
    "output_dim": "one x, and one hidden size",
    "value_dim": "one x, and one hidden size",
    "no_bias": "every projection adds a bias",
}
SLOTS: dict[str, Any] = {}
VARIANTS = {
    "repaired": {"summary": "the softmax subtracts the maximum"},
    "as_printed": {"summary": "exp(x) / sum(exp(x))"},
}

import numpy as np

from conformance.bridge import Call, Declaration, Facts, Profile, Unsupported, framework_call

from ._published import weights

Array = np.ndarray[Any, Any]


def declare(facts: Facts) -> Declaration:
    """Declare canonical attention. Every step rounds to the dtype of the call."""
    return Declaration(Profile.uniform(facts.dtype), evidence="NumPy: every operation in the dtype of its arrays")


def softmax(logits: Array, maximum: Array | float) -> Array:
    """Return the softmax of logits - maximum over the last axis."""
    return np.asarray(np.exp(logits - maximum) / np.sum(np.exp(logits - maximum), axis=-1, keepdims=True))


def transpose_for_scores(rows: Array, heads: int) -> Array:
    """Split rows (seq_len, hidden) into heads: (heads, seq_len, hidden / heads)."""
    return rows.reshape(len(rows), heads, -1).swapaxes(1, 0)


def self_attention(x: Array, params: dict[str, Array], heads: int, *, shifted: bool) -> Array:
    """
    Return the output (seq_len, hidden) for x (seq_len, hidden).

    params: weights (out, in) and biases by name. shifted: whether the softmax subtracts the maximum.
    """
    projected = (np.dot(x, params["w" + letter].T) + params["b" + letter] for letter in "qkv")
    query, key, value = (transpose_for_scores(rows, heads) for rows in projected)
    logits = np.matmul(query, key.swapaxes(1, 2))
    logits /= np.sqrt(logits.dtype.type(query.shape[-1]))
    probs = softmax(logits, logits.max(axis=-1, keepdims=True) if shifted else 0)
    merged = np.matmul(probs, value).swapaxes(0, 1).reshape(len(x), -1)
    return np.asarray(np.dot(merged, params["wo"].T) + params["bo"])


def mha(call: Call) -> dict[str, Any]:
    """Answer the call, one batch element after the other."""
    facts = call.facts
    if facts.alias != "qkv":
        raise Unsupported("the text attends one sequence to itself")
    params = {name: array.T for name, array in weights(call).items()}
    with framework_call():
        items = [
            self_attention(x, params, facts.sizes["num_heads"], shifted=facts.variant == "repaired")
            for x in call.query.bits
        ]
    return {"output": np.stack(items)}


def evidence() -> dict[str, Any]:
    """Return the NumPy version and the device."""
    return {"versions": {"numpy": np.__version__}, "device": "cpu"}
