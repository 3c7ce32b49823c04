"""
Inspect the function to check: load it, read its parameters, make plain calls.

This module runs in the worker that later serves the judged calls, so that a framework is imported once.
"""

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from conformance.checking.array_layouts import PASSED, missing_device
from conformance.checking.layer import (
    ARRAYS_OF,
    BUILT_WITH,
    FORWARD,
    OF_CONSTRUCTOR,
    OF_ONE_HEAD,
    Projections,
    constructed,
    family,
    projections_of,
)
from conformance.checking.signature import (
    BIASES,
    LAYOUTS,
    MASKS,
    NOTHING,
    Parameter,
    Signature,
    Sizes,
    read_signature,
    sizes_of,
)
from conformance.checking.target import INSTEAD, CheckError
from conformance.checking.trial import DEFAULTS, OF_DEVICES, SEED, SIZES, Trial, device_hint, failure_text, plain_call
from conformance.spec.problem import AXES

# The width of plain calls, and the number of heads of a layer whose width its constructor sets.
WIDTH = SIZES["num_heads"] * SIZES["head_dim"]
FEW_HEADS = 2

OF_SDPA = "--head-dim and --seq-len-multiple are for functions without projections (sdpa)"

# The method of a class whose instances cannot be called themselves.
USUAL_METHODS = ("forward", "call")

VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def inspected(request: Mapping[str, Any]) -> dict[str, Any]:
    """The signature of the function, or why it cannot be called: `{"error": "..."}`."""
    try:
        return {"signature": asdict(look(request))}
    except CheckError as error:
        return {"error": str(error)}


def look(request: Mapping[str, Any]) -> Signature:
    """
    Find out how the function is called, with plain calls.

    Raises:
        CheckError: the function cannot be loaded or called; the message says what was tried.
    """
    found, method = load(request)
    operator, mapping = request.get("operator"), request.get("mapping", {})
    built: dict[str, str] | None = None
    projections: Projections | None = None
    function = found
    if inspect.isclass(found):
        built = constructor(request["function"], found, mapping)
        mapping = {name: role for name, role in mapping.items() if built.get(name) != role}
        made = build(found, built, request["path"], request.get("device"))
        device = _device_of(request["function"], made, request.get("device"))
        method = method or ("" if callable(made) else next(filter(partial(hasattr, made), USUAL_METHODS), ""))
        function, projections = instance(made, method, request["path"], device)
        if projections is not None and projections.outputs == SIZES["num_heads"] * WIDTH:
            built = {name: "head_dim" if name in OF_ONE_HEAD else role for name, role in built.items()}
        operator = operator or ("sdpa" if projections is None else "mha")
    else:
        device = _device_of(request["function"], found, request.get("device"))
        if family(found):
            _refuse_weights(request["function"], found)
    with _method_explained(request["function"], found):
        called = read_signature(
            request["function"], parameters(forward(function)), operator, mapping, layer=projections is not None
        )
    if family(found) == "keras":  # with a single array, Keras itself passes `mask` by name
        called = replace(called, placed=tuple(role for role in called.placed if role not in (*MASKS, NOTHING)))
    signature = replace(
        called,
        built=built,
        method=method,
        biased=all(projections.biased.values())
        if projections
        else "params" in called.names or set(BIASES) <= called.names.keys(),
        projected="o" in projections.biased if projections else called.projected,
        device=device,
        sizes=sizes_of(request.get("sizes", {})),
    )
    if signature.sizes.are_limited and signature.operator == "mha":
        raise CheckError(f"{OF_SDPA}; {request['function']} is checked as mha")
    if signature.has_own_weights:
        signature = replace(signature, sizes=_sizes_of_layer(request["function"], signature, projections))
    frameworks = [request["framework"]] if request.get("framework") else wanted(forward(function))
    layouts = [request["layout"]] if request.get("layout") else list(LAYOUTS)
    trial = Trial(request["function"], found if built is not None else function, signature, request["path"])
    own = ARRAYS_OF.get(family(found))
    return trial.settled(_usable([own] if own else frameworks, device), layouts)


