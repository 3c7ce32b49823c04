"""Published numbers against the oracle: half a unit of the last digit is allowed; what is said if they are wrong."""

import re
from pathlib import Path

import pytest

from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.mistakes import CaseFileErrors
from conformance.verdicts.expectation import published_finding

# One query [1, 0] on keys [1, 0] and [0, 1] with scale 1: logits 1 and 0, weights e/(e+1) = 0.7310586 and 0.2689414.
# Values 10 and 20: 10 * 0.7310586 + 20 * 0.2689414 = 12.689414.
SUITE = """
format: 1
suite: printed
summary: By hand.
defaults:
  {operator: sdpa, batch: 1, num_heads: 1, seq_len_q: 1, seq_len_k: 2, head_dim: 2, value_dim: 1, scale: 1.0}
cases:
  - name: one
    inputs: {query: [[[[1, 0]]]], key: [[[[1, 0], [0, 1]]]], value: [[[[10], [20]]]]}
    published: PUBLISHED
"""
SOURCE = "source: https://example.org/table"


def case_of(tmp_path: Path, published: str) -> Case:
    (tmp_path / "printed.yaml").write_text(SUITE.replace("PUBLISHED", f"{{{SOURCE}, {published}}}"), encoding="utf-8")
    (case,) = load([tmp_path], tmp_path)
    return case


def problem_of(tmp_path: Path, published: str) -> str:
    case = case_of(tmp_path, published)
    finding = published_finding(case, materialise(case))
    assert finding is not None
    return finding.problem


@pytest.mark.parametrize(
    "published",
    [
        "output: [[[[12.7]]]], digits: 1",
        "output: [[[[12.689414]]]], digits: 6",
        "weights: [[[[0.731, 0.269]]]], digits: 3",
        "output: [[[[12.7]]]], rtol: 0.001",
        "output: [[[[12.6]]]], atol: 0.1",
        "output: [[[[12.75]]]], weights: [[[[0.73, 0.27]]]], atol: 0.07, rtol: 0.0",
    ],
)
def test_numbers_agree_within_what_is_printed(tmp_path: Path, published: str) -> None:
    assert problem_of(tmp_path, published) == ""


@pytest.mark.parametrize(
    "published",
    [
        "output: [[[[12.6]]]], digits: 1",
        "output: [[[[12.70]]]], digits: 2",
        "output: [[[[12.7]]]], weights: [[[[0.27, 0.73]]]], digits: 1",
        "output: [[[[.nan]]]], digits: 1",
        "output: [[[[12.7]]]], rtol: 0.0001",
    ],
)
def test_numbers_disagree_beyond_it(tmp_path: Path, published: str) -> None:
    found = problem_of(tmp_path, published)
    assert found.startswith("printed/one: the published numbers (https://example.org/table) disagree with the oracle: ")


def test_the_worst_place_is_named(tmp_path: Path) -> None:
    found = problem_of(tmp_path, "output: [[[[12.6]]]], digits: 1")
    assert found.endswith(
        "output at [0, 0, 0, 0]: 12.6 is published, the oracle computes 12.6894142, allowed difference 0.05"
    )


def test_half_precision_is_held_to_its_own_bound(tmp_path: Path) -> None:
    # 12.6875 is the float16 number nearest to 12.689414: numbers are 2**-7 apart there
    exact = "output: [[[[12.6875]]]], rtol: 0.0001"
    assert problem_of(tmp_path, exact) != ""
    assert problem_of(tmp_path, f"{exact}, computed_in: float16") == ""
    assert problem_of(tmp_path, "output: [[[[13.6875]]]], rtol: 0.0001, computed_in: float16") != ""


def test_errata_must_be_needed(tmp_path: Path) -> None:
    errata = "errata: The table has the weights in the wrong order."
    assert problem_of(tmp_path, f"weights: [[[[0.27, 0.73]]]], digits: 2, {errata}") == ""
    found = problem_of(tmp_path, f"weights: [[[[0.73, 0.27]]]], digits: 2, {errata}")
    assert found == (
        "printed/one: the published numbers agree with the oracle; "
        "remove the errata (The table has the weights in the wrong order.)"
    )


def test_a_case_without_numbers_has_no_finding(tmp_path: Path) -> None:
    (tmp_path / "printed.yaml").write_text(SUITE.replace("    published: PUBLISHED\n", ""), encoding="utf-8")
    (case,) = load([tmp_path], tmp_path)
    assert published_finding(case, materialise(case)) is None


@pytest.mark.parametrize(
    ("published", "fault"),
    [
        ("output: [[[[12.7]]]]", "expected either digits, or rtol and atol: the precision of the published numbers"),
        ("output: [[[[12.7]]]], digits: 1, rtol: 0.1", "expected either digits, or rtol and atol"),
        ("digits: 1", "published contains no numbers: expected at least one of output, weights, weights_mean, or file"),
        ("output: [[[12.7]]], digits: 1", "expected a list of 1 items, got 12.7"),
        ("weights: [[[[0.7, 0.2, 0.1]]]], digits: 1", "expected 2 items, got 3"),
        ("file: nowhere.npz, digits: 1", "file 'nowhere.npz' does not exist in the folder of the suite"),
        ("outputs: [[[[12.7]]]], digits: 1", "unknown key 'outputs'; did you mean 'output'?"),
    ],
)
def test_a_mistake_in_it_is_told(tmp_path: Path, published: str, fault: str) -> None:
    with pytest.raises(CaseFileErrors, match=re.escape(fault)) as caught:
        case_of(tmp_path, published)
    assert "/printed.yaml:10:" in str(caught.value)
