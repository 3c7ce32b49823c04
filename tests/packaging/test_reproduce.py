"""The comparison of `nox -s package` finds two builds that differ, and a build that lacks an archive."""

from pathlib import Path

from . import reproduce


def build(folder: Path, **archives: bytes) -> dict[str, str]:
    folder.mkdir()
    for name, content in archives.items():
        (folder / name.replace("_whl", ".whl").replace("_gz", ".tar.gz")).write_bytes(content)
    return reproduce.digests(folder)


def test_equal_builds_have_no_difference(tmp_path: Path) -> None:
    first, second = (build(tmp_path / name, a_whl=b"1", a_gz=b"2", notes=b"3") for name in "ab")
    assert first.keys() == {"a.whl", "a.tar.gz"}
    assert list(reproduce.differences(first, second)) == []


def test_another_byte_is_a_difference(tmp_path: Path) -> None:
    first = build(tmp_path / "a", a_whl=b"1", a_gz=b"2")
    second = build(tmp_path / "b", a_whl=b"1", a_gz=b"3")
    (text,) = reproduce.differences(first, second)
    assert text.startswith("a.tar.gz: ")
    assert first["a.tar.gz"] in text


def test_a_build_that_lacks_an_archive_is_found(tmp_path: Path) -> None:
    first, second = build(tmp_path / "a", a_whl=b"1"), build(tmp_path / "b", a_whl=b"1", a_gz=b"2")
    texts = list(reproduce.differences(first, second))
    assert texts[0] == "the first build has no .tar.gz file"
    assert texts[1].startswith("a.tar.gz: absent in the first build, ")
