"""
Print the errors of torch's attention in units of its bounds: the table from which the bounds were calibrated.

maxA, maxB: the largest ratio of the error to the worst case and to the tolerance. need: the largest
(error - hard) / sigma. false: the number of cases beyond their tolerance; each shows a rounding that the declared
profile does not have, or a wrong formula.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import linear, relu, scaled_dot_product_attention

from adapters._torch import fused_profile
from conformance.bounds.bound import Bound
from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import evaluate
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to
from conformance.verdicts.compare import RMS_ELEMENTS, root_mean_square

DTYPES = ("float64", "float32", "float16", "bfloat16")
BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
# Kernels and paths that have the arithmetic of fused kernels in float32 too.
FUSED = ("flash", "efficient", "cudnn", "no weights")
# The kernels of each device.
OF_DEVICES = {"cpu": ("math", "flash"), "cuda": tuple(BACKENDS)}
# Sizes: batch, num_heads, seq_len_q, seq_len_k, head_dim.
SHAPES = ((2, 2, 5, 7, 8), (3, 2, 1, 1, 4), (2, 3, 7, 5, 16), (1, 2, 17, 33, 32), (1, 2, 7, 1021, 64))
VALUES: tuple[Callable[[Array], Array], ...] = (np.positive, np.sign, lambda v: v + 10.0, lambda v: v * np.exp(4 * v))
OUTPUTS = {"mha": ("output", "weights", "weights_mean")}
MASKS = ("none", "bool", "causal", "additive", "padding with huge keys", "-1e9")


def groups(
    rng: np.random.Generator, kind: str, shape: tuple[int, int, int, int], dtype: str
) -> tuple[MaskOperand, ...]:
    """Return the masks of one case. Every query attends to at least one key."""
    allowed = rng.random(shape) < 0.6  # noqa: PLR2004 - most keys
    allowed[..., 0] = True
    allowed = np.tri(*shape[-2:], dtype=bool)[None, None] if kind == "causal" else allowed
    if kind == "padding with huge keys":
        allowed = np.arange(shape[-1])[None, None, None] < max(1, shape[-1] * 2 // 3)
    if kind in ("additive", "-1e9"):
        low = -np.inf if kind == "additive" else -3e4 if dtype == "float16" else -1e9
        bias = np.where(allowed, rng.standard_normal(shape), low)
        return (MaskOperand("mask", ("additive",), "float", round_to(bias, dtype)),)
    return () if kind == "none" else (MaskOperand("mask", ("attention",), "bool", allowed),)


def problems(program: str, dtype: str, count: int) -> Iterator[Problem]:
    """Yield random problems that differ in sizes, scale of the logits, distribution of the values and kind of mask."""
    rng, operator, more = np.random.default_rng(17), "sdpa" if program in OF_SDPA else "mha", REPLACED.get(program, {})
    for case in range(count):
        batch, heads, queries, keys, dim = SHAPES[case % len(SHAPES)]
        kind, width = MASKS[case // len(SHAPES) % len(MASKS)], heads * dim
        lead, last = ((batch, heads), dim) if operator == "sdpa" else ((batch,), width)
        q, k, v = (rng.standard_normal((*lead, length, last)) for length in (queries, keys, keys))
        if kind == "padding with huge keys":
            k[..., max(1, keys * 2 // 3) :, :] *= 100.0 if dtype.endswith("16") else 1e5
        params = {}
        for name in "qkvo" if operator == "mha" else "":
            params["w" + name] = round_to(rng.standard_normal((width, width)) * width**-0.5, dtype)
            params["b" + name] = round_to(rng.standard_normal(width), dtype)
        loud = (q * rng.choice((1.0, 1e-2, 5.0, 30.0)), k, VALUES[rng.integers(len(VALUES))](v))
        q, k, v = (round_to(np.clip(array, -3e4, 3e4) if dtype == "float16" else array, dtype) for array in loud)
        masks, outputs = groups(rng, kind, (batch, heads, queries, keys), dtype), OUTPUTS.get(program, ("output",))
        yield Problem(operator, dtype, heads, heads, dim, dim, q, k, v, params, masks, outputs=outputs, **more)


def differentiated(problem: Problem) -> Problem:
    """Return the same problem with the gradients of a random loss as its outputs."""
    shape = evaluate(problem.but(outputs=("output",))).reply["output"].values.shape
    grad = round_to(np.asarray(np.random.default_rng(19).standard_normal(shape)), problem.dtype)
    names = ("query", "key", "value", *problem.params)
    return problem.but(grad_output=grad, outputs=tuple("grad_" + name for name in names))


def tensor(array: Array, dtype: str) -> torch.Tensor:
    """Return the array as a torch tensor of this dtype on the default device."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(getattr(torch, dtype)).to(torch.get_default_device())


