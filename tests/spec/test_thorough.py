"""Which cases only a thorough run includes."""

from pathlib import Path

import pytest

from conformance.spec.loader import load
from conformance.spec.mistakes import CaseFileErrors

SUITE = """
format: 1
suite: few
summary: A few.
defaults: {operator: sdpa, batch: 2, num_heads: 3, seq_len_q: 5, seq_len_k: 7, head_dim: 11}
cases:
  - name: one
    matrix: {dtype: [float32, float64]}
  - name: two
    inputs: {seed: 2}
"""


def folder_with(listed: str, folder: Path) -> Path:
    (folder / "few.yaml").write_text(SUITE, encoding="utf-8")
    (folder / "thorough.txt").write_text(listed, encoding="utf-8")
    return folder


def test_listed_cases_are_thorough_and_others_are_not(tmp_path: Path) -> None:
    cases = load([tmp_path], folder_with("# a comment\n\nfew/one[dtype=float64]\n", tmp_path))
    assert {case.id: case.thorough for case in cases} == {
        "few/one[dtype=float32]": False,
        "few/one[dtype=float64]": True,
        "few/two": False,
    }


def test_without_a_list_every_case_is_asked_by_default(tmp_path: Path) -> None:
    (tmp_path / "few.yaml").write_text(SUITE, encoding="utf-8")
    assert not any(case.thorough for case in load([tmp_path], tmp_path))


def test_an_unknown_id_is_told_with_its_line_and_the_nearest_one(tmp_path: Path) -> None:
    root = folder_with("few/two\nfew/tow\n", tmp_path)
    with pytest.raises(CaseFileErrors) as caught:
        load([root], root)
    assert str(caught.value) == (
        f"{root.name}/thorough.txt:2:1: no case has the id 'few/tow'; did you mean 'few/two'?; "
        "remove or correct this line"
    )


def test_ids_of_suites_that_were_not_loaded_are_passed_over(tmp_path: Path) -> None:
    root = folder_with("other/case\n", tmp_path)
    assert len(load([root / "few.yaml"], root)) == 3


def test_a_list_that_is_no_text_is_a_mistake(tmp_path: Path) -> None:
    root = folder_with("", tmp_path)
    (root / "thorough.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(CaseFileErrors, match=r"thorough\.txt:1:1: cannot be read"):
        load([root], root)
