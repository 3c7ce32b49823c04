"""Which features a subject judged, declined, or was never asked for."""

from dataclasses import replace
from pathlib import Path

from conformance.report.coverage import DECLINED, NOT_REACHED, Reach, counted_subjects, coverage
from conformance.report.records import Case, Cell, Header, Run, Subject


def subject(name: str, *, counted: bool = True) -> Subject:
    return replace(SUBJECT, name=name, counted=counted)


SUBJECT = Subject(
    "",
    adapter="a",
    variant="",
    device="cpu",
    environment="default",
    operators=("sdpa",),
    framework="a",
    counted=True,
    offered=True,
)
CASES = {
    "one": Case("one", "s", "sdpa", "float32", features=("dtype float32", "output output", "output weights")),
    "two": Case("two", "s", "sdpa", "float64", features=("dtype float64", "output output")),
}


def run(*cells: Cell) -> Run:
    subjects = {each.name: each for each in (subject("a"), subject("b"), subject("a[dense]", counted=False))}
    header = Header("run", "now", CASES, subjects)
    return Run(Path(), header, (), {cell.key: cell for cell in cells}, None)


def texts(read: Run) -> dict[str, dict[str, str]]:
    return {row.feature: {name: reach.text for name, reach in row.reach.items()} for row in coverage(read)}


def test_judged_declined_and_not_reached_are_told_apart() -> None:
    read = run(
        Cell("one", "a", "fail", record={"dropped_outputs": ["weights"]}),
        Cell("two", "a", "unsupported"),
        Cell("two", "b", "pass"),
        Cell("one", "a[dense]", "pass"),
    )
    assert counted_subjects(read) == ("a", "b")
    assert texts(read) == {
        "dtype float32": {"a": "1", "b": NOT_REACHED},
        "dtype float64": {"a": DECLINED, "b": "1"},
        "output output": {"a": "1", "b": "1"},
        "output weights": {"a": DECLINED, "b": NOT_REACHED},
    }


def test_what_is_declined_is_counted_beside_what_is_judged() -> None:
    read = coverage(run(Cell("one", "a", "pass"), Cell("two", "a", "unsupported")))
    output = next(row for row in read if row.feature == "output output")
    assert output.reach["a"] == Reach(judged=1, declined=1)