def mask_of(problem: Problem, true_means: str) -> torch.Tensor | None:
    """Return the single mask of a problem with all its axes, or None."""
    if (bias := problem.bias()) is not None:
        return tensor(bias, problem.dtype)
    return tensor(problem.allowed() == (true_means == "attend"), "bool") if problem.mask_operands else None


def sdpa(problem: Problem, backend: str) -> dict[str, torch.Tensor]:
    """Call torch's scaled_dot_product_attention with one kernel."""
    arrays = {name: tensor(getattr(problem, name), problem.dtype) for name in ("query", "key", "value")}
    for array in arrays.values():
        array.requires_grad_(problem.differentiated)
    mask = mask_of(problem, "attend")
    with sdpa_kernel(BACKENDS[backend]):
        output = scaled_dot_product_attention(**arrays, attn_mask=mask)
        return slopes(output, arrays, problem) if problem.differentiated else {"output": output}


def bent(problem: Problem, backend: str) -> dict[str, torch.Tensor]:  # noqa: ARG001 - it uses no kernel
    """Compute attention with a softcap, operator by operator."""
    arrays = {name: tensor(getattr(problem, name), problem.dtype) for name in ("query", "key", "value")}
    for array in arrays.values():
        array.requires_grad_(problem.differentiated)
    assert problem.softcap is not None  # noqa: S101 - that is what the program is for
    logits = arrays["query"] @ arrays["key"].mT * problem.applied_scale
    logits = problem.softcap * torch.tanh(logits / problem.softcap)
    mask = mask_of(problem, "attend")
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
    output = torch.softmax(logits, dim=-1) @ arrays["value"]
    return slopes(output, arrays, problem) if problem.differentiated else {"output": output}


def slopes(output: torch.Tensor, by: dict[str, torch.Tensor], problem: Problem) -> dict[str, torch.Tensor]:
    """Return the gradients of the problem's loss with respect to these tensors."""
    assert problem.grad_output is not None  # noqa: S101 - `differentiated` gave it
    found = torch.autograd.grad(output, list(by.values()), tensor(problem.grad_output, problem.dtype))
    return {f"grad_{name}": slope for name, slope in zip(by, found, strict=True)}


def mha(problem: Problem, weights: str) -> dict[str, torch.Tensor]:
    """Call torch's MultiheadAttention on the path that returns weights, or on the one that does not."""
    dtype, params = problem.dtype, {name: tensor(array, problem.dtype) for name, array in problem.params.items()}
    kind = getattr(torch, dtype)
    layer = torch.nn.MultiheadAttention(len(params["wo"]), problem.num_heads, batch_first=True, dtype=kind)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([params[name].T for name in ("wq", "wk", "wv")]))
        layer.in_proj_bias.copy_(torch.cat([params[name] for name in ("bq", "bk", "bv")]))
        layer.out_proj.weight.copy_(params["wo"].T)
        layer.out_proj.bias.copy_(params["bo"])
    mask = None if (whole := mask_of(problem, "ignore")) is None else whole.flatten(0, 1)
    arrays = [tensor(array, dtype) for array in (problem.query, problem.key, problem.value)]
    if problem.differentiated:
        return mha_slopes(layer, arrays, mask, problem)
    if weights == "no weights":
        return {"output": layer(*arrays, attn_mask=mask, need_weights=False)[0]}
    output, each = layer(*arrays, attn_mask=mask, average_attn_weights=False)
    return {"output": output, "weights": each, "weights_mean": layer(*arrays, attn_mask=mask)[1]}


def mha_slopes(
    layer: torch.nn.MultiheadAttention, arrays: list[torch.Tensor], mask: torch.Tensor | None, problem: Problem
) -> dict[str, torch.Tensor]:
    """Return the gradients with respect to the inputs and the parameters, named as in the problem."""
    by = {name: array.requires_grad_() for name, array in zip(("query", "key", "value"), arrays, strict=True)}
    found = slopes(layer(*arrays, attn_mask=mask, need_weights=False)[0], by | dict(layer.named_parameters()), problem)
    weights, biases = found["grad_in_proj_weight"].chunk(3), found["grad_in_proj_bias"].chunk(3)
    named = {f"grad_w{letter}": part.T for letter, part in zip("qkv", weights, strict=True)}
    named |= {f"grad_b{letter}": part for letter, part in zip("qkv", biases, strict=True)}
    named |= {"grad_wo": found["grad_out_proj.weight"].T, "grad_bo": found["grad_out_proj.bias"]}
    return {f"grad_{name}": found[f"grad_{name}"] for name in by} | named


