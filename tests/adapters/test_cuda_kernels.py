"""What torch.sdpa declines on CUDA: the calls that PyTorch says a kernel cannot take. Runs without a GPU."""

import warnings
from typing import Any

import pytest
import torch

from adapters import torch_sdpa
from conformance.bridge import Unsupported


def inputs() -> dict[str, Any]:
    """Query, key and value of batch 2, 3 heads, 5 queries, 7 keys and head_dim 11."""
    return {name: torch.zeros(2, 3, length, 11) for name, length in (("query", 5), ("key", 7), ("value", 7))}


ARGUMENTS = {"attn_mask": None, "is_causal": True, "scale": None, "enable_gqa": False}


@pytest.mark.parametrize("variant", torch_sdpa.CAN_USE)
def test_what_a_kernel_cannot_take_is_declined(variant: str) -> None:
    # On the CPU, PyTorch says of each CUDA kernel that it cannot be used.
    name = torch_sdpa.CAN_USE[variant].__name__
    with pytest.raises(Unsupported, match=rf"^torch\.backends\.cuda\.{name}: "):
        torch_sdpa._decline_unless_usable(variant, inputs(), ARGUMENTS)


def test_pytorchs_reasons_are_told_and_a_usable_kernel_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def odd_head_dim(params: Any, *, debug: bool) -> bool:
        asked.append(params)
        assert debug
        warnings.warn("head_dim should be a multiple of 8 (Triggered internally at sdp_utils.cpp:528.)", stacklevel=1)
        return False

    monkeypatch.setitem(torch_sdpa.CAN_USE, "cudnn", odd_head_dim)
    with pytest.raises(Unsupported, match=r": head_dim should be a multiple of 8$"):
        torch_sdpa._decline_unless_usable("cudnn", inputs(), ARGUMENTS)
    assert (asked[0].query.shape, asked[0].is_causal, asked[0].attn_mask) == ((2, 3, 5, 11), True, None)
    monkeypatch.setitem(torch_sdpa.CAN_USE, "cudnn", lambda *_, **__: True)
    torch_sdpa._decline_unless_usable("cudnn", inputs(), ARGUMENTS)
