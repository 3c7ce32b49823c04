"""Example functions for `conformance check`: attention in plain NumPy, each with one common mistake."""

from pathlib import Path

from conformance.checking.target import CheckError

_SDPA = '''\
"""Attention in plain NumPy, with one mistake in it. Check it: {command}"""

import numpy as np


def attention(query, key, value, mask=None, *, is_causal=False, scale=None):
    """
    Arrays are (batch, num_heads, seq_len, head_dim).

    mask is None or boolean, with four axes of which any may be 1: True = attend.
    is_causal: query i attends keys 0 to i.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = query @ key.swapaxes(-1, -2) * factor
    if mask is not None:
        logits = np.where(mask, -np.inf, logits)
    if is_causal:
        logits = np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -np.inf)
    peak = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ value  # a fully masked row is zero
'''

_MHA = '''\
"""Multi-head attention in plain NumPy, with one mistake in it. Check it: {command}"""

import numpy as np


def multi_head_attention(query, key, value, params, num_heads, mask=None):
    """
    Arrays are (batch, seq_len, width); params has wq wk wv wo, (in, out), and bq bk bv bo, 1-D or None.

    mask is None or boolean, with four axes of which any may be 1: True = attend.
    """
    q, k, v = (
        split(linear(rows, params["w" + name], params["b" + name]), num_heads)
        for name, rows in (("q", query), ("k", key), ("v", value))
    )
    logits = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    peak = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1, keepdims=True)
    context = weights / np.where(total == 0, 1, total) @ v  # a fully masked row is zero
    batch, _, queries, _ = context.shape
    merged = context.transpose(0, 2, 1, 3).reshape(batch, queries, -1)
    return linear(merged, params["wo"], params["bo"])


def linear(rows, weight, bias):
    """Rows times weight, plus bias."""
    return rows @ weight if bias is None else rows @ weight + bias


def split(rows, num_heads):
    """(batch, seq_len, num_heads * dim) to (batch, num_heads, seq_len, dim)."""
    batch, length, width = rows.shape
    return rows.reshape(batch, length, width // num_heads, num_heads).transpose(0, 3, 1, 2)
'''

# Operator -> name of the function and source text.
EXAMPLES = {"sdpa": ("attention", _SDPA), "mha": ("multi_head_attention", _MHA)}


def write_example(operator: str, folder: Path) -> tuple[Path, str]:
    """
    Write the example, and return its path and the command that checks it.

    Raises:
        CheckError: the file exists already, or cannot be written.
    """
    function, text = EXAMPLES[operator]
    path = folder / f"my_{function}.py"
    command = f"conformance check {path.name}:{function}"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text.format(command=command))
    except FileExistsError:
        raise CheckError(f"{path.name} exists already and was not changed") from None
    except OSError as error:
        raise CheckError(f"{path.name} cannot be written: {error}") from None
    return path, command
