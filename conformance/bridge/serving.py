"""
Answers one request with a loaded adapter: checks requirements, declares, calls, and reports errors with their stage.

No exception of an adapter or framework leaves `answer`; the coordinator notices if the process dies.
"""

import re
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

from conformance.bridge.contract import (
    SECOND_CALL,
    Declaration,
    Unsupported,
    begin_call,
    framework_was_entered,
    left_from_framework,
)
from conformance.bridge.messages import Answer, Request
from conformance.bridge.strict_json import plain_data
from conformance.bridge.tensor import Tensor

# Maximum number of characters of a message or traceback; the end is kept, which names the cause.
_MAX_TEXT = 16_000

# How PyTorch, JAX and CuPy report errors of the CUDA driver and runtime, other than a lack of memory.
_LOST_CUDA = re.compile(r"(CUDA error: |CUDA_ERROR_|cudaError)(?!out of memory|OUT_OF_MEMORY|MemoryAllocation)")


def answer(adapter: ModuleType, request: Request) -> Answer:
    """Answer a request: check its requirements, get the declaration, make the call, collect the evidence."""
    stage = "declare"
    so_far = Answer(request.number, "unsupported")
    lacking = sorted(set(request.requirements) - {SECOND_CALL} - set(_fact(adapter, request, "CAPABILITIES")))
    if lacking:
        return replace(so_far, reason=f"does not support: {', '.join(lacking)}")
    begin_call()
    seconds: dict[str, float] = {}
    try:
        so_far = replace(so_far, declaration=_declared(adapter, request))
        stage = "adapter"
        outputs = _called(adapter, request, seconds)
        evidence = {**evidence_of(adapter), "dtypes": {name: tensor.dtype for name, tensor in outputs.items()}}
        return replace(so_far, status="reply", outputs=outputs, evidence=evidence, seconds=seconds)
    except Unsupported as refusal:
        if not framework_was_entered():
            return replace(so_far, reason=str(refusal) or "declined without giving a reason")
        return _failed(replace(so_far, seconds=seconds), refusal, stage)
    except BaseException as error:  # noqa: BLE001 - including SystemExit: whatever an adapter raises is its answer
        return _failed(replace(so_far, seconds=seconds), error, "framework" if left_from_framework() else stage)


def _fact(adapter: ModuleType, request: Request, name: str) -> Any:
    overrides = getattr(adapter, "VARIANTS", {}).get(request.call.facts.variant, {})
    return overrides.get(name, getattr(adapter, name, ()))


def _declared(adapter: ModuleType, request: Request) -> Declaration:
    declaration = adapter.declare(request.call.facts)
    if not isinstance(declaration, Declaration):
        raise TypeError(f"declare() returned {type(declaration).__name__}, expected a Declaration")
    return declaration


def _called(adapter: ModuleType, request: Request, seconds: dict[str, float]) -> dict[str, Tensor]:
    """
    The outputs of the operator. seconds: is given the time that it took, also if it raises an exception.

    A second call is timed together with the first one, which compiles.
    """
    operator = getattr(adapter, request.call.facts.operator)
    with _timed(seconds):
        if SECOND_CALL in request.requirements:  # arrays, layers and sessions keep what the first call left in them
            operator(request.call)
        results = operator(request.call)
    if not framework_was_entered():
        raise RuntimeError("the adapter returned without calling the framework inside framework_call()")
    return _asked_for(results, request)


@contextmanager
def _timed(seconds: dict[str, float]) -> Iterator[None]:
    """Write the wall time ("call") and the CPU time ("cpu") of the block into `seconds`."""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        seconds |= {"call": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def _asked_for(results: Any, request: Request) -> dict[str, Tensor]:
    if not isinstance(results, Mapping):
        raise TypeError(f"the adapter returned {type(results).__name__}, expected a mapping of output names to arrays")
    wanted = request.call.facts.outputs
    missing = [name for name in wanted if name not in results]
    if missing:
        raise KeyError(f"the call requests {', '.join(wanted)}; the adapter returned no {', '.join(missing)}")
    outputs = {name: Tensor.of(results[name]) for name in wanted}
    size = sum(tensor.bits.nbytes for tensor in outputs.values())
    if size > request.limit:
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in outputs.items())
        raise ValueError(f"the reply has {size} bytes ({shapes}), expected at most {request.limit}")
    return outputs


def evidence_of(adapter: ModuleType) -> dict[str, Any]:
    """
    The evidence of the adapter about what really ran, as JSON values.

    Raises:
        TypeError: the evidence is not a mapping of names to JSON values.
    """
    evidence = plain_data(adapter.evidence() if hasattr(adapter, "evidence") else {})
    if not isinstance(evidence, dict):
        raise TypeError(f"evidence() returned {type(evidence).__name__}, expected a mapping")
    return evidence


def _failed(so_far: Answer, error: BaseException, stage: str) -> Answer:
    return replace(so_far, status="error", error={**error_record(error), "stage": stage})


def has_lost_cuda(answer: Answer) -> bool:
    """
    Whether a call failed with an error after which every CUDA call of the process fails.

    An assertion or an illegal memory access in a kernel is such an error: the CUDA context is lost. Running out of
    memory is not.
    """
    return answer.error is not None and _LOST_CUDA.search(answer.error["message"]) is not None


def error_record(error: BaseException) -> dict[str, str]:
    """
    Type, message and traceback of an exception, each of bounded length; lone surrogates are escaped.

    The message of an exception without a text, such as that of a bare `assert`, is the line that raised it.
    """
    report = traceback.TracebackException.from_exception(error)
    text = "".join(report.format_exception_only()).strip()
    line = report.stack[-1].line if report.stack else ""
    has_text = text.rpartition(".")[2] != type(error).__name__
    record = {
        "type": type(error).__name__,
        "message": text.split(": ", 1)[-1] if has_text or not line else line,
        "traceback": "".join(report.format()),
    }
    return {name: text.encode(errors="backslashreplace").decode()[-_MAX_TEXT:] for name, text in record.items()}
