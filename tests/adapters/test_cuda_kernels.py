"""What torch.sdpa and jax.sdpa decline on CUDA: what the framework says a kernel cannot take. Runs without a GPU."""

import importlib
import re
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


@pytest.fixture
def arrays() -> list[Any]:
    """Return query, key and value of batch 2 with 5 queries, 7 keys, 3 heads and head_dim 8, in float16."""
    numpy = importlib.import_module("numpy")
    return [numpy.zeros((2, length, 3, 8), dtype="float16") for length in (5, 7, 7)]


def test_a_window_that_cudnn_does_not_have_is_declined(jax_sdpa: Any, arrays: list[Any]) -> None:
    with pytest.raises(Unsupported, match=r"^cuDNN cannot take the call: cuDNN doesn't support right window: 2 when"):
        jax_sdpa.decline_unless_supported(*arrays, None, local_window_size=(1, 2), implementation="cudnn")


@pytest.mark.parametrize(
    ("error", "declined"),
    [
        (NotImplementedError("The head dim must be <= 256 and a multiple of 8, but got 11."), True),
        (ValueError("Bias must have same seq length as QKV, got 1 and 7"), True),
        (ValueError("value shape should be [2, 7, 3, 8]: but got (2, 6, 3, 8)"), False),
        (RuntimeError("cuDNN is not detected."), False),
    ],
)
def test_only_what_jax_does_not_support_is_declined(
    jax_sdpa: Any, arrays: list[Any], monkeypatch: pytest.MonkeyPatch, *, error: Exception, declined: bool
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(jax_sdpa, "TARGET", refuse)
    if declined:
        with pytest.raises(Unsupported, match=f"^cuDNN cannot take the call: {re.escape(str(error))}$"):
            jax_sdpa.decline_unless_supported(*arrays, None, implementation="cudnn")
    else:
        jax_sdpa.decline_unless_supported(*arrays, None, implementation="cudnn")
