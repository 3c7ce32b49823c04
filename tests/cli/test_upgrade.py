"""Upgrades and bisections of a fake framework: from pins to environments, verdicts, text and exit codes."""

import io
import json
import runpy
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.cli.main import main
from conformance.engine.provision import Recipe, interpreter_of, provision

TESTS = Path(__file__).parents[1]
FRAMED = str(TESTS / "fakes" / "framed.py")
CAUSAL = "causal/rectangular/more_keys[operator=sdpa,masks.0.offset=start]"
house = SimpleNamespace(**runpy.run_path(str(TESTS / "wheelhouse.py")))

VERSIONS = {
    "1.0": house.RIGHT,
    "1.1": house.RIGHT,
    "1.2": house.DIES,
    "1.3": house.RIGHT,
    "2.0": house.BOTTOM_RIGHT,
    "2.1": house.BOTTOM_RIGHT,
    "2.2": house.RAISES,
    "0.1": house.UNKNOWN,
    "3.0": house.RIGHT,
}


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment variables: where pip finds wheels, and the environment cache that all tests of this file share."""
    folder = tmp_path_factory.mktemp("provision")
    wheels = house.wheelhouse(folder / "wheels", VERSIONS)
    for version in ("1", "2"):
        house.write_wheel(wheels, "fakebase", version, {"fakebase.py": ""})
    for version in ("2.1", "3.0"):
        needs = ("numpy", f"fakebase=={version[0]}" if version == "2.1" else "fakebase==1")
        house.write_wheel(wheels, "fakeframe", version, {"fakeframe.py": VERSIONS[version]}, needs)
    house.write_wheel(wheels, "fakeframe", "2.2rc1", {"fakeframe.py": house.DIES}, ("numpy",))
    return {**house.offline(wheels), "CONFORMANCE_CACHE": str(folder / "cache")}


def conformance(variables: dict[str, str], folder: Path, *arguments: str) -> SimpleNamespace:
    """Run a command in this process: starting a new process would take longer than the command itself."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        for name, value in variables.items():
            patch.setenv(name, value)
        code = main(arguments)
    assert "Traceback" not in err.getvalue(), err.getvalue()
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


def upgrade(variables: dict[str, str], folder: Path, base: str, candidate: str, *more: str) -> tuple[int, list[str]]:
    folder.mkdir(exist_ok=True)
    pins = [f"fakeframe=={version}" for version in (base, candidate)]
    words = ["-a", FRAMED, "-k", "causal/rectangular/*operator=sdpa*", "--out", "out"]
    done = conformance(variables, folder, "upgrade", *pins, *words, *more)
    return done.returncode, done.stdout.splitlines() or done.stderr.splitlines()


def test_a_regression_is_told_in_words_and_fails(variables: dict[str, str], tmp_path: Path) -> None:
    code, said = upgrade(variables, tmp_path, "1.0", "2.0")
    assert code == 1
    assert said[1] == "Upgrade: fakeframe 1.0 -> 2.0"
    assert said[0].startswith("Regressed: fakeframe 2.0: ")
    assert "the causal mask is aligned to the last key" in said[0]
    assert (tmp_path / "out" / "summary.md").is_file()
    found = json.loads((tmp_path / "out" / "comparison.json").read_text(encoding="utf-8"))
    assert found["exit_code"] == 1
    assert {about["fakeframe"] for about in found["base"]["subjects"].values()} == {"1.0"}


