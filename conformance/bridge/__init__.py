"""
What an adapter and a worker share with the coordinator: the only code of ours in a framework's process.

Standard library and NumPy only, on Python 3.10 and NumPy 1.26 and later, whatever else that
environment pins. An adapter imports its names from here and nowhere else.
"""

from conformance.bridge.contract import Call, Declaration, Deviation, Facts, MaskFacts, Unsupported, framework_call
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
    "framework_call",
    "strided",
]
