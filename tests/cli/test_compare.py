"""Compare as a user does: run, upgrade, run again; with a run folder or a baseline as a side."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from ..report.junit_schema import faults
from ..running import conformance, with_suite

CHANGING = Path(__file__).with_name("changing.py").read_text(encoding="utf-8")
SUITE = """\
format: 1
suite: small
summary: A few calls.
defaults: {operator: sdpa, batch: 2, num_heads: 3, head_dim: 5, seq_len_q: 3, seq_len_k: 7}
cases:
  - name: plain
    matrix: {inputs.seed: [1, 2]}
  - name: dead
    masks: [{kind: key_padding, lengths: [7, 0]}]
    inputs: {clean: true}
"""


MINE = "mine.sdpa:"
# Three calls of the suite, and twelve additional plain calls.
BROKEN = "does not work here: every one of its 15 calls failed: ValueError: bad shape (3, 5)"
BEFORE = "before it conformed"


def judge(project: Path, behaviour: str, *more: str) -> subprocess.CompletedProcess[str]:
    text = CHANGING.replace('BEHAVIOUR = "zero"', f'BEHAVIOUR = "{behaviour}"')
    (project / "mine.py").write_text(text, encoding="utf-8")
    return conformance("run", "cases", "-a", "mine.py", *more, cwd=project)


def start(folder: Path) -> Path:
    return with_suite(folder, SUITE)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return start(tmp_path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one run folder for each behaviour."""
    folder = start(tmp_path_factory.mktemp("runs"))
    for behaviour in ("zero", "mean", "nan", "raises", "raises_masked", "declines"):
        judge(folder, behaviour, "--out", behaviour)
    return folder


def between(runs: Path, before: str, now: str) -> subprocess.CompletedProcess[str]:
    return conformance("compare", before, now, "--out", f"{before}-{now}", cwd=runs)


@pytest.mark.parametrize(
    ("before", "now", "code", "first"),
    [
        ("zero", "zero", 0, "Unchanged: 3 verdicts on 1 subject, judged on both sides"),
        ("nan", "nan", 0, "Unchanged: 3 verdicts on 1 subject, judged on both sides; 1 verdict is red on both sides"),
        ("zero", "nan", 1, f"Regressed: {MINE} a fully masked row is NaN (before: zero): 1 case"),
        (
            "mean",
            "nan",
            1,
            f"Fails in another way than before: {MINE} a fully masked row is NaN (before: the mean of V): 1 case",
        ),
        ("nan", "zero", 0, f"Nothing regressed. Fixed: {MINE} a fully masked row is zero (before: NaN): 1 case"),
        (
            *("zero", "raises", 7),
            f"Incomplete: raises: mine.sdpa {BROKEN}",
        ),
        (
            "zero",
            "raises_masked",
            1,
            f"Regressed: {MINE} only with a mask, it raises ValueError: no masks; {BEFORE}: 1 case",
        ),
        ("zero", "declines", 1, f"Support lost: {MINE} it is declined: takes no masks any more; {BEFORE}: 1 case"),
    ],
)
def test_the_first_line_and_the_exit_code_say_what_changed(
    runs: Path, before: str, now: str, code: int, first: str
) -> None:
    done = between(runs, before, now)
    assert (done.returncode, done.stdout.splitlines()[0]) == (code, first)
    out = runs / f"{before}-{now}"
    record = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    assert (record["exit_code"], record["headline"]) == (code, first)
    assert first in (out / "index.html").read_text(encoding="utf-8")
    assert (out / "summary.md").read_text(encoding="utf-8").startswith("# ✅" if code == 0 else "# ❌")
    tests = junit(out / "junit.xml")
    assert len(tests) == (1 if code == 7 else 3)  # a subject that does not work is not compared cell by cell
    assert any(test.find("failure") is not None or test.find("error") is not None for test in tests) == (code != 0)


def junit(path: Path) -> list[ET.Element]:
    root = ET.parse(path).getroot()  # noqa: S314 - our own file
    assert faults(root) == []
    tests = root.findall("testsuite/testcase")
    for tag, name in (("failure", "failures"), ("error", "errors")):
        assert root.get(name) == str(sum(test.find(tag) is not None for test in tests))
    assert root.get("tests") == str(len(tests))
    return tests


