"""Never becomes ready: its import takes the process down, as an illegal instruction does."""

import os
import signal
from typing import Any

from conformance.bridge import Call, framework_call

from ._honest import honest, honest_declaration

NAME = "fake.import_dies"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES: list[str] = []
SLOTS: dict[str, dict[str, object]] = {}

os.kill(os.getpid(), signal.SIGILL)

declare = honest_declaration


def sdpa(call: Call) -> dict[str, Any]:
    with framework_call():
        return honest(call)
