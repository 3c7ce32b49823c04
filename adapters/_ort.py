"""Sessions of onnxruntime, and where their nodes ran: shared by the ort, onnx.torch and onnx.keras adapters."""

import ctypes
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto

from conformance.bridge import Profile, Tensor, Unsupported

from ._versions import version

PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
OPTIONS = {"CUDAExecutionProvider": {"use_tf32": "0"}}
BFLOAT16 = "bfloat16"
# Operators that onnxruntime deliberately keeps on the CPU if they only compute shapes.
SHAPES = frozenset(
    "Concat Constant ConstantOfShape Gather Identity Range Shape Size Slice Squeeze Unsqueeze Cast".split()  # noqa: SIM905 - one string is easier to read
)

# For the session that ran last: provider -> operator -> number of nodes assigned to the provider.
ran: dict[str, Counter[str]] = {}


def fed(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the inputs in the form that `run_session` takes.

    NumPy has no bfloat16. If one array is bfloat16, all arrays become OrtValues; otherwise all stay NumPy arrays.

    Raises:
        Unsupported: an array is bfloat16, and the Python interface of the release takes no bfloat16.
    """
    if not any(array.dtype.name == BFLOAT16 for array in inputs.values()):
        return dict(inputs)
    make = getattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type", None)
    if make is None:
        raise Unsupported(f"the Python interface of onnxruntime {onnxruntime.__version__} takes no bfloat16")
    return {
        name: make(array.view(np.uint16), TensorProto.BFLOAT16)
        if array.dtype.name == BFLOAT16
        else onnxruntime.OrtValue.ortvalue_from_numpy(array)
        for name, array in inputs.items()
    }


def _array(value: Any) -> Any:
    """Return an OrtValue as a NumPy array, or as a Tensor if it is bfloat16."""
    if value.element_type() != TensorProto.BFLOAT16:
        return value.numpy()
    size = int(np.prod(value.shape())) * np.dtype(np.uint16).itemsize
    bits = np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.uint16)
    return Tensor(BFLOAT16, bits.reshape(value.shape()).copy())


def open_session(model: bytes, device: str, *, optimised: bool = True) -> Any:
    """
    Return a session with one thread that prefers the device's provider to the CPU provider.

    The session records the provider to which each node is assigned, if the release supports this.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    wanted = dict.fromkeys((PROVIDERS[device], PROVIDERS["cpu"]))
    return onnxruntime.InferenceSession(
        model,
        options,
        providers=list(wanted),
        provider_options=[OPTIONS.get(name, {}) for name in wanted],
    )


@cache
def _kept(model: bytes, device: str, optimised: bool) -> Any:  # noqa: FBT001 - part of the cache key
    return open_session(model, device, optimised=optimised)


def run_model(model: bytes, inputs: Mapping[str, Any], device: str, *, optimised: bool) -> list[Any]:
    """Run a model in a session that is created once for each model, device and optimisation level."""
    return run_session(_kept(model, device, optimised), inputs)


def run_session(session: Any, inputs: Mapping[str, Any]) -> list[Any]:
    """
    Run the session on NumPy arrays or on the result of `fed`, and note in `ran` which provider has which nodes.

    Inputs that the graph does not have are left out.
    """
    ran.clear()
    if hasattr(session, "get_provider_graph_assignment_info"):
        for part in session.get_provider_graph_assignment_info():
            ran.setdefault(part.ep_name, Counter()).update(node.op_type for node in part.get_nodes())
    elif len(providers := session.get_providers()) == 1:  # older releases do not report; one provider has all nodes
        ran[providers[0]] = Counter()
    taken = {node.name for node in session.get_inputs()}
    given = {name: array for name, array in inputs.items() if name in taken}
    if any(isinstance(array, onnxruntime.OrtValue) for array in given.values()):
        return [_array(value) for value in session.run_with_ort_values(None, given)]
    return list(session.run(None, given))


def ort_profile(dtype: str) -> Profile:
    """The arithmetic of onnxruntime's own operators. In float16, they round after each step."""
    return Profile.naive(dtype) if dtype == "float16" else Profile.uniform(dtype)


def ort_devices() -> list[str]:
    """The devices for which onnxruntime has a provider."""
    available = onnxruntime.get_available_providers()
    return [device for device, provider in PROVIDERS.items() if provider in available]


def ort_evidence(*packages: str) -> dict[str, Any]:
    """The versions that run, and the devices to which the nodes of the last session were assigned."""
    devices = {provider: device for device, provider in PROVIDERS.items()}
    computing = [provider for provider, nodes in ran.items() if set(nodes) - SHAPES]
    return {
        "versions": {
            "numpy": np.__version__,
            **{name: version(name) for name in (*packages, "onnxruntime")},
        },
        "device": onnxruntime.get_device(),
        "ran_on": sorted({devices.get(provider, provider) for provider in computing or ran}),
        "nodes": {provider: dict(nodes) for provider, nodes in ran.items()},
        "threads": 1,
    }
