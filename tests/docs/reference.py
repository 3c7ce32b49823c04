"""
The reference pages of the documentation site, generated from the code: commands, Python API, formats, deviations.

MkDocs calls `pages` and `schemas` when it builds the site (hooks.py), so these pages cannot be out of date.
"""

import argparse
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import conformance
import conformance.pytest
from conformance import bridge
from conformance.checking.check_report import CaseOutcome
from conformance.cli.parser import build_parser
from conformance.deviations.catalogue import TABLE
from conformance.deviations.mask_arguments import slot_deviations
from conformance.diagnosis.explanation import sentence
from conformance.gate.formats import FORMATS, schema_text
from conformance.spec import document as case_schema

# Characters in a line of code that fit into the text column.
WIDTH = 96

INTRODUCTIONS = {
    "cli": """\
# Command line

Every command and every option, as `conformance COMMAND --help` prints them. In `-a` and `-k` only `*` and `?` are
special, and an exact name wins over a glob. [Exit codes](../exit-codes.md) are the same for all commands.
""",
    "schemas": """\
# Schemas

JSON Schemas of the files that people or machines read and write. `conformance schema` prints the one for case files,
`conformance schema verdict` and the like print the others. A schema with the same number only gains optional keys.
""",
    "deviations": """\
# Deviations

Every named way to compute attention differently from canonical. Use these names in `--declare DECISION=NAME`, in the
`Deviation` of an adapter, and in a list of known deviations. `ARGUMENT` stands for a mask argument of the subject.
Deviations that hold a number, such as `mask_fill=puts_-10`, are measured from a reply and are not listed.
""",
}
DESCRIPTIONS = {
    "case": "A suite of cases, `cases/*.yaml`. [Case files](../cases.md) explains every field.",
    "verdict": "The decision about a run, `verdict.json`. See also [verdict.json](../verdict-json.md).",
    "comparison": "The result of `conformance compare`, `comparison.json`. See also [comparing runs](../comparing.md).",
    "baseline": "What a run showed, for `--baseline`. See also [baselines](../baselines.md).",
}


def pages() -> dict[str, str]:
    """Path below docs/ -> Markdown."""
    return {
        "reference/cli.md": _joined(_command_line()),
        "reference/python.md": _joined(_python()),
        "reference/schemas.md": _joined(_formats()),
        "reference/deviations.md": _joined(_deviations()),
    }


def schemas() -> dict[str, str]:
    """Path below docs/ -> JSON Schema. The page of the formats links to these files."""
    texts = {"case": case_schema.text(), **{name: schema_text(name) for name in FORMATS}}
    return {f"reference/{name}.schema.json": text for name, text in texts.items()}


def _joined(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


def _prose(text: str) -> str:
    """Return plain text as Markdown: only backticks are markup, and each page of docs/ that it names becomes a link."""
    parts = text.split("`")
    for number in range(0, len(parts), 2):  # the other parts are between backticks
        escaped = re.sub(r"([*\[\]])", r"\\\1", parts[number].replace("<", "&lt;"))
        parts[number] = re.sub(r"docs/([\w-]+)\.md", r"[\1.md](../\1.md)", escaped)
    return "`".join(parts)


def _cell(text: str) -> str:
    """Return plain text as Markdown for one cell of a table."""
    return _in_a_row(_prose(text))


def _code(text: str) -> str:
    """Return a cell that contains code, or "" if there is none."""
    return f"`{_in_a_row(text)}`" if text else ""


def _in_a_row(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


# ---- the command line --------------------------------------------------------------------------------------------


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command that can be run, in the order of the help; a command that only groups others is omitted."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield parser
    for group in groups:
        for each in group.choices.values():
            yield from commands(each)


def _command_line() -> Iterator[str]:
    yield INTRODUCTIONS["cli"]
    found = list(commands(build_parser()))
    yield "| command | what it does |\n|---|---|"
    for parser in found:
        yield f"| [`{parser.prog}`](#{_anchor(parser.prog)}) | {_cell(parser.description or '')} |"
    yield ""
    for parser in found:
        yield from _command(parser)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w-]+", "-", title.lower())


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog, width=WIDTH)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    yield f"## {parser.prog}\n\n{_prose(parser.description or '')}\n\n```text\n{formatter.format_help().strip()}\n```\n"
    yield "| argument | meaning |\n|---|---|"
    for action in parser._actions[1:]:  # all except --help
        yield f"| {_named(action)} | {_cell((action.help or '') % _values(parser, action))} |"
    if parser.epilog:
        label, _, example = parser.epilog.partition(": ")
        yield f"\n{label.capitalize()}:\n\n```console\n$ {example}\n```"
    yield ""


def _named(action: argparse.Action) -> str:
    """Return how an argument is written on the command line."""
    shown = action.metavar if isinstance(action.metavar, str) else None
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices is not None else None
    value = choices or shown or action.dest.upper()
    if not action.option_strings:
        return _code(value)
    return ", ".join(_code(name if action.nargs == 0 else f"{name} {value}") for name in action.option_strings)


def _values(parser: argparse.ArgumentParser, action: argparse.Action) -> dict[str, Any]:
    """Return the values that argparse inserts into a help text."""
    return {**vars(action), "prog": parser.prog}


# ---- the Python API ----------------------------------------------------------------------------------------------


