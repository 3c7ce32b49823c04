"""Lists of known deviations and baselines may contain old names."""

import json
from pathlib import Path

import pytest

from conformance.gate.baseline import read_baseline, side_of_baseline
from conformance.gate.known_file import read_known
from conformance.spec.mistakes import CaseFileErrors

KNOWN = """\
format: 1
deviations:
  - subject: a.sdpa
    cases: ["degenerate/dead_item/*", "*mistake=mask_items]"]
    when: {dead_row: true}
    delta: {decisions: {"mask_axes[mask]": NAME}}
    reason: A reason that is long enough.
    link: https://example.org
"""
OLD_ID, NEW_ID = ("degenerate/dead_row/boolean", "degenerate/fully_masked_row/boolean")


def known(folder: Path, name: str) -> Path:
    path = folder / "known.yaml"
    path.write_text(KNOWN.replace("NAME", name), encoding="utf-8")
    return path


def test_a_known_deviation_may_have_old_names(tmp_path: Path) -> None:
    ((entry, _),) = read_known([known(tmp_path, "items_as_heads")])
    assert entry.delta is not None
    assert entry.delta.decisions == {"mask_axes[mask]": "batch_as_heads"}
    assert entry.when.fully_masked_row
    assert entry.concerns("a.sdpa", "degenerate/fully_masked_batch/float[operator=sdpa]")
    assert entry.concerns("a.sdpa", "shapes/mistakes/mask[operator=sdpa,mistake=mask_batch]")
    assert not entry.concerns("a.sdpa", "degenerate/fully_masked_row/boolean[operator=sdpa]")


def test_an_unknown_deviation_in_the_list_is_still_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(CaseFileErrors, match=r"no deviation mask_axes\[mask\]=items_as_head: expected one of"):
        read_known([known(tmp_path, "items_as_head")])


def test_a_baseline_may_have_old_names(tmp_path: Path) -> None:
    """The cell belongs to the case with the new name, and its way is the deviation with the new name."""
    entry = {"verdict": "fail", "ways": ["mask_axes[mask]=first_item", "softmax_axis=items"]}
    declared = {"verdict": "dialect", "declared": {"returned_weights": "nan_in_dead_rows"}}
    cells = {OLD_ID: entry, f"{OLD_ID}_with_weights": declared}
    content = {
        "type": "baseline",
        "schema": 1,
        "environments": {"e": {"versions": {}, "machine": {}, "judge": ""}},
        "cases": dict.fromkeys(cells, "1234"),
        "subjects": {"a.sdpa": {"environment": "e", "adapter": "", "cells": cells}},
    }
    path = tmp_path / "base.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    side = side_of_baseline(read_baseline(path), "base.json")
    assert side.cases == {NEW_ID: "1234", f"{NEW_ID}_with_weights": "1234"}
    found = side.cells[NEW_ID, "a.sdpa"]
    assert (found.ways, found.problem) == (("mask_axes[mask]=first_batch", "softmax_axis=batch"), "1234")
    with_weights = side.cells[f"{NEW_ID}_with_weights", "a.sdpa"]
    assert with_weights.declared == {"returned_weights": "nan_in_fully_masked_rows"}