def _sizes_of_layer(called: str, signature: Signature, projections: Projections | None) -> Sizes:
    """
    Return the sizes that a layer takes, or a function with an argument for each weight.

    It has one head if nothing tells it the number of heads. If its constructor sets the width, its heads share that.

    Raises:
        CheckError: a projection of head_dim inputs serves all heads, so there is no width.
    """
    told = {"num_heads", "config"} & {*signature.names, *(signature.built or {}).values()}
    if projections is None or projections.inputs == WIDTH:
        return Sizes() if told else Sizes(num_heads=1)
    if told and projections.inputs == projections.outputs == SIZES["head_dim"]:
        raise CheckError(
            f"the query projection of {called} is (head_dim, head_dim), one for all heads, but that of multi-head "
            "attention is (num_heads * head_dim, num_heads * head_dim): check what follows the projections, as a "
            "function of query, key and value"
        )
    heads = FEW_HEADS if told and projections.inputs % FEW_HEADS == 0 else 1
    return Sizes((projections.inputs // heads,), num_heads=heads)


def forward(function: Any) -> Any:
    """Return the callable that has the parameters: the object itself, or a method of an instance of a layer."""
    own = "" if inspect.isclass(function) else FORWARD.get(family(function), "")
    return getattr(function, own) if own else function


def _refuse_weights(called: str, module: Any) -> None:
    """
    Accept a PyTorch or Equinox instance only if it has no weights; Flax instances show theirs only when called.

    Raises:
        CheckError: the instance has weights.
    """
    kind = family(module)
    if kind == "torch" and not any(True for _ in module.parameters()):
        module.eval()
    elif kind != "equinox" or sys.modules["jax"].tree_util.tree_leaves(module):
        raise CheckError(
            f"{called} is an instance of {type(module).__name__} with weights of fixed sizes: give the class instead, "
            f"{INSTEAD}"
        )


@contextlib.contextmanager
def _method_explained(called: str, found: Any) -> Iterator[None]:
    """Say, if a method of a layer with weights does not take query, key and value, that its class is needed."""
    try:
        yield
    except CheckError:
        layer = found.__self__ if inspect.ismethod(found) else None
        if not family(layer) or inspect.isclass(layer) or not _has_weights(layer):
            raise
        kind = type(layer).__name__
        raise CheckError(
            f"{called} is a method of an instance of {kind} with weights of fixed sizes: give the class or its method "
            f"instead, such as {kind} or {kind}.{found.__name__}, {INSTEAD}"
        ) from None


def _has_weights(layer: Any) -> bool:
    """Return whether an instance has weights; one of Flax shows them only when it is called, so it counts as such."""
    return family(layer) != "torch" or any(True for _ in layer.parameters())


def _device_of(called: str, module: Any, stated: str | None) -> str:
    """
    Return the stated device, or that of all parameters and buffers of a PyTorch module, or cpu.

    Raises:
        CheckError: a parameter or a buffer is on another device.
    """
    if family(module) != "torch":
        return stated or "cpu"
    named = [*module.named_parameters(), *module.named_buffers()]
    found = {tensor.device.type for _, tensor in named}
    device = stated or ("cuda" if found == {"cuda"} else "cpu")
    elsewhere = [(name, tensor.device) for name, tensor in named if tensor.device.type != device]
    if elsewhere:
        name, other = elsewhere[0]
        more = f" and {len(elsewhere) - 1} more" if elsewhere[1:] else ""
        raise CheckError(
            f"{called} has {name}{more} on {other}, but {PASSED[device]}: build the module without a device, or move "
            f"it with .to('{device}')"
        )
    return device


def _usable(frameworks: Sequence[str], device: str) -> list[str]:
    """
    Return the frameworks whose arrays can be on the device.

    Raises:
        CheckError: there is none.
    """
    usable = [each for each in frameworks if not missing_device(each, device)]
    if not usable:
        raise CheckError(f"--device {device}: {missing_device(frameworks[0], device)}")
    return usable


def constructor(called: str, kind: Any, mapping: Mapping[str, str]) -> dict[str, str]:
    """
    Return the arguments of a constructor that check passes: name -> role.

    mapping: argument -> role, as the user states; entries with roles of other functions are ignored.

    Raises:
        CheckError: the constructor requires an argument that check does not know.
    """
    roles = OF_CONSTRUCTOR | {name: role for name, role in mapping.items() if role in BUILT_WITH}
    found = {each.name: roles[each.name] for each in parameters(kind) if each.name in roles}
    for each in parameters(kind):
        if each.name not in found and each.default is None:
            raise CheckError(
                f"{called}(...) needs an argument {each.name!r} that check does not know: name its role with --map "
                f"{each.name}=ROLE, where ROLE is one of {', '.join(BUILT_WITH)}; or give it a default, or check a "
                f"subclass that sets it"
            )
    return found


def build(kind: Any, built: Mapping[str, str], path: str, device: str | None) -> Any:
    """
    Build an instance for the plain call; a PyTorch module is moved to the stated device.

    Raises:
        CheckError: the instance cannot be built.
    """
    with _explained(kind, path, device or "cpu"):
        made = kind(**constructed(built, plain_call("mha", SIZES, {}, SEED).facts))
        return made.to(device) if device and family(made) == "torch" else made


def instance(made: Any, method: str, path: str, device: str) -> tuple[Any, Projections | None]:
    """
    Return an instance or its method, and its projections, if it has weights.

    Raises:
        CheckError: the weights cannot be created, or the projections are not found.
    """
    with _explained(type(made), path, device):
        function = getattr(made, method) if method else made
        return function, _projections(made, parameters(forward(function)))


def _projections(made: Any, taken: Sequence[Parameter]) -> Projections | None:
    """Return the projections of an instance; a mask without a default may have to be one."""
    call = plain_call("mha", {**SIZES, "seq_len_k": SIZES["seq_len_q"]}, {}, SEED)
    modes = {each.name: DEFAULTS[each.role] for each in taken if each.role in ("training", "deterministic")}
    required = [each for each in taken if each.positional and each.default is None and each.name not in modes]

    def with_mask(axes: str) -> Projections | None:
        arrays = iter((call.query.bits, call.key.bits, call.value.bits))
        mask = np.ones([SIZES[AXES[axis]] for axis in axes], dtype=bool) if axes else None
        given = [mask if each.role in MASKS else next(arrays, None) for each in required]
        return projections_of(made, given or [call.query.bits], modes)

    if any(each.role in MASKS for each in required):
        for axes in ("bq", "bhqq"):
            with contextlib.suppress(Exception):  # of the user's class, which may take None or other axes
                return with_mask(axes)
    return with_mask("")


@contextlib.contextmanager
def _explained(kind: type, path: str, device: str) -> Iterator[None]:
    """Turn whatever the user's class raises into a CheckError with what to do."""
    try:
        yield
    except CheckError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the user's class raises
        reason = failure_text(error, path)
        hint = f"\n  {device_hint(device)}" if family(kind) == "torch" and OF_DEVICES.search(reason) else ""
        raise CheckError(f"{kind.__name__} cannot be built: {reason}{hint}") from None


def load(request: Mapping[str, Any]) -> tuple[Any, str]:
    """
    Import the file, and return the function and ""; for a method, return its class and the name of the method.

    Raises:
        CheckError: the file cannot be imported.
    """
    sys.dont_write_bytecode = True
    sys.path[:0] = request["folders"]
    os.chdir(request["here"])
    try:
        if request["is_imported"]:
            module: ModuleType = importlib.import_module(request["module"])
        else:
            specification = importlib.util.spec_from_file_location(f"_own_{request['module']}", request["path"])
            assert specification is not None and specification.loader is not None  # noqa: S101, PT018 - it ends in .py
            module = importlib.util.module_from_spec(specification)
            sys.modules[specification.name] = module
            specification.loader.exec_module(module)
        found: Any = module
        for name in request["function"].split("."):
            if inspect.isclass(found) and not isinstance(
                inspect.getattr_static(found, name), staticmethod | classmethod
            ):
                return found, name
            found = getattr(found, name)
    except BaseException as error:  # noqa: BLE001 - whatever the user's file raises
        raise CheckError(f"{request['path']} cannot be imported: {failure_text(error, request['path'])}") from None
    return found, ""


def parameters(function: Any) -> tuple[Parameter, ...]:
    """
    Return the parameters of a callable, without *args and **kwargs.

    Raises:
        CheckError: the object is not callable, or it is compiled code that does not tell its parameters.
    """
    try:
        found = list(inspect.signature(function).parameters.values())
        if inspect.isclass(function) and all(
            each.kind in VARIABLE for each in found
        ):  # nnx: a metaclass hides __init__
            found = list(inspect.signature(function.__init__).parameters.values())[1:]
    except (TypeError, ValueError):
        if not callable(function):
            raise CheckError(f"{function!r} cannot be called with arrays") from None
        raise CheckError(
            f"the arguments of {function!r} cannot be read, because it is compiled: write a function with named "
            f"arguments that calls it, and check that"
        ) from None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(
        Parameter(
            name=each.name,
            positional=each.kind in positional,
            positional_only=each.kind is inspect.Parameter.POSITIONAL_ONLY,
            default=None if each.default is inspect.Parameter.empty else repr(each.default),
            annotation="" if each.annotation is inspect.Parameter.empty else str(each.annotation),
        )
        for each in found
        if each.kind not in VARIABLE
    )


def wanted(function: Any) -> list[str]:
    """
    Return the frameworks to try: first those that the function uses, then those that its file imports.

    If it names none, every installed framework is tried.
    """
    plain = inspect.unwrap(getattr(function, "func", function))
    plain = getattr(plain, "__func__", plain)
    names = getattr(plain, "__globals__", {})
    used = set(_packages(names.get(name) for name in _named(plain, names)))
    used |= {root for root in ("torch", "jax", "numpy") if root in _annotations(plain)}
    used |= {type(function).__module__.partition(".")[0]}
    imported = set(_packages(names.values()))
    first = [each for each in ("torch", "jax") if each in used]
    second = [each for each in ("torch", "jax") if each in imported and each not in used]
    usual = ["numpy"] if "numpy" in used or not (first or second) else []
    anywhere = () if {"numpy", *first, *second} & (used | imported) else _installed()
    return list(dict.fromkeys((*first, *usual, *second, "numpy", *anywhere)))


def _annotations(plain: Any) -> str:
    found = " ".join(str(each) for each in getattr(plain, "__annotations__", {}).values())
    return found.replace("Tensor", "torch").replace("jnp", "jax").replace("np.", "numpy")


def _named(plain: Any, names: Mapping[str, Any], depth: int = 3) -> Iterator[str]:
    """Yield the globals that a function uses, also through functions of its file that it calls."""
    code = getattr(plain, "__code__", None)
    for name in () if code is None else code.co_names:
        yield name
        if depth and inspect.isfunction(names.get(name)) and names[name].__globals__ is names:
            yield from _named(names[name], names, depth - 1)


def _packages(values: Any) -> Iterator[str]:
    """Yield the top-level packages of modules and functions; flax and equinox count as jax."""
    for value in values:
        name = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        root = str(name).partition(".")[0]
        yield {"flax": "jax", "equinox": "jax", "jaxlib": "jax"}.get(root, root)


def _installed() -> list[str]:
    return [each for each in ("torch", "jax") if importlib.util.find_spec(each) is not None]