def test_a_rerun_makes_the_environments_anew_wherever_it_is_typed(variables: dict[str, str], tmp_path: Path) -> None:
    _, said = upgrade(variables, tmp_path, "1.0", "2.0")
    rerun = next(line for line in said if "rerun: " in line).partition("rerun: ")[2]
    assert variables["CONFORMANCE_CACHE"] not in rerun
    words = shlex.split(rerun)
    assert words[:4] == ["conformance", "upgrade", "fakeframe==1.0", "fakeframe==2.0"]
    for file in ("out/junit.xml", "out/candidate/run.jsonl", "out/candidate/junit.xml"):
        text = (tmp_path / file).read_text(encoding="utf-8")
        reruns = [line for line in text.splitlines() if "rerun: " in line or '"rerun"' in line]
        assert reruns
        assert not any(f"--env default={variables['CONFORMANCE_CACHE']}" in line for line in reruns)
    done = conformance(variables, tmp_path, *words[1:], "--out", "again")
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].endswith(": 1 case")


def test_a_rerun_keeps_what_was_said_of_the_environments(variables: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "locked.txt").write_text("fakebase==2\n", encoding="utf-8")
    more = ("--both", "fakebase==2", "--constraint", "locked.txt")
    _, said = upgrade(variables, tmp_path, "1.0", "2.0", *more)
    rerun = next(line for line in said if "rerun: " in line).partition("rerun: ")[2]
    assert rerun.startswith(
        "conformance upgrade fakeframe==1.0 fakeframe==2.0 --both fakebase==2 --constraint locked.txt"
    )


def test_the_same_behaviour_is_unchanged(variables: dict[str, str], tmp_path: Path) -> None:
    code, said = upgrade(variables, tmp_path, "1.0", "1.1")
    assert code == 0
    assert said[0].startswith("Unchanged: ")


def test_a_red_base_with_a_green_candidate_says_what_was_fixed(variables: dict[str, str], tmp_path: Path) -> None:
    code, said = upgrade(variables, tmp_path, "2.1", "3.0")
    assert code == 0, said
    assert said[2] == "pip also changed: fakebase 2 -> 1"
    assert said[0].startswith("Nothing regressed. Fixed: fakeframe 3.0")


def test_a_side_that_does_not_start_is_incomplete(variables: dict[str, str], tmp_path: Path) -> None:
    code, said = upgrade(variables, tmp_path, "1.1", "1.2")
    assert code == 7
    assert said[0].startswith("Incomplete: ")
    assert any("was killed by SIGSEGV before it was ready" in line for line in said)


def test_a_side_that_has_no_reply_to_any_call_is_told_first(variables: dict[str, str], tmp_path: Path) -> None:
    for base, candidate, side in (("1.1", "0.1", "candidate"), ("0.1", "1.1", "base")):
        code, said = upgrade(variables, tmp_path / side, base, candidate)
        assert code == 7
        assert said[0].startswith(f"Incomplete: out/{side}: fake.framed does not work here: every one of its ")
        assert "attention() got an unexpected keyword argument 'causal'" in said[0]
        assert not any("Fixed" in line for line in said)


def test_a_version_that_pip_does_not_find_is_wrong_usage(variables: dict[str, str], tmp_path: Path) -> None:
    code, said = upgrade(variables, tmp_path, "1.0", "9.9")
    assert code == 4
    newest = "the newest releases are 3.0, 2.2, 2.1"
    assert said == [f"conformance: candidate: pip finds no fakeframe 9.9 that it can install here; {newest}"]
    assert not (tmp_path / "out").exists()


