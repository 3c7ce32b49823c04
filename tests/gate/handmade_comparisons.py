"""Handmade sides of a comparison: a few cells, without a run."""

from typing import Any

from conformance.gate.observations import Circumstances, ComparedRun, Observed

MACHINE = {"platform": "Linux-x86_64", "cpu_features": "avx2 fma", "device": "cpu", "threads": 1}
SUBJECT = "onnxruntime.sdpa"


def side(name: str, cells: dict[str, Observed], version: str = "1.23.2", **more: Any) -> ComparedRun:
    """Return a side with one subject and these cells; the keys of cells are case ids."""
    about = Circumstances({"onnxruntime": version, "numpy": "2.4.6"}, more.pop("machine", MACHINE), "sha256:a")
    given: dict[str, Any] = {"cases": dict.fromkeys(cells, ""), "asked": {SUBJECT: about}, **more}
    return ComparedRun(name=name, cells={(case, SUBJECT): observed for case, observed in cells.items()}, **given)


def nan_row(**more: Any) -> Observed:
    """Return the failure of a fully masked row that is NaN although zero is declared."""
    return Observed("fail", ways=("fully_masked_row=nan",), klass="semantic", **more)


def mean_row(**more: Any) -> Observed:
    """Return the failure of a fully masked row that is the mean of V; two deviations explain it."""
    ways = ("mask_fill=finite_minimum", "fully_masked_row=uniform")
    return Observed("fail", ways=ways, klass="semantic", **more)
