"""Reading a run folder: a valid log is read, and an invalid log is refused with file and line."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.report import RunLogError, load_run
from conformance.report.conclusion import LOG_NOTE, gate_notes

from .build_run import RunBuilder

Edit = Callable[[list[dict[str, Any]]], None]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Lines: 1 header, 2 and 3 cases, 4 worker, 5 and 6 cells, 7 footer."""
    builder = RunBuilder(tmp_path)
    cases = [builder.case("masks/key_padding/trailing"), builder.case("masks/key_padding/leading")]
    subject = builder.subject("torch.mha")
    builder.worker("torch.mha", [subject])
    builder.cell(cases[0], subject, budget=0.5, seconds={"call": 0.25})
    builder.cell(
        cases[1],
        subject,
        "fail",
        rejected=True,
        class_="impossible",
        budget=math.inf,
        seconds={"call": math.nan},
    )
    return builder.write()


def rewrite(folder: Path, edit: Edit) -> Path:
    path = folder / "run.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    edit(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_whole_log_is_read(small: Path) -> None:
    run = load_run(small)
    assert run.complete
    assert not run.conforms
    assert list(run.header.cases) == ["masks/key_padding/trailing", "masks/key_padding/leading"]
    assert run.workers[0].versions == {"torch": "2.13.0"}
    passed = run.cells["masks/key_padding/trailing", "torch.mha"]
    assert (passed.verdict, passed.budget, passed.seconds) == ("pass", 0.5, {"call": 0.25})
    assert run.rejected == {("masks/key_padding/leading", "torch.mha")}


def test_the_cases_are_read_when_they_are_asked_for(small: Path) -> None:
    run = load_run(small)
    assert len(run.header.cases) == 2
    assert "masks/key_padding/leading" in run.header.cases
    with pytest.raises(KeyError):
        run.header.cases["masks/key_padding/other"]
    case = run.header.cases["masks/key_padding/leading"]
    assert (case.name, case.operator, case.source) == (
        "masks/key_padding/leading",
        "mha",
        "cases/masks/key_padding.yaml:6",
    )
    assert run.cases_of(run.header.subjects["torch.mha"]) == tuple(run.header.cases)
    rewrite(small, lambda lines: lines.clear())
    with pytest.raises(RunLogError, match="the run log was cut off after byte"):
        run.header.cases["masks/key_padding/trailing"]


def as_schema_1(lines: list[dict[str, Any]]) -> None:
    """Rewrite the lines as earlier releases wrote them, with the cases in the header."""
    cases = {line.pop("case"): line for line in lines if line["type"] == "case"}
    lines[:] = [line | {"schema": 1} for line in lines if line["type"] != "case"]
    lines[0] |= {"cases": {name: {k: v for k, v in case.items() if k != "type"} for name, case in cases.items()}}
    del lines[0]["case_records"]


def test_a_log_of_schema_1_is_read(small: Path) -> None:
    now = load_run(small)
    cases = dict(now.header.cases)
    before = load_run(rewrite(small, as_schema_1))
    assert dict(before.header.cases) == cases
    assert before.rejected == now.rejected
    assert before.missing == now.missing == frozenset()
    subject = before.header.subjects["torch.mha"]
    assert before.cases_of(subject) == now.cases_of(subject)


def test_numbers_that_are_not_finite_come_back(small: Path) -> None:
    failed = load_run(small).cells["masks/key_padding/leading", "torch.mha"]
    assert failed.budget == math.inf
    assert math.isnan(failed.seconds["call"])
    assert failed.fail_class == "impossible"


def test_without_a_footer_the_run_is_incomplete_and_its_cells_are_judged_by_their_colour(small: Path) -> None:
    run = load_run(rewrite(small, lambda lines: lines.__delitem__(6)))
    assert run.footer is None
    assert not run.complete
    assert not run.conforms
    assert run.rejected == {("masks/key_padding/leading", "torch.mha")}


def test_what_is_followed_by_something_was_not_the_end(small: Path) -> None:
    run = load_run(rewrite(small, lambda lines: lines.append(lines[4])))
    assert run.footer is None
    assert not run.conforms


