"""Whatever text an exception has, every report is written, and the output has no commands for a terminal or CI."""

import json
import re
from pathlib import Path

import pytest

from ..running import cells, conformance, with_suite

SAID = "cannot open caf\udce9 \x1b[31mred\x1b[0m \x1b]0;title\x07\r\n::error::owned\n##vso[task.complete]\x00"
ADAPTER = f"""
from conformance.bridge import Declaration, Profile, framework_call

NAME = "fake.says"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = []
SLOTS = {{}}
VARIANTS = {{"only": {{}}}}


def declare(facts):
    return Declaration(Profile.ordinary(facts.dtype), evidence="a test")


def sdpa(call):
    with framework_call():
        raise ValueError({SAID!r})
"""

SUITE = """\
format: 1
suite: small
summary: One call.
defaults: {operator: sdpa, batch: 1, num_heads: 2, head_dim: 3, seq_len_q: 5, seq_len_k: 7}
cases:
  - name: plain
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "says.py").write_text(ADAPTER, encoding="utf-8")
    return with_suite(tmp_path, SUITE)


def test_a_report_is_always_written(project: Path) -> None:
    done = conformance("run", "cases", "-a", "says.py", "--out", "out", "--annotations", "github", "-v", cwd=project)
    verdict = json.loads((project / "out" / "verdict.json").read_text(encoding="utf-8"))
    assert done.returncode == verdict["exit_code"] == 7, done.stderr
    for name in ("index.html", "junit.xml", "summary.md"):
        assert (project / "out" / name).stat().st_size > 0
    ((_, cell),) = cells(project / "out").items()
    assert "caf\\udce9 red" in cell["error"]["message"]
    assert "\\::error::owned" in cell["error"]["message"]
    for told in (done.stdout, done.stderr, (project / "out" / "summary.md").read_text(encoding="utf-8")):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", told)
        assert not re.search(r"^\s*::error::owned|(?<!\\)#vso\[", told, re.MULTILINE)
    assert "::error title=" in done.stdout, "our own are printed"
