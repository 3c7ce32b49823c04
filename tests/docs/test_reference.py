"""The reference pages of the site list every command, option, format and deviation, in well-formed tables."""

import argparse
import json
import re
import shlex
import subprocess
import sys

import pytest

from conformance.bridge import __all__ as bridge_names
from conformance.cli.parser import build_parser
from conformance.deviations.catalogue import TABLE
from conformance.gate.formats import FORMATS

from . import reference

PAGES = reference.pages()
COMMANDS = list(reference.commands(build_parser()))


@pytest.mark.parametrize("parser", COMMANDS, ids=lambda parser: parser.prog.replace(" ", "-"))
def test_a_command_has_a_section_with_all_of_its_options(parser: argparse.ArgumentParser) -> None:
    section = PAGES["reference/cli.md"].partition(f"\n## {parser.prog}\n")[2].partition("\n## ")[0]
    assert section
    options = {name for action in parser._actions for name in action.option_strings} - {"-h", "--help"}
    assert {name for name in options if not re.search(rf"`{name}[` ]", section)} == set()


def test_every_command_that_the_help_lists_has_a_section() -> None:
    done = subprocess.run([sys.executable, "-m", "conformance", "--help"], capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^    (\w+)(?:  |$)", done.stdout, re.MULTILINE))
    assert len(listed) > 10
    assert listed == {parser.prog.split()[1] for parser in COMMANDS}


def test_examples_parse() -> None:
    examples = re.findall(r"^\$ conformance (.*)$", PAGES["reference/cli.md"], re.MULTILINE)
    assert len(examples) == len(COMMANDS)
    for example in examples:
        words = shlex.split(example, comments=True)
        words = words[: words.index(">")] if ">" in words else words
        assert build_parser().parse_args(words).command


def test_help_texts_are_filled_in_and_no_markup() -> None:
    assert "%(" not in PAGES["reference/cli.md"]
    assert "default: reports/&lt;UTC>-&lt;id>" in PAGES["reference/cli.md"]
    assert reference._prose("a * of [b] in `c * d`, docs/check.md") == (
        "a \\* of \\[b\\] in `c * d`, [check.md](../check.md)"
    )


def test_the_python_api_is_complete() -> None:
    page = PAGES["reference/python.md"]
    for name in ("conformance.check", "conformance.Result", "conformance.pytest.cases"):
        assert f"\n### {name}\n" in page
    assert [name for name in bridge_names if f"\n### conformance.bridge.{name}\n" not in page] == []
    assert "collections.abc" not in page


def test_every_format_has_its_schema_and_a_table_of_its_keys() -> None:
    assert {path.split("/")[1].split(".")[0] for path in reference.schemas()} == {"case", *FORMATS}
    for path, text in reference.schemas().items():
        assert f"({path.removeprefix('reference/')})" in PAGES["reference/schemas.md"]
        for key in json.loads(text)["properties"]:
            assert f"\n| `{key}` | " in PAGES["reference/schemas.md"]


def test_every_deviation_of_the_table_is_listed() -> None:
    rows = set(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", PAGES["reference/deviations.md"], re.MULTILINE))
    assert {(row.decision, row.name) for row in TABLE} <= rows
    assert ("polarity[ARGUMENT]", "ignore") in rows


@pytest.mark.parametrize("path", sorted(PAGES))
def test_tables_have_as_many_cells_in_every_row(path: str) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", PAGES[path], re.MULTILINE):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(counts) == 1, table
