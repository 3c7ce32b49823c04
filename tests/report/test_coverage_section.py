"""Whether each feature of a subject was judged, declined, or not reached."""

from pathlib import Path
from typing import Any

from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.engine.records import Header, LoggedCase, LoggedSubject
from conformance.engine.run_folder import Run
from conformance.report.run_page import DECLINED, NOT_REACHED, Reach, counted_subjects, coverage
from conformance.verdicts.verdict import Verdict

CASES = {
    "one": LoggedCase(
        suite="s", operator="sdpa", dtype="float32", features=("dtype float32", "output output", "output weights")
    ),
    "two": LoggedCase(suite="s", operator="sdpa", dtype="float64", features=("dtype float64", "output output")),
}


def judged(case: str, subject: str, verdict: Verdict, **more: Any) -> JudgedCell:
    return JudgedCell.of(LoggedCell(case=case, subject=subject, verdict=verdict, **more))


def run(*cells: JudgedCell) -> Run:
    counted = {"a": True, "b": True, "a[dense]": False}
    subjects = {name: LoggedSubject(operators=("sdpa",), counted=each) for name, each in counted.items()}
    header = Header(run="run", started="now", cases=CASES, subjects=subjects)
    return Run(Path(), header, (), {cell.key: cell for cell in cells}, None)


def texts(read: Run) -> dict[str, dict[str, str]]:
    return {row.feature: {name: reach.text for name, reach in row.reach.items()} for row in coverage(read)}


def test_judged_declined_and_not_reached_are_told_apart() -> None:
    read = run(
        judged(case="one", subject="a", verdict="fail", dropped_outputs=("weights",)),
        judged(case="two", subject="a", verdict="unsupported"),
        judged(case="two", subject="b", verdict="pass"),
        judged(case="one", subject="a[dense]", verdict="pass"),
    )
    assert counted_subjects(read) == ("a", "b")
    assert texts(read) == {
        "dtype float32": {"a": "1", "b": NOT_REACHED},
        "dtype float64": {"a": DECLINED, "b": "1"},
        "output output": {"a": "1", "b": "1"},
        "output weights": {"a": DECLINED, "b": NOT_REACHED},
    }


def test_what_is_declined_is_counted_beside_what_is_judged() -> None:
    read = coverage(
        run(
            judged(case="one", subject="a", verdict="pass"),
            judged(case="two", subject="a", verdict="unsupported"),
        )
    )
    output = next(row for row in read if row.feature == "output output")
    assert output.reach["a"] == Reach(judged=1, declined=1)
