"""Where a call ran, by the evidence in its reply, against where it was asked to run."""

from collections.abc import Mapping
from typing import Any

RAN_ON = "ran_on"
"""The key of the evidence: the devices, as in DEVICES, on which the call's operators ran."""


def misplaced(asked: str, evidence: Mapping[str, Any]) -> str:
    """
    Why a reply does not count for the device that was asked for, or "".

    The CPU needs no evidence: it is where everything runs that says nothing else.
    """
    ran = [str(device) for device in evidence.get(RAN_ON, ())]
    if not ran:
        silent = f"asked to run on {asked}, and the adapter's evidence does not say where it ran ({RAN_ON})"
        return "" if asked == "cpu" else silent
    if set(ran) == {asked}:
        return ""
    nodes = f"; nodes: {_listed(evidence['nodes'])}" if isinstance(evidence.get("nodes"), Mapping) else ""
    return f"asked to run on {asked}, ran on {', '.join(ran)}{nodes}"


def _listed(nodes: Mapping[str, Any]) -> str:
    """Which operators each execution provider was given."""
    return "; ".join(f"{provider} {', '.join(sorted(operators))}" for provider, operators in nodes.items())
