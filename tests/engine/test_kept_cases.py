"""Cases that are kept are those of the files, and a file that changes is read again."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance import places
from conformance.engine import kept_cases
from conformance.engine.result_cache import FILE
from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.mistakes import CaseFileErrors

SUITE = """\
format: 1
suite: small
summary: Numbers that JSON does not have, and a mask that is written out.
defaults: {operator: sdpa, batch: 1, num_heads: 2, head_dim: 3, seq_len_q: 2, seq_len_k: 3}
cases:
  - name: plain
  - name: masked
    masks: [{kind: additive, axes: [q, k], values: [[0.5, -.inf, 0.0], [0.25, 0.0, -.inf]]}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "small.yaml").write_text(SUITE, encoding="utf-8")
    return tmp_path / "cases"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders whose files are read."""
    found: list[Path] = []

    def counted(paths: Sequence[Path], root: Path) -> tuple[Case, ...]:
        found.append(root)
        return load(paths, root)

    monkeypatch.setattr(kept_cases, "load", counted)
    return found


@pytest.mark.usefixtures("folder")
def test_the_packaged_cases_are_kept_as_they_are(read: list[Path]) -> None:
    root = places.cases()
    first, second = (kept_cases.load_cases([root], root) for _ in range(2))
    assert first == second == load([root], root)
    assert {type(case.masks) for case in second} == {tuple}
    assert read == [root]


def test_numbers_that_json_does_not_have_are_kept(folder: Path, read: list[Path]) -> None:
    first, second = (kept_cases.load_cases([folder], folder) for _ in range(2))
    assert first == second
    assert "-inf" in repr(second[1].masks)
    assert read == [folder]


def test_a_changed_file_is_read_again(folder: Path, read: list[Path]) -> None:
    kept_cases.load_cases([folder], folder)
    (folder / "small.yaml").write_text(SUITE.replace("head_dim: 3", "head_dim: 5"), encoding="utf-8")
    assert {case.head_dim for case in kept_cases.load_cases([folder], folder)} == {5}
    (folder / "thorough.txt").write_text("small/masked\n", encoding="utf-8")
    assert [case.thorough for case in kept_cases.load_cases([folder], folder)] == [False, True]
    assert read == [folder] * 3


def test_mistakes_are_told_every_time(folder: Path, read: list[Path]) -> None:
    (folder / "small.yaml").write_text(SUITE.replace("head_dim", "head_dims"), encoding="utf-8")
    for _ in range(2):
        with pytest.raises(CaseFileErrors, match="head_dim"):
            kept_cases.load_cases([folder], folder)
    assert read == [folder] * 2


def test_a_path_that_cannot_be_read_is_told_though_the_others_are_kept(folder: Path) -> None:
    file = folder / "small.yaml"
    kept_cases.load_cases([file], folder)
    with pytest.raises(CaseFileErrors, match=r"missing\.yaml"):
        kept_cases.load_cases([file, folder / "missing.yaml"], folder)


def test_a_damaged_cache_costs_only_time(folder: Path, read: list[Path]) -> None:
    first = kept_cases.load_cases([folder], folder)
    (places.cache() / FILE).write_bytes(b"no database")
    assert kept_cases.load_cases([folder], folder) == first
    assert read == [folder] * 2
