"""Code blocks of the pages: tests run in pytest, suites run with the commands shown, and files fit their formats."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from conformance.gate.formats import FORMATS

from ..running import conformance

DOCS = Path(__file__).parents[2] / "docs"
CASE = "causal/square/three_tensors"
# Changes the fully masked rows of the example from zeros to NaN.
LEAK_TO_NAN = ("np.where(total == 0, 1, total)", "total")


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [block for named, block in found if named == language]


def fixed(folder: Path, name: str, *replacements: tuple[str, str]) -> None:
    """Write the example of `conformance check` as a module of this name, without its mistake."""
    assert conformance("check", "--example", cwd=folder).returncode == 0
    file = folder / "my_attention.py"
    source = file.read_text(encoding="utf-8")
    for old, new in (("mask, -np.inf, logits", "mask, logits, -np.inf"), *replacements):
        assert source.count(old) == 1
        source = source.replace(old, new)
    file.unlink()
    (folder / f"{name}.py").write_text(source, encoding="utf-8")


def last_line(folder: Path, block: str, *words: str) -> str:
    """Run a block as a test file and return the last line of the output."""
    (folder / "test_block.py").write_text(block, encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    plain = {name: value for name, value in os.environ.items() if "XDIST" not in name and name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300, env=plain)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


def test_the_three_lines_of_check_make_tests(tmp_path: Path) -> None:
    fixed(tmp_path, "mine")
    assert last_line(tmp_path, blocks("check.md", "python")[0], "-k", CASE).startswith("1 passed")


def test_the_one_test_of_check_passes_for_a_function_that_does_as_declared(tmp_path: Path) -> None:
    fixed(tmp_path, "mine", LEAK_TO_NAN)
    assert last_line(tmp_path, blocks("check.md", "python")[1]).startswith("1 passed")


def test_options_of_the_plug_in_are_taken(tmp_path: Path) -> None:
    fixed(tmp_path, "my_attention", LEAK_TO_NAN)
    (tmp_path / "tests" / "cases").mkdir(parents=True)
    (tmp_path / "tests" / "cases" / "decoder.yaml").write_text(blocks("write-cases.md", "yaml")[0], encoding="utf-8")
    lines = "import conformance.pytest\nfrom my_attention import attention\n"
    for chosen in ("test_ours and by_combination", "test_our_shapes and decoder"):
        last = last_line(tmp_path, f"{lines}\n{blocks('pytest.md', 'python')[1]}", "-k", chosen)
        assert re.match(r"[1-9]\d* passed", last)


def test_the_marker_and_the_fixture_work(tmp_path: Path) -> None:
    fixed(tmp_path, "my_attention")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n", encoding="utf-8")
    last = last_line(tmp_path, blocks("pytest.md", "python")[2], "--strict-markers", "-k", "square_prefix")
    assert re.match(r"[1-9]\d* passed", last)


def test_the_commands_of_write_cases_run_on_its_suite(tmp_path: Path) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "decoder.yaml").write_text(blocks("write-cases.md", "yaml")[0], encoding="utf-8")
    text = (DOCS / "write-cases.md").read_text(encoding="utf-8")
    commands = re.findall(r"`conformance ([^`]+ [^`]+)`", text)
    assert len(commands) == 4
    for command in commands:
        words = [word for word in shlex.split(command) if word != "torch.sdpa*"]
        words = [word for word, after in zip(words, [*words[1:], ""], strict=True) if (word, after) != ("-a", "")]
        done = conformance(*words, cwd=tmp_path)
        lacking = 1 if words[0] == "audit" else 0  # one suite alone does not detect every deviation
        assert done.returncode == lacking, done.stdout + done.stderr


def test_the_page_shows_the_mask_that_explain_prints() -> None:
    command, _ = blocks("one-case.md", "console")
    (picture,) = blocks("one-case.md", "")
    done = conformance(*shlex.split(command.removeprefix("$ "))[1:])
    assert picture in done.stdout


@pytest.mark.parametrize(
    ("page", "name"), [("verdict-json.md", "verdict"), ("comparing.md", "comparison"), ("baselines.md", "baseline")]
)
def test_a_file_that_a_page_shows_is_valid(page: str, name: str) -> None:
    (block,) = blocks(page, "json")
    FORMATS[name].model_validate_json(block)
    content = json.loads(block)
    content["unknown"] = 1
    with pytest.raises(ValueError, match="unknown"):
        FORMATS[name].model_validate(content)


def test_the_records_of_a_run_are_json() -> None:
    records = [json.loads(block) for block in blocks("run-log.md", "json")]
    types = ["header", "case", "worker", "cell", "diagnosis", "footer"]
    assert [each["type"] for each in records if "type" in each] == types


def test_the_table_of_environments_is_toml() -> None:
    (block,) = blocks("upgrading.md", "toml")
    assert tomllib.loads(block)["tool"]["conformance"]["environments"].keys() == {"old", "new"}


def test_the_functions_of_an_adapter_are_python() -> None:
    for block in blocks("adapters.md", "python"):
        compile(block, "adapters.md", "exec")
