"""README.md and docs/tutorial.md show the output that the commands print, and the fix of the tutorial works."""

import re
import shlex
from pathlib import Path

import pytest

from ..running import conformance

ROOT = Path(__file__).parents[2]
README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def told(text: str) -> list[str]:
    """Return the lines with numbers and the name after -k replaced by #: both change with the cases."""
    return [re.sub(r"(?<=-k ).*|[\d.]+(?! cause\b)(?= |$)", "#", line) for line in text.rstrip().splitlines()]


def ran(block: str, folder: Path) -> list[str]:
    """Run the commands of a block; return each with as many lines of its output as the block shows."""
    lines: list[str] = []
    for each in block.split("$ conformance ")[1:]:
        command, *shown = each.splitlines()
        done = conformance(*shlex.split(command), cwd=folder)
        lines += [f"$ conformance {command}", *done.stdout.splitlines()[: len(shown)]]
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tutorial")


def test_the_first_finding_is_printed_as_shown(folder: Path) -> None:
    shown = blocks(TUTORIAL, "console")[0]
    assert told("\n".join(ran(shown, folder))) == told(shown)
    (readme,) = blocks(README, "console")
    assert told(shown)[: len(told(readme))] == told(readme)


def test_the_fix_makes_the_function_conform(folder: Path) -> None:
    mistake, fix = (block.strip() for block in blocks(TUTORIAL, "python"))
    file = folder / "my_attention.py"
    source = file.read_text(encoding="utf-8")
    assert source.count(mistake) == 1
    file.write_text(source.replace(mistake, fix), encoding="utf-8")
    shown = blocks(TUTORIAL, "console")[1]
    assert told("\n".join(ran(shown, folder))) == told(shown)


def test_another_sentence_would_be_seen() -> None:
    assert told("1. it reads True in mask as: ignore this key (217 verdicts)") == told(
        "1. it reads True in mask as: ignore this key (3 verdicts)"
    )
    assert told("1. it reads True in mask as: ignore this key") != told(
        "1. it reads True in mask as: attend to this key"
    )
    assert told("conforms: 1 cause in 322 calls.") != told("conforms: 2 causes in 322 calls.")


@pytest.mark.parametrize("path", [README, TUTORIAL], ids=lambda path: path.stem)
def test_every_picture_is_there(path: Path) -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
    assert pictures
    for picture in pictures:
        assert (path.parent / picture).read_bytes().startswith(b"\x89PNG")
