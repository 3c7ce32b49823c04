"""
Published implementations fail for what was printed wrong and for nothing else; their repaired twins pass.

One run has the packaged list of known deviations, and conforms. The other has an empty list, and does not conform.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.frameworks

PAGE = Path(__file__).parents[2] / "docs" / "published.md"
LENGTH_ONE = ["published/multiple/one_query_one_key", "published/multiple/one_query_one_key_hidden_from_two_heads"]
SQUARE = "published/multiple/relu_and_residual_of_one_square_head"
# The causes that the diagnosis must name for each subject as printed, and no others. Errors have no cause here.
NAMED: dict[str, list[dict[str, str]]] = {
    "published.torch_manual[as_printed:fill]": [{"mask_fill": "plus_1e10"}],
    "published.torch_manual[as_printed:axis]": [{"softmax_axis": "heads"}],
    "published.torch_manual[as_printed:view]": [],
    "published.torch_manual[as_printed]": [{"softmax_axis": "heads", "mask_fill": "plus_1e10"}],
    "published.tf1_manual[as_printed:fill]": [{"mask_fill": "plus_1e10"}],
    "published.tf1_manual[as_printed:axis]": [{"use[raw_keys]": "ignored"}],
    "published.tf1_manual[as_printed:scale]": [{"scale": "seq_len"}],
    "published.tf1_manual[as_printed]": [{"use[raw_keys]": "ignored"}],
    "published.bert_numpy[as_printed]": [{"softmax_maximum": "missing"}],
}

ERRORS = {
    "published.torch_manual[as_printed:view]": "is invalid for input of size",
    "published.torch_manual[as_printed]": "is invalid for input of size",
    "published.tf1_manual[as_printed:axis]": "Number of ways to split should evenly divide",
    "published.tf1_manual[as_printed]": "Number of ways to split should evenly divide",
}
# The cases in which this code raises no error.
RUNS = {subject: LENGTH_ONE if "torch" in subject else [SQUARE] for subject in ERRORS}

CASES = ("published/*", "numerics/logits/beyond_the_exponential*", "masks/attention_2d/holes*")
TWINS = ("published.torch_manual[repaired]", "published.tf1_manual[repaired]", "published.bert_numpy[repaired]")
# `nox -s conformance` judges the other published adapters, which have no known deviation.
ADAPTERS = ("published.torch_manual*", "published.tf1_manual*", "published.bert_numpy*")
WITH_LIST = """
import sys
from pathlib import Path
import conformance.cli.command_known
assert conformance.cli.command_known.PACKAGED.is_file()
conformance.cli.command_known.PACKAGED = Path(sys.argv.pop(1))
from conformance.cli.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Finished:
    """A finished run with the records of its log."""

    code: int
    stderr: str
    records: list[dict[str, Any]]

    def cells(self, subject: str) -> dict[str, dict[str, Any]]:
        """Return the judged cells of a subject, by case."""
        own = [r for r in self.records if r["type"] == "cell" and r["subject"] == subject]
        return {r["case"]: r for r in own if r["verdict"] != "unsupported"}


def run(folder: Path, *start: str) -> Finished:
    cases = [word for glob in CASES for word in ("-k", glob)]
    adapters = [word for glob in ADAPTERS for word in ("-a", glob)]
    command = [sys.executable, *start, "run", *adapters, *cases, "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    lines = (folder / "run.jsonl").read_text(encoding="utf-8").splitlines()
    return Finished(done.returncode, done.stdout + done.stderr, [json.loads(line) for line in lines])


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run(tmp_path_factory.mktemp("listed") / "run", "-m", "conformance")


@pytest.fixture(scope="module")
def unlisted(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("unlisted")
    (folder / "none.yaml").write_text("format: 1\ndeviations: []\n", encoding="utf-8")
    return run(folder / "run", "-c", WITH_LIST, str(folder / "none.yaml"))


def red(cells: Mapping[str, Mapping[str, Any]], verdict: str) -> list[str]:
    return sorted(case for case, cell in cells.items() if cell["verdict"] == verdict)


# Every default run checks the packaged list of known deviations, which names these causes and errors.
@pytest.mark.measurement
@pytest.mark.parametrize("subject", NAMED)
def test_the_diagnosis_names_what_was_printed_wrong_and_nothing_else(unlisted: Finished, subject: str) -> None:
    found = [r for r in unlisted.records if r["type"] == "diagnosis" and r["subject"] == subject]
    causes = [cause for each in found for cause in each["causes"]]
    assert [cause["decisions"] for cause in causes] == NAMED[subject]
    assert not any(cause["when"] for cause in causes)
    ties = [(cause, tie) for cause in causes for tie in cause["ties"]]
    # no case here shows what a softmax without a maximum does with a row that underflows
    assert all(tie["decisions"].keys() == cause["decisions"].keys() == {"softmax_maximum"} for cause, tie in ties)
    assert not any(each["unexplained"] for each in found)
    failing = red(unlisted.cells(subject), "fail")
    assert sorted(case for cause in causes for case in cause["cells"]) == failing
    assert bool(failing) == bool(NAMED[subject])


@pytest.mark.measurement
@pytest.mark.parametrize("subject", ERRORS)
def test_what_does_not_run_is_an_error_that_says_why(unlisted: Finished, subject: str) -> None:
    cells = unlisted.cells(subject)
    wrong = red(cells, "error")
    assert wrong
    assert all(ERRORS[subject] in cells[case]["reason"] for case in wrong)
    assert sorted(cells.keys() - set(wrong)) == sorted(RUNS[subject])


@pytest.mark.measurement
@pytest.mark.parametrize("subject", TWINS)
def test_repaired_twins_are_green(unlisted: Finished, subject: str) -> None:
    cells = unlisted.cells(subject)
    assert len(cells) >= 2
    assert {cell["verdict"] for cell in cells.values()} <= {"pass", "dialect"}


@pytest.mark.measurement
def test_without_the_list_the_run_does_not_conform(unlisted: Finished) -> None:
    assert unlisted.code == 1, unlisted.stderr


@pytest.mark.measurement
def test_with_the_list_it_conforms_and_every_red_cell_stays_red(listed: Finished, unlisted: Finished) -> None:
    assert listed.code == 0, listed.stderr
    for subject in NAMED:
        before, after = unlisted.cells(subject), listed.cells(subject)
        assert {case: cell["verdict"] for case, cell in after.items()} == {c: r["verdict"] for c, r in before.items()}
        assert all("known" in after[case] for verdict in ("fail", "error") for case in red(after, verdict))


def test_the_page_names_the_same_causes() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if "as_printed" in line and "|" in line
    ]
    written = {cells[0].strip("`"): set(re.findall(r"`([\w\[\]]+=\w+)`", cells[-1])) for cells in rows}
    found = {
        s: {f"{decision}={name}" for cause in causes for decision, name in cause.items()} for s, causes in NAMED.items()
    }
    assert written == found
