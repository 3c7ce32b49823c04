"""On PyTorch tensors. RIGHT conform; of WRONG, what the first finding says."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

RIGHT = ("wrapped", "by_hand", "packed_heads", "flash_style", "returns_both", "numeric")
WRONG = {
    "inverted": "reads True in attn_mask as",
    "unscaled": "does not scale the logits",
    "causal_ignored": "ignores the causal argument",
    "over_queries": "takes the softmax over the queries",
    "mask_after_softmax": "after the softmax",
    "bert": "adds -1e4 to masked logits",
}


def bert(query, key, value, attention_mask=None):
    """The mask is a number, because PyTorch subtracts no boolean."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if attention_mask is not None:
        scores = scores + (1.0 - attention_mask) * -10000.0
    return scores.softmax(-1) @ value


def numeric(query, key, value, attention_mask=None, padding_mask=None):
    """Both masks are numbers."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if attention_mask is not None:
        scores = scores.masked_fill(1.0 - attention_mask > 0, -torch.inf)
    if padding_mask is not None:
        scores = scores.masked_fill((1.0 - padding_mask)[:, None, None, :] > 0, -torch.inf)
    return _softmax(scores) @ value


def wrapped(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _softmax(logits: Tensor) -> Tensor:
    return torch.nan_to_num(logits.softmax(-1)) if torch.isneginf(logits).all(-1).any() else logits.softmax(-1)


def by_hand(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    return _softmax(scores) @ v


def packed_heads(q, k, v, attn_mask=None, softmax_scale=None):
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    return torch.einsum("bhqk,bkhd->bqhd", _softmax(scores), v)


def flash_style(q, k, v, bias=None, causal=False, sm_scale=None):
    sm_scale = sm_scale if sm_scale is not None else 1.0 / math.sqrt(q.shape[-1])
    scores = q @ k.mT * sm_scale
    if bias is not None:
        scores = scores + bias
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return _softmax(scores) @ v


def returns_both(q, k, v, mask=None, dropout=0.1, training=True):
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = F.dropout(scores.softmax(dim=-1), dropout, training)
    return weights @ v, weights


def inverted(q, k, v, attn_mask=None):
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask, float("-inf"))
    return _softmax(scores) @ v


def unscaled(query, key, value, mask=None):
    scores = query @ key.mT
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return _softmax(scores) @ value


def causal_ignored(q, k, v, mask=None, causal=False):
    return by_hand(q, k, v, mask)


def over_queries(q, k, v, mask=None):
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.nan_to_num(scores.softmax(dim=-2))
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def mask_after_softmax(q, k, v, mask=None):
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ v
