"""The digest of what is installed: which changes it shows, and which distributions are looked at for edited files."""

import importlib.metadata
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from conformance.bridge import fingerprint


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with three distributions: deep-learning requires small.Numbers, and nothing requires other."""
    monkeypatch.setattr(fingerprint, "distributions", partial(importlib.metadata.distributions, path=[str(tmp_path)]))
    install(tmp_path, "deep_learning", "Requires-Dist: small.Numbers>=1.26; python_version > '3'\n")
    install(tmp_path, "small_numbers")
    install(tmp_path, "other")
    yield tmp_path
    forget()


def install(site: Path, name: str, more: str = "", version: str = "1.0") -> None:
    (site / name).mkdir(exist_ok=True)
    (site / name / "code.py").write_text("pass\n", encoding="utf-8")
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n{more}\nText\n", encoding="utf-8")
    (about / "RECORD").write_text(f"{name}/code.py,sha256=abc,5\n{about.name}/RECORD,,\n", encoding="utf-8")


def forget() -> None:
    for each in (fingerprint.installed, fingerprint._recorded, fingerprint._changed):
        each.cache_clear()


def digest(*names: str) -> str:
    forget()
    found, reason = fingerprint.fingerprint(names)
    assert reason == ""
    return found


@pytest.mark.parametrize("edited", ["deep_learning", "small_numbers"])
def test_an_edited_file_of_what_is_required_changes_the_digest(site: Path, edited: str) -> None:
    before = digest("Deep.Learning")
    (site / edited / "code.py").write_text("pass  # edited\n", encoding="utf-8")
    assert digest("deep-learning") != before


def test_an_edit_of_the_same_size_is_seen_by_its_time(site: Path) -> None:
    before = digest("other")
    later = (site / "other-1.0.dist-info" / "RECORD").stat().st_mtime_ns + 3_000_000_000
    os.utime(site / "other" / "code.py", ns=(later, later))
    assert digest("other") != before


def test_a_file_that_is_gone_changes_the_digest(site: Path) -> None:
    before = digest("other")
    (site / "other" / "code.py").unlink()
    assert digest("other") != before


def test_an_edited_file_of_what_is_not_required_changes_nothing_but_the_digest_of_all(site: Path) -> None:
    before, of_all = digest("deep-learning"), fingerprint.fingerprint()
    (site / "other" / "code.py").write_text("pass  # edited\n", encoding="utf-8")
    assert digest("deep-learning") == before
    assert fingerprint.fingerprint() != of_all


@pytest.mark.parametrize(
    "change",
    [
        lambda site: install(site, "other", version="1.1"),
        lambda site: install(site, "third"),
        lambda site: (site / "other-1.0.dist-info" / "RECORD").write_text("other/code.py,sha256=abd,5\n"),
    ],
    ids=["another version", "one more", "another content"],
)
def test_another_release_of_anything_changes_the_digest(site: Path, change: Callable[[Path], object]) -> None:
    before = digest("deep-learning")
    change(site)
    assert digest("deep-learning") != before


def test_there_is_no_digest_of_what_may_change_without_notice(site: Path) -> None:
    forget()
    (site / "other-1.0.dist-info" / "direct_url.json").write_text('{"dir_info": {"editable": true}}', encoding="utf-8")
    assert fingerprint.fingerprint(()) == ("", "other is installed in editable mode")
    (site / "other-1.0.dist-info" / "RECORD").unlink()
    (site / "other-1.0.dist-info" / "direct_url.json").unlink()
    forget()
    assert fingerprint.fingerprint(()) == ("", "other was installed without a RECORD of its files")
