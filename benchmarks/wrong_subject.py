"""
Compare the cost of wrong functions with that of a right one: CPU seconds of `conformance check`, and their ratio.

One function is right. One has a mistake with a name in every call with a mask. One is wrong everywhere in a way that no
decision explains, so the whole search finds nothing. The floor is the right function in the same run.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

FUNCTIONS = """
import numpy as np


def right(query, key, value, mask=None):
    work = np.promote_types(query.dtype, np.float32)
    logits = query.astype(work) @ key.astype(work).swapaxes(-1, -2) / np.sqrt(np.asarray(query.shape[-1], work))
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    peak = logits.max(-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(-1, keepdims=True)
    return (weights / np.where(total == 0, 1, total) @ value.astype(work)).astype(query.dtype)


def inverted(query, key, value, mask=None):
    return right(query, key, value, None if mask is None else ~mask)


def unnamed(query, key, value, mask=None):
    return np.sin(3 * right(query, key, value, mask))
"""


def cpu(command: list[str]) -> float:
    """Return the CPU seconds of the command and all processes that it waited for."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):  # conforms, or does not
        sys.exit(f"{' '.join(command)} ended with exit code {process.returncode}: run it by hand to see why")
    return usage.ru_utime + usage.ru_stime


def main() -> int:
    """Check each function and print its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "functions.py"
        path.write_text(FUNCTIONS, encoding="utf-8")
        taken = {
            name: cpu([sys.executable, "-m", "conformance", "check", f"{path}:{name}", "--out", f"{folder}/{name}"])
            for name in ("right", "inverted", "unnamed")
        }
    for name, seconds in taken.items():
        print(f"{name:<10} {seconds:>8.1f} s {seconds / taken['right']:>8.2f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
