"""Compiled programs are kept for later runs: for each environment and CPU, within a limit, and never in the log."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.engine import worker_plan
from conformance.engine.worker_plan import JAX_FOLDER, WorkerPlan, environ, kept_folder, prune, settings

INSTALLED = {"one": "sha256:1", "other": "sha256:2", "editable": ""}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(worker_plan, "fingerprint_of", lambda python, _: INSTALLED[python])
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path))


def test_each_environment_and_each_cpu_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = kept_folder("one", ("jax",))
    assert Path(one).parent == tmp_path / "compiled"
    assert kept_folder("one", ("torch", "jax")) == one
    assert kept_folder("other", ("jax",)) != one
    monkeypatch.setattr(worker_plan, "cpu", lambda: ("flags\t: sse2",))
    assert kept_folder("one", ("jax",)) != one


@pytest.mark.parametrize(("python", "distributions"), [("editable", ("jax",)), ("one", ("numpy",)), ("one", ())])
def test_nothing_is_kept_of_editable_installs_or_of_what_does_not_compile(
    python: str, distributions: tuple[str, ...]
) -> None:
    assert kept_folder(python, distributions) == ""


def test_a_folder_that_cannot_be_made_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("CONFORMANCE_CACHE", str(tmp_path / "file"))
    assert kept_folder("one", ("jax",)) == ""


def test_a_folder_that_cannot_be_written_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert kept_folder("one", ("jax",)) == ""


def plan(compiled: str = "") -> WorkerPlan:
    return WorkerPlan("a", Path("a.py"), ("a",), sys.executable, compiled=compiled)


def test_workers_get_the_folder_and_without_one_that_of_their_run(tmp_path: Path) -> None:
    kept, home = tmp_path / "kept", tmp_path / "run" / "home"
    variables = environ(plan(str(kept)), home)
    assert (variables["CONFORMANCE_CACHE"], variables[JAX_FOLDER]) == (str(kept), str(kept / "jax"))
    variables = environ(plan(), home)
    assert variables[JAX_FOLDER] == str(home.parent / "cache" / "jax")


def test_where_programs_are_kept_is_no_setting_on_which_numbers_depend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    told = settings(plan("somewhere"))
    assert told == settings(plan())
    assert told["JAX_ENABLE_X64"] == "1"
    assert not [name for name in told if "CACHE" in name]


def test_the_oldest_files_are_removed_beyond_the_limit(tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    files = [folder / name for name in ("a/1", "a/2", "b/jax/3", "b/4")]
    for age, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(30))
        os.utime(file, (1000 + age, 1000 + age))
    prune(folder, limit=120)
    assert all(file.exists() for file in files)
    prune(folder, limit=100)
    assert [file.exists() for file in files] == [False, False, True, True]


def test_nothing_is_removed_from_any_other_folder(tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_bytes(bytes(30))
    with pytest.raises(ValueError, match="is not a folder of compiled programs: its name is not 'compiled'"):
        prune(tmp_path, limit=10)
    assert file.exists()


def test_a_plan_with_another_folder_is_the_same_worker() -> None:
    assert settings(plan()) == settings(replace(plan(), compiled="x"))
