"""Which elements of a failing reply are wrong, and in which rows these are."""

from collections.abc import Mapping

import numpy as np

from conformance.judge.compare import beyond
from conformance.judge.evidence import Evidence
from conformance.spec.problem import SCORES, Array

AXES = 3
"""Of rows: batch, num_heads, seq_len_q."""

WITH_ROWS = ("output", "weights", "weights_mean", *SCORES)
"""Outputs that have a row for each query."""


def wrong_elements(cell: Evidence) -> dict[str, Array] | None:
    """Which elements of each output lie beyond the bound; None where one has another shape or dtype."""
    actual = cell.actual or {}
    found = {
        name: beyond(expected, actual[name], cell.declared.bounds[name])
        for name, expected in cell.declared.reply.items()
    }
    wrong = {name: each for name, each in found.items() if each is not None}
    return wrong if len(wrong) == len(found) else None


def are_merged(cell: Evidence) -> bool:
    """Whether some output has merged the heads, so that rows are those of any head."""
    return cell.problem.operator == "mha" or "weights_mean" in cell.declared.reply


def wrong_rows(wrong: Mapping[str, Array], *, merged: bool) -> Array:
    """Rows with an element that is wrong in any output, (batch, num_heads, seq_len_q), or without heads if merged."""
    rows = [np.any(each, axis=-1) for name, each in wrong.items() if name in WITH_ROWS]
    return np.asarray(np.logical_or.reduce([joined(each, merged=merged) for each in rows]))


def joined(rows: Array, *, merged: bool) -> Array:
    """Rows of heads as those of any head, where some output has merged the heads."""
    return np.asarray(np.any(rows, axis=1)) if merged and rows.ndim == AXES else rows
