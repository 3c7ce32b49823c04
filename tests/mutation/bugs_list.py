"""The bugs: functions beside their docstrings, which say what is right before the tool is asked."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from conformance.diagnosis.coarser_arithmetic import ARITHMETIC
from conformance.diagnosis.conditions import Condition

from .scoring import Option

FOLDER = Path(__file__).parent / "bugs"
_LINE = re.compile(r"^\s*(Right|When|Declared): (.+)$", re.MULTILINE)
_KEY = re.compile(r"[\w\[\]]+=[\w.+-]+")


@dataclass(frozen=True)
class Bug:
    """
    One function that is wrong.

    given: FILE:FUNCTION. expected: deviations, or an arithmetic, that name it, each with its condition. kinds: what
    names it where none does: a kind of rejection. declare: what is pinned down when it is checked.
    """

    given: str
    summary: str
    expected: tuple[Option, ...]
    kinds: tuple[str, ...]
    declare: dict[str, str]

    @property
    def name(self) -> str:
        """File and function."""
        return Path(self.given.partition(":")[0]).stem.removeprefix("plain_") + ":" + self.given.rpartition(":")[2]


def bugs() -> tuple[Bug, ...]:
    """Every bug, in the order of the files."""
    return tuple(
        _read(f"{path}:{node.name}", ast.get_docstring(node) or "")
        for path in sorted(FOLDER.glob("plain_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )


def _is_cause(name: str) -> bool:
    return all(_KEY.fullmatch(key) for key in name.split("+")) or any(each.name == name for each in ARITHMETIC)


def _option(text: str, when: Condition) -> Option:
    """Of several that are right each can have a condition of its own."""
    keys, _, own = text.partition(" when ")
    return Option(frozenset(keys.split("+")), Condition(**yaml.safe_load(own)) if own else when)


def _read(given: str, text: str) -> Bug:
    lines = _LINE.findall(text)
    said = {key: " or ".join(text for each, text in lines if each == key) for key, _ in lines}
    when = Condition(**yaml.safe_load(said.get("When", "{}")))
    right = said["Right"].split(" or ")
    return Bug(
        given=given,
        summary=text.splitlines()[0],
        expected=tuple(_option(each, when) for each in right if _is_cause(each.partition(" when ")[0])),
        kinds=tuple(each for each in right if not _is_cause(each.partition(" when ")[0])),
        declare=dict(each.split("=") for each in said["Declared"].split(", ")) if "Declared" in said else {},
    )
