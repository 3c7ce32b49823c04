"""Conversion of tensors to torch and back, bit for bit, and torch's arithmetic: shared by torch and onnx.torch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from conformance.bridge import Facts, Profile, Tensor, strided

SDPA_DOCS = "https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention"
MHA_DOCS = "https://pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention"


# The devices of the results of the last call. `torch_evidence` reads and clears the set.
came_from: set[str] = set()


def to_torch(tensor: Tensor, device: str) -> Any:
    """Copy the same bits into a new torch tensor on the device."""
    if tensor.dtype == "bfloat16":
        return torch.from_numpy(tensor.bits.astype(np.int16, casting="unsafe")).view(torch.bfloat16).to(device)
    return torch.from_numpy(tensor.bits.copy()).to(device)


def laid_out(tensor: Tensor, device: str, layout: str) -> Any:
    """Copy the same bits into a new torch tensor with the given memory layout, by torch.as_strided."""
    if layout == "contiguous":
        return to_torch(tensor, device)
    seen = strided(tensor, layout)
    return torch.as_strided(to_torch(Tensor(tensor.dtype, seen.memory), device), seen.shape, seen.strides, seen.offset)


def from_torch(result: Any) -> Tensor:
    """Return the same bits as a Tensor of the bridge, and record the device of the result for the evidence."""
    came_from.add(result.device.type)
    here = result.detach().cpu().contiguous()
    if here.dtype == torch.bfloat16:
        return Tensor("bfloat16", here.view(torch.int16).numpy().view(np.uint16))
    return Tensor.of(here.numpy())


def aliased(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    alias: str,
    device: str,
    layout: str = "contiguous",
) -> tuple[Any, Any, Any]:
    """Query, key and value in the given memory layout; inputs that are one object in the call are one torch tensor."""
    q = laid_out(query, device, layout)
    k = q if alias == "qkv" else laid_out(key, device, layout)
    return q, k, k if alias in ("kv", "qkv") else laid_out(value, device, layout)


def gradients(output: Any, by: Mapping[str, Any], grad_output: Tensor, device: str) -> dict[str, Any]:
    """The gradients of sum(grad_output * output) with respect to the tensors in `by`, named as outputs of a reply."""
    found = torch.autograd.grad(output, list(by.values()), to_torch(grad_output, device))
    return {f"grad_{name}": gradient for name, gradient in zip(by, found, strict=True)}


def mha_layer(facts: Facts, *, biases: bool, dropout: float = 0.0, batch_first: bool = True) -> Any:
    """A torch.nn.MultiheadAttention with the widths, dtype and device of the call."""
    return torch.nn.MultiheadAttention(
        facts.sizes["query_dim"],
        facts.sizes["num_heads"],
        dropout=dropout,
        bias=biases,
        add_bias_kv="bias_kv" in facts.requirements,
        add_zero_attn="zero_key" in facts.requirements,
        kdim=facts.sizes["kdim"],
        vdim=facts.sizes["vdim"],
        batch_first=batch_first,
        device=facts.device,
        dtype=getattr(torch, facts.dtype),
    )


def mha_state(params: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """
    The parameters of a call under torch's names, with weights transposed to (out, in).

    wq, wk and wv are stacked if kdim and vdim equal query_dim, and separate otherwise.
    """
    found = {"out_proj.weight": params["wo"].T}
    if sizes["kdim"] == sizes["vdim"] == sizes["query_dim"]:
        found["in_proj_weight"] = torch.cat([params[name].T for name in ("wq", "wk", "wv")])
    else:
        found |= {f"{letter}_proj_weight": params["w" + letter].T for letter in "qkv"}
    found |= {name: params[name].reshape(1, 1, -1) for name in ("bias_k", "bias_v") if name in params}
    if "bq" in params:
        found["in_proj_bias"] = torch.cat([params[name] for name in ("bq", "bk", "bv")])
        found["out_proj.bias"] = params["bo"]
    return found


def mha_gradients(found: Mapping[str, Any]) -> dict[str, Any]:
    """Convert gradients with respect to torch's parameters to those of a call: the inverse of `mha_state`."""
    named: dict[str, Any] = {"grad_wo": found["grad_out_proj.weight"].T}
    if "grad_in_proj_weight" in found:
        stacked = found["grad_in_proj_weight"].chunk(3)
    else:
        stacked = [found[f"grad_{letter}_proj_weight"] for letter in "qkv"]
    named |= {f"grad_w{letter}": part.T for letter, part in zip("qkv", stacked, strict=True)}
    if "grad_in_proj_bias" in found:
        parts = found["grad_in_proj_bias"].chunk(3)
        named |= {f"grad_b{letter}": part for letter, part in zip("qkv", parts, strict=True)}
        named["grad_bo"] = found["grad_out_proj.bias"]
    return named


def math_profile(dtype: str) -> Profile:
    """The arithmetic of the math kernel: in half precision, all intermediates are float32 (SDPA_DOCS)."""
    half = dtype in ("float16", "bfloat16")
    return Profile.fused(dtype).but(prob="float32") if half else Profile.uniform(dtype)


def fused_profile(dtype: str, device: str) -> Profile:
    """
    The arithmetic of the fused kernels.

    In float32 on CUDA, the memory-efficient kernel multiplies in 3xTF32: OpMultiplyAddFastF32 in
    aten/src/ATen/native/transformers/cuda/mem_eff_attention/gemm_kernel_utils.h.
    """
    ordinary = Profile.ordinary(dtype)
    return ordinary.but(mm="tf32x3") if dtype == "float32" and device == "cuda" else ordinary


def stepwise_profile(dtype: str) -> Profile:
    """Query scaled, product, softmax and weighted sum as separate operators: half precision rounds after each."""
    half = dtype in ("float16", "bfloat16")
    return Profile.naive(dtype).but(scale="float32") if half else Profile.uniform(dtype)


def wants_weights(facts: Facts) -> bool:
    """Whether the call requests attention weights, per head or averaged over the heads."""
    return any(name in facts.outputs for name in ("weights", "weights_mean"))


def torch_devices() -> list[str]:
    """The devices that torch can use."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def torch_evidence() -> dict[str, Any]:
    """Evidence of what ran: devices, versions, threads, CPU capability, and whether fast path and TF32 are enabled."""
    cuda = torch.cuda.is_available()
    ran_on = sorted(came_from)
    came_from.clear()
    return {
        "ran_on": ran_on,
        "versions": {"torch": torch.__version__, "numpy": np.__version__},
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "threads": torch.get_num_threads(),
        "libraries": {"torch": torch.backends.cpu.get_cpu_capability()},
        "mha_fastpath": torch.backends.mha.get_fastpath_enabled(),
        "tf32": torch.backends.cuda.matmul.allow_tf32 if cuda else False,
    }
