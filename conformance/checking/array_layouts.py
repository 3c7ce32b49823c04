"""
Convert tensors of the bridge to the arrays and the layout that a checked function takes, and convert replies back.

The generated adapter uses this module in the worker: it needs NumPy, the bridge, and the framework of the function.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conformance.bridge import Call, Tensor, strided

# Layout -> for each axis of the function's arrays, its index in (batch, num_heads, seq_len, head_dim).
AXES = {
    "bhsd": (0, 1, 2, 3),
    "bshd": (0, 2, 1, 3),
    "sbhd": (2, 0, 1, 3),
    "bsd": (0, 1, 2, 3),
    "thd": (0, 2, 1, 3),
    "sd": (0, 1, 2, 3),
}

# Layouts of sdpa in which batch and heads are one axis, and layouts without a batch axis.
MERGED = ("bsd", "sd")
SINGLE = ("thd", "sd")

# Layout -> the same for (batch, seq_len, width), where the order differs.
MHA_AXES = {"sbhd": (1, 0, 2)}

# The number 1 in bfloat16, as its bits.
BFLOAT16_ONE = 0x3F80

# Device -> where check passes tensors, in words.
PASSED = {"cpu": "check passes tensors on the CPU", "cuda": "check passes tensors on the CUDA device"}


class PerBatchElement(list[Any]):
    """One array for each batch element, in the layout sd for each head of it; the function is called with each."""


class ArrayLayouts:
    """Converts between tensors of the bridge and arrays of `framework` on `device` with the axes of `layout`."""

    def __init__(self, framework: str, layout: str, device: str = "cpu") -> None:
        self.layout, self._framework, self._device = layout, framework, device
        self._leading: tuple[int, ...] = ()
        self._is_sdpa = False
        self._array, self._back = CONVERTERS[framework](device)

    @property
    def _is_merged(self) -> bool:
        """Return whether the arrays of the call have one axis for batch and heads."""
        return self._is_sdpa and self.layout in MERGED

    def devices(self) -> list[str]:
        """Return the devices on which the framework can have arrays."""
        return [each for each in PASSED if not missing_device(self._framework, each)]

    def evidence(self) -> dict[str, Any]:
        """Return where the function computed; a reply from another device is refused."""
        return {"ran_on": [self._device]}

    def arrays(self, call: Call) -> tuple[Any, Any, Any]:
        """Return query, key and value; if they are one object in the call, they are one array for the function."""
        given = (call.query, call.key, call.value)
        self._leading, self._is_sdpa = call.query.shape[:2], call.facts.operator == "sdpa"
        made = {id(each): self._laid_out(each, call.facts.layout) for each in given}
        query, key, value = (made[id(each)] for each in given)
        return query, key, value

    def mask(self, call: Call, name: str, *, batched: bool = True, numeric: bool = False) -> Any:
        """
        Return a mask argument of the call with the axes of its slot, or None if the call has none.

        numeric: booleans become the numbers 1 and 0 in the dtype of the query.
        """
        tensor = call.arguments.get(name)
        if tensor is None:
            return None
        if numeric and tensor.dtype == "bool":
            tensor = _numbers(tensor, call.query.dtype)
        bits = self._merged(tensor.bits, call.facts.sizes) if batched and self._is_merged else tensor.bits.copy()
        if self.layout not in SINGLE or not batched:
            return self._array(tensor, bits)
        size = len(bits) if self._is_merged else call.facts.sizes["batch"]
        return PerBatchElement(
            self._array(tensor, each.copy()) for each in np.broadcast_to(bits, (size, *bits.shape[1:]))
        )

    def lengths(self, call: Call, name: str) -> Any:
        """
        Return the number of keys of each batch element, (batch,) integers, or None if the call has none.

        If batch and heads are one axis, each number is repeated for every head. A call without a batch axis has one.
        """
        tensor = call.arguments.get(name)
        if tensor is None:
            return None
        bits = np.repeat(tensor.bits, call.facts.sizes["num_heads"] if self._is_merged else 1)
        if self.layout in SINGLE:
            return PerBatchElement(int(each) for each in bits)
        return self._array(tensor, bits)

    @staticmethod
    def window(sides: tuple[int | None, int | None] | None, unlimited: int) -> tuple[int, ...] | None:
        """Return a window with this number for a side without a limit."""
        return None if sides is None else tuple(unlimited if side is None else side for side in sides)

    @staticmethod
    def _merged(bits: Any, sizes: Mapping[str, int]) -> Any:
        """Merge batch and heads of a mask into one axis; a mask with three axes has no heads."""
        by_head = bits if bits.ndim == len(AXES["bhsd"]) else bits[:, None]
        whole = np.broadcast_to(by_head, (sizes["batch"], sizes["num_heads"], *by_head.shape[2:]))
        return whole.reshape(-1, *whole.shape[2:])

    def params(self, call: Call, *, zeros: bool = False) -> dict[str, Any]:
        """Return weights and biases by name; None for a bias that the call does not have, or zeros."""
        names = ("wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo")
        found = {name: call.params[name] for name in names if name in call.params}
        if zeros:
            absent = {f"b{name[1]}": each.bits[0] * 0 for name, each in found.items() if name[0] == "w"}
            found = {name: Tensor(call.params["wq"].dtype, bits) for name, bits in absent.items()} | found
        return {name: self._array(found[name], found[name].bits.copy()) if name in found else None for name in names}

    def call(self, function: Callable[..., Any], arrays: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Call the function; in a layout without a batch axis, call it once for each batch element."""
        every = [*arrays, *keywords.values()]
        count = next((len(each) for each in every if isinstance(each, PerBatchElement)), None)
        if count is None:
            return function(*arrays, **keywords)
        return PerBatchElement(
            function(
                *(_batch_element(each, n) for each in arrays),
                **{name: _batch_element(each, n) for name, each in keywords.items()},
            )
            for n in range(count)
        )

    def output(self, result: Any) -> Tensor:
        """Return the output in our axis order; an output with a wrong shape is returned unchanged."""
        tensor = self._joined(result)
        if self._is_merged:
            return self._split(tensor)
        axes = self._axes(tensor.bits.ndim)
        return Tensor(tensor.dtype, np.ascontiguousarray(tensor.bits.transpose(np.argsort(axes))))

    def weights(self, result: Any) -> Tensor:
        """Return attention weights (batch, num_heads, seq_len_q, seq_len_k); a merged first axis is split."""
        tensor = self._joined(result)
        return self._split(tensor) if self._is_merged else tensor

    def parts(self, result: Any, count: int) -> tuple[Any, ...]:
        """Return the first `count` values of a returned tuple."""
        if not isinstance(result, PerBatchElement):
            return tuple(result[:count])
        return tuple(PerBatchElement(each[n] for each in result) for n in range(count))

    def is_tuple(self, result: Any) -> bool:
        """Return whether the function returned several values."""
        return isinstance(result[0] if isinstance(result, PerBatchElement) and result else result, tuple | list)

    def _split(self, tensor: Tensor) -> Tensor:
        """Split a merged first axis into batch and heads."""
        count = self._leading[0] * self._leading[1]
        if not tensor.shape or tensor.shape[0] != count:
            return tensor
        return Tensor(tensor.dtype, tensor.bits.reshape(*self._leading, *tensor.shape[1:]))

    def _joined(self, result: Any) -> Tensor:
        if not isinstance(result, PerBatchElement):
            return self._back(result)
        tensors = [self._back(each) for each in result]
        return Tensor(tensors[0].dtype, np.stack([each.bits for each in tensors]))

    def _axes(self, rank: int) -> tuple[int, ...]:
        axes = AXES[self.layout] if rank == len(AXES["bhsd"]) else MHA_AXES.get(self.layout, tuple(range(rank)))
        return axes if len(axes) == rank else tuple(range(rank))

    def _laid_out(self, tensor: Tensor, memory: str) -> Any:
        view = strided(tensor, memory).view()
        seen = view.transpose(self._axes(view.ndim))
        seen = np.ascontiguousarray(seen) if memory == "contiguous" or self._is_merged else seen
        seen = seen.reshape(-1, *seen.shape[2:]) if self._is_merged else seen
        if self.layout not in SINGLE:
            return self._array(tensor, seen)
        return PerBatchElement(self._array(tensor, each) for each in seen)


