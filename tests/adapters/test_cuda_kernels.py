"""What torch.sdpa and jax.sdpa decline on CUDA: what the framework says a kernel cannot take. Runs without a GPU."""

import importlib
from typing import Any

import pytest

from conformance.bridge import Unsupported

pytestmark = pytest.mark.frameworks

KERNELS = ("flash", "efficient", "cudnn")


@pytest.fixture
def torch_sdpa() -> Any:
    """The adapter, which imports PyTorch: that takes seconds, so not when tests are collected."""
    return importlib.import_module("adapters.torch_sdpa")


@pytest.fixture
def inputs() -> dict[str, Any]:
    """Return query, key and value with batch 2, 3 heads, 5 queries, 7 keys and head_dim 11."""
    zeros = importlib.import_module("torch").zeros
    return {name: zeros(2, 3, length, 11) for name, length in (("query", 5), ("key", 7), ("value", 7))}


ARGUMENTS = {"attn_mask": None, "is_causal": True, "scale": None, "enable_gqa": False}


def test_every_kernel_that_can_be_asked_about_is_here(torch_sdpa: Any) -> None:
    assert tuple(torch_sdpa.CAN_USE) == KERNELS


@pytest.mark.parametrize("variant", KERNELS)
def test_what_a_kernel_cannot_take_is_declined(torch_sdpa: Any, inputs: dict[str, Any], variant: str) -> None:
    # On the CPU, PyTorch says that no CUDA kernel can be used.
    name = torch_sdpa.CAN_USE[variant].__name__
    with pytest.raises(Unsupported, match=rf"cannot take the call: torch\.backends\.cuda\.{name} is False$"):
        torch_sdpa._decline_unless_usable(variant, inputs, ARGUMENTS)


def test_pytorch_is_asked_about_the_call_itself(
    torch_sdpa: Any, inputs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def usable(params: Any) -> bool:
        asked.append(params)
        return True

    monkeypatch.setitem(torch_sdpa.CAN_USE, "cudnn", usable)
    torch_sdpa._decline_unless_usable("cudnn", inputs, ARGUMENTS)
    (params,) = asked
    assert [each.shape for each in (params.query, params.key, params.value)] == [(2, 3, n, 11) for n in (5, 7, 7)]
    assert (params.is_causal, params.attn_mask, params.enable_gqa) == (True, None, False)


@pytest.fixture
def jax_sdpa() -> Any:
    """The adapter, which imports JAX."""
    return importlib.import_module("adapters.jax_sdpa")


REFUSED: dict[str, dict[str, Any]] = {
    "query, key and value are in float16 or bfloat16, not in float32": {"dtype": "float32"},
    "head_dim 11 is not a multiple of 8": {"head_dim": 11},
    "head_dim 264 is not a multiple of 8, or is above 256": {"head_dim": 264},
    "a mask or bias has size 1 on the axis of the queries or keys": {"mask": (2, 1, 1, 7)},
    "a window has 2 keys on the right, without is_causal": {"window": (1, 2)},
    r"gradients with a mask or bias need even lengths, not \(5, 7\)": {"mask": (2, 1, 5, 7), "slopes": True},
}
TAKEN: dict[str, dict[str, Any]] = {
    "plain": {},
    "full mask": {"mask": (2, 3, 5, 7)},
    "window to the left": {"window": (3, 0)},
    "window beside a causal mask": {"window": (1, 2), "is_causal": True},
    "gradients": {"slopes": True},
}


def decline(adapter: Any, **call: Any) -> None:
    """Ask the adapter about a call of cuDNN with batch 2, 5 queries, 7 keys, 3 heads, and head_dim 8 by default."""
    zeros = importlib.import_module("numpy").zeros
    shapes = ((2, length, 3, call.get("head_dim", 8)) for length in (5, 7))
    query, key = (zeros(shape, dtype=call.get("dtype", "float16")) for shape in shapes)
    masks = {"mask": zeros(call["mask"])} if "mask" in call else {}
    window = {"local_window_size": call["window"]} if "window" in call else {}
    flags = {"is_causal": call.get("is_causal", False), **window}
    adapter.decline_unless_supported(query, key, masks, flags, slopes=call.get("slopes", False))


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cudnn_does_not_support_is_declined(jax_sdpa: Any, reason: str) -> None:
    with pytest.raises(Unsupported, match=f"^cuDNN: {reason}"):
        decline(jax_sdpa, **REFUSED[reason])


@pytest.mark.parametrize("call", TAKEN.values(), ids=TAKEN)
def test_what_cudnn_supports_is_asked(jax_sdpa: Any, call: dict[str, Any]) -> None:
    decline(jax_sdpa, **call)
