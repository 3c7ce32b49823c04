"""Never becomes ready: its import raises, as with a broken installation."""

import sys
from typing import Any

from conformance.bridge import Call, framework_call

from ._honest import honest, honest_declaration

NAME = "fake.import_raises"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float64", "float32"]
DEVICES = ["cpu"]
CAPABILITIES: list[str] = []
SLOTS: dict[str, dict[str, object]] = {}

print("looking for the library", file=sys.stderr)  # noqa: T201


def _find_library() -> None:
    raise ImportError("libframework.so.7: cannot open shared object file")


_find_library()

declare = honest_declaration


def sdpa(call: Call) -> dict[str, Any]:
    with framework_call():
        return honest(call)
