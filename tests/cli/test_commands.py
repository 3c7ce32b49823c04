"""The command line as a user runs it: arguments, exit codes and stdout."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conformance.cli.parser import build_parser

from ..running import conformance, records, with_suite

FAKES = Path(__file__).parents[1] / "fakes"
LIAR = str(FAKES / "liar.py")

SUITE = """\
format: 1
suite: small
summary: A few calls.
defaults: {operator: sdpa, num_heads: 2, head_dim: 3, seq_len_q: 5, seq_len_k: 7}
cases:
  - name: plain
    tags: [smoke]
    matrix: {batch: [1, 2, 3, 4, 5, 6, 7]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return with_suite(tmp_path, SUITE)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the platform does not say which cores are ours")
def test_workers_are_as_many_as_the_cores_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5})
    assert build_parser().parse_args(["run"]).jobs == 3 + 1
    assert build_parser().parse_args(["run", "-j", "7"]).jobs == 7


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["probe"],
        ["port"],
        ["run"],
        ["smoke"],
        ["check"],
        ["list"],
        ["list", "cases"],
        ["validate"],
        ["schema"],
        ["report"],
        ["compare"],
        ["upgrade"],
        ["bisect"],
        ["explain"],
        ["repro"],
    ],
)
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    done = conformance(*command, "--help")
    assert done.returncode == 0
    assert "example: conformance" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnu"], "invalid choice: 'rnu'; did you mean 'run'?"),
        (["run", "--jobs", "0"], "0 is less than 1"),
        (["run", "--timeout", "-1"], "-1 is not a positive number of seconds"),
        (["run", "-a", "torhc.sdpa"], "no subject matches 'torhc.sdpa'; the nearest name is"),
        (["run", "-a", "nowhere.py"], "there is no file nowhere.py"),
        (["run", "-a", "numpy.sdpa", "--known", "nowhere.yaml"], "there is no file nowhere.yaml"),
        (["probe", "-a", "numpy.sdpa", "--known", "nowhere.yaml"], "there is no file nowhere.yaml"),
        (["run", "-k", "nothing/*"], "no case matches nothing/*"),
        (["run", "nowhere"], "there is no case file or folder nowhere"),
        (["run", "--env", "novalue"], "expected NAME=PYTHON"),
        (["report", "nowhere"], "there is no run folder nowhere"),
    ],
)
def test_wrong_usage_says_what_is_wrong_and_exits_with_4(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = conformance(*arguments, cwd=tmp_path)
    assert done.returncode == 4
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_broken_adapter_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text('NAME = "my.sdpa"\nOPERATORS = ["spda"]\n', encoding="utf-8")
    done = conformance("run", "-a", "mine.py", cwd=tmp_path)
    assert done.returncode == 4
    assert "mine.py:2: OPERATORS has 'spda'" in done.stderr
    assert "did you mean sdpa?" in done.stderr


def test_mistakes_in_case_files_stop_everything_before_it_starts(project: Path) -> None:
    (project / "cases" / "bad.yaml").write_text("format: 1\nsuite: bda\ncases: []\nmore: 1\n", encoding="utf-8")
    done = conformance("run", "cases", "-a", f"{LIAR}[honest]", "--out", "out", cwd=project)
    assert done.returncode == 4
    assert "cases/bad.yaml:2:" in done.stderr
    assert "nothing was run" in done.stderr
    assert not (project / "out").exists()


def test_a_device_that_is_not_there_is_incomplete(project: Path) -> None:
    done = conformance("run", "cases", "-a", f"{LIAR}[honest]@cuda", "--device", "cuda", "--out", "out", cwd=project)
    assert done.returncode == 7
    assert "cuda" in done.stdout
    assert json.loads((project / "out" / "verdict.json").read_text(encoding="utf-8"))["exit_code"] == 7


def test_an_environment_that_does_not_exist_is_incomplete_and_the_rest_runs(project: Path) -> None:
    done = conformance(
        "run", "cases", "-a", f"{LIAR}[honest]", "--env", "old=/nowhere/python", "--out", "out", cwd=project
    )
    assert done.returncode == 7
    assert "environment old: /nowhere/python cannot be run" in done.stdout


def test_a_subject_that_cannot_start_is_incomplete(project: Path) -> None:
    done = conformance("run", "cases", "-a", str(FAKES / "import_raises.py"), "--out", "out", cwd=project)
    assert done.returncode == 7
    assert "did not start" in done.stdout


def test_only_unsupported_verdicts_are_nothing_judged(project: Path) -> None:
    text = SUITE.replace("head_dim: 3", "head_dim: 3, dtype: float16")
    with_suite(project, text)
    done = conformance("run", "cases", "-a", f"{LIAR}[honest]", "--out", "out", cwd=project)
    assert done.returncode == 5


def test_stdout_is_one_line_a_subject_and_the_report_and_has_no_control_codes(project: Path) -> None:
    done = conformance("run", "cases", "-a", f"{LIAR}[honest]", cwd=project)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("fake.liar[honest]  judged 100 %")
    assert "7 pass" in lines[0]
    assert lines[-1].startswith("Report: reports/")
    assert "\x1b" not in done.stdout + done.stderr
    latest = project / "reports" / "latest"
    assert {path.name for path in latest.iterdir()} >= {
        "run.jsonl",
        "verdict.json",
        "index.html",
        "junit.xml",
        "summary.md",
    }


def test_exit_zero_turns_only_1_into_0(project: Path) -> None:
    with_suite(project, SUITE.replace("7]", "13]"))
    wrong = ("run", "cases", "-a", f"{LIAR}[wrong_dtype]")
    assert conformance(*wrong, cwd=project).returncode == 1
    assert conformance(*wrong, "--exit-zero", cwd=project).returncode == 0
    raises = ("run", "cases", "-a", str(FAKES / "import_raises.py"), "--exit-zero")
    assert conformance(*raises, cwd=project).returncode == 7


def test_stop_ends_at_the_first_rejected_verdict(project: Path) -> None:
    with_suite(project, SUITE.replace("1, 2, 3", "1, 13, 3"))
    done = conformance("run", "cases", "-x", "-a", f"{LIAR}[wrong_dtype]", "--out", "out", cwd=project)
    assert done.returncode == 1
    log = (project / "out" / "run.jsonl").read_text(encoding="utf-8").splitlines()
    verdicts = [json.loads(line).get("verdict") for line in log if '"cell"' in line]
    assert sorted(verdicts) == ["fail", "pass"], "the reply before it, which waited for a second look, and no later one"


def test_junit_is_also_written_where_it_is_asked_for(project: Path) -> None:
    conformance("run", "cases", "-a", f"{LIAR}[honest]", "--junit", "deep/er/junit.xml", cwd=project)
    assert (project / "deep" / "er" / "junit.xml").read_text(encoding="utf-8").startswith("<?xml")


def test_a_run_is_not_written_over_another(project: Path) -> None:
    once = ("run", "cases", "-a", f"{LIAR}[honest]", "--out", "out")
    assert conformance(*once, cwd=project).returncode == 0
    done = conformance(*once, cwd=project)
    assert done.returncode == 4
    assert "out has a run already: choose another --out, or add --resume" in done.stderr
    probed = conformance("probe", "-a", "numpy.sdpa", "--out", "out", cwd=project)
    assert probed.returncode == 4
    assert "out has a run already: choose another --out\n" in probed.stderr


@pytest.mark.parametrize("command", [["run", "cases", "-a", f"{LIAR}[honest]"], ["probe", "-a", "numpy.sdpa"]])
def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(project: Path, command: list[str]) -> None:
    (project / "file").write_text("", encoding="utf-8")
    done = conformance(*command, "--out", "file/out", cwd=project)
    assert done.returncode == 4
    said = "the folder file/out cannot be written: Not a directory; nothing was run: choose another --out\n"
    assert done.stderr.endswith(said), done.stderr


@pytest.fixture
def cut(project: Path) -> Path:
    """A project with a run that was killed after some verdicts."""
    command = [sys.executable, "-m", "conformance", "run", "cases", "-a", f"{LIAR}[slow]", "--out", "out"]
    with_suite(project, SUITE.replace("[1, 2, 3, 4, 5, 6, 7]", "[1, 2, 3, 5, 7, 11, 13, 17]"))
    process = subprocess.Popen(command, cwd=project, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    log = project / "out" / "run.jsonl"
    deadline = time.monotonic() + 60
    while not (log.is_file() and log.read_text(encoding="utf-8").count('"cell"') >= 2):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    return project


def test_a_killed_run_resumes_and_judges_only_what_is_missing(cut: Path) -> None:
    log = cut / "out" / "run.jsonl"
    before = log.read_text(encoding="utf-8").splitlines()
    done = conformance("run", "cases", "-a", f"{LIAR}[slow]", "--out", "out", "--resume", cwd=cut)
    assert done.returncode == 0, done.stderr
    after = records(cut / "out")
    cases = [record["case"] for record in after if record["type"] == "cell"]
    assert sorted(cases) == sorted(f"small/plain[batch={n}]" for n in (1, 2, 3, 5, 7, 11, 13, 17))
    assert after[-1]["type"] == "footer"
    assert len(after) > len(before)


def test_an_interrupted_run_says_how_to_go_on(project: Path) -> None:
    command = [sys.executable, "-m", "conformance", "run", "cases", "-a", f"{LIAR}[hang]", "--out", "out"]
    with_suite(project, SUITE.replace("[1, 2, 3, 4, 5, 6, 7]", "[1, 13]"))
    process = subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    log = project / "out" / "run.jsonl"
    while not (log.is_file() and '"worker"' in log.read_text(encoding="utf-8")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "interrupted; continue with --out out --resume" in said
    assert json.loads((project / "out" / "verdict.json").read_text(encoding="utf-8"))["exit_code"] == 2


def test_a_run_that_asked_something_else_is_not_resumed(cut: Path) -> None:
    done = conformance("run", "cases", "-a", f"{LIAR}[honest]", "--out", "out", "--resume", cwd=cut)
    assert done.returncode == 4
    assert "cannot resume: the subjects changed since that run" in done.stderr


def test_nothing_to_resume_says_so(project: Path) -> None:
    done = conformance("run", "cases", "-a", f"{LIAR}[honest]", "--out", "out", "--resume", cwd=project)
    assert done.returncode == 4
    assert "nothing to resume: there is no folder out; start the run without --resume" in done.stderr


def test_a_folder_without_a_log_is_begun_by_a_resume(project: Path) -> None:
    (project / "out").mkdir()
    done = conformance("run", "cases", "-a", f"{LIAR}[honest]", "--out", "out", "--resume", cwd=project)
    assert done.returncode == 0, done.stderr
    assert records(project / "out")[-1]["type"] == "footer"


def test_a_finished_run_writes_its_files_again_and_judges_nothing(project: Path) -> None:
    once = ("run", "cases", "-a", f"{LIAR}[honest]", "--out", "out")
    conformance(*once, cwd=project)
    log = (project / "out" / "run.jsonl").read_bytes()
    verdict = (project / "out" / "verdict.json").read_bytes()
    (project / "out" / "verdict.json").unlink()
    (project / "out" / "index.html").unlink()
    done = conformance(*once, "--resume", cwd=project)
    assert done.returncode == 0
    assert "the run is finished already; its reports are written again" in done.stderr
    assert "ready after" not in done.stderr
    assert (project / "out" / "run.jsonl").read_bytes() == log
    assert (project / "out" / "verdict.json").read_bytes() == verdict
    assert (project / "out" / "index.html").is_file()


def test_a_finished_run_is_not_held_against_another_baseline_by_a_resume(project: Path) -> None:
    with_suite(project, SUITE.replace("[1, 2, 3, 4, 5, 6, 7]", "[1, 13]"))
    base = ("--baseline", "base.json", "--update-baseline", "--out", "first")
    conformance("run", "cases", "-a", f"{LIAR}[honest]", *base, cwd=project)
    text = (project / "base.json").read_text(encoding="utf-8")
    (project / "base.json").write_text(text.replace("[honest]", "[raise_inside]"), encoding="utf-8")
    once = ("run", "cases", "-a", f"{LIAR}[raise_inside]", "--out", "out")
    conformance(*once, cwd=project)
    done = conformance(*once, "--baseline", "base.json", "--resume", cwd=project)
    assert done.returncode == 4, done.stderr
    assert (
        "the run in out is finished and did not use this baseline, which rejects it: against base.json" in done.stderr
    )


def test_a_log_that_two_processes_wrote_is_resumed_and_told(cut: Path) -> None:
    log = cut / "out" / "run.jsonl"
    twice = next(line for line in log.read_text(encoding="utf-8").splitlines() if '"type": "cell"' in line)
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{twice}\n")
    done = conformance("run", "cases", "-a", f"{LIAR}[slow]", "--out", "out", "--resume", cwd=cut)
    assert done.returncode == 0, done.stderr
    assert "two processes wrote the log: 1 cell is in out/run.jsonl more than once" in done.stderr
    assert "two processes wrote this run at the same time: 1 verdict is in the log more than once" in done.stdout


def test_what_a_command_only_prints_is_missed_where_stdout_is_full() -> None:
    command = [sys.executable, "-m", "conformance", "schema"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr == "conformance: standard output cannot be written: No space left on device\n"


def test_a_reader_that_has_gone_changes_no_exit_code() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "conformance", "schema"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_smoke_takes_only_cases_tagged_so(project: Path) -> None:
    text = SUITE + "  - {name: other, batch: 8}\n"
    with_suite(project, text)
    done = conformance("smoke", "cases", "-a", f"{LIAR}[honest]", cwd=project)
    assert "7 pass" in done.stdout
    assert "8 pass" in conformance("run", "cases", "-a", f"{LIAR}[honest]", cwd=project).stdout


def test_smoke_says_that_no_case_has_its_tag(project: Path) -> None:
    with_suite(project, SUITE.replace("smoke", "slow"))
    done = conformance("smoke", "cases", "-a", f"{LIAR}[honest]", cwd=project)
    assert done.returncode == 4
    assert "there is no case with the tag smoke in the given paths; see conformance list cases" in done.stderr


def test_list_cases_prints_ids_and_validate_counts_problems(project: Path) -> None:
    listed = conformance("list", "cases", "cases", "-k", "*batch=1]", cwd=project)
    assert listed.stdout == "small/plain[batch=1]\n"
    text = SUITE + "  - {name: same, batch: 1}\n"
    with_suite(project, text)
    lenient = conformance("validate", "cases", cwd=project)
    assert lenient.returncode == 0
    assert "8 cases, 7 distinct calls" in lenient.stdout
    strict = conformance("validate", "cases", "--strict", cwd=project)
    assert strict.returncode == 4
    equal = "equal calls: small/plain[batch=1], small/same: their tensors and arguments are the same, "
    assert f"{equal}whatever outputs are requested; change inputs.seed of one of them" in strict.stderr


def test_list_adapters_names_the_subjects() -> None:
    done = conformance("list", "adapters")
    assert done.returncode == 0
    assert any(line.startswith("numpy.sdpa  sdpa  ") for line in done.stdout.splitlines())


def test_schema_is_json() -> None:
    assert json.loads(conformance("schema").stdout)["properties"]["suite"]
