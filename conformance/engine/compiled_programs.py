"""The folder in which workers keep what frameworks compiled: programs of JAX and models that adapters exported."""

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from conformance import places
from conformance.engine.environments import fingerprint_of

FOLDER = "compiled"

# Maximum size in bytes of all kept files; beyond it the oldest files are removed.
LIMIT = 1 << 29

# The part of the limit that stays when files are removed.
KEPT = 0.8

# Distributions that compile for seconds what they can read back in milliseconds.
COMPILERS = frozenset({"jax", "onnx"})

# Variables that make JAX keep every program, however small and quick to compile.
JAX_FOLDER = "JAX_COMPILATION_CACHE_DIR"
JAX_SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def kept_folder(python: str, distributions: Iterable[str]) -> str:
    """
    The folder for one environment on this CPU, or "" if its workers compile nothing that is worth keeping.

    It is named after everything that is installed and after the CPU, so that nothing compiled for another release or
    another instruction set is ever read. An environment with an editable install has no name: its code may change while
    its versions stay. A folder that cannot be written is not used: the run then keeps nothing, and loses nothing.
    """
    if COMPILERS.isdisjoint(distributions) or not (installed := fingerprint_of(python)):
        return ""
    name = hashlib.sha256(json.dumps([installed, cpu()]).encode()).hexdigest()[:16]
    folder = places.cache() / FOLDER / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    return str(folder) if os.access(folder, os.W_OK) else ""


def variables(folder: Path) -> dict[str, str]:
    """Variables of a worker: the folder for exported models, and the cache of compiled programs of JAX in it."""
    return {"CONFORMANCE_CACHE": str(folder), JAX_FOLDER: str(folder / "jax"), **JAX_SETTINGS}


def prune(folder: Path, limit: int = LIMIT) -> None:
    """Remove the oldest files below `folder` if all of them together are larger than `limit` bytes."""
    files = []
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except OSError:  # another run removed it
            continue
        if path.is_file():
            files.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, path in sorted(files):
        if total <= KEPT * limit:
            return
        path.unlink(missing_ok=True)
        total -= size


@cache
def cpu() -> tuple[str, ...]:
    """The lines of /proc/cpuinfo that say which CPU this is and what it can do; its name on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return (platform.processor(),)
    names = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features")
    return tuple(sorted({line for line in text.splitlines() if line.partition("\t")[0].strip() in names}))
