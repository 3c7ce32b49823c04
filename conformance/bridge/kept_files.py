"""Bytes that take seconds to make and milliseconds to read, such as an exported model, kept for later processes."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path


def kept(key: str, make: Callable[[], bytes], suffix: str) -> bytes:
    """
    What `make` returns, from the folder that CONFORMANCE_CACHE names if an earlier process kept it there.

    `key` is everything that could change the bytes: equal keys mean equal bytes. Without the variable nothing is kept.
    Several processes may use one folder: a file appears whole or not at all, and may be removed at any time.
    """
    folder = os.environ.get("CONFORMANCE_CACHE")
    if not folder:
        return make()
    file = Path(folder) / f"{hashlib.sha256(key.encode()).hexdigest()}{suffix}"
    try:
        return file.read_bytes()
    except FileNotFoundError:
        made = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(made)
    unfinished.replace(file)
    return made
