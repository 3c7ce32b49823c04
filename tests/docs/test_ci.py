"""The workflows of docs/ci.md are YAML, their commands parse, and the action's script does what the page says."""

import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.cli.argument_parser import UsageError
from conformance.cli.command_action import read_arguments
from conformance.cli.parser import build_parser

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
WORKFLOWS = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def steps(workflow: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow.get("jobs", {}).values():
        yield from job["steps"]


def scripts() -> Iterator[str]:
    """Every shell line of the workflows and of the page, and every command that the action is configured to run."""
    for workflow in WORKFLOWS:
        for step in steps(workflow):
            yield from step.get("run", "").splitlines()
            if "attention-conformance@" in step.get("uses", ""):
                yield f"conformance {step['with']['arguments']}"
        yield from workflow.get("attention", {}).get("script", ())
        if "arguments" in workflow:
            yield f"conformance {shlex.join(read_arguments(workflow['arguments']))}"
    yield from re.findall(r"^    (conformance .*)$", PAGE, re.MULTILINE)


COMMANDS = [line for line in scripts() if line.startswith("conformance ")]


def test_the_page_has_all_three_kinds_of_workflow() -> None:
    assert len(WORKFLOWS) == 6
    assert len(COMMANDS) == 7
    words = {shlex.split(command)[1] for command in COMMANDS}
    assert words == {"run", "upgrade"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_parses(command: str) -> None:
    given = shlex.split(re.sub(r"\$\{\{.*?\}\}", "1.0", command))[1:]
    assert build_parser().parse_args(given).command in ("command_run:run", "command_upgrade:upgrade")


def test_a_command_that_does_not_parse_would_be_found() -> None:
    with pytest.raises(SystemExit):
        build_parser().parse_args(["run", "--basline", "x"])


def test_workflows_ask_for_no_more_than_they_need() -> None:
    for workflow in WORKFLOWS:
        if "jobs" in workflow:
            assert workflow["permissions"]["contents"] == "read"
            assert set(workflow["permissions"].values()) == {"read"}
            assert all("runs-on" in job for job in workflow["jobs"].values())


def test_what_workflows_tell_the_action_are_its_inputs() -> None:
    told = [step["with"] for flow in WORKFLOWS for step in steps(flow) if "conformance@" in step.get("uses", "")]
    assert len(told) == 3
    for given in told:
        assert set(given) <= set(ACTION["inputs"])


def test_the_action_puts_no_input_into_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")
        assert "run" not in step or step["shell"] == "bash"


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """A working folder for the action's script, with a `python` that runs this interpreter."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    return tmp_path


def act(folder: Path, arguments: str, step_id: str = "judge") -> subprocess.CompletedProcess[str]:
    script = next(step["run"] for step in ACTION["runs"]["steps"] if step.get("id") == step_id)
    environment = os.environ | {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "ARGUMENTS": arguments,
        "FOLDER": "report",
        "EXTRAS": "",
        "ENVIRONMENTS": "",
        "MACHINE": "Linux-X64",
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "step.md"),
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, cwd=folder, env=environment
    )


def test_the_action_judges_summarises_and_returns_the_exit_code(judged: Path) -> None:
    done = act(judged, "run -a numpy.sdpa -k 'masks/attention_2d/square_prefix*'")
    assert done.returncode == 0, done.stderr
    assert (judged / "output").read_text(encoding="utf-8") == "exit-code=0\n"
    assert (judged / "step.md").read_text(encoding="utf-8").startswith("# ✅ Conforms")
    assert json.loads((judged / "report" / "verdict.json").read_text(encoding="utf-8"))["exit_code"] == 0


def test_the_action_fails_as_the_command_does(judged: Path) -> None:
    done = act(judged, "run -a 'no such subject'")
    assert done.returncode == 4
    assert (judged / "output").read_text(encoding="utf-8") == "exit-code=4\n"
    assert not (judged / "step.md").exists()


def test_the_action_imports_nothing_from_the_checkout(judged: Path) -> None:
    for name in ("platform", "hashlib", "pip", "conformance", "argparse"):
        (judged / f"{name}.py").write_text(
            f"raise SystemExit('{name} of the checkout was imported')\n", encoding="utf-8"
        )
    done = act(judged, "run -a numpy.sdpa -k 'masks/attention_2d/square_prefix*'")
    assert (done.returncode, "of the checkout" in done.stderr) == (0, False), done.stderr
    assert named(judged, "run")["key"]
    lines = [line for step in ACTION["runs"]["steps"] for line in step.get("run", "").splitlines() if "python " in line]
    assert lines
    assert all("python -P " in line for line in lines if "$(python" in line or line.strip().startswith("python"))


def test_arguments_may_stand_on_lines_of_their_own(judged: Path) -> None:
    done = act(judged, "run\n-a numpy.sdpa\n\n  -k masks/attention_2d/square_prefix*\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((judged / "report" / "verdict.json").read_text(encoding="utf-8"))["exit_code"] == 0


def test_a_quote_that_is_not_closed_is_refused_in_words(judged: Path) -> None:
    done = act(judged, "run -a numpy.sdpa\n-k 'masks/*\n--exit-zero")
    assert done.returncode == 4
    assert done.stdout == (
        "::error title=arguments::line 2 of arguments: a quote is not closed: -k 'masks/*"
        "%0Aeach line is split separately, so close its quotes in the same line\n"
    )
    assert done.stderr == ""
    assert (judged / "output").read_text(encoding="utf-8") == "exit-code=4\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "arguments are empty: write what follows `conformance`, such as run -a torch.sdpa"),
        (" \n\n", "arguments are empty: write what follows `conformance`, such as run -a torch.sdpa"),
        ("conformance run", "arguments begin with conformance, which the action adds itself: leave it out"),
        (
            "run \\",
            "line 1 of arguments: it ends in a backslash: run \\\neach line is split separately, so close its quotes *",
        ),
    ],
)
def test_what_is_wrong_with_arguments_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_arguments(text)
    assert fnmatchcase(str(caught.value), message.replace("[", "[[]"))


def test_arguments_keep_their_globs_and_what_is_quoted() -> None:
    found = read_arguments("run -a 'keras.mha[jax]' -a torch.*\n--out \"my report\"\n")
    assert found == ["run", "-a", "keras.mha[jax]", "-a", "torch.*", "--out", "my report"]


def named(folder: Path, arguments: str) -> dict[str, str]:
    (folder / "output").unlink(missing_ok=True)
    done = act(folder, arguments, "cache")
    assert done.returncode == 0, done.stderr
    return dict(line.split("=", 1) for line in (folder / "output").read_text(encoding="utf-8").splitlines())


def test_a_cache_is_named_by_machine_python_and_what_is_asked(judged: Path) -> None:
    first, same, other = (named(judged, text) for text in ("run", "run", "run\n-x"))
    assert first == same
    assert first["key"] != other["key"]
    prefix = f"attention-conformance-Linux-X64-{platform.python_version()}-"
    assert first["prefix"] == other["prefix"] == prefix
    assert first["key"].startswith(prefix)
    assert first["environments"].endswith("/.cache/attention-conformance-action")
    assert Path(first["downloads"]).is_absolute()


def test_what_is_cached_is_kept_green_or_red_and_where_the_command_looks_for_it() -> None:
    steps = ACTION["runs"]["steps"]
    order = [step.get("uses", "").partition("@")[0] or step.get("id", step.get("name")) for step in steps]
    assert order == [
        "actions/setup-python",
        "cache",
        "actions/cache/restore",
        "Install",
        "judge",
        "actions/cache/save",
        "actions/upload-artifact",
    ]
    restore, save = (step for step in steps if "actions/cache" in step.get("uses", ""))
    assert restore["with"]["path"] == save["with"]["path"]
    assert restore["with"]["key"] == save["with"]["key"]
    assert save["if"].startswith("always() && inputs.cache == 'true'")
    judge = next(step for step in steps if step.get("id") == "judge")
    assert judge["env"]["ENVIRONMENTS"] == "${{ steps.cache.outputs.environments }}"
    assert 'export CONFORMANCE_CACHE="$ENVIRONMENTS"' in judge["run"]