def said(path: Path, tag: str) -> dict[str | None, tuple[str | None, str]]:
    """Return the `tag` elements of a JUnit file: test name -> message, text."""
    found = ((test.get("name"), test.find(tag)) for test in junit(path))
    return {name: (child.get("message"), child.text or "") for name, child in found if child is not None}


def test_junit_names_what_changed_and_the_versions_of_both_sides(runs: Path) -> None:
    between(runs, "zero", "nan")
    tests = junit(runs / "zero-nan" / "junit.xml")
    assert {test.get("classname") for test in tests} == {"mine.sdpa"}
    root = ET.parse(runs / "zero-nan" / "junit.xml").getroot()  # noqa: S314 - our own file
    named = [each.get("name") for each in root.findall("testsuite/properties/property")]
    assert {"base.numpy", "candidate.numpy"} <= {*named}
    ((name, (message, story)),) = said(runs / "zero-nan" / "junit.xml", "failure").items()
    assert name == "small/dead"
    assert message == f"regressed: {MINE} a fully masked row is NaN (before: zero): 1 case"
    assert "rerun: conformance run cases -a mine.py -k small/dead" in story
    between(runs, "zero", "raises_masked")
    assert list(said(runs / "zero-raises_masked" / "junit.xml", "error")) == ["small/dead"]


def test_junit_shows_what_is_no_news_as_skipped(runs: Path) -> None:
    between(runs, "nan", "nan")
    found = said(runs / "nan-nan" / "junit.xml", "skipped")
    assert found == {"small/dead": ("fail on both sides: no change", "")}
    between(runs, "declines", "declines")
    assert said(runs / "declines-declines" / "junit.xml", "skipped")["small/dead"][0] == "declined on both sides"
    between(runs, "nan", "zero")
    fixed = next(test for test in junit(runs / "nan-zero" / "junit.xml") if test.get("name") == "small/dead")
    assert [child.tag for child in fixed] == ["system-out"]
    assert (fixed[0].text or "").startswith(f"fixed: {MINE}")


def test_junit_may_be_written_elsewhere_too(runs: Path) -> None:
    conformance("compare", "zero", "nan", "--out", "again", "--junit", "ci/report.xml", cwd=runs)
    assert (runs / "ci" / "report.xml").read_bytes() == (runs / "again" / "junit.xml").read_bytes()


def test_what_regressed_says_how_to_run_it_again(runs: Path) -> None:
    assert "  rerun: conformance run cases -a mine.py -k small/dead" in between(runs, "zero", "nan").stdout


def test_the_log_may_stand_for_its_folder_and_exit_zero_only_reports(runs: Path) -> None:
    done = conformance("compare", "zero/run.jsonl", "nan", "--out", "diff", "--exit-zero", cwd=runs)
    assert (done.returncode, done.stdout.splitlines()[0][:10]) == (0, "Regressed:")
    assert conformance("compare", "zero", "nowhere", cwd=runs).stderr == (
        "conformance: there is no run folder or baseline nowhere\n"
    )


@pytest.mark.parametrize("side", [0, 1])
def test_a_run_log_that_was_cut_is_incomplete_and_says_how_to_go_on(runs: Path, tmp_path: Path, side: int) -> None:
    log = (runs / "zero" / "run.jsonl").read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "run.jsonl").write_bytes(log[:-300])
    sides = [str(runs / "zero"), str(runs / "zero")]
    sides[side] = "cut"
    done = conformance("compare", *sides, "--out", "diff", cwd=tmp_path)
    assert done.returncode == 7
    first = done.stdout.splitlines()[0]
    assert first.startswith(
        "Incomplete: cut/run.jsonl: the run was cut off before its end: resume it with `conformance run"
    )
    assert "--resume`" in first
    assert list(said(tmp_path / "diff" / "junit.xml", "error")) == [f"i{first[1:].partition('; so far')[0]}"]