def _python() -> Iterator[str]:
    yield "# Python API\n\n## conformance\n"
    yield "For your own tests. [Check a function](../check.md#in-your-own-tests) shows examples.\n"
    yield from _callable("conformance.check", conformance.check)
    yield from _class("conformance.Result", conformance.Result)
    yield from _class("Outcome", CaseOutcome)
    yield "## conformance.pytest\n\nThe plug-in for pytest. [In pytest](../pytest.md) shows examples.\n"
    yield from _callable("conformance.pytest.cases", conformance.pytest.cases)
    yield "## conformance.bridge\n\nWhat an adapter imports. [Adapters](../adapters.md) describes the contract.\n"
    for name in bridge.__all__:
        given = getattr(bridge, name)
        yield from (_class if inspect.isclass(given) else _callable)(f"conformance.bridge.{name}", given)


def _callable(name: str, function: Callable[..., Any]) -> Iterator[str]:
    yield f"### {name}\n\n```python\n{_signature(name.rpartition('.')[2], function)}\n```\n"
    yield from _docstring(function)


def _signature(name: str, function: Callable[..., Any]) -> str:
    """Return the signature, with one parameter on each line if it is too long for one line."""
    if inspect.isclass(function) and issubclass(function, Exception):
        return f"class {name}(Exception)"
    signature = inspect.signature(function)
    told = f"{name}{signature}"
    if len(told) <= WIDTH:
        return _plain(told)
    star = [each.name for each in signature.parameters.values() if each.kind is inspect.Parameter.KEYWORD_ONLY][:1]
    lines = []
    for each in signature.parameters.values():
        lines += ["    *,"] if [each.name] == star else []
        lines.append(f"    {each},")
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty else f" -> {inspect.formatannotation(returned)}"
    return _plain("\n".join([f"{name}(", *lines, f"){arrow}"]))


def _plain(text: str) -> str:
    """Return the text with annotations as the names that a reader imports, without the quotes of string annotations."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r"\b(?:collections\.abc|typing|pathlib|conformance(?:\.\w+)+|numpy)\.(?=\w)", "", text)
    return text.replace("<factory>", "...")


def _class(name: str, cls: type[Any]) -> Iterator[str]:
    yield f"### {name}\n\n```python\n{_signature(name.rpartition('.')[2], cls)}\n```\n"
    yield from _docstring(cls)
    for member, given in vars(cls).items():
        function = given.__func__ if isinstance(given, (classmethod, staticmethod)) else given
        told = function.fget if isinstance(function, property) else function
        if member.startswith("_") or not inspect.isfunction(told):
            continue
        shown = f"{member}" if isinstance(function, property) else _signature(member, told)
        yield f"#### {name.rpartition('.')[2]}.{member}\n\n```python\n{shown}\n```\n"
        yield from _docstring(told)


def _docstring(given: Any) -> Iterator[str]:
    text = inspect.getdoc(given)
    assert text, f"{given} has no docstring"
    raises = re.search(r"\nRaises:\n(.*)", text, re.DOTALL)
    yield _prose((text[: raises.start()] if raises else text).strip()) + "\n"
    if raises:
        for line in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", raises[1], re.MULTILINE):
            yield f"* Raises `{line[0]}`: {_cell(line[1])}"
        yield ""


# ---- file formats ------------------------------------------------------------------------------------------------


def _formats() -> Iterator[str]:
    yield INTRODUCTIONS["schemas"]
    for path, text in schemas().items():
        name = path.removeprefix("reference/").removesuffix(".schema.json")
        content = json.loads(text)
        yield f"## {name}\n\n{DESCRIPTIONS[name]} Schema: [{name}.schema.json]({name}.schema.json).\n"
        yield from _properties(content, f"{name} file")
        for each, definition in content.get("$defs", {}).items():
            if definition.get("properties"):
                yield f"### {name}: {each}\n"
                if definition.get("description"):
                    yield f"{_prose(definition['description'])}\n"
                yield from _properties(definition, each)


def _properties(content: Mapping[str, Any], title: str) -> Iterator[str]:
    required = set(content.get("required", ()))
    yield f"| key of {title} | type | required | meaning |\n|---|---|---|---|"
    for key, value in content["properties"].items():
        needed = "yes" if key in required else "no"
        yield f"| `{key}` | {_in_a_row(_type(value))} | {needed} | {_cell(str(value.get('description', '')))} |"
    yield ""


def _type(value: Mapping[str, Any]) -> str:
    """Describe a schema in a few words."""
    if "$ref" in value:
        return str(value["$ref"]).rpartition("/")[2]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in value:
            return " or ".join(dict.fromkeys(_type(each) for each in value[key]))
    if "const" in value or "enum" in value:
        return ", ".join(f"`{each}`" for each in value.get("enum", [value.get("const")]))
    if value.get("type") == "array":
        return f"list of {_type(value['items'])}" if value.get("items") else "list"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"mapping to {_type(value['additionalProperties'])}"
    return str(value.get("type", "any"))


# ---- deviations --------------------------------------------------------------------------------------------------


def _deviations() -> Iterator[str]:
    yield INTRODUCTIONS["deviations"]
    rows = [*TABLE, *slot_deviations("ARGUMENT")]
    yield from _deviation_rows([(row.decision, row.name) for row in rows])


def _deviation_rows(keys: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield "| decision | name | what an implementation does |\n|---|---|---|"
    for decision, name in sorted(keys):
        yield f"| `{decision}` | `{name}` | {_cell(sentence(decision, name))} |"
