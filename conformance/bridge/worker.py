"""
The worker process: loads an adapter and answers requests until the coordinator closes its side.

The coordinator may send another adapter of the same subject, such as one that declares more; then the worker greets
again.

It imports nothing but a copy of the bridge. Before the adapter is loaded, the protocol moves to private duplicates of
file descriptors 0 and 1. From then on fd 0 is empty and fd 1 is stderr, since frameworks print.
"""

import atexit
import ctypes
import faulthandler
import importlib.metadata
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from io import FileIO
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from conformance.bridge.loading import digest, load
from conformance.bridge.messages import LOAD, PROTOCOL, answer_message, read_request
from conformance.bridge.serving import answer, error_record, evidence_of, has_lost_cuda
from conformance.bridge.wire import Message, WireError, read, write

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main() -> NoReturn:
    """Read the options (a JSON object) from the command line, serve requests, and exit without interpreter shutdown."""
    code = _run()
    atexit._run_exitfuncs()  # noqa: SLF001 - exit handlers run; freeing all modules would take a second
    sys.stderr.flush()
    os._exit(code)


def _run() -> int:
    options = json.loads(sys.argv[1])
    requests, answers = _private_channel()
    _tie_to_coordinator(options["coordinator"])
    _offer_to_oom_killer()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    load: Message | None = Message(LOAD, options)
    while load is not None:
        try:
            adapter, hello = _prepared(load.fields)
        except BaseException as error:  # noqa: BLE001 - including SystemExit: the coordinator needs the reason
            write(answers, Message("failed", error_record(error)))
            return 1
        write(answers, hello)
        try:
            load = _serve(adapter, requests, answers)
        except _LostCudaError:
            sys.stderr.write("worker: no call in this process can use CUDA any more\n")
            return 1
    write(answers, Message("bye", _usage()))
    return 0


def _private_channel() -> tuple[FileIO, FileIO]:
    """Duplicate fd 0 and 1 for the protocol; make fd 0 empty and fd 1 stderr for everybody else."""
    requests, answers = FileIO(os.dup(0), "r"), FileIO(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _tie_to_coordinator(coordinator: int) -> None:
    """Make this process die with the coordinator (Linux; elsewhere a worker notices at its next read)."""
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(_PR_SET_CHILD_SUBREAPER, 1)  # orphaned grandchildren become its children, so that they can be killed
        if os.getppid() != coordinator:
            sys.exit("the coordinator has exited")


def _offer_to_oom_killer() -> None:
    """Let the kernel kill this worker first if memory runs out: that costs one verdict, not the whole run."""
    if sys.platform == "linux":
        with suppress(OSError):  # a sandbox may hide /proc; then the kernel chooses
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _prepared(options: Mapping[str, Any]) -> tuple[ModuleType, Message]:
    path = Path(options["adapter"])
    adapter = load(path)
    _need_device(adapter, options["device"])
    hello = {
        "protocol": PROTOCOL,
        "digest": digest(path),
        "python": sys.version.split()[0],
        "versions": _versions(options["distributions"]),
        "device": options["device"],
        "evidence": evidence_of(adapter),
        **_usage(),
    }
    return adapter, Message("hello", hello)


def _need_device(adapter: ModuleType, device: str) -> None:
    """Raise RuntimeError if the framework does not see the device; the CPU always exists."""
    if device == "cpu":
        return
    seen = list(adapter.devices())
    if device not in seen:
        raise RuntimeError(f"the framework sees no device {device!r}, only {', '.join(map(repr, seen))}")


def _versions(distributions: list[str]) -> dict[str, str]:
    versions = {}
    for name in distributions:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _usage() -> dict[str, Any]:
    """CPU seconds and peak memory of this process so far (in bytes; 0 if the system does not say)."""
    return {"cpu": time.process_time(), "peak": _peak()}


def _peak() -> int:
    with suppress(OSError):
        _, found, rest = Path("/proc/self/status").read_bytes().partition(b"VmHWM:")
        if found:
            return int(rest.split(maxsplit=1)[0]) * 1024
    return 0


class _LostCudaError(Exception):
    """No call in this process can use CUDA any more."""


def _serve(adapter: ModuleType, requests: FileIO, answers: FileIO) -> Message | None:
    """
    Answer requests until there are no more; return the message that asks for another adapter, if any.

    Raises:
        _LostCudaError: a call failed after which this process cannot compute any more.
    """
    while (message := read(requests)) is not None and message.kind != LOAD:
        request = read_request(message)
        write(answers, Message("began", {"number": request.number, "cpu": time.process_time()}))
        reply = replace(answer(adapter, request), peak=_peak())
        try:
            frame = answer_message(reply)
            write(answers, frame)
        except WireError as error:
            lean = replace(reply, status="error", outputs={}, evidence={}, reason="")
            write(answers, answer_message(replace(lean, error={**error_record(error), "stage": "adapter"})))
        if has_lost_cuda(reply):
            raise _LostCudaError
    return message
