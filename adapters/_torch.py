"""Tensors to torch and back, bit for bit, and torch's arithmetic: shared by the torch and onnx.torch adapters."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from conformance.bridge import Facts, Profile, Tensor, strided

SDPA_DOCS = "https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention"
MHA_DOCS = "https://pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention"


# The devices on which the results of the last call lay.
came_from: set[str] = set()


def to_torch(tensor: Tensor, device: str) -> Any:
    """The same bits as a torch tensor of its own."""
    if tensor.dtype == "bfloat16":
        return torch.from_numpy(tensor.bits.astype(np.int16, casting="unsafe")).view(torch.bfloat16).to(device)
    return torch.from_numpy(tensor.bits.copy()).to(device)


def laid_out(tensor: Tensor, device: str, layout: str) -> Any:
    """The same bits as a torch tensor that lies in memory as `layout` says, by torch.as_strided."""
    if layout == "contiguous":
        return to_torch(tensor, device)
    seen = strided(tensor, layout)
    return torch.as_strided(to_torch(Tensor(tensor.dtype, seen.memory), device), seen.shape, seen.strides, seen.offset)


def from_torch(result: Any) -> Tensor:
    """The same bits as a bridge tensor; where they lay is kept for the evidence."""
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
    """Query, key and value, as they are to lie in memory; those that are one object in the call are one for torch."""
    q = laid_out(query, device, layout)
    k = q if alias == "qkv" else laid_out(key, device, layout)
    return q, k, k if alias in ("kv", "qkv") else laid_out(value, device, layout)


def gradients(output: Any, by: Mapping[str, Any], grad_output: Tensor, device: str) -> dict[str, Any]:
    """The gradients of sum(grad_output * output) by tensors that require them, as outputs of a reply."""
    found = torch.autograd.grad(output, list(by.values()), to_torch(grad_output, device))
    return {f"grad_{name}": gradient for name, gradient in zip(by, found, strict=True)}


def mha_layer(facts: Facts, *, biases: bool, dropout: float = 0.0, batch_first: bool = True) -> Any:
    """A torch.nn.MultiheadAttention of the call's widths."""
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
    """The parameters of a call under torch's names, (out, in): stacked, or apart where kdim or vdim differ."""
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
    """Gradients by torch's parameters as those of a call's: the inverse of `mha_state`."""
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
    """The math kernel keeps all intermediates of half precision in float32 (SDPA_DOCS)."""
    half = dtype in ("float16", "bfloat16")
    return Profile.fused(dtype).but(prob="float32") if half else Profile.uniform(dtype)


def fused_profile(dtype: str, device: str) -> Profile:
    """
    The arithmetic of the fused kernels.

    In float32 on CUDA, the memory-efficient kernel multiplies by 3xTF32: OpMultiplyAddFastF32 in
    aten/src/ATen/native/transformers/cuda/mem_eff_attention/gemm_kernel_utils.h.
    """
    ordinary = Profile.ordinary(dtype)
    return ordinary.but(mm="tf32x3") if dtype == "float32" and device == "cuda" else ordinary


def stepwise_profile(dtype: str) -> Profile:
    """Query scaled, product, softmax and weighted sum as operators of their own: half precision rounds after each."""
    half = dtype in ("float16", "bfloat16")
    return Profile.naive(dtype).but(scale="float32") if half else Profile.uniform(dtype)


def wants_weights(facts: Facts) -> bool:
    """Whether the call asks for attention weights."""
    return any(name in facts.outputs for name in ("weights", "weights_mean"))


def torch_devices() -> list[str]:
    """The devices that torch sees."""
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def torch_evidence() -> dict[str, Any]:
    """What runs: versions, devices, threads, and the kernels that are enabled."""
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
