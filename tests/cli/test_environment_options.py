"""Several environments in one run, and environments that cannot be used."""

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ..running import conformance, records

TESTS = Path(__file__).parents[1]
FRAMED = str(TESTS / "fakes" / "framed.py")
CAUSAL = "causal/rectangular/more_keys[operator=sdpa,masks.0.offset=start]"


house = SimpleNamespace(**runpy.run_path(str(TESTS / "wheelhouse.py")))


def run(folder: Path, *arguments: str) -> tuple[int, str, list[dict[str, Any]]]:
    done = conformance("run", "-k", CAUSAL, "--out", "out", *arguments, cwd=folder)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, records(folder / "out")


def verdicts(found: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {record["subject"]: record["verdict"] for record in found if record["type"] == "cell"}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(house.environment(tmp_path / "old", house.BOTTOM_RIGHT))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return Path(house.environment(tmp_path / "new", house.RIGHT))


def test_two_versions_of_a_framework_stand_side_by_side(tmp_path: Path, old: Path, new: Path) -> None:
    code, said, found = run(tmp_path, "-a", FRAMED, "--env", f"old={old}", "--env", f"new={new.parents[1]}")
    counted = {name: verdict for name, verdict in verdicts(found).items() if "dense" not in name}
    assert counted == {"fake.framed@cpu:old": "fail", "fake.framed@cpu:new": "pass"}
    assert (code, "incomplete" in said) == (1, False), "our own environment need not have the framework"
    rerun = next(record["rerun"] for record in found if record.get("verdict") == "fail")
    assert f"--env old={old}" in rerun
    assert "fake.framed@cpu:old" in rerun or "framed.py@cpu:old" in rerun


def test_the_header_says_what_each_environment_is(tmp_path: Path, old: Path) -> None:
    _, _, found = run(tmp_path, "-a", FRAMED, "-a", "numpy.sdpa@cpu:default", "--env", f"old={old}")
    environments = found[0]["environments"]
    assert set(environments) == {"default", "old"}
    assert environments["old"]["python"] == str(old)
    assert environments["old"]["version"] == ".".join(map(str, sys.version_info[:3]))
    assert environments["old"]["packages"]["fakeframe"] == "1.0"
    assert "numpy" in environments["default"]["packages"]
    worker = next(record for record in found if record["type"] == "worker" and record["environment"] == "old")
    assert worker["versions"] == {"fakeframe": "1.0"}
    assert worker["settings"]["OMP_NUM_THREADS"] == "1"


def test_the_environments_of_the_nearest_project(tmp_path: Path, old: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.conformance.environments]\nold = "old"\n', encoding="utf-8")
    (tmp_path / ".git").mkdir()
    inner = tmp_path / "inner"
    inner.mkdir()
    code, _, found = run(inner, "-a", f"{FRAMED}@cpu:old")
    assert verdicts(found) == {"fake.framed@cpu:old": "fail"}
    assert found[0]["environments"]["old"]["python"] == str(old)
    (inner / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    assert conformance("run", "-k", CAUSAL, "-a", f"{FRAMED}@cpu:old", cwd=inner).returncode == 4
    assert code == 1


def test_an_environment_of_the_project_that_nobody_chose_is_not_examined(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.conformance.environments]\nold = "nowhere"\n', encoding="utf-8")
    assert run(tmp_path, "-a", "numpy.sdpa@cpu:default")[0] == 0
    code, said, _ = run(tmp_path / ".", "-a", "numpy.sdpa@cpu*", "--out", "second")
    assert code == 7
    assert f"environment old: {tmp_path}/nowhere cannot be run" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.conformance.environments]\nold = 3\n", "old = 3: expected NAME"),
        ('[tool.conformance.environments]\n"a b" = "x"\n', "a b = 'x': expected NAME"),
        ('[tool.conformance]\nenvironments = ["x"]\n', "is a table of NAME"),
        ("[tool.conformance\n", "pyproject.toml: "),
    ],
)
def test_a_table_of_another_form_is_wrong_usage(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    done = conformance("run", "-a", "numpy.sdpa", cwd=tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (4, False)
    assert message in done.stderr


def test_another_interpreter_may_stand_for_our_own(tmp_path: Path, old: Path) -> None:
    code, _, found = run(tmp_path, "-a", FRAMED, "--env", f"default={old}")
    assert code == 1
    assert verdicts(found)["fake.framed"] == "fail"
    assert found[0]["environments"]["default"]["python"] == str(old)


def test_an_environment_without_the_framework_is_told_once_with_what_to_type(tmp_path: Path) -> None:
    python = house.environment(tmp_path / "bare")
    code, said, _ = run(tmp_path, "-a", f"{FRAMED}@cpu:bare", "-a", "fake.framed*@cpu:bare", "--env", f"bare={python}")
    assert code == 7
    assert said.count("incomplete: ") == 1
    assert f"fake.framed@cpu:bare: needs fakeframe: {python} -m pip install fakeframe" in said


def test_a_framework_that_takes_the_process_down_is_told_once_with_the_place(tmp_path: Path) -> None:
    python = house.environment(tmp_path / "bad", house.DIES)
    code, said, _ = run(tmp_path, "-a", FRAMED, "-a", "numpy.sdpa@cpu:bad", "--env", f"bad={python}")
    assert code == 7
    assert said.count("incomplete: ") == 1
    assert "was killed by SIGSEGV before it was ready, while it imported " in said
    assert "fakeframe.py: the installed package is broken, or its versions do not fit together" in said


def test_an_environment_without_numpy_is_told_with_what_to_type(tmp_path: Path) -> None:
    python = house.environment(tmp_path / "bare")
    for path in list((tmp_path / "bare" / "lib").rglob("numpy*")):
        if path.name.endswith((".dist-info", ".pth")):
            path.rename(tmp_path / path.name)
    code, said, _ = run(tmp_path, "-a", "numpy.sdpa", "--env", f"bare={python}")
    assert code == 7
    remedy = f"{python} -m pip install 'numpy>=1.26'"
    assert f"environment bare: it has no NumPy, but workers need NumPy 1.26 or later: {remedy}" in said