def test_of_a_cell_that_stands_twice_the_graver_verdict_counts(small: Path) -> None:
    def twice(lines: list[Any]) -> None:
        lines.insert(5, lines[4] | {"verdict": "fail", "budget": 2.0})
        lines.insert(6, lines[4])

    run = load_run(rewrite(small, twice))
    key = ("masks/key_padding/trailing", "torch.mha")
    assert run.repeated == {key}
    assert run.cells[key].verdict == "fail"
    assert key in run.rejected
    (note,) = (text for kind, text in gate_notes(run) if kind == LOG_NOTE)
    assert note == (
        "two processes wrote this run at the same time: 1 verdict is in the log more than once (first: "
        "masks/key_padding/trailing on torch.mha); the worse verdict counts"
    )


def test_what_is_owed_and_absent_is_missing(small: Path) -> None:
    run = load_run(rewrite(small, lambda lines: lines.__delitem__(4)))
    assert run.missing == {("masks/key_padding/trailing", "torch.mha")}


def set_in(line: int, key: str, value: object) -> Edit:
    return lambda lines: lines[line].__setitem__(key, value)


@pytest.mark.parametrize(
    ("edit", "line", "message"),
    [
        (set_in(4, "schema", 3), 5, "schema 3; this version reads the schemas 1 and 2"),
        (set_in(4, "schema", "1"), 5, "schema '1'; this version reads the schemas 1 and 2"),
        (set_in(4, "type", "cel"), 5, "not a record of a run log: 'cel'"),
        (set_in(4, "verdict", "green"), 5, "verdict: 'green' is not valid; expected one of pass, dialect, "),
        (set_in(4, "case", "other"), 5, "the log has no case 'other'"),
        (set_in(4, "subject", "other"), 5, "the header does not name the subject 'other'"),
        (set_in(4, "budget", "big"), 5, "budget: 'big' is not a number"),
        (set_in(4, "budget", True), 5, "budget: True is not a number"),
        (set_in(4, "outputs", {}), 5, "outputs: expected a list"),
        (set_in(4, "outputs", [1]), 5, "outputs.0: expected a mapping, got 1"),
        (set_in(5, "verdict", None), 6, "verdict: expected pass, dialect, unsupported, "),
        (set_in(1, "tags", 1), 2, "tags: expected a list, got 1"),
        (set_in(1, "case", ""), 2, "the record names no case"),
        (set_in(2, "case", "masks/key_padding/trailing"), 3, "a second record of the case 'masks/key_padding/trail"),
        (lambda lines: lines[0].pop("case_records"), 1, "'case_records' is required here"),
        (set_in(0, "case_records", 1), 3, "a case record too many: the header announces 1"),
        (set_in(3, "status", "fine"), 4, "status: 'fine' is not valid; did you mean 'failed'"),
        (lambda lines: lines.insert(4, lines[0]), 5, "the header must be the first line of a run log"),
        (lambda lines: lines.__delitem__(0), 1, "the header must be the first line of a run log"),
        (lambda lines: lines[6]["gate"].__setitem__("rejected", ["a"]), 7, "gate.rejected.0: expected a list, got 'a'"),
    ],
)  # fmt: skip
def test_a_wrong_log_is_refused_with_file_and_line(small: Path, edit: Edit, line: int, message: str) -> None:
    with pytest.raises(RunLogError) as caught:
        load_run(rewrite(small, edit))
    assert f"run.jsonl:{line}" in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (lambda text: text[:-1], "run.jsonl:7: the line is truncated"),
        (lambda text: text[:-40], "run.jsonl:7: the line is truncated"),
        (lambda text: text.replace('"budget": 0.5', '"budget": NaN'), "run.jsonl:5: not strict JSON: NaN is not JSON"),
        (
            lambda text: text.replace('"budget": 0.5', '"budget": 1e999'),
            "run.jsonl:5: not strict JSON: 1e999 is beyond float64",
        ),
        (lambda text: text.replace('"budget": 0.5', '"budget": }'), "run.jsonl:5: not strict JSON"),
        (lambda _: "[]\n", "run.jsonl:1: not a record of a run log: []"),
        (lambda _: "", "no header: the run was interrupted before it began"),
    ],
)
def test_a_damaged_log_is_refused(small: Path, cut: Callable[[str], str], message: str) -> None:
    path = small / "run.jsonl"
    path.write_text(cut(path.read_text()))
    with pytest.raises(RunLogError, match=r".") as caught:
        load_run(small)
    assert message in str(caught.value)


def test_a_folder_without_a_log_says_what_a_run_folder_is(tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match="there is no run log here"):
        load_run(tmp_path)


def test_bytes_that_are_no_text_are_refused(small: Path) -> None:
    (small / "run.jsonl").write_bytes(b'{"type": "\xff"}\n')
    with pytest.raises(RunLogError, match="not strict JSON"):
        load_run(small)
