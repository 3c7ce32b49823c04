"""`conformance audit` and `validate --strict`, run as a user runs them."""

import json
from pathlib import Path

import pytest

from ..running import conformance, with_suite

SUITE = """\
format: 1
suite: small
summary: A few calls.
defaults: {operator: sdpa, batch: 2, num_heads: 2, head_dim: 3, seq_len_q: 5, seq_len_k: 7}
cases:
  - name: plain
    matrix: {dtype: [float32, float16]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return with_suite(tmp_path, SUITE)


def test_audit_has_help_with_an_example() -> None:
    done = conformance("audit", "--help")
    assert done.returncode == 0
    assert "example: conformance audit" in done.stdout


def test_audit_lists_what_is_told_apart_and_what_nothing_pins_down(project: Path) -> None:
    done = conformance("audit", "cases", cwd=project)
    assert done.returncode == 1
    rows = {line.split()[0]: line.split(maxsplit=4)[1:] for line in done.stdout.splitlines() if "=" in line}
    assert rows["scale=none"] == ["1", "0", "1", "small/plain[dtype=float32]"]
    assert rows["fully_masked_row=nan"] == ["0", "0", "0", "NOT DETECTED"]
    assert rows["polarity[additive]=ignore"][3].startswith("cannot change a result: ")
    assert "2 cases, " in done.stdout
    assert "\nnot detected: the rows with NOT DETECTED\n" in done.stdout
    assert "decisions without a detected deviation: " in done.stdout


def test_audit_as_json_has_every_case_with_its_distance(project: Path) -> None:
    done = conformance("audit", "--json", "cases", cwd=project)
    assert done.returncode == 1
    read = json.loads(done.stdout)
    assert (read["schema"], read["cases"], read["factor"]) == (1, 2, 10.0)
    rows = {row["deviation"]: row for row in read["deviations"]}
    (sight,) = rows["scale=none"]["cases"]
    assert sight["case"] == "small/plain[dtype=float32]"
    assert sight["bounds"] >= 10.0
    assert rows["scale=none"]["pinned"]
    assert [other["dtype"] for other in rows["scale=none"]["other_dtypes"]] == ["float16"]
    assert rows["result_dtype=float64"]["cases"][0]["bounds"] == "inf"
    assert "fully_masked_row=nan" in read["not_pinned"]
    assert "fully_masked_row" in read["decisions_not_pinned"]
    assert read["without_power"] == []


WEIGHTS = """\
  - {name: capped, softcap: 2, inputs: {seed: 1}}
  - {name: weighed, outputs: [output, weights], inputs: {seed: 2}}
"""


def test_audit_says_what_is_never_asked_together(project: Path) -> None:
    with_suite(project, SUITE + WEIGHTS)
    apart = [["half precision", "a softcap"], ["half precision", "weights"], ["a softcap", "weights"]]
    found = json.loads(conformance("audit", "--json", "cases", cwd=project).stdout)
    assert found["not_asked_together"] == {"sdpa": apart}
    said = "sdpa: no case combines half precision and a softcap; half precision and weights; a softcap and weights"
    assert conformance("audit", "cases", cwd=project).stdout.splitlines()[-1] == said


def test_a_case_file_with_a_mistake_is_named_and_nothing_is_audited(project: Path) -> None:
    with_suite(project, SUITE.replace("batch: 2", "batch: -2"))
    done = conformance("audit", "cases", cwd=project)
    assert done.returncode == 4
    assert "cases/small.yaml:4:" in done.stderr


IDLE = """\
  - {name: idle, batch: 1, num_heads: 1, head_dim: 2, seq_len_q: 1, seq_len_k: 1, scale: 0.5, inputs: {INPUTS}}
  - {name: idle_too, batch: 1, num_heads: 1, head_dim: 2, seq_len_q: 1, seq_len_k: 1, scale: 0.25, inputs: {INPUTS}}
""".replace("INPUTS", "query: [[[[0, 0]]]], key: [[[[0, 0]]]], value: [[[[0, 0]]]]")


def test_strict_refuses_a_case_that_tells_nothing_apart_and_has_nothing_of_its_own(project: Path) -> None:
    with_suite(project, SUITE + IDLE)
    assert conformance("validate", "cases", cwd=project).returncode == 0
    done = conformance("validate", "cases", "--strict", cwd=project)
    assert done.returncode == 4
    assert "cases/small.yaml:8: small/idle detects no deviation" in done.stderr
    assert "cases/small.yaml:9: small/idle_too detects no deviation" in done.stderr
    assert "small/plain" not in done.stderr


def test_strict_accepts_a_case_without_power_for_a_feature_of_its_own(project: Path) -> None:
    with_suite(project, SUITE + IDLE.splitlines()[0] + "\n")
    done = conformance("validate", "cases", "--strict", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
