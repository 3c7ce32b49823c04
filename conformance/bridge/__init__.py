"""
The code that adapters and workers share with the coordinator: the only code of this package in a worker process.

It uses only the standard library and NumPy and supports Python 3.10 and NumPy 1.26 or later, whatever else the
environment pins. An adapter imports names from here and from no other module of this package.
"""

from conformance.bridge.contract import Call, Declaration, Deviation, Facts, MaskFacts, Unsupported, framework_call
from conformance.bridge.loading import digest, kept
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Strided, Tensor, strided

__all__ = [
    "Call",
    "Declaration",
    "Deviation",
    "Facts",
    "MaskFacts",
    "Profile",
    "Strided",
    "Tensor",
    "Unsupported",
    "digest",
    "framework_call",
    "kept",
    "strided",
]
