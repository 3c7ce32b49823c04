"""The pytest plug-in in separate projects: one test per case, one check, and nothing passes vacuously."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.checking.check_report import CaseOutcome, judged_share
from conformance.checking.function_check import load_cases

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
PLAIN = Path(__file__).parent / "checked_sdpa.py"
SDPA = [case.id for case in load_cases("sdpa")]
OFFSET = [name for name in SDPA if name.startswith("causal/offset/")]
LOG = "checks.jsonl"

THREE_LINES = """
import conformance.pytest
from checked_sdpa import right
test_attention = conformance.pytest.cases(right{})
"""

# A fast stand-in for check: every check, in pytest and in the workers of pytest-xdist, appends a line to a file.
STAND_IN = """
import functools, json, os, pathlib
import conformance.checking.api as api
from conformance.checking.api import Result
from conformance.checking.target import CheckError
from conformance.checking.check_report import CaseOutcome

OUTCOMES = {outcomes}

@functools.wraps(api.check)
def check(function, *, cases, out, **options):
    with pathlib.Path("checks.jsonl").open("a") as log:
        print(json.dumps([function.__qualname__, list(cases), options]), file=log)
    if OUTCOMES is None:
        raise CheckError("it returns None")
    found = {{case: CaseOutcome(*OUTCOMES.get(case, ("pass", True, ""))) for case in cases}}
    return Result(True, (), (), 0, out, "", found)

