"""A file is written completely or not at all, and what killed processes left is removed."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from conformance.disk import identity, lives, remove_parts, scratch, see_writable, write_asked, write_whole


def killed() -> str:
    """Return the identity of a process that has ended."""
    program = "from conformance.disk import identity; print(identity())"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_this_process_lives_and_one_that_ended_does_not() -> None:
    assert lives(identity())
    assert not lives(killed())


def test_a_process_that_has_the_number_of_another_is_told_apart() -> None:
    namespace, pid, started = identity().split("-")
    assert not lives(f"{namespace}-{pid}-{int(started) + 1}")


def test_what_cannot_be_seen_from_here_counts_as_alive() -> None:
    _, pid, _ = killed().split("-")
    assert lives(f"1-{pid}-1")


def test_where_the_system_does_not_say_when_a_process_started_its_number_decides() -> None:
    namespace, pid, _ = killed().split("-")
    assert not lives(f"{namespace}-{pid}-0")
    assert lives(f"{namespace}-{os.getpid()}-0")


def test_a_file_is_replaced_as_a_whole_and_its_link_with_it(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("stays", encoding="utf-8")
    (tmp_path / "page").symlink_to(other)
    write_whole(tmp_path / "page", "caf\udce9\n")
    assert not (tmp_path / "page").is_symlink()
    assert (tmp_path / "page").read_bytes() == b"caf\\udce9\n"
    assert other.read_text(encoding="utf-8") == "stays"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["other", "page"]


def test_what_cannot_be_written_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "page").write_text("old", encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/page'"):
        write_whole(tmp_path / "page", "new")
    assert [each.name for each in tmp_path.iterdir()] == ["page"]
    assert (tmp_path / "page").read_text(encoding="utf-8") == "old"


def test_a_file_that_a_user_names_may_be_a_link_or_a_device(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "file")
    write_asked(tmp_path / "link", "text")
    assert (tmp_path / "deep" / "file").read_text(encoding="utf-8") == "text"
    assert (tmp_path / "link").is_symlink()
    write_asked(Path(os.devnull), "text")
    assert Path(os.devnull).is_char_device()


def test_what_another_was_writing_there_when_it_was_killed_goes(tmp_path: Path) -> None:
    dead, alive = tmp_path / f".file.{killed()}.part", tmp_path / f".file.{identity()[:-1]}x.part"
    for each in (dead, alive):
        each.write_text("half", encoding="utf-8")
    write_asked(tmp_path / "file", "text")
    assert not dead.exists()
    assert alive.exists(), "no name of ours"


def test_parts_go_from_a_folder_and_the_folders_in_it(tmp_path: Path) -> None:
    (tmp_path / "tensors").mkdir()
    for name in (f".a.{killed()}.part", f"tensors/.b.{killed()}.part", ".mine.part", "c"):
        (tmp_path / name).write_text("half", encoding="utf-8")
    remove_parts(tmp_path)
    assert sorted(each.name for each in tmp_path.rglob("*")) == [".mine.part", "c", "tensors"]


def test_whether_a_file_can_be_written_is_seen_before(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("text", encoding="utf-8")
    for path, number in ((tmp_path / "notes" / "x", errno.ENOTDIR), (tmp_path, errno.EISDIR)):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - errno is checked below
            see_writable(path)
        assert caught.value.errno in {number, errno.EEXIST}
    see_writable(tmp_path / "deep" / "file")
    see_writable(Path(os.devnull))
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["deep", "notes"]


def test_temporary_folders_of_killed_processes_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"conformance-{killed()}-abc").mkdir()
    (tmp_path / f"conformance-{identity()}-abc").mkdir()
    (tmp_path / "conformance-of-a-user").mkdir()
    with scratch() as folder:
        assert Path(folder).name.startswith(f"conformance-{identity()}-")
        assert len(list(tmp_path.iterdir())) == 3
    assert {each.name for each in tmp_path.iterdir()} == {f"conformance-{identity()}-abc", "conformance-of-a-user"}


def test_where_no_temporary_folder_can_be_written_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(OSError, match="no folder for temporary files is writable: free some space, or set TMPDIR to"):
        scratch()
