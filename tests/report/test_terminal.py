"""The terminal summary: one line for each subject, and on a pipe complete lines without control codes."""

import io
import re
from pathlib import Path

import pytest

from conformance.report import load_run, print_summary


class Terminal(io.StringIO):
    """A stream that reports that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


def told(folder: Path, stream: io.StringIO) -> str:
    print_summary(load_run(folder), stream)
    return stream.getvalue()


def test_each_subject_is_one_line(demonstration: Path) -> None:
    lines = told(demonstration, io.StringIO()).splitlines()
    (line,) = [line for line in lines if line.startswith("torch.mha ")]
    assert line.split() == [
        "torch.mha",
        "judged",
        "100",
        "%",
        "worst",
        "budget",
        "0.74",
        "24",
        "pass",
        "4",
        "known",
    ]
    (line,) = [line for line in lines if line.startswith("keras.ops.dot_product_attention[jax]")]
    assert line.split()[1:4] == ["judged", "100", "%"]


def test_findings_conclusion_and_report_follow(demonstration: Path) -> None:
    lines = told(demonstration, io.StringIO()).splitlines()
    said = (
        "1 cause explains 10 verdicts of torch.sdpa[math]: it reads True in attn_mask as ignore, only with a mask; "
        "workaround: pass ~attn_mask"
    )
    assert lines[lines.index(said) + 1].startswith(
        "  equally possible: it ignores attn_mask (workaround: do not rely on "
    )
    assert lines[lines.index(said) + 2].startswith("  rerun: conformance run -a 'torch.sdpa[math]' -k ")
    assert lines[-2].startswith("Does not conform: 18 of 332 judged calls are rejected")
    assert lines[-1] == f"Report: {demonstration / 'index.html'}"


def test_a_pipe_gets_no_control_codes(demonstration: Path) -> None:
    assert "\x1b" not in told(demonstration, io.StringIO())


def test_a_terminal_gets_colour_unless_it_is_declined(demonstration: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[1;31m" in told(demonstration, Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in told(demonstration, Terminal())


def test_hostile_text_commands_nothing(hostile_run: Path) -> None:
    text = told(hostile_run, io.StringIO())
    assert not any(ord(character) < 32 and character != "\n" for character in text)
    assert not re.search(r"^\s*::", text, re.MULTILINE)
    assert "alert(1)" in text


def test_what_is_not_offered_is_named_with_the_command_that_adds_it(tmp_path: Path) -> None:
    header = (
        '{"type": "header", "schema": 1, "run": "r", "started": "", "command": [], "versions": {}, "platform": {}, '
        '"device": "cpu", "cases": {}, "subjects": {}, "not_offered": ['
        '{"adapter": "jax.sdpa[jit]", "missing": ["jax>=0.4.35"], "extra": "jax"}, '
        '{"adapter": "jax.sdpa[eager]", "missing": ["jax>=0.4.35"], "extra": "jax"}]}'
    )
    (tmp_path / "run.jsonl").write_text(header + "\n", encoding="utf-8")
    lines = told(tmp_path, io.StringIO()).splitlines()
    assert (
        "not installed here: jax.sdpa[jit], jax.sdpa[eager]; to install: python -m pip install 'jax>=0.4.35'" in lines
    )
