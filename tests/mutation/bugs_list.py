"""The bugs: functions whose docstrings say what is right. The docstrings were written before the tool judged them."""

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
    One wrong function.

    given: FILE:FUNCTION. expected: the correct causes (deviations, or an arithmetic), each with its condition. kinds:
    kinds of rejection that are correct without a cause. declare: decision -> the name that is declared for the check.
    """

    given: str
    summary: str
    expected: tuple[Option, ...]
    kinds: tuple[str, ...]
    declare: dict[str, str]

    @property
    def name(self) -> str:
        """The file and the function, as in `sdpa:scale_missing`."""
        return Path(self.given.partition(":")[0]).stem.removeprefix("plain_") + ":" + self.given.rpartition(":")[2]


def bugs() -> tuple[Bug, ...]:
    """Return every bug, sorted by file."""
    return tuple(
        _read(f"{path}:{node.name}", ast.get_docstring(node) or "")
        for path in sorted(FOLDER.glob("plain_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )


def _is_cause(name: str) -> bool:
    return all(_KEY.fullmatch(key) for key in name.split("+")) or any(each.name == name for each in ARITHMETIC)


def _option(text: str, when: Condition) -> Option:
    """Read one correct cause; its own condition, if it has one, replaces `when`."""
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
