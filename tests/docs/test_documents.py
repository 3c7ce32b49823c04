"""The documents are correct: examples load and run as shown, links resolve, and lists match the code."""

import ast
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from conformance.bridge.profile import Profile
from conformance.cli.parser import build_parser
from conformance.diagnosis.judgement import CALIBRATED
from conformance.engine.adapter_facts import parse_slots
from conformance.engine.adapters import read_adapters
from conformance.gate import decision
from conformance.gate.known_file import read_known
from conformance.spec.loader import load
from conformance.spec.materialise import duplicates
from conformance.verdicts.verdict import GRAVITY, GREEN

from ..running import conformance

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
OVERVIEW = ROOT / "docs" / "index.md"
COMMANDS = ROOT / "docs" / "commands.md"
ADAPTER_PAGE = ROOT / "docs" / "your-own-adapter.md"
DOCUMENTS = (README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md")))
SUITE = {"format": 1, "suite": "example", "summary": "An example.", "cases": []}
SIZES = {"operator": "mha", "batch": 3, "num_heads": 2, "head_dim": 8, "seq_len_q": 5, "seq_len_k": 7}

each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def blocks(path: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text_of(path), re.MULTILINE | re.DOTALL)


def spans(path: Path) -> list[str]:
    """Return the inline code spans, outside fenced blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text_of(path), flags=re.MULTILINE | re.DOTALL))


def rows(path: Path, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first column is called `heading`, without the header row."""
    table = re.search(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text_of(path), re.MULTILINE)
    assert table, f"{path.name} has no table of {heading}"
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


# ---- examples ----------------------------------------------------------------------------------------------------


def suites() -> Iterator[tuple[str, str]]:
    for path in (ROOT / "docs" / "cases.md", ROOT / "docs" / "write-cases.md"):
        for number, block in enumerate(blocks(path, "yaml")):
            yield f"{path.stem}-{number}", block


def completed(block: str) -> tuple[str, str]:
    """Return the name and text of the suite in an example; a case, or a list of cases, is completed to a suite."""
    content = yaml.safe_load(block)
    if "format" in content:
        return content["suite"], block
    entries = content if isinstance(content, list) else [content]
    return "example", yaml.safe_dump({**SUITE, "defaults": SIZES, "cases": [{"name": "one", **e} for e in entries]})


@pytest.mark.parametrize("block", [pytest.param(block, id=name) for name, block in suites()])
def test_an_example_of_a_case_loads_without_equal_calls(block: str, tmp_path: Path) -> None:
    suite, text = completed(block)
    file = tmp_path / "cases" / f"{suite}.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    cases = load([file], tmp_path / "cases")
    assert cases
    assert duplicates(cases) == ()


def test_a_fragment_is_completed_and_a_wrong_one_is_not_waved_through(tmp_path: Path) -> None:
    for text, entries in (("masks: [{kind: causal}]", 1), ("- {name: a}\n- {name: b, batch: 1}", 2)):
        (tmp_path / "example.yaml").write_text(completed(text)[1], encoding="utf-8")
        assert len(load([tmp_path], tmp_path)) == entries
    (tmp_path / "example.yaml").write_text(completed("masks: [{kind: casual}]")[1], encoding="utf-8")
    with pytest.raises(Exception, match="casual"):
        load([tmp_path], tmp_path)


def test_there_are_examples_of_cases_in_both_documents() -> None:
    assert {name.partition("-")[0] for name, _ in suites()} == {"cases", "write"}


def test_the_example_of_known_deviations_is_read(tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "known-deviations.md", "yaml")
    (tmp_path / "known.yaml").write_text(block, encoding="utf-8")
    assert len(read_known([tmp_path / "known.yaml"])) == block.count("- subject:")


def test_the_example_of_slots_is_accepted() -> None:
    source = next(block for block in blocks(ROOT / "docs" / "adapters.md", "python") if block.startswith("SLOTS = "))
    assert set(parse_slots(ast.literal_eval(source.removeprefix("SLOTS = ")))) == {
        "key_padding_mask",
        "attn_mask",
        "is_causal",
    }


# ---- the page of an adapter from scratch -------------------------------------------------------------------------


RIGHT = "np.tri(queries, keys, dtype=bool)"
WRONG = "np.tri(queries, keys, keys - queries, dtype=bool)"
DOCUMENTED = '"causal": {"role": "causal", "alignment": "bottom_right"}'


def shown() -> list[tuple[list[str], list[str]]]:
    """Return the commands on the page, each with the output lines that the page shows."""
    found = []
    for block in blocks(ADAPTER_PAGE, "console"):
        command, *lines = block.splitlines()
        found.append((shlex.split(command.removeprefix("$ ")), lines))
    return found


def adapter(folder: Path, *replacements: tuple[str, str]) -> Path:
    """Write the adapter of the page with these replacements, and return the folder."""
    source = blocks(ADAPTER_PAGE, "python")[0]
    for old, new in replacements:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    (folder / "mine.py").write_text(source, encoding="utf-8")
    return folder


def told(lines: list[str]) -> list[str]:
    """Replace the numbers that depend on the processor, or on how many cases do not fail, by #."""
    loose = (r"judged +\d+ %", r"worst budget +\S+", r"\d+ (?=pass|unsupported)", r"(?<=of )\d+(?= verdicts)")
    joined = re.sub("|".join(loose), "#", "\n".join(lines))
    return re.sub(r"(?<=Conforms: )\d+", "#", joined).splitlines()


def ran(folder: Path, command: list[str]) -> tuple[int, list[str]]:
    """Run a command of the page; return its exit code and its output lines, except the line about the report."""
    line = [sys.executable, "-m", *command, "--out", "out"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[-1] == "Report: out/index.html", done.stderr
    return done.returncode, told(done.stdout.splitlines()[:-1])


def test_the_adapter_of_the_page_is_found_wrong_as_shown(tmp_path: Path) -> None:
    command, lines = shown()[0]
    assert ran(adapter(tmp_path), command) == (decision.REJECTED, told(lines))
    log = (tmp_path / "out" / "run.jsonl").read_text(encoding="utf-8").splitlines()
    found = [record["budget"] for record in map(json.loads, log) if record.get("verdict") == "fail"]
    budgets = [budget for budget in found if budget != "inf"]
    assert len(budgets) == len(found) - 2
    assert "errors of up to 2e13 times the allowed error" in " ".join(text_of(ADAPTER_PAGE).split())
    assert max(budgets) == pytest.approx(2e13, rel=0.5)


def test_its_one_cell_can_be_rerun(tmp_path: Path) -> None:
    command, _ = shown()[1]
    code, lines = ran(adapter(tmp_path), command)
    assert code == decision.REJECTED
    assert (
        "1 cause explains 1 verdict of mine.attention: it aligns the causal mask to the last key (bottom right); "
        "workaround: pass an attention mask instead of the causal argument"
    ) in lines


def test_the_adapter_of_the_page_conforms_once_corrected(tmp_path: Path) -> None:
    assert f"`{RIGHT}`" in text_of(ADAPTER_PAGE)
    command, lines = shown()[2]
    assert ran(adapter(tmp_path, (WRONG, RIGHT)), command) == (decision.CONFORMS, told(lines))


def test_the_adapter_of_the_page_conforms_once_documented(tmp_path: Path) -> None:
    assert f"`{DOCUMENTED}`" in text_of(ADAPTER_PAGE)
    folder = adapter(tmp_path, ('"causal": {"role": "causal", "alignment": "top_left"}', DOCUMENTED))
    code, lines = ran(folder, ["conformance", "run", "-a", "mine.py", "-k", "causal/*"])
    assert code == decision.CONFORMS, lines


# ---- lists -------------------------------------------------------------------------------------------------------


def test_exit_codes_are_those_of_the_gate() -> None:
    listed = rows(ROOT / "docs" / "exit-codes.md", "code")
    assert [int(row[0]) for row in listed] == sorted(decision.PRECEDENCE)


def test_the_precedence_of_exit_codes_is_that_of_the_gate() -> None:
    said = re.search(r"the first of ([\d, ]+) is returned", text_of(ROOT / "docs" / "exit-codes.md"))
    assert said
    assert tuple(int(code) for code in said[1].split(",")) == decision.PRECEDENCE


@pytest.mark.parametrize("path", [OVERVIEW, ROOT / "docs" / "architecture.md"], ids=lambda path: path.stem)
def test_verdicts_stand_in_the_order_of_gravity(path: Path) -> None:
    assert tuple(row[0] for row in rows(path, "verdict")) == GRAVITY


def test_verdicts_are_green_where_the_gate_is() -> None:
    assert tuple(row[0] for row in rows(OVERVIEW, "verdict") if row[-1] == "green") == GREEN
    said = " ".join(text_of(ROOT / "docs" / "exit-codes.md").split())
    listed = re.search(r"These verdicts are accepted \(green\): (.+?), and whatever", said)
    assert listed
    assert re.findall(r"`(\w+)`", listed[1]) == [*GREEN, "inconclusive"]


def test_the_run_log_has_every_verdict() -> None:
    listed = re.search(r"`verdict` is one of ([\w, ]+);", text_of(ROOT / "docs" / "run-log.md"))
    assert listed
    assert set(listed[1].split(", ")) == set(GRAVITY)


def test_the_fields_of_a_profile_are_those_of_the_code() -> None:
    table = rows(ROOT / "docs" / "tolerance.md", "field")
    assert {row[0] for row in table} == set(Profile.uniform("float32").record())
    words = {"float32": "float32", "float16": "itself", None: "-", 4.0: "4", False: "no"}
    for column, make in ((-3, Profile.uniform), (-2, Profile.fused), (-1, Profile.naive)):
        made = {name: words[value] for name, value in make("float16").record().items()}
        assert {row[0]: row[column].strip("| ") for row in table} == made


def test_what_is_said_to_be_calibrated_is() -> None:
    said = re.findall(r"on\s+(cpu|cuda):\s+(.+?)\s+masks[;.]", text_of(ROOT / "docs" / "tolerance.md"), re.DOTALL)
    names = {device: re.split(r",\s*|\s+and\s+", re.sub(r"\s+", " ", listed)) for device, listed in said}
    assert {device: {name.replace(" ", "_") for name in each} for device, each in names.items()} == CALIBRATED


def test_the_overview_names_every_adapter() -> None:
    named = [name for row in rows(OVERVIEW, "family") for name in re.findall(r"\w+\.\w+", row[-1])]
    assert sorted(named) == sorted(adapter.name for adapter in read_adapters([ROOT / "adapters"]))


# ---- commands and references -------------------------------------------------------------------------------------


def commands(path: Path) -> list[str]:
    lines = [line[2:] for block in blocks(path, "console") for line in block.splitlines() if line.startswith("$ ")]
    return [text for text in (*spans(path), *lines) if text.startswith("conformance ")]


@each_document
def test_every_command_is_understood(path: Path) -> None:
    for command in commands(path):
        words = shlex.split(command)[1:]
        if "--help" in words:
            words = [*words[: words.index("--help")], "--exit-zero"]
        assert build_parser().parse_args(words).command


def test_every_option_of_everyday_commands_is_in_the_help() -> None:
    said = ""
    for words in (
        ["run"],
        ["check"],
        ["validate"],
        ["list", "cases"],
        ["list", "adapters"],
        ["smoke"],
        ["bisect"],
        ["explain"],
        ["repro"],
        ["known", "update"],
        ["audit"],
    ):
        done = conformance(*words, "--help")
        assert done.returncode == 0
        said += done.stdout
    given = [span for span in (*commands(COMMANDS), *spans(COMMANDS)) if span.startswith(("conformance ", "-"))]
    options = {option for span in given for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", span)}
    assert {"-a", "-k", "--env", "--resume", "--known", "--exit-zero", "--device"} <= options
    assert not {option for option in options if not re.search(rf"(?<![\w-]){option}(?![\w-])", said)}


def test_the_two_fills_of_the_published_page_are_told_apart_as_it_says() -> None:
    def softmax(fill: float) -> list[float]:
        logits = np.array([9.2e9, fill], np.float32)
        exponentials = np.exp(logits - logits.max())
        return list(exponentials / exponentials.sum())

    said = re.sub(r"\s+", " ", text_of(ROOT / "docs" / "published.md"))
    assert (
        "the softmax of [9.2e9, fill] is [1, 0] with 2 ** 33, since the attended key wins, and [0, 1] with 1e10" in said
    )
    assert (softmax(2.0**33), softmax(1e10)) == ([1, 0], [0, 1])


def test_the_readme_is_short_and_shows_a_picture() -> None:
    text = text_of(README)
    assert len(text.splitlines()) < 150
    assert re.search(r"^!\[[^\]]+\]\(docs/images/", text, re.MULTILINE)


def test_the_two_commands_stand_as_they_are() -> None:
    assert [block.strip() for block in blocks(README, "")[:2]] == [
        "python -m pip install nox && nox -s conformance",
        "python -m pip install nox && nox -s tests",
    ]


@each_document
def test_every_nox_session_exists(path: Path) -> None:
    tree = ast.parse(text_of(ROOT / "noxfile.py"))
    sessions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list}
    named = {
        name for span in spans(path) for found in re.findall(r"nox -s ((?:\w+ ?)+)", span) for name in found.split()
    }
    assert named <= sessions


@each_document
def test_every_relative_link_leads_to_a_file(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text_of(path))
    assert not [link for link in links if "://" not in link and not (path.parent / link).exists()]


@each_document
def test_every_file_that_is_named_exists(path: Path) -> None:
    ours = ("conformance/", "adapters/", "tests/", "benchmarks/", "docs/")
    named = {span for span in spans(path) if span.startswith(ours) and " " not in span and not set("*<") & set(span)}
    assert not {name for name in named if not (ROOT / name).exists()}


def referring() -> list[Path]:
    return [
        file for folder in ("conformance", "benchmarks", "tests", "adapters") for file in (ROOT / folder).rglob("*.py")
    ]


def test_every_file_of_the_table_of_packages_is_in_its_package() -> None:
    for package, _, contents in rows(ROOT / "docs" / "architecture.md", "package"):
        for name in re.findall(r"`(\w+\.(?:py|toml|yaml))`", f"`{contents}`"):
            assert (ROOT / "conformance" / package / name).is_file(), f"{package} has no {name}"


def test_every_document_that_code_refers_to_exists_with_its_section() -> None:
    headings = {
        int(number) for number in re.findall(r"^## (\d+)\. ", text_of(ROOT / "docs" / "tolerance.md"), re.MULTILINE)
    }
    assert headings == set(range(1, 12))
    for file in referring():
        text = text_of(file)
        assert all((ROOT / name).is_file() for name in re.findall(r"(?<![/\w])docs/[\w-]+\.md", text)), file
        for numbers in re.findall(r"tolerance\.md, sections? ([\d, andto]+)", text):
            assert {int(number) for number in re.findall(r"\d+", numbers)} <= headings, file