api.check = check
"""

FAILS = {
    "causal/offset/moved_window[dtype=float32]": (
        "fail",
        False,
        "it reads True in mask as: ignore this key\nworkaround: pass ~mask",
    ),
    "causal/offset/moved_by_padding[dtype=float32]": ("unsupported", True, "does not support: padding"),
}


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with a function to check. The plug-in is loaded exactly once, whether or not it is installed here."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (pytester.path / "checked_sdpa.py").write_text(PLAIN.read_text(encoding="utf-8"), encoding="utf-8")
    return pytester


def stood_in(project: pytest.Pytester, outcomes: dict[str, tuple[str, bool, str]] | None) -> pytest.Pytester:
    """The project with a test of three lines and the fast stand-in for check."""
    project.makeconftest(STAND_IN.format(outcomes=outcomes))
    project.makepyfile(test_mine=THREE_LINES.format(""))
    return project


def run(project: pytest.Pytester, *words: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "conformance.pytest", "-rs", *words, timeout=240)


def checks(project: pytest.Pytester) -> list[list[object]]:
    """The function, cases and options of every check."""
    return [json.loads(line) for line in (project.path / LOG).read_text(encoding="utf-8").splitlines()]


# ---- at the start of pytest --------------------------------------------------------------------------------------


def test_it_loads_nothing_heavy_before_a_test_asks_for_it() -> None:
    code = "import sys, pytest; before = {*sys.modules}; import conformance.pytest; print(*{*sys.modules} - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "conformance",
        "conformance.pytest",
    }


def test_a_marker_of_that_name_that_is_not_ours_is_left_alone(project: pytest.Pytester) -> None:
    project.makepyfile("import pytest\n@pytest.mark.conformance\ndef test_theirs():\n    pass\n")
    run(project, "--strict-markers").assert_outcomes(passed=1)


# ---- one test per case -------------------------------------------------------------------------------------------


def test_there_is_one_test_for_each_case_and_one_for_their_share(project: pytest.Pytester) -> None:
    done = run(stood_in(project, {}), "--collect-only", "-q")
    tests = [line for line in done.outlines if line.startswith("test_mine.py::")]
    assert tests == [f"test_mine.py::test_attention[{each}]" for each in (*SDPA, "judged share")]
    assert not (project.path / LOG).exists()


def test_a_failing_case_prints_its_finding_and_one_that_is_not_taken_is_skipped(project: pytest.Pytester) -> None:
    done = run(stood_in(project, FAILS), "-k", "causal/offset")
    done.assert_outcomes(passed=len(OFFSET) - 2, failed=1, skipped=1, deselected=len(SDPA) + 1 - len(OFFSET))
    done.stdout.fnmatch_lines(
        [
            "*_ test_attention[[]causal/offset/moved_window[[]dtype=float32[]][]] _*",
            "it reads True in mask as: ignore this key",
            "workaround: pass ~mask",
            "report: *index.html",
            "SKIPPED [[]1[]] test_mine.py:3: unsupported: does not support: padding",
        ]
    )
    done.stdout.no_fnmatch_line("*pytest.py*")


def test_only_what_is_selected_is_judged_and_all_at_once(project: pytest.Pytester) -> None:
    run(stood_in(project, {}), "-k", "causal/offset").assert_outcomes(
        passed=len(OFFSET), deselected=len(SDPA) + 1 - len(OFFSET)
    )
    assert checks(project) == [["right", OFFSET, {}]]


def test_last_failed_judges_what_failed(project: pytest.Pytester) -> None:
    run(stood_in(project, FAILS), "-k", "causal/offset")
    run(project, "--lf").assert_outcomes(failed=1)
    assert checks(project)[1] == ["right", ["causal/offset/moved_window[dtype=float32]"], {}]


def test_workers_of_xdist_share_one_check(project: pytest.Pytester) -> None:
    done = run(stood_in(project, FAILS), "-p", "xdist", "-n", "2", "-k", "causal/offset")
    done.assert_outcomes(passed=len(OFFSET) - 2, failed=1, skipped=1)
    done.stdout.fnmatch_lines(
        ["*= attention conformance =*", "1 failed: it reads True in mask as: ignore this key; workaround: pass ~mask"]
    )
    assert checks(project) == [["right", OFFSET, {}]]
    run(project, "-p", "xdist", "-n", "2", "--lf").assert_outcomes(failed=1)


def test_each_test_has_options_and_a_check_of_its_own(project: pytest.Pytester) -> None:
    stood_in(project, {}).makepyfile(
        test_mine="""
        import conformance.pytest
        from checked_sdpa import no_scale, right

        test_right = conformance.pytest.cases(right, cases=["causal/offset/*"], declare={"fully_masked_row": "nan"})
        test_no_scale = conformance.pytest.cases(no_scale, cases=["causal/offset/moved_*"], timeout=5)
        """
    )
    moved = [each for each in OFFSET if "/moved_" in each]
    run(project).assert_outcomes(passed=len(OFFSET) + len(moved) + 2)
    assert checks(project) == [
        ["right", OFFSET, {"declare": {"fully_masked_row": "nan"}}],
        ["no_scale", moved, {"timeout": 5}],
    ]


def test_a_marked_function_is_called_where_its_case_is_accepted_and_cannot_forget_to_fail(
    project: pytest.Pytester,
) -> None:
    stood_in(project, FAILS).makepyfile(
        test_mine="""
        import pytest
        from checked_sdpa import right

        @pytest.mark.conformance(function=right, cases=["causal/offset/*"])
        def test_marked(conformance_case):
            assert conformance_case.accepted
            print("called with", conformance_case.verdict)
        """
    )
    done = run(project, "-s")
    done.assert_outcomes(passed=len(OFFSET) - 1, failed=1, skipped=1)  # the test of the judged share passes too
    assert str(done.stdout).count("called with pass") == len(OFFSET) - 1


# ---- nothing passes vacuously ------------------------------------------------------------------------------------


def test_too_small_a_share_fails_a_test_of_its_own(project: pytest.Pytester) -> None:
    declined = dict.fromkeys(SDPA[3:], ("unsupported", True, "does not support: scale"))
    chosen = [name for name in SDPA if "moved_by_padding" in name]
    taken = len(set(chosen) - set(declined))
    assert 0 < taken < len(chosen)
    done = run(stood_in(project, declined), "-k", "share or moved_by_padding")
    done.assert_outcomes(failed=1, passed=taken, skipped=len(chosen) - taken, deselected=len(SDPA) - len(chosen))
    cases = {re.sub(r"dtype=\w+", "", name) for name in SDPA}
    done.stdout.fnmatch_lines([f"right was judged in ? of {len(cases)} cases: 1%, but min_judged is 50%"])
    assert checks(project) == [["right", SDPA, {}]]


def test_the_least_share_is_chosen(project: pytest.Pytester) -> None:
    declined = dict.fromkeys(SDPA[3:], ("unsupported", True, "does not support: scale"))
    stood_in(project, declined).makepyfile(test_mine=THREE_LINES.format(", min_judged=0.005"))
    run(project).assert_outcomes(passed=4, skipped=len(SDPA) - 3)


def test_what_cannot_be_checked_fails_every_case(project: pytest.Pytester) -> None:
    done = run(stood_in(project, None), "-k", "causal/offset")
    done.assert_outcomes(failed=len(OFFSET), deselected=len(SDPA) + 1 - len(OFFSET))
    assert done.outlines.count("it returns None") == len(OFFSET)


PASSED, DECLINED = (
    CaseOutcome("pass", accepted=True),
    CaseOutcome("unsupported", accepted=True, text="no mask over q, 5"),
)


def test_a_share_says_what_was_left_out_and_what_to_do() -> None:
    reasons = [f"reason {number}" for number in (1, 1, 1, 2, 2, 3, 3, 4, 4, 5)]
    found = [PASSED, DECLINED, *(CaseOutcome("unsupported", accepted=True, text=each) for each in reasons)]
    first, *left_out, fix = judged_share(
        "attention", dict(zip("abcdefghijkl", found, strict=True)), 0.5
    ).text.splitlines()
    assert first == "attention was judged in 1 of 12 cases: 8%, but min_judged is 50%"
    assert left_out == [
        "left out: 3 cases: reason 1",
        "left out: 2 cases: reason 2",
        "left out: 2 cases: reason 3",
        "left out: 2 cases: reason 4",
        "left out: 2 cases for other reasons",
    ]
    assert fix.startswith(
        "fix: support more arguments (docs/check.md), or choose the cases that the function is meant for: cases=[...], "
    )
    assert fix.endswith("or set min_judged=0.08 if the function is not meant for more")


def test_a_case_in_several_dtypes_counts_once() -> None:
    found = {f"case[a=1,dtype={dtype}]": DECLINED for dtype in ("float64", "float16")} | {"other": DECLINED}
    assert judged_share("attention", {"case[a=1,dtype=float32]": PASSED, **found}, 0.5).accepted
    (first, *_) = judged_share("attention", {"case[a=2,dtype=float32]": PASSED, **found}, 0.5).text.splitlines()
    assert first == "attention was judged in 1 of 3 cases: 33%, but min_judged is 50%"


@pytest.mark.parametrize(
    ("found", "least", "accepted"),
    [
        ([PASSED, DECLINED], 0.5, True),
        ([PASSED, DECLINED], 0.51, False),
        ([CaseOutcome("fail", accepted=False), DECLINED], 0.5, True),
        ([CaseOutcome("inconclusive", accepted=True), CaseOutcome("missing", accepted=False)], 0.5, False),
        ([DECLINED], 0.0, False),
        ([], 0.0, False),
    ],
)
def test_a_share_counts_what_was_judged(found: list[CaseOutcome], least: float, accepted: bool) -> None:  # noqa: FBT001
    named = {f"case_{number}": each for number, each in enumerate(found)}
    assert judged_share("attention", named, least).accepted is accepted


# ---- mistakes are reported when tests are collected --------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "test_it = conformance.pytest.cases(right, casse=['x'])",
            "test_it: there is no option casse, only case_paths, cases, declare, *",
        ),
        (
            "test_it = conformance.pytest.cases(right, min_judged=50)",
            "test_it: min_judged is a share from 0 to 1, not 50",
        ),
        (
            "test_it = conformance.pytest.cases(right, cases=['casual/*'])",
            "test_it: no sdpa case matches casual/[*]; did you mean 'causal/[*]'[?]",
        ),
        (
            "test_it = conformance.pytest.cases(right, cases='casual/*')",
            "test_it: no sdpa case matches casual/[*]; did you mean 'causal/[*]'[?]",
        ),
        (
            "test_it = conformance.pytest.cases(right, dtypes=['float8'])",
            "test_it: there is no dtype 'float8', only float64, *",
        ),
        (
            "test_it = conformance.pytest.cases(right, declare='scale=none')",
            "test_it: declare is a dict of strings, *, not 'scale=none'",
        ),
        (
            "test_it = conformance.pytest.cases(right, timeout=-1)",
            "test_it: timeout: -1 is not a positive number of seconds",
        ),
        (
            "test_it = conformance.pytest.cases(right, profile='tf3')",
            "test_it: there is no profile 'tf3', only *",
        ),
        (
            "test_it = conformance.pytest.cases(pytest.Cache(None, None, _ispytest=True))",
            "test_it: an instance of Cache was given: give the class instead, *",
        ),
        (
            "test_it = conformance.pytest.cases(lambda query, key, value: value)",
            "test_it: * cannot be checked: a worker process loads the function by its file and name*",
        ),
        (
            "def mine(query, key, value):\n    return value\ntest_it = conformance.pytest.cases(mine)",
            "test_it: mine is defined in the test file, *: move it to a separate module",
        ),
        (
            "@pytest.mark.conformance(function=right)\ndef test_it():\n    pass",
            "* must be used together: @pytest.mark.conformance(function=attention) above def test_it(conformance_case)",
        ),
        (
            "def test_it(conformance_case):\n    pass",
            "test_it: the marker conformance(function=...) and the argument *",
        ),
    ],
)
def test_a_mistake_is_told_in_words(project: pytest.Pytester, source: str, said: str) -> None:
    project.makepyfile(test_mine=f"import conformance.pytest, pytest\nfrom checked_sdpa import right\n{source}\n")
    done = run(project)
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines([said])
    done.stdout.no_fnmatch_line("*Error: *")


# ---- real checks, without the stand-in ---------------------------------------------------------------------------


def test_a_wrong_function_is_named_and_its_command_shows_it_again(project: pytest.Pytester) -> None:
    project.makepyfile(test_mine=THREE_LINES.format("").replace("right", "no_scale"))
    done = run(project, "-k", "shapes/cross")
    failed = done.parseoutcomes()["failed"]
    assert done.outlines.count(f"it does not scale the logits ({failed} cases)") == failed
    assert done.outlines.count("workaround: multiply the query (in a layer: wq and bq) by the scale") == failed
    again = next(line for line in done.outlines if line.startswith("rerun: "))
    command = shlex.split(again.removeprefix("rerun: "))
    assert command[:4] == ["conformance", "check", "checked_sdpa.py:no_scale", "-k"]
    shown = subprocess.run(
        [sys.executable, "-m", *command], cwd=project.path, capture_output=True, text=True, check=False, timeout=240
    )
    assert shown.returncode == 1
    assert "1. it does not scale the logits (1 verdict)" in shown.stdout


def test_a_right_function_passes(project: pytest.Pytester) -> None:
    project.makepyfile(test_mine=THREE_LINES.format(", cases=['shapes/cross*', 'numerics/scores/scaled*']"))
    outcomes = run(project).parseoutcomes()
    assert set(outcomes) == {"passed", "skipped"}
