"""What a reply depends on beside versions: the CPU, the libraries that compute, and the worker's environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "asimd",
    "bf16",
    "sve",
)
"""The instruction sets that change how dot products are rounded, or which library computes them."""


@dataclass(frozen=True)
class Machine:
    """
    Where a reply was computed.

    cpu: those of FEATURES that it has; empty where the system does not say. libraries: what computes, by the name of
    a framework, as an adapter's evidence says; environment: variables of the worker, likewise.
    """

    cpu: tuple[str, ...] = ()
    libraries: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str | None] = field(default_factory=dict)

    @classmethod
    def of(cls, evidence: Mapping[str, Any]) -> "Machine":
        """This machine, and what the evidence of a worker on it says."""
        return cls(cpu_features(), dict(evidence.get("libraries", {})), dict(evidence.get("environment", {})))


@cache
def cpu_features() -> tuple[str, ...]:
    """Which of FEATURES this machine has; empty where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ()
    lines = (line for line in text.splitlines() if line.startswith(("flags", "Features")))
    flags = set(next(lines, "").partition(":")[2].split())
    return tuple(feature for feature in FEATURES if feature in flags)
