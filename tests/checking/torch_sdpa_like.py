"""Drop-ins for torch.nn.functional.scaled_dot_product_attention: a right one, and a wrong one."""

from typing import Any

import torch


def right(
    query: Any, key: Any, value: Any, attn_mask: Any = None, *, is_causal: bool = False, scale: float | None = None
) -> Any:
    half = query.dtype in (torch.float16, torch.bfloat16)
    wide = torch.float32 if half else query.dtype
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    logits = query.to(wide) @ key.to(wide).transpose(-1, -2) * factor
    if is_causal:
        logits = logits.masked_fill(~torch.ones(logits.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    if attn_mask is not None:
        logits = logits.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else logits + attn_mask
    weights = logits.softmax(dim=-1).nan_to_num(0.0)
    return (weights @ value.to(wide)).to(query.dtype)


def inverted(
    query: Any, key: Any, value: Any, attn_mask: Any = None, *, is_causal: bool = False, scale: float | None = None
) -> Any:
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = ~attn_mask
    return right(query, key, value, attn_mask, is_causal=is_causal, scale=scale)
