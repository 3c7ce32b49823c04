"""Suites and array files in the case folder, and paths that lead out of it."""

from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from conformance.spec import array_files
from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.mistakes import CaseFileErrors, Mistake

Mistakes = Callable[..., tuple[Mistake, ...]]
Write = Callable[[dict[str, str]], Path]

SUITE = """\
format: 1
suite: t
summary: One.
cases:
  - {name: one, operator: sdpa, batch: 1, num_heads: 1, seq_len_q: 2, seq_len_k: 3, head_dim: 2,
     inputs: {file: FILE}}
"""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the array files that were opened."""
    names: list[str] = []

    def shapes(path: Path) -> dict[str, tuple[int, ...]]:
        names.append(str(path))
        return {}

    monkeypatch.setattr(array_files, "shapes", shapes)
    return names


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "../../../../etc/passwd", "../out.npz"])
def test_a_path_out_of_the_case_folder_is_refused_unopened(mistakes: Mistakes, opened: list[str], name: str) -> None:
    (found,) = mistakes(SUITE.replace("FILE", name))
    assert (found.line, found.column) == (6, 21)
    assert found.message == f"file {name!r} is outside the case folder; expected a file in the folder of the suite"
    assert not opened


def test_a_link_out_of_the_case_folder_is_refused_unopened(
    write: Write, mistakes: Mistakes, opened: list[str], tmp_path: Path
) -> None:
    np.savez(tmp_path / "secret.npz", query=np.ones((1, 1, 2, 2)))
    (write({}) / "cases").mkdir(parents=True)
    (tmp_path / "cases" / "link.npz").symlink_to(tmp_path / "secret.npz")
    (found,) = mistakes(SUITE.replace("FILE", "link.npz"))
    assert "is outside the case folder" in found.message
    assert not opened


@pytest.mark.parametrize(
    ("name", "words"),
    [("absent.npz", "file 'absent.npz' does not exist"), ("t.yaml", "file 't.yaml' must end in .npz")],
)
def test_only_an_npz_that_exists_is_opened(mistakes: Mistakes, opened: list[str], name: str, words: str) -> None:
    (found,) = mistakes(SUITE.replace("FILE", name))
    assert words in found.message
    assert not opened


def saved(write: Write, **arrays: object) -> Path:
    root = write({"t.yaml": SUITE.replace("FILE", "a.npz")})
    np.savez(root / "a.npz", **arrays)  # type: ignore[arg-type]
    return root


def test_a_file_of_fitting_arrays_is_taken(write: Write) -> None:
    root = saved(write, query=np.ones((1, 1, 2, 2)), key=np.ones((1, 1, 3, 2), dtype=np.int32))
    (case,) = load([root], root)
    assert case.inputs.file == root / "a.npz"


@pytest.mark.parametrize(
    ("array", "words"),
    [
        ({"query": np.ones((2, 2))}, "query in a.npz has shape (2, 2); expected (1, 1, 2, 2)"),
        ({"qeury": np.ones((2, 2))}, "a.npz has an unknown array 'qeury'; expected some of query, key, value"),
        ({"query": np.array([[{}]])}, "holds object, not numbers"),
        ({"query": np.array(["a"])}, "not numbers"),
    ],
)
def test_a_file_that_does_not_fit(write: Write, array: dict[str, object], words: str) -> None:
    root = saved(write, **array)
    with pytest.raises(CaseFileErrors) as caught:
        load([root], root)
    assert words in str(caught.value)


def test_a_file_that_is_no_archive(write: Write) -> None:
    root = write({"t.yaml": SUITE.replace("FILE", "a.npz"), "a.npz": "not a zip"})
    with pytest.raises(CaseFileErrors, match=r"a\.npz is not a readable npz of numbers"):
        load([root], root)


def test_a_member_that_is_no_array(write: Write) -> None:
    root = write({"t.yaml": SUITE.replace("FILE", "a.npz")})
    with ZipFile(root / "a.npz", "w") as archive:
        archive.writestr("query.npy", b"\x93NUMPY\x09\x00rest")
    with pytest.raises(CaseFileErrors, match="has an unknown format"):
        load([root], root)


def test_a_suite_outside_the_case_folder_is_refused_unread(write: Write, tmp_path: Path) -> None:
    root = write({"t.yaml": ""})
    (tmp_path / "outside.yaml").write_text("secret", encoding="utf-8")
    (root / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    for path in (root / "link.yaml", tmp_path / "outside.yaml", root / ".." / "outside.yaml"):
        with pytest.raises(CaseFileErrors, match="is outside the case folder cases"):
            load([path], root)
    with pytest.raises(CaseFileErrors, match=r"link\.yaml points outside the case folder cases"):
        load([root], root)


def test_paths_that_are_no_suites(write: Write) -> None:
    root = write({"t.yml": "", "empty/readme.txt": ""})
    for path, words in {
        "absent.yaml": "file does not exist",
        "t.yml": "the name of a suite file must end in .yaml",
        "empty": r"this folder contains no suite \(\*.yaml\)",
    }.items():
        with pytest.raises(CaseFileErrors, match=words):
            load([root / path], root)


def test_a_file_asked_for_twice_is_loaded_once(write: Write) -> None:
    text = SUITE.replace("inputs: {file: FILE}", "")
    root = write({"t.yaml": text, "a/u.yaml": text.replace("suite: t", "suite: a/u")})
    cases: tuple[Case, ...] = load([root / "t.yaml", root, root / "a" / ".." / "t.yaml"], root)
    assert [(case.id, case.source) for case in cases] == [
        ("a/u/one", "cases/a/u.yaml:5"),
        ("t/one", "cases/t.yaml:5"),
    ]
    assert [case.id for case in load([root / "a"], root)] == ["a/u/one"]


def test_a_file_that_is_not_text_is_a_mistake(write: Write) -> None:
    root = write({"t.yaml": ""})
    (root / "t.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CaseFileErrors, match=r"^cases/t\.yaml:1:1: cannot be read: "):
        load([root], root)


def test_a_mistake_is_placed_as_an_editor_opens_it(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write({"a/u.yaml": "suite: a/v\n"})
    monkeypatch.chdir(root / "a")
    with pytest.raises(
        CaseFileErrors, match=r"(?m)^u\.yaml:1:8: suite 'a/v' is in the file cases/a/u\.yaml; expected suite 'a/u'"
    ):
        load([root], root)


def test_arrays_that_are_cut_or_damaged_are_mistakes(write: Write) -> None:
    root = saved(write, query=np.ones((1, 1, 2, 2)))
    whole = (root / "a.npz").read_bytes()
    with ZipFile(root / "a.npz") as archive:
        member = archive.read("query.npy")
    with ZipFile(root / "a.npz", "w") as archive:
        archive.writestr("query.npy", member[:-8])
    with pytest.raises(CaseFileErrors, match=r"query\.npy has 152 bytes; its header says 160"):
        load([root], root)
    (root / "a.npz").write_bytes(whole.replace(np.ones(1).tobytes(), np.array([2.0]).tobytes(), 1))
    with pytest.raises(CaseFileErrors, match=r"a\.npz is not a readable npz of numbers: Bad CRC-32"):
        load([root], root)