def empty(_: str) -> str:
    return "not a log\n"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text.replace('"schema": 2', '"schema": 3'), "run.jsonl:1: schema 3; this version"),
        (empty, "run.jsonl:1: "),
        (lambda text: text.replace('"subjects"', '"sbjects"', 1), "run.jsonl:1: 'subjects' is required here"),
        (lambda _: None, "spoilt has no run.jsonl: give a folder"),
    ],
)
def test_a_folder_that_holds_no_run_of_ours_is_wrong_usage(
    runs: Path, tmp_path: Path, spoil: Callable[[str], str | None], said: str
) -> None:
    (tmp_path / "spoilt").mkdir()
    text = spoil((runs / "zero" / "run.jsonl").read_text(encoding="utf-8"))
    if text is not None:
        (tmp_path / "spoilt" / "run.jsonl").write_text(text, encoding="utf-8")
    done = conformance("compare", str(runs / "zero"), "spoilt", "--out", "diff", cwd=tmp_path)
    assert done.returncode == 4
    assert said in done.stderr
    assert "Traceback" not in done.stderr


# ---- baselines ----------------------------------------------------------------------------------------------------


def remember(project: Path, behaviour: str = "zero") -> str:
    done = judge(project, behaviour, "--baseline", "base.json", "--update-baseline")
    assert done.stdout.splitlines()[-1] == "Baseline: base.json"
    return (project / "base.json").read_text(encoding="utf-8")


def against(project: Path, behaviour: str, *more: str) -> subprocess.CompletedProcess[str]:
    return judge(project, behaviour, "--baseline", "base.json", *more)


def test_the_same_environment_twice_is_unchanged_byte_for_byte(project: Path) -> None:
    first = remember(project)
    assert remember(project) == first
    done = against(project, "zero")
    assert done.returncode == 0
    assert "Unchanged: 3 verdicts on 1 subject" in done.stdout


def test_a_change_against_the_baseline_rejects_the_run_and_says_it_in_the_log(project: Path) -> None:
    remember(project)
    done = against(project, "declines", "--out", "out")
    assert done.returncode == 1
    verdict = json.loads((project / "out" / "verdict.json").read_text(encoding="utf-8"))
    told = "against base.json: support lost: mine.sdpa: it is declined: takes no masks any more; before it conformed"
    assert verdict["gate"]["problems"] == [f"{told}: 1 case"]
    assert verdict["exit_code"] == 1
    assert (project / "out" / "comparison" / "index.html").is_file()
    assert against(project, "declines", "--skip-budget", "1").returncode == 0


def test_a_baseline_turns_nothing_red_green(project: Path) -> None:
    remember(project, "nan")
    done = against(project, "nan")
    assert done.returncode == 1
    assert "Unchanged: 3 verdicts on 1 subject" in done.stdout


def test_a_regression_that_a_known_deviation_accepts_is_told_with_the_ways_out(project: Path) -> None:
    remember(project)
    (project / "known.yaml").write_text(KNOWN, encoding="utf-8")
    done = against(project, "nan", "--known", "known.yaml", "--out", "out")
    assert done.returncode == 1
    (problem,) = json.loads((project / "out" / "verdict.json").read_text(encoding="utf-8"))["gate"]["problems"]
    assert problem == (
        f"against base.json: regressed: {MINE} a fully masked row is NaN (before: zero): 1 case; a known deviation "
        "accepts this, but the baseline does not have it: write the baseline again with --update-baseline, or limit "
        "the entry to newer releases under `versions`"
    )


def test_loosening_is_a_changed_line(project: Path) -> None:
    before = remember(project).splitlines()
    now = remember(project, "nan").splitlines()
    changed = [line for line in now if line not in before]
    assert [line for line in changed if '"small/dead"' in line and '"fail"' in line]
    assert not any('"small/plain' in line for line in changed)
    assert len(now) == len(before)


def test_a_partial_run_keeps_all_other_entries(project: Path) -> None:
    before = remember(project).splitlines()
    done = against(project, "nan", "-k", "small/dead", "--update-baseline")
    assert done.returncode == 1
    now = (project / "base.json").read_text(encoding="utf-8").splitlines()
    kept = [line for line in before if "small/" in line and '"small/dead": {' not in line]
    assert len(kept) == 5
    assert all(line in now for line in kept)
    alone = against(project, "nan", "-k", "small/dead")
    assert "deleted" not in alone.stdout
    assert "1 cell compared: 1 unchanged" in alone.stdout


