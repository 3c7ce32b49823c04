"""Cells of a run that was cut: what its log and its tensors say of them, for a diagnosis of the whole run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bridge.messages import read_declaration
from conformance.bridge.tensor import Tensor
from conformance.engine.cells import Cell
from conformance.engine.judging import Judge
from conformance.judge.evidence import Evidence
from conformance.judge.explanation import Way, way_of
from conformance.judge.repetition import CLASSES
from conformance.judge.verdict import CONFORMING
from conformance.spec.rounding import to_tensor

Record = Mapping[str, Any]
CALLS = "invariant"
"""The class of a reply that conforms, while a changed call does not go with it."""


def recalled(cell: Cell, record: Record, judge: Judge, folder: Path) -> Evidence | None:
    """
    The evidence of a cell that was judged before the run was cut; None where it says nothing of the numbers.

    folder: of the run, with the reply of a failing cell.
    """
    klass = record.get("class")
    conforms = record["verdict"] in CONFORMING or klass == CALLS
    if (
        "known" in record
        or klass in CLASSES
        or cell.case.mistake is not None
        or not (conforms or record["verdict"] == "fail")
    ):
        return None
    declaration = read_declaration(record["declared"])
    evidence = Evidence(
        cell.case.id, cell.call.facts, cell.route.problem, judge.declared(cell, declaration), declaration.profile
    )
    if conforms:
        return evidence
    return evidence.failing(_reply(record, folder), _ways(record))


def _reply(record: Record, folder: Path) -> dict[str, Tensor]:
    """What came back, in the dtypes in which it came."""
    with np.load(folder / record["tensors"]) as arrays:
        return {
            each["output"]: to_tensor(arrays[f"{each['output']}.actual"], each["dtype"]) for each in record["outputs"]
        }


def _ways(record: Record) -> tuple[Way, ...]:
    if "explanation" not in record:
        return ()
    said = record["explanation"]
    ties = (key.rpartition("=") for key in record["ties"])
    return (way_of(said["decision"], said["name"]), *(way_of(decision, name) for decision, _, name in ties))
