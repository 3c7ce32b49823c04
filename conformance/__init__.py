"""
Decide whether two attention implementations mean the same thing.

Importing this package imports no framework and no adapter. `conformance.check` judges a function of the user
(docs/check.md); it is loaded on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conformance.checking.api import Result, check

__version__ = "0.1.0"
__all__ = ["Result", "__version__", "check"]


def __getattr__(name: str) -> Any:
    if name in ("Result", "check"):
        return getattr(importlib.import_module("conformance.checking.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