@pytest.fixture(scope="module")
def remembered(runs: Path) -> str:
    return remember(runs)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text.replace('"schema": 1', '"schema": 7'), "base.json: schema 7; this version reads schema 1"),
        (lambda text: text[:200], "base.json: not JSON, perhaps cut off"),
        (lambda _: "[]", "base.json: not a baseline: give the file that"),
        (lambda text: text.replace('"pass"', '"psas"', 1), "Input should be 'pass', 'dialect'"),
        (lambda text: text.replace('": {"environment": "', '": {"environment": "x'), "there is no environment 'x"),
    ],
)
def test_a_baseline_that_cannot_be_read_stops_before_anything_runs(
    project: Path, remembered: str, spoil: Callable[[str], str], said: str
) -> None:
    (project / "base.json").write_text(spoil(remembered), encoding="utf-8")
    done = against(project, "zero", "--out", "out")
    assert done.returncode == 4
    assert said in done.stderr
    assert "conformance run --" in done.stderr
    assert not (project / "out").exists()


def test_a_baseline_that_does_not_exist_is_not_made_up(project: Path) -> None:
    done = against(project, "zero")
    assert done.returncode == 4
    assert "there is no baseline base.json: write it with --update-baseline" in done.stderr
    done = judge(project, "zero", "--update-baseline")
    assert "--update-baseline needs --baseline FILE" in done.stderr


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            ("mine.sdpa", "theirs.sdpa"),
            "nothing was compared: the file has theirs.sdpa, not mine.sdpa: if this is a new name, write the baseline",
        ),
        (("small/", "tiny/"), "nothing was compared: the file has no case of this run: choose others, or write the"),
        (
            ('"verdict": "pass"', '"verdict": "unsupported"'),
            "nothing was compared: no verdict was judged on both sides: write the baseline again",
        ),
    ],
)
def test_a_run_that_has_nothing_in_common_with_its_baseline_does_not_pass(
    project: Path, remembered: str, changed: tuple[str, str], said: str
) -> None:
    (project / "base.json").write_text(remembered.replace(*changed), encoding="utf-8")
    judged = "declines" if "verdict" in changed[0] else "zero"
    which = ("-k", "small/dead", "--skip-budget", "9") if "verdict" in changed[0] else ()
    done = against(project, judged, "--out", "out", *which)
    verdict = json.loads((project / "out" / "verdict.json").read_text(encoding="utf-8"))
    assert (done.returncode, verdict["exit_code"]) == (5, 5)
    assert f"against base.json: {said}" in verdict["gate"]["problems"][0]
    assert f"problem: against base.json: {said}" in done.stdout
    assert against(project, "zero", "--update-baseline").returncode == 0
    assert against(project, "zero").returncode == 0


def test_a_baseline_is_a_side_of_compare(runs: Path, remembered: str) -> None:
    (runs / "given.json").write_text(remembered, encoding="utf-8")
    done = conformance("compare", "given.json", "nan", "--out", "diff", cwd=runs)
    first = f"Regressed: {MINE} a fully masked row is NaN (before: zero): 1 case"
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, first)


# ---- known deviations ---------------------------------------------------------------------------------------------

KNOWN = """\
format: 1
deviations:
  - subject: mine.sdpa
    delta: {decisions: {fully_masked_row: nan}}
    reason: A fully masked row is NaN here.
    link: https://example.org/1
"""


def test_an_entry_of_the_users_list_that_accepts_nothing_is_told(project: Path) -> None:
    """Its subject is mistyped, so the failure that it was written for stays red."""
    entry = "  - " + KNOWN.partition("  - ")[2].replace("mine.sdpa", "mine.sdap")
    (project / "mine.yaml").write_text(KNOWN.partition("  - ")[0] + entry * 7, encoding="utf-8")
    done = judge(project, "nan", "--known", "mine.yaml", "--out", "out")
    assert done.returncode == 1
    told = [line for line in done.stdout.splitlines() if line.startswith("Accept")]
    said = (
        "Accepts nothing in this run (see its subject and conditions): mine.yaml:3 (mine.sdap): A fully masked row is"
    )
    assert told[0] == f"{said} NaN here."
    assert told[5:] == ["Accepts nothing in this run: 2 more; verdict.json lists them"]


