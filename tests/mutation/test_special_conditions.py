"""Bugs that show only under a condition (docs/mutation.md) are killed, and the printed cause names the condition."""

import re
from pathlib import Path

import pytest

from conformance.checking.function_check import CheckRequest, check
from conformance.checking.target import parse_target
from conformance.diagnosis.conditions import always
from conformance.engine.cell_records import RunListener
from conformance.report import Run, load_run
from conformance.report.findings import Finding, findings

from .bugs_list import bugs
from .mutants import Lied, Mutant
from .mutation_session import quietly, run_mutant

PAGE = Path(__file__).parents[2] / "docs" / "mutation.md"
ROW = re.compile(r"^\| [^|]+ \| `(?P<judged>[^`|]+)` \| (?P<cases>`[^|]+`) \| (?P<printed>[^|`]+) \|$", re.MULTILINE)
ROWS = [
    (row["judged"], tuple(re.findall(r"`([^`]+)`", row["cases"])), row["printed"])
    for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))
]
BUGS = {bug.name: bug for bug in bugs()}
# Globs of cases that are judged in addition. Nearly every bug conforms on them, at least in one dtype.
PLAIN = (
    "numerics/float64/distribution[operator=*,inputs.distribution=bell]",
    "shapes/cross_attention/three_tensors[operator=*",
    "masks/key_padding/trailing[operator=*",
)


def of_bug(name: str, cases: tuple[str, ...], folder: Path) -> Run:
    bug = BUGS[name]
    request = CheckRequest(parse_target(bug.given), declare=bug.declare, globs=(*cases, *PLAIN))
    return quietly(lambda: check(request, folder, RunListener())).run


def of_lie(key: str, cases: tuple[str, ...], folder: Path) -> Run:
    mutant = Mutant("single_1", "single", (Lied(key, always()),), (*cases, *PLAIN))
    run_mutant(folder, mutant)
    return load_run(folder / "single_1.run")


def printed(finding: Finding) -> str:
    """Return what a row of the table says for a finding: the named cause, or the kind of failure."""
    return finding.sentence if finding.explained else finding.kind


def test_the_table_is_read() -> None:
    assert len(ROWS) == 14
    assert all(judged in BUGS or "=" in judged for judged, _, _ in ROWS)


@pytest.mark.parametrize(("judged", "cases", "wanted"), ROWS, ids=[row[0] for row in ROWS])
def test_a_bug_that_shows_under_a_condition_is_killed_and_its_condition_named(
    judged: str, cases: tuple[str, ...], wanted: str, tmp_path: Path
) -> None:
    run = (of_bug if judged in BUGS else of_lie)(judged, cases, tmp_path)
    assert len(run.cells) > len(cases)
    found = {case: printed(finding) for finding in findings(run) for case, _ in finding.cells}
    assert {case: found.get(case, "conforms") for case in cases} == dict.fromkeys(cases, wanted)
    if wanted.endswith("(nondeterministic)"):
        return
    assert any(cell.key not in run.rejected for cell in run.cells.values())
    assert {text for case, text in found.items() if case not in cases} <= {wanted}
