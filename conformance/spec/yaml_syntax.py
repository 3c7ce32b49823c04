"""
Convert YAML text to plain data and back, and find the line and column of a field.

A file is read in three passes. The first reads events and rejects anchors, aliases, tags, and too large depth or size
before anything is built. The second builds nodes, which know their positions. The third makes plain data. Scalars
follow the YAML 1.2 core schema: `1e-5` is a number; `no`, `012` and `12:30` are strings.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isinf
from pathlib import Path as File
from typing import Any

import yaml

from conformance.spec.mistakes import Mistake, Mistakes
from conformance.spec.texts import NoText, cut, quoted, read_text

try:
    from yaml import CSafeLoader as _Base
except ImportError:  # PyYAML without libyaml: slower, with the same results
    from yaml import SafeLoader as _Base  # type: ignore[assignment]

MAX_BYTES = 2**20
MAX_DEPTH = 24
MAX_EVENTS = 2**17
MAX_DIGITS = 64
TOO_DEEP = f"the document is nested more than {MAX_DEPTH} levels deep"

Path = Sequence[str | int]

_TAG = "tag:yaml.org,2002:"
_SCALARS = (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", ["t", "f"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.inf)|\.nan",
        list("-+.0123456789"),
    ),
)


class _Loader(_Base):
    """PyYAML's loader with only the scalar resolvers of this module."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own shape


for _name, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})$"), _first)


def write(data: dict[str, Any]) -> str:
    """Write plain data as YAML; keys stay in order. No list or mapping may occur twice: that would be an alias."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # PyYAML without libyaml has only the slower one
    text: str = yaml.dump(data, Dumper=dumper, sort_keys=False, default_flow_style=None, width=100)
    return text


@dataclass(frozen=True)
class Document:
    """A file as plain data (None if it could not be read), its root node, and the mistakes found so far."""

    file: str
    node: yaml.Node | None
    data: Any
    mistakes: tuple[Mistake, ...]


def read_file(path: File, file: str) -> Document:
    """Read the document of a file, called `file` in messages; a file that cannot be read is a mistake."""
    try:
        return read(read_text(path, MAX_BYTES), file)
    except NoText as error:
        return _unread(file, error.line, error.column, error.message)


def read(text: str, file: str) -> Document:
    """Read one YAML document; errors in the text become mistakes, never exceptions."""
    if len(text.encode()) > MAX_BYTES:
        return _unread(file, 1, 1, f"the file has more than {MAX_BYTES} bytes; split the suite")
    if (invalid := yaml.reader.Reader.NON_PRINTABLE.search(text)) is not None:
        before = text[: invalid.start()]
        column = len(before) - before.rfind("\n")
        return _unread(file, before.count("\n") + 1, column, f"not YAML: character {invalid.group()!r} is not allowed")
    try:
        refused = Mistakes(file)
        for start, message in _refused(text):
            refused.note(*start, message)
        if refused.found:
            return Document(file, None, None, refused.listed(text.count("\n") + 1))
        node = _compose(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(word for word in (error.context, error.problem) if word)
        # The scanner of PyYAML 6.0.4 looks ahead, so it may reach its own depth limit before MAX_DEPTH is seen here.
        message = TOO_DEEP if "maximum nesting depth" in words else f"not YAML: {words}"
        return _unread(file, mark.line + 1 if mark else 1, mark.column + 1 if mark else 1, message)
    mistakes = Mistakes(file)
    data = _plain(node, mistakes) if node is not None else None
    return Document(file, node, data, mistakes.listed(last_line(node)))


def _unread(file: str, line: int, column: int, message: str) -> Document:
    return Document(file, None, None, (Mistake(file, line, column, message),))


def _compose(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        node: yaml.Node | None = loader.get_single_node()
        return node
    finally:
        loader.dispose()


def _refused(text: str) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield position and message of everything that is not allowed; stop at the first excess of size or depth."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        if depth > MAX_DEPTH or count > MAX_EVENTS:
            yield position(event), TOO_DEEP if depth > MAX_DEPTH else f"the document has more than {MAX_EVENTS} nodes"
            return
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            sign, name = ("*", "alias") if isinstance(event, yaml.AliasEvent) else ("&", "anchor")
            yield position(event), f"{name} {sign}{cut(event.anchor)} is not allowed: write the value out"
        if (tag := getattr(event, "tag", None)) is not None:
            yield position(event), f"tag {cut(tag)} is not allowed: use plain values only"


def _plain(node: yaml.Node, mistakes: Mistakes) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, mistakes)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, mistakes) for item in node.value]
    return _scalar(node, mistakes)


def _mapping(node: yaml.MappingNode, mistakes: Mistakes) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    first: dict[str, int] = {}
    for key, value in node.value:
        line, column = position(key)
        if not isinstance(key, yaml.ScalarNode):
            mistakes.note(line, column, "a key must be a plain string")
        elif key.value in plain:
            mistakes.note(line, column, f"duplicate key {quoted(key.value)}, first on line {first[key.value]}")
        else:
            first[key.value] = line
            plain[key.value] = _plain(value, mistakes)
    return plain


def _scalar(node: yaml.Node, mistakes: Mistakes) -> Any:
    tag, text = node.tag.removeprefix(_TAG), node.value
    if tag in ("int", "float"):
        return _number(tag, text, node, mistakes)
    return {"null": None, "bool": text == "true"}.get(tag, text)


def _number(tag: str, text: str, node: yaml.Node, mistakes: Mistakes) -> int | float:
    """Read a number; one that is too long or too large is noted as a mistake and read as 1."""
    if len(text) > MAX_DIGITS:
        mistakes.note(*position(node), f"this number has more than {MAX_DIGITS} characters")
        return 1
    if tag == "int":
        return int(text)
    number = float(text.replace(".inf", "inf").replace(".nan", "nan"))
    if isinf(number) and ".inf" not in text:
        mistakes.note(*position(node), f"{text} is too large for a float64; write infinity as .inf")
        return 1
    return number


def position(part: yaml.Node | yaml.Event) -> tuple[int, int]:
    """Return line and column at which a part of a document begins, from 1."""
    mark = part.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def last_line(node: yaml.Node | None) -> int:
    """Return the line on which a part of a document ends, from 1."""
    return node.end_mark.line + 1 if node is not None and node.end_mark else 1


def child(node: yaml.Node, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return key node and value node of a field, or a list item twice; None if there is none."""
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


def find(nodes: Sequence[yaml.Node], path: Path, *, at_key: bool = False) -> tuple[int, int]:
    """
    Return line and column of `path` in `nodes`, which are merged as mappings; the first node takes precedence.

    If the path does not exist (a missing field), return the position of its deepest existing part.
    """
    layers, key, value = list(nodes), nodes[0], nodes[0]
    for part in path:
        pairs = [pair for node in layers if (pair := child(node, part))]
        if not pairs:
            return position(value)
        key, value = pairs[0]
        mapping = isinstance(value, yaml.MappingNode)
        layers = [node for _, node in pairs if isinstance(node, yaml.MappingNode)] if mapping else [value]
    return position(key if at_key else value)