def test_a_fixed_entry_is_red_and_an_update_says_what_to_do_with_it(project: Path) -> None:
    (project / "mine.yaml").write_text(KNOWN, encoding="utf-8")
    assert judge(project, "nan", "--known", "mine.yaml").returncode == 0
    done = judge(project, "zero", "--known", "mine.yaml", "--out", "out")
    assert done.returncode == 1
    assert (
        "mine.yaml:3: fixed here: no cell that it covers fails (1 cell conforms without it, first small/dead on "
        "mine.sdpa): remove the entry" in done.stdout
    )
    assert "To edit the list: conformance known update --from out mine.yaml" in done.stdout
    update = ("known", "update", "--from", "out", "mine.yaml")
    proposed = conformance(*update, cwd=project)
    assert "mine.yaml:3: 1 cell conforms without it" in proposed.stderr
    assert proposed.stdout == "no diff: change the entries that are named above by hand\n"
    log = project / "out" / "run.jsonl"
    whole = log.read_text(encoding="utf-8").replace('"dead": []', '"dead": ["mine.yaml:3 (mine.sdpa): x"]')
    log.write_text(whole, encoding="utf-8")
    done = conformance(*update, cwd=project)
    assert done.returncode == 0
    assert done.stdout.splitlines()[3:] == [f"-{line}" if line[0] == " " else f" {line}" for line in KNOWN.splitlines()]


def test_what_is_rejected_is_proposed_as_an_entry(project: Path) -> None:
    (project / "mine.yaml").write_text("format: 1\ndeviations: []\n", encoding="utf-8")
    judge(project, "raises", "--out", "out")
    done = conformance("known", "update", "--from", "out", "mine.yaml", cwd=project)
    assert '+  - subject: "mine.sdpa"' in done.stdout
    assert '+    cases: "small/*"' in done.stdout
    assert (project / "mine.yaml").read_text(encoding="utf-8") == "format: 1\ndeviations: []\n"


def test_a_list_with_six_mistakes_says_all_of_them_at_once_and_nothing_runs(project: Path) -> None:
    bad = KNOWN.replace("delta", "dleta").replace("A fully masked row is NaN here.", "short").replace("https", "http")
    bad += '    versions: {torch: "about 2"}\n    when: {fully_masked_rows: true}\n    expires: someday\n'
    (project / "mine.yaml").write_text(bad, encoding="utf-8")
    done = judge(project, "zero", "--known", "mine.yaml", "--out", "out")
    assert done.returncode == 4
    assert done.stderr.splitlines() == [
        "mine.yaml:4:5: unknown key 'dleta'; did you mean 'delta'?",
        "mine.yaml:5:13: reason: expected a string of at least 10 characters, got 'short'",
        "mine.yaml:6:11: link: expected a URL that begins with https://, got 'http://example.org/1'",
        "mine.yaml:7:15: versions: torch: 'about 2' is not a version condition such as '>=3.14,<4'",
        "mine.yaml:8:12: unknown key 'fully_masked_rows'; did you mean 'fully_masked_row'?",
        "mine.yaml:9:14: expires: expected a date such as 2027-06-01, got 'someday'",
        "6 mistakes; nothing was run",
    ]
    assert not (project / "out").exists()


SIX = """\
format: 1
deviations:
  - subject: mine.*
    wen: {}
    delta: {decisions: {fully_masked_row: nann}}
    reason: A reason that is long enough.
    link: https://example.org
  - subject: mine.*
    when: {fully_masked_rows: true}
    delta: {profile: {accumulator: float32}}
    reason: too short
    link: http://example.org
"""


def test_a_list_with_six_mistakes_tells_all_of_them_and_runs_nothing(project: Path) -> None:
    (project / "mine.yaml").write_text(SIX, encoding="utf-8")
    done = judge(project, "zero", "--known", "mine.yaml", "--out", "out")
    assert done.returncode == 4
    told = done.stderr.splitlines()
    assert [line.partition(":")[2].partition(":")[0] for line in told[:6]] == ["4", "5", "9", "10", "11", "12"]
    assert told[6:] == ["6 mistakes; nothing was run"]
    assert not (project / "out").exists()