def _numbers(mask: Tensor, dtype: str) -> Tensor:
    """Return the numbers 1 and 0 for True and False."""
    if dtype == "bfloat16":
        return Tensor(dtype, np.where(mask.bits, np.uint16(BFLOAT16_ONE), np.uint16(0)))
    return Tensor(dtype, mask.bits.astype(dtype))


def _batch_element(value: Any, number: int) -> Any:
    return value[number] if isinstance(value, PerBatchElement) else value


Converter = tuple[Callable[[Tensor, Any], Any], Callable[[Any], Tensor]]


def _numpy(_: str) -> Converter:
    return (lambda _, bits: bits), Tensor.of


def _torch(device: str) -> Converter:
    import torch  # noqa: PLC0415 - only where the function takes its tensors

    def array(tensor: Tensor, bits: Any) -> Any:
        if tensor.dtype == "bfloat16":
            return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).to(device)
        return torch.from_numpy(bits).to(device)

    def back(result: Any) -> Tensor:
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"returned {type(result).__name__}, not a torch tensor")
        if result.device.type != device:
            raise TypeError(f"returned a tensor on {result.device}, but {PASSED[device]} and expects its reply there")
        here = result.detach().cpu().contiguous()
        if here.dtype == torch.bfloat16:
            return Tensor("bfloat16", here.view(torch.int16).numpy().view(np.uint16))
        return Tensor.of(here.numpy())

    return array, back


def _jax(device: str) -> Converter:
    import jax  # noqa: PLC0415 - only where the function takes its arrays
    import ml_dtypes  # noqa: PLC0415 - comes with JAX

    def array(tensor: Tensor, bits: Any) -> Any:
        dense = np.ascontiguousarray(bits)
        made = jax.numpy.array(dense.view(ml_dtypes.bfloat16) if tensor.dtype == "bfloat16" else dense)
        return made if device == "cpu" else jax.device_put(made, jax.devices(device)[0])

    def back(result: Any) -> Tensor:
        elsewhere = [str(each) for each in getattr(result, "devices", set)() if each.platform != PLATFORMS[device]]
        if elsewhere:
            raise TypeError(f"computed on {', '.join(elsewhere)}, but {PASSED[device]}: set JAX_PLATFORMS={device}")
        return Tensor.of(np.asarray(result))

    return array, back


# Device -> its platform in JAX.
PLATFORMS = {"cpu": "cpu", "cuda": "gpu"}


def missing_device(framework: str, device: str) -> str:
    """Return why arrays of a framework cannot be on a device, or "" if they can."""
    if device == "cpu":
        return ""
    if framework == "numpy":
        return "NumPy arrays are always on the CPU"
    module = importlib.import_module(framework)
    if framework == "torch":
        return "" if module.cuda.is_available() else "PyTorch sees no CUDA device here"
    found = {each.platform for each in module.devices()}
    return "" if PLATFORMS[device] in found else "JAX sees no CUDA device here"


# Framework -> two functions: from a tensor of the bridge and its bits to an array, and from a result to a tensor.
CONVERTERS = {"numpy": _numpy, "torch": _torch, "jax": _jax}
