"""The schemas of machine-readable files, checked against files that are really written."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from conformance.bridge.strict_json import plain_data
from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.gate.baseline import read_baseline, side_of_baseline, updated, within, write_baseline
from conformance.gate.change import KINDS
from conformance.gate.comparison import compare
from conformance.gate.decision import decide
from conformance.gate.formats import FORMATS, ComparisonFile, VerdictFile, schema_text
from conformance.gate.observations import Observed
from conformance.gate.run_ending import write_verdict

from .handmade_comparisons import SUBJECT, mean_row, nan_row, side

KNOWN = {"live": 1, "dead": ["known.yaml:3 (x): y"], "too_wide": [], "expired": [], "not_reached": []}
CELLS = [
    JudgedCell.of(LoggedCell(case="a", subject="s", verdict="pass", budget=0.5)),
    JudgedCell.of(LoggedCell(case="b", subject="s", verdict="fail", budget=math.inf)),
]


def written(tmp_path: Path, **more: Any) -> dict[str, Any]:
    write_verdict(tmp_path, decide(CELLS, ["a worker"], ["dead"], more.pop("known", KNOWN), **more), CELLS)
    found: dict[str, Any] = json.loads((tmp_path / "verdict.json").read_text(encoding="utf-8"))
    return found


def test_verdict_json_is_as_its_schema_says(tmp_path: Path) -> None:
    content = written(tmp_path)
    assert VerdictFile.model_validate(content).gate.rejected == [["b", "s"]]
    interrupted = VerdictFile.model_validate(written(tmp_path, known={}, interrupted=True))
    assert (interrupted.exit_code, interrupted.complete) == (2, False)


def test_verdict_json_does_not_depend_on_the_order_in_which_calls_were_judged(tmp_path: Path) -> None:
    found = []
    for cells in (CELLS, CELLS[::-1]):
        write_verdict(tmp_path, decide(cells, (), (), KNOWN), cells)
        found.append((tmp_path / "verdict.json").read_bytes())
    assert found[0] == found[1]


def test_a_baseline_says_of_cells_that_conform_alone_whether_they_were_looked_at() -> None:
    cells = {"a": Observed("pass", budget=0.2, looked=True), "b": nan_row(looked=True)}
    found = updated(None, side("run", cells), whole=True)["subjects"][SUBJECT]["cells"]
    assert "looked" in found["a"]
    assert "looked" not in found["b"], "which failures are looked at depends on where a run was cut"


def test_what_is_written_otherwise_is_refused(tmp_path: Path) -> None:
    content = written(tmp_path)
    for spoilt in (content | {"extra": 1}, content | {"schema": 2}, content | {"exit_code": 6}, {"schema": 1}):
        with pytest.raises(ValidationError):
            VerdictFile.model_validate(spoilt)


def test_comparison_json_is_as_its_schema_says() -> None:
    error = Observed("error", error="ValueError", text="bad", rerun="again")
    declared = Observed("dialect", budget=0.2, declared={"fully_masked_row": "nan"})
    passing, gone = Observed("pass", budget=0.2), Observed("unsupported", text="no")
    before = {"a": passing, "b": nan_row(known="x"), "c": passing, "d": passing, "old": passing}
    now = {"a": error, "b": mean_row(budget=float("inf")), "c": declared, "d": gone, "new": passing}
    record = plain_data(compare(side("base", before), side("candidate", now)).record())
    found = ComparisonFile.model_validate(json.loads(json.dumps(record)))
    kinds = ["regressed", "fails_otherwise", "dialect_changed", "support_lost", "added", "deleted"]
    assert list(found.counts) == kinds
    with pytest.raises(ValidationError):
        ComparisonFile.model_validate(record | {"counts": {"regresed": 1}})


def test_every_kind_of_change_is_in_the_schema() -> None:
    kinds = json.loads(schema_text("comparison"))["$defs"]["ChangeGroup"]["properties"]["kind"]["enum"]
    assert kinds == list(KINDS)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_a_strict_schema(name: str) -> None:
    schema = json.loads(schema_text(name))
    assert schema["additionalProperties"] is False
    version = {key: value for key, value in schema["properties"]["schema"].items() if key != "enum"}
    assert version == {"const": 1, "title": "Schema", "type": "integer"}  # pydantic 2.7 adds {"enum": [1]}


def test_what_a_baseline_remembers_comes_back(tmp_path: Path) -> None:
    run = side("run", {"a": Observed("pass", budget=0.0), "b": nan_row(budget=float("inf"))})
    write_baseline(tmp_path / "base.json", updated(None, run, whole=True))
    cells = read_baseline(tmp_path / "base.json").subjects[SUBJECT].cells
    assert cells["a"].budget == 0.0
    assert (cells["b"].budget, cells["b"].ways) == ("inf", ["fully_masked_row=nan"])


def test_a_partial_update_from_another_environment_keeps_where_the_rest_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "base.json"
    passing = Observed("pass", budget=0.2)
    write_baseline(path, updated(None, side("run", dict.fromkeys("abc", passing), "1.0"), whole=True))
    newer = side("run", {"b": passing}, "2.0")
    write_baseline(path, updated(read_baseline(path), newer, whole=False))
    found = read_baseline(path)
    subject = found.subjects[SUBJECT]
    assert list(subject.cells) == ["a", "b", "c"]
    assert found.environments[subject.environment].versions["onnxruntime"] == "1.0"
    assert found.environments[subject.cells["b"].environment].versions["onnxruntime"] == "2.0"
    assert subject.cells["a"].environment == ""
    write_baseline(path, updated(found, side("run", {"a": passing}, "2.0"), whole=True))
    found = read_baseline(path)
    assert list(found.subjects[SUBJECT].cells) == ["a"]
    assert len(found.environments) == 1


@pytest.mark.parametrize(("whole", "left"), [(True, []), (False, ["c"])], ids=["all cases", "some cases"])
def test_a_dense_form_that_a_function_has_no_more_leaves_the_baseline(
    tmp_path: Path, *, whole: bool, left: list[str]
) -> None:
    path, dense, passing = tmp_path / "base.json", f"{SUBJECT}[dense]", Observed("pass", budget=0.2)
    run = side("run", dict.fromkeys("abc", passing), is_check=True)
    both = replace(run, cells={**run.cells, **{(case, dense): passing for case in "abc"}})
    both = replace(both, asked={**run.asked, dense: run.asked[SUBJECT]})
    write_baseline(path, updated(None, both, whole=True))
    newer = side("run", dict.fromkeys("ab", passing), is_check=True)
    base = within(side_of_baseline(read_baseline(path), "base"), newer, whole=False)
    assert compare(base, newer).counts == {"support_lost": 2}
    write_baseline(path, updated(read_baseline(path), newer, whole=whole))
    subjects = read_baseline(path).subjects
    assert list(subjects[dense].cells if dense in subjects else []) == left
    again = within(side_of_baseline(read_baseline(path), "base"), newer, whole=False)
    assert compare(again, newer).counts == {}
