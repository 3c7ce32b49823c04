"""Honest, but its import prints to stdout, from Python and from C."""

import os
from typing import Any

from conformance.bridge import Call, framework_call

from ._honest import honest, honest_declaration

NAME = "fake.import_prints"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES: list[str] = []
SLOTS: dict[str, dict[str, object]] = {}

print("Welcome to the framework!")  # noqa: T201
os.system("echo and welcome from a child")  # noqa: S605 - a child writes to fd 1 itself

declare = honest_declaration


def sdpa(call: Call) -> dict[str, Any]:
    with framework_call():
        return honest(call)