def layers(problem: Problem, backend: str) -> dict[str, torch.Tensor]:
    """Compute multi-head attention from linear layers and one kernel, with the problem's activation and residual."""
    params = {name: tensor(array, problem.dtype) for name, array in problem.params.items()}
    arrays = {name: tensor(getattr(problem, name), problem.dtype) for name in ("query", "key", "value")}
    heads = {}
    for name, array in arrays.items():
        projected = linear(array, params["w" + name[0]].T, params["b" + name[0]])
        projected = projected if problem.activation is None else relu(projected)
        heads[name] = projected.unflatten(-1, (problem.num_heads, -1)).transpose(1, 2)
    with sdpa_kernel(BACKENDS[backend]):
        context = scaled_dot_product_attention(**heads, attn_mask=mask_of(problem, "attend"))
    output = linear(context.transpose(1, 2).flatten(2), params["wo"].T, params["bo"])
    return {"output": output + arrays["query"] if problem.residual else output}


# What each program computes beyond plain attention.
REPLACED: dict[str, dict[str, Any]] = {
    "relu": {"activation": "relu"},
    "residual": {"residual": True},
    "both": {"activation": "relu", "residual": True},
    "softcap": {"softcap": 3.0},
}
LAYERS = ("relu", "residual", "both")
OF_SDPA = ("sdpa", "softcap")
PROGRAMS = {"sdpa": sdpa, "mha": mha, **dict.fromkeys(LAYERS, layers), "softcap": bent}


def variants_of(program: str, device: str, *, slopes: bool) -> tuple[str, ...]:
    """Return the kernels or paths of a program on a device; none if its gradients are not measured."""
    if program == "softcap":
        return ("operators",)
    if program == "mha":
        return ("no weights",) if slopes else ("weights", "no weights")
    return () if slopes and program in LAYERS else OF_DEVICES[device]


def measure(error: Array, bound: Bound) -> tuple[float, float, float, float, float]:
    """Return the largest error/worst, error/tolerance and (error - hard)/sigma, rms (of 64 or more), and coverage."""
    error = np.where(bound.judged, np.nan_to_num(np.abs(error), nan=np.inf), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = (error / bound.worst, error / bound.tolerance, np.maximum(error - bound.hard, 0.0) / bound.sigma)
        ratios = [float(np.where(error == 0.0, 0.0, part).max()) for part in parts]
    rms = root_mean_square(error, bound) if error.size >= RMS_ELEMENTS else 0.0
    return ratios[0], ratios[1], ratios[2], rms, bound.coverage


def calibrate(program: str, dtype: str, variant: str, count: int, *, slopes: bool) -> Iterator[str]:
    """Yield a line of the table for each output or gradient, and one for each error with which the kernel refuses."""
    rows: dict[str, list[tuple[float, ...]]] = {}
    refused: dict[str, int] = {}
    # In half precision, only the path that returns weights and separate operators round after each step.
    stepwise = variant in ("weights", "operators") and dtype.endswith("16")
    fused = fused_profile(dtype, torch.get_default_device().type) if variant in FUSED else Profile.ordinary(dtype)
    profile = Profile.naive(dtype) if stepwise else fused
    for problem in problems(program, dtype, count):
        problem = differentiated(problem) if slopes else problem  # noqa: PLW2901 - the same problem, other outputs
        try:
            actual = PROGRAMS[program](problem, variant)
        except RuntimeError as error:
            said = str(error).splitlines()[0]
            refused[said] = refused.get(said, 0) + 1
            continue
        answer = evaluate(problem, {}, profile.score)
        bounds = bound_reply(answer, profile)
        for name, result in actual.items():
            off = result.detach().double().cpu().numpy() - answer.reply[name].values
            rows.setdefault(name, []).append(measure(off, bounds[name]))
    for name, found in rows.items():
        a, b, need, rms, coverage = np.array(found).T
        cells = (len(found), a.max(), b.max(), need.max(), rms.max(), (b > 1).sum(), coverage.mean())
        yield f"{f'{program} {dtype} {variant} {name}':38}" + "".join(f"{cell:9.3g}" for cell in cells)
    for said, times in refused.items():
        yield f"{f'{program} {dtype} {variant}':38}{times:9d} refused: {said}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=180, help="random problems per row (default 180)")
    parser.add_argument("--program", choices=PROGRAMS, action="append", help="programs (default: all)")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="dtypes (default: all)")
    parser.add_argument("--gradients", action="store_true", help="of gradients instead of outputs")
    parser.add_argument("--device", choices=OF_DEVICES, default="cpu", help="where to compute (default: cpu)")
    torch.set_num_threads(1)
    options = parser.parse_args()
    torch.set_grad_enabled(options.gradients)
    torch.set_default_device(options.device)
    print(" " * 38 + "    cases     maxA     maxB     need      rms    false coverage")
    for program, dtype in itertools.product(options.program or PROGRAMS, options.dtype or DTYPES):
        for variant in variants_of(program, options.device, slopes=options.gradients):
            rows = calibrate(program, dtype, variant, options.cases, slopes=options.gradients)
            print("\n".join(rows), flush=True)


if __name__ == "__main__":
    main()
