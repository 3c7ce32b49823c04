"""Never becomes ready: its import does not end."""

import time
from typing import Any

from conformance.bridge import Call, framework_call

from ._honest import honest, honest_declaration

NAME = "fake.import_hangs"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES: list[str] = []
SLOTS: dict[str, dict[str, object]] = {}

time.sleep(3600)

declare = honest_declaration


def sdpa(call: Call) -> dict[str, Any]:
    with framework_call():
        return honest(call)