def test_all_versions_are_asked_for_before_anything_is_installed(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conformance.cli.command_upgrade.provision", None)
    code, said = upgrade(variables, tmp_path, "1.4", "2.3", "--both", "fakebase==7")
    newest, near = "the newest releases are 3.0, 2.2, 2.1", "the nearest are 1.3, 2.0, 1.2"
    assert code == 4
    assert said == [
        f"conformance: base: pip finds no fakeframe 1.4 that it can install here; {newest}; {near}",
        f"  candidate: pip finds no fakeframe 2.3 that it can install here; {newest}",
        "  --both: pip finds no fakebase 7 that it can install here; the newest releases are 2, 1",
    ]
    code, said = upgrade(variables, tmp_path, "1.0", "2.0", "--both", "fakebse==1")
    assert code == 4
    assert said[0] == "conformance: --both: pip finds no release of fakebse:"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fakeframe==1.0"], "fakeframe==1.0 has no base version: fakeframe is not installed here"),
        (["fakeframe"], "expected NAME==VERSION"),
        (["fakeframe==1.0", "fakeframe==2.0"], "no adapter requires fakeframe, only "),
        (["fakeframe==1.0", "fakeframe==2.0", "--python", "/nowhere"], "--python: /nowhere cannot be run"),
        (["fakeframe==1.0", "fakeframe==2.0", "--constraint", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_wrong_usage(variables: dict[str, str], tmp_path: Path, words: list[str], message: str) -> None:
    done = conformance(variables, tmp_path, "upgrade", *words)
    assert done.returncode == 4
    assert message in done.stderr


def test_what_cannot_be_installed_without_a_version_is_left_out(variables: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("fakeframe==1.0\n", encoding="utf-8")
    pins = ["keras==3.14.1", "keras==3.15.0", "-a", "keras.sdpa[[]torch]", "--constraint", "lock.txt"]
    done = conformance(variables, tmp_path, "upgrade", *[word.replace("[[]", "[") for word in pins])
    assert done.returncode == 4
    assert "left out: keras.sdpa[torch]: torch is not locked in lock.txt" in done.stdout
    assert "add --both torch==VERSION" in done.stdout


def test_what_only_one_side_can_run_is_left_out(variables: dict[str, str], tmp_path: Path) -> None:
    newer = Path(FRAMED).read_text(encoding="utf-8").replace('["fakeframe"]', '["fakeframe>=2"]')
    (tmp_path / "newer.py").write_text(newer.replace("fake.framed", "fake.newer"), encoding="utf-8")
    words = ["upgrade", "fakeframe==1.0", "fakeframe==1.1", "-k", CAUSAL, "-a", "newer.py"]
    alone = conformance(variables, tmp_path, *words)
    note = "left out: fake.newer: it needs fakeframe>=2, and base has 1.0"
    assert (alone.returncode, alone.stdout.splitlines()) == (4, [note])
    assert "no subject is left to judge" in alone.stderr
    both = conformance(variables, tmp_path, *words, "-a", FRAMED)
    assert (both.returncode, both.stdout.splitlines()[0]) == (0, note), both.stderr
    assert "Unchanged: " in both.stdout


def test_a_package_that_the_subject_does_not_need_is_not_bisected(variables: dict[str, str], tmp_path: Path) -> None:
    words = ["--package", "torch", "--good", "2.12.0", "--bad", "2.13.0"]
    done = conformance(variables, tmp_path, "bisect", CAUSAL, FRAMED, *words)
    assert done.returncode == 4
    assert "fake.framed does not require torch, and its newest build brings gigabytes of CUDA" in done.stderr


def test_one_pin_goes_against_the_lock(variables: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "lock.txt").write_text("fakeframe==1.0\n", encoding="utf-8")
    words = ["-a", FRAMED, "-k", CAUSAL, "--constraint", "lock.txt", "--out", "out"]
    done = conformance(variables, tmp_path, "upgrade", "fakeframe==2.0", *words)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1] == "Upgrade: fakeframe 1.0 -> 2.0"


# ---- environments ------------------------------------------------------------------------------------------------


def test_an_environment_is_made_once_and_shares_what_it_lies_over(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    cache = Path(variables["CONFORMANCE_CACHE"]) / "environments"
    python = interpreter_of(sys.executable)
    under = Recipe(python, ("numpy",))
    told: list[str] = []
    old, new = (
        provision(Recipe(python, (f"fakeframe=={version}",), (), under), cache, told.append)
        for version in ("1.0", "2.0")
    )
    said = [line for line in told if not line.startswith("  ")]
    assert said[-3:] == ["installing numpy", "installing fakeframe==1.0", "installing fakeframe==2.0"]
    assert said[:-3] in ([], [f"making an environment for {python}"]), "one empty environment for all"
    site = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    folders = [Path(made.python).parents[1] / site for made in (old, new)]
    one, other = ((folder / "numpy_here.pth").stat().st_ino for folder in folders)
    assert one == other
    assert [(folder / "fakeframe.py").read_text(encoding="utf-8") for folder in folders] == [
        house.RIGHT,
        house.BOTTOM_RIGHT,
    ]
    told.clear()
    assert provision(Recipe(python, ("fakeframe==1.0",), (), under), cache, told.append) == old
    assert told == []
    (Path(old.python).parents[1] / "environment.json").unlink()
    assert provision(Recipe(python, ("fakeframe==1.0",), (), under), cache, told.append) == old
    assert told[0] == "installing fakeframe==1.0", "one that was cut is made again"


# ---- bisect ------------------------------------------------------------------------------------------------------


def bisect(variables: dict[str, str], folder: Path, good: str, bad: str) -> SimpleNamespace:
    words = ["--package", "fakeframe", "--good", good, "--bad", bad]
    return conformance(variables, folder, "bisect", CAUSAL, FRAMED, *words)


def test_the_first_bad_release_is_found_with_both_diagnoses(variables: dict[str, str], tmp_path: Path) -> None:
    done = bisect(variables, tmp_path, "1.0", "2.2")
    assert done.returncode == 0
    said = done.stdout.splitlines()
    assert said[0] == "fakeframe 2.0 is the first bad release, 1.3 the last good one"
    assert said[1].startswith("  1.3: pass, ")
    assert said[2].startswith("  2.0: fail: ")
    assert said[2].endswith("; it aligns the causal mask to the last key (bottom right)")
    assert "of 7 releases judged" in said[3]
    assert said[4].startswith("see: conformance upgrade fakeframe==1.3 fakeframe==2.0 -a ")
    assert "2.2rc1" not in done.stderr
    again = bisect(variables, tmp_path, "1.0", "2.2")
    assert again.stdout == done.stdout
    assert "installing" not in again.stderr


def test_the_release_that_repaired_it_is_found_too(variables: dict[str, str], tmp_path: Path) -> None:
    done = bisect(variables, tmp_path, "3.0", "2.0")
    assert done.stdout.splitlines()[0] == "fakeframe 3.0 is the first good release, 2.2 the last bad one"
    assert "  2.2: error: causal is gone" in done.stdout


def test_a_release_that_does_not_start_is_skipped(variables: dict[str, str], tmp_path: Path) -> None:
    done = bisect(variables, tmp_path, "1.1", "2.0")
    assert done.stdout.splitlines()[0] == "fakeframe 2.0 is the first bad release, 1.3 the last good one"
    assert "fakeframe 1.2: skipped: " in done.stderr


@pytest.mark.parametrize(
    ("good", "bad", "code", "message"),
    [
        ("2.0", "2.2", 4, "fakeframe 2.0 is not good\n"),
        ("2.0", "3.0", 4, "fakeframe 2.0 is not good; swap --good and --bad"),
        ("1.0", "3.0", 4, "fakeframe 3.0 is not bad: it behaves like 1.0"),
        ("1.0", "1.2", 7, "fakeframe 1.2 cannot be judged: "),
        (
            "1.0",
            "9.9",
            4,
            "--bad: pip finds no fakeframe 9.9 that it can install here; the newest releases are 3.0, 2.2",
        ),
        ("1.0", "1.0", 4, "fakeframe is 1.0 on both sides"),
        ("1.0", "abc", 4, "--bad abc: expected a version, such as 3.15.0"),
    ],
)
def test_ends_that_are_none(
    variables: dict[str, str], tmp_path: Path, good: str, bad: str, code: int, message: str
) -> None:
    done = bisect(variables, tmp_path, good, bad)
    assert done.returncode == code
    assert message in done.stdout + done.stderr
