"""Calls that must be refused: an error of the framework passes, a reply fails with a sentence, the rest is an error."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..running import cells as cells_of
from ..running import conformance

FAKE = Path(__file__).parents[1] / "fakes" / "lenient.py"
VALID = "shapes/mistakes/valid[operator=sdpa]"
SHORT = "shapes/mistakes/inputs[operator=sdpa,mistake=value_positions]"
WIDE = "shapes/mistakes/mask[operator=sdpa,mistake=mask_keys]"
Record = dict[str, Any]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple["subprocess.CompletedProcess[str]", Path]:
    folder = tmp_path_factory.mktemp("refusals") / "out"
    words = ["run", "-a", str(FAKE), "-k", VALID, "-k", SHORT, "-k", WIDE, "--out", str(folder)]
    return conformance(*words), folder


@pytest.fixture(scope="module")
def cells(ran: tuple[object, Path]) -> dict[tuple[str, str], Record]:
    return cells_of(ran[1])


@pytest.mark.parametrize("case", [SHORT, WIDE])
def test_an_error_of_the_framework_passes(cells: dict[tuple[str, str], Record], case: str) -> None:
    record = cells[case, "fake.lenient[strict]"]
    assert record["verdict"] == "pass"
    assert record["reason"].startswith("refused, as it must be: ValueError: ")
    assert "budget" not in record
    assert cells[VALID, "fake.lenient[strict]"]["verdict"] == "pass"


def test_numbers_fail_and_it_is_said_what_was_taken(cells: dict[tuple[str, str], Record]) -> None:
    record = cells[SHORT, "fake.lenient[lenient]"]
    assert (record["verdict"], record["class"], record["mistake"]) == ("fail", "not_refused", "value_positions")
    assert record["reason"] == (
        "accepts a value with fewer positions than the key: it returned output [3, 2, 7, 8], where an error was due"
    )
    smaller = cells[WIDE, "fake.lenient[lenient]"]
    assert "over more keys than there are" in smaller["reason"]
    assert smaller["repeats"]["found"] == "same"


@pytest.mark.parametrize(
    ("variant", "stage", "said"),
    [("outside", "adapter", "looked at the shapes itself"), ("exhausted", "framework", "cannot allocate")],
)
def test_an_error_from_elsewhere_or_about_something_else_is_one(
    cells: dict[tuple[str, str], Record], variant: str, stage: str, said: str
) -> None:
    record = cells[SHORT, f"fake.lenient[{variant}]"]
    assert (record["verdict"], record["error"]["stage"]) == ("error", stage)
    assert said in record["reason"]


def test_who_refuses_everything_is_seen_by_the_valid_twin(cells: dict[tuple[str, str], Record]) -> None:
    record = cells[SHORT, "fake.lenient[refuses_all]"]
    assert record["verdict"] == "inconclusive"
    assert record["reason"] == ("refused, but the valid call, without the mistake, has no reply either: ValueError: no")
    assert cells[VALID, "fake.lenient[refuses_all]"]["verdict"] == "error"


def test_an_adapter_that_is_not_prepared_is_not_asked(cells: dict[tuple[str, str], Record]) -> None:
    record = cells[SHORT, "fake.lenient[unprepared]"]
    assert (record["verdict"], record["reason"]) == ("unsupported", "does not support: mistakes")


def test_the_run_is_red_and_tells_each_mistake_once(ran: tuple["subprocess.CompletedProcess[str]", Path]) -> None:
    assert ran[0].returncode == 7  # since one of the variants refuses every call
    assert "Incomplete: fake.lenient[refuses_all] does not work here: " in ran[0].stdout
    told = (
        "1 verdict of fake.lenient[lenient] (fail: no exception, where one is due): "
        "accepts a value with fewer positions than the key; workaround: check that key and value have the same length"
    )
    assert told in ran[0].stdout
    assert "(fail: no exception, where one is due): accepts a mask over more keys than there are" in ran[0].stdout
    verdict = json.loads((ran[1] / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["subjects"]["fake.lenient[strict]"]["counts"] == {"pass": 3}


def test_a_known_deviation_accepts_a_reply_and_is_too_wide_where_there_is_a_refusal(tmp_path: Path) -> None:
    known = tmp_path / "known.yaml"
    entry = """\
format: 1
deviations:
  - subject: "fake.lenient[{subject}]"
    cases: "shapes/mistakes/*"
    accept: {{verdict: fail, message: fewer positions}}
    reason: It compares no lengths.
    link: https://example.org
"""
    words = ["run", "-a", str(FAKE), "-k", SHORT, "--known", str(known), "--out"]
    known.write_text(entry.format(subject="lenient"), encoding="utf-8")
    assert "too wide" not in conformance(*words, str(tmp_path / "one")).stdout
    lines = (tmp_path / "one" / "run.jsonl").read_text(encoding="utf-8").splitlines()
    found = {each["subject"]: each for each in map(json.loads, lines) if each["type"] == "cell"}
    assert found["fake.lenient[lenient]"]["known"]["reason"] == "It compares no lengths."
    known.write_text(entry.format(subject="strict"), encoding="utf-8")
    assert "too wide" in conformance(*words, str(tmp_path / "other")).stdout


def test_a_reproduction_is_refused_or_has_a_reply_where_an_error_was_due(
    ran: tuple[object, Path], tmp_path: Path
) -> None:
    told = {}
    for variant in ("strict", "lenient"):
        out = tmp_path / variant
        made = conformance("repro", str(ran[1]), SHORT, f"fake.lenient[{variant}]", "--out", str(out))
        assert made.returncode == 0, made.stderr
        command = [sys.executable, str(out / "repro.py")]
        told[variant] = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told["strict"].returncode == 0
    assert "\nrefused, as it must be: ValueError: " in told["strict"].stdout
    assert told["lenient"].returncode == 1
    assert "the call has a mistake (value_positions) and must be refused, but it has a reply" in told["lenient"].stdout


def test_explain_says_that_the_call_is_to_be_refused() -> None:
    done = conformance("explain", WIDE)
    assert "\nMust be refused: mask_keys; everything below describes the valid call\n" in done.stdout
