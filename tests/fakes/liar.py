"""An adapter that misbehaves in one call (see `_honest.lies`), in the way its variant says."""

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.bridge import Call, Declaration, Facts, Unsupported, framework_call

from ._honest import honest, honest_declaration, honest_evidence, lies

NAME = "fake.liar"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output", "weights"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu", "cuda"]
CAPABILITIES = ["scale", "value_dim"]
SLOTS = {
    "attn_mask": {
        "role": "mask",
        "takes": ["key_padding", "attention", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "bool": "attend",
    },
}
VARIANTS: dict[str, dict[str, str]] = {
    "honest": {},
    "segfault": {},
    "abort": {},
    "exit": {},
    "exit_zero": {},
    "system_exit": {},
    "hang": {},
    "hang_holding_gil": {},
    "hang_flooding": {},
    "flood_stdout": {},
    "flood_stderr": {},
    "read_stdin": {},
    "too_large": {},
    "long_message": {},
    "missing_output": {},
    "no_mapping": {},
    "raise_inside": {},
    "raise_outside": {},
    "raise_in_declare": {},
    "declare_nothing": {},
    "decline": {},
    "decline_late": {},
    "never_call": {},
    "slow": {},
    "fork_and_die": {},
    "fork_away_and_die": {},
    "memory": {},
    "wrong_dtype": {},
    "odd_dtype": {},
    "speak_protocol": {},
    "close_everything": {},
    "die_later": {},
    "lose_cuda": {},
}

MEGABYTE = b"x" * (1 << 20)


def declare(facts: Facts) -> Declaration:
    if lies(facts) and facts.variant == "raise_in_declare":
        raise LookupError("no such kernel in the table")
    if lies(facts) and facts.variant == "declare_nothing":
        return None  # type: ignore[return-value]
    return honest_declaration(facts)


def sdpa(call: Call) -> Any:
    if lost_cuda:
        raise RuntimeError(lost_cuda[0])
    lie = CALLS.get(call.facts.variant) if lies(call.facts) else None
    if lie is not None:
        return lie(call)
    with framework_call():
        return honest(call)


evidence = honest_evidence


def devices() -> list[str]:
    return ["cpu"]


def _flood(stream: int) -> None:
    for _ in range(32):
        os.write(stream, MEGABYTE)
    print("and a word in between")  # noqa: T201 - to fd 1, which is the protocol's no more


def _then_honest(act: Callable[[], object]) -> Callable[[Call], Any]:
    def answer(call: Call) -> Any:
        with framework_call():
            act()
            return honest(call)

    return answer


def _hang_flooding() -> None:
    while True:
        os.write(1, MEGABYTE)


def _fork(*, away: bool) -> None:
    """Leave a child behind that holds every pipe of its parent, and die."""
    if os.fork():
        os._exit(1)
    if away:
        os.setsid()
    time.sleep(5 if away else 3600)
    os._exit(0)


def _raise(error: BaseException) -> Callable[[Call], Any]:
    def answer(_: Call) -> Any:
        raise error

    return answer


def _speak_protocol() -> None:
    for descriptor in range(3, 20):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"hello, I am a framework and print wherever I like\n")


def _die_later() -> None:
    threading.Timer(0.15, os._exit, [9]).start()


def _without(_: Call) -> dict[str, Any]:
    with framework_call():
        return {"something": np.zeros(3)}


def _cast(dtype: str) -> Callable[[Call], Any]:
    def answer(call: Call) -> Any:
        with framework_call():
            return {name: array.astype(dtype) for name, array in honest(call).items()}

    return answer


def _no_mapping(call: Call) -> Any:
    with framework_call():
        return [honest(call)["output"]]


def _too_large(_: Call) -> dict[str, Any]:
    with framework_call():
        return {"output": np.zeros(1 << 22)}


def _decline_late(call: Call) -> Any:
    with framework_call():
        honest(call)
    raise Unsupported("I have seen the result and do not like it")


def _read_stdin() -> None:
    assert not sys.stdin.read()


# The error of an assertion in a CUDA kernel, once there was one: then every later call of the process raises it too.
lost_cuda: list[str] = []


def _lose_cuda() -> None:
    lost_cuda.append("CUDA error: device-side assert triggered")
    raise RuntimeError(lost_cuda[0])


CALLS: dict[str, Callable[[Call], Any]] = {
    "segfault": _then_honest(lambda: os.kill(os.getpid(), signal.SIGSEGV)),
    "abort": _then_honest(os.abort),
    "exit": _then_honest(lambda: os._exit(3)),
    "exit_zero": _then_honest(lambda: os._exit(0)),
    "system_exit": _then_honest(lambda: sys.exit("I am done here")),
    "hang": _then_honest(lambda: time.sleep(3600)),
    "hang_holding_gil": _then_honest(lambda: ctypes.PyDLL(None).sleep(3600)),
    "hang_flooding": _then_honest(_hang_flooding),
    "flood_stdout": _then_honest(lambda: _flood(1)),
    "flood_stderr": _then_honest(lambda: _flood(2)),
    "read_stdin": _then_honest(_read_stdin),
    "too_large": _too_large,
    "long_message": _raise(ValueError("no " * 1_000_000)),
    "missing_output": _without,
    "no_mapping": _no_mapping,
    "raise_inside": _then_honest(lambda: np.zeros(3).reshape(2, 2)),
    "raise_outside": _raise(ZeroDivisionError("before the framework was called")),
    "decline": _raise(Unsupported("no batch of 13: an odd superstition")),
    "decline_late": _decline_late,
    "never_call": honest,
    "slow": _then_honest(lambda: time.sleep(0.3)),
    "fork_and_die": _then_honest(lambda: _fork(away=False)),
    "fork_away_and_die": _then_honest(lambda: _fork(away=True)),
    "memory": _then_honest(lambda: np.empty(1 << 58)),
    "wrong_dtype": _cast("float16"),
    "odd_dtype": _cast("complex64"),
    "speak_protocol": _then_honest(_speak_protocol),
    "close_everything": _then_honest(lambda: os.closerange(3, 64)),
    "die_later": _then_honest(_die_later),
    "lose_cuda": _then_honest(_lose_cuda),
}
