"""
Write the pages of docs/coverage/, one for each framework, from the yaml files here, the cases and the adapters.

This also writes the table at the end of docs/coverage.md. `python -m tests.coverage.pages` needs no framework;
`nox -s coverage` first reads surface.yaml from the installed frameworks.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from string import ascii_lowercase

import yaml

from conformance.report.adapter_table import HEADINGS, table

from .pairs import (
    FILE,
    ROOT,
    Asked,
    Entry,
    adapter_of,
    adapters,
    asked,
    calls,
    complaints,
    entries,
    said_of_arguments,
)
from .surface import owners, stored

PAGES = ROOT / "docs" / "coverage"
EXPORTED = FILE.with_name("exported.yaml")
TITLES = {
    "equinox": "Equinox",
    "flax": "Flax",
    "jax": "JAX",
    "keras": "Keras",
    "numpy": "our NumPy reference",
    "onnx": "ONNX",
    "openvino": "OpenVINO",
    "ort": "onnxruntime",
    "published": "published texts",
    "tf_keras": "Keras 2",
    "torch": "PyTorch",
    "transformers": "Transformers",
}
OVERVIEW = ROOT / "docs" / "coverage.md"
READING = """\
`nox -s coverage` writes this page; do not edit it. [How to read it](../coverage.md#how-to-read-the-pages).
"""
PHRASES = {
    "requirement": "the call has `{}`",
    "output": "`{}` is requested",
    "variant": "variant `{}`",
    "size": "`{}` differs from its default",
    "alias": "query, key and value: `{}`",
    "dtype": "dtype `{}`",
}
# Heading in the table of adapters -> name of the row here.
FACTS = {
    "operator": "operator",
    "variants": "variants",
    "dtypes": "dtypes",
    "devices": "devices",
    "returns": "returns",
    "mask arguments": "mask and causal arguments",
    "supports": "honours",
    "declared deviations": "declares where it applies",
}
NAMES = {"onnxruntime": "ort"}
NOT_YET = "not asked yet"

Results = list[tuple[Entry, Asked]]


def results() -> Results:
    """Return every entry point with its counts of cases."""
    found = entries(stored(), said_of_arguments())
    return [(entry, asked(entry, calls().get(adapter_of(entry.name), ()))) for entry in found]


def pages(found: Results) -> dict[str, str]:
    """Return file name -> text of the page."""
    by: dict[str, Results] = defaultdict(list)
    for entry, counted in found:
        by[adapters()[adapter_of(entry.name)].framework].append((entry, counted))
    exported = stored()["exported"]
    said = exported_said()
    return {
        f"{framework}.md": "\n".join(_page(framework, members, exported, said)) for framework, members in by.items()
    }


def _page(
    framework: str, members: Results, exported: Mapping[str, list[str]], said: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    yield f"# Coverage of {TITLES[framework]}\n"
    yield READING
    for name in dict.fromkeys(adapter_of(entry.name) for entry, _counted in members):
        yield from _adapter(name)
        for entry, counted in members:
            if adapter_of(entry.name) == name:
                yield from _entry(entry, counted)
    package = {short: name for name, short in NAMES.items()}.get(framework, framework)
    if names := exported.get(package):
        yield f"## What {package} exports\n"
        yield "Every public name that speaks of attention.\n"
        yield "| name | subject that asks it, or why there is none |"
        yield "|---|---|"
        for name in names:
            subject = said["subjects"].get(name)
            yield f"| `{name}` | {f'`{subject}`' if subject else said['left_out'].get(name, '')} |"
        yield ""


# ---- what an adapter takes ---------------------------------------------------------------------------------------


@cache
def facts() -> Mapping[str, Mapping[str, str]]:
    """Return entry point -> heading -> cell of the table that `conformance list adapters --table` prints."""
    rows = [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in list(table(adapters().values()))[2:]]
    return {row[0].strip("`"): dict(zip(HEADINGS, row, strict=True)) for row in rows}


def _adapter(name: str) -> Iterator[str]:
    """Yield the lines on what an adapter takes, returns, declares and declines."""
    row = facts()[name]
    yield f"## `{name}`\n"
    yield "| what the adapter takes | |\n|---|---|"
    for heading, told in FACTS.items():
        if row[heading].strip() not in ("", "-"):
            yield f"| {told} | {'<br>'.join(_parts(row[heading]))} |"
    yield ""
    reasons = _declined(_parts(row["declines, with reason"]))
    if reasons:
        yield "| what it declines | why |\n|---|---|"
        yield from (f"| {', '.join(names) or 'some calls'} | {reason} |" for reason, names in reasons.items())
        yield ""


def _parts(cell: str) -> list[str]:
    """Split a cell at semicolons outside parentheses; if it starts with a name in backticks, only before such names."""
    parts, depth = [""], 0
    for character in cell:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == ";" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    joined: list[str] = []
    for part in (each.strip() for each in parts):
        if joined and joined[0].startswith("`") and not part.startswith("`"):
            joined[-1] += f"; {part}"
        elif part not in ("", "-"):
            joined.append(part)
    return joined


def _declined(parts: Iterable[str]) -> dict[str, list[str]]:
    """Return reason -> names of what is declined; a refusal in the adapter's own words is a sentence without names."""
    found: dict[str, list[str]] = {}
    for part in parts:
        named = re.fullmatch(r"(\w+(?: masks)?) \((.*)\)", part)
        reason, names = (named[2], [f"{named[1]}"]) if named else (part, [])
        found.setdefault(reason, []).extend(names)
    return found


def overview() -> Iterator[str]:
    """Yield the table of docs/coverage.md: every entry point with a link to the page with its details."""
    yield "| entry point | operator | variants | dtypes | returns | details |\n|---|---|---|---|---|---|"
    for name, row in facts().items():
        variants = ", ".join(re.findall(r"(?:^|; )`([^`]+)`", row["variants"])) or "-"
        page = adapters()[name].framework
        cells = (row["operator"], variants, row["dtypes"], row["returns"], f"[{TITLES[page]}](coverage/{page}.md)")
        yield f"| `{name}` | {' | '.join(cells)} |"


def with_overview(text: str) -> str:
    """Return the text of docs/coverage.md with a new table."""
    start = text.index("| entry point |")
    return text[:start] + "\n".join(overview()) + "\n"


# ---- arguments, pairs and outputs of an entry point --------------------------------------------------------------


def _entry(entry: Entry, counted: Asked) -> Iterator[str]:
    version = stored()["versions"].get(owners(entry.name))
    release = f" ({owners(entry.name)} {version})" if version else ""
    called = entry.surface["entry"]
    yield f"### Arguments of {called if called != entry.name else f'`{entry.name}`'}{release}\n"
    if "[" in entry.name:
        yield f"Variant `{entry.name}`.\n"
    if entry.always:
        yield f"Every call passes {', '.join(f'`{name}`' for name in entry.always)}.\n"
    yield from _arguments(entry, counted)
    yield from _matrix(entry, counted)
    yield from _outputs(entry, counted)
    if counted.lacking:
        yield f"Each of these counts is greater than 0 in each of {', '.join(sorted(counted.lacking))}.\n"


def _arguments(entry: Entry, counted: Asked) -> Iterator[str]:
    given = {name: row for name, row in entry.arguments.items() if name not in entry.always}
    if varied := [name for name in given if name in entry.filled]:
        yield "| argument that cases vary | kind | default | cases | used when |"
        yield "|---|---|---|---|---|"
        for name in varied:
            of = f"{given[name]['given']} | {_default(given[name])} | {counted.alone.get(name, 0)}"
            yield f"| `{name}` | {of} | {_where(name, entry.filled[name])} |"
        yield ""
    if fixed := [name for name in given if name not in entry.filled]:
        yield "| argument that no case varies | kind | default | why |"
        yield "|---|---|---|---|"
        for name in fixed:
            row = given[name]
            yield f"| `{name}` | {row['given']} | {_default(row)} | {entry.left_out[name]} |"
        yield ""


def _default(row: Mapping[str, str]) -> str:
    return row.get("default", "required") or "-"


def _where(name: str, expression: str) -> str:
    """Return what fills an argument, in words; short if a slot or requirement of the same name fills it."""
    if expression in (f"slot {name}", f"requirement {name}"):
        return "the case asks for it"
    return " or ".join(" and ".join(map(_phrase, part.split(" and "))) for part in expression.split(" or "))


def _phrase(word: str) -> str:
    bare = word.removeprefix("not ")
    kind, _, what = bare.partition(" ")
    phrase = PHRASES.get(kind, "`{}` is used").format(what)
    return phrase if word == bare else f"not when {phrase}"


def _matrix(entry: Entry, counted: Asked) -> Iterator[str]:
    names = entry.optional
    if not names[1:]:
        return
    letters: dict[str, str] = {}
    yield f"Cases that use both of two arguments:\n\n| |{'|'.join(f' `{name}` ' for name in names[:-1])}|"
    yield "|---|" + "---|" * (len(names) - 1)
    for number, name in list(enumerate(names))[1:]:
        row = [_pair_cell(entry, counted, frozenset((name, other)), letters) for other in names[:number]]
        yield f"| `{name}` |{'|'.join(f' {cell} ' for cell in [*row, *[''] * (len(names) - 1 - number)])}|"
    yield ""
    yield from _legend(letters)


def _pair_cell(entry: Entry, counted: Asked, pair: frozenset[str], letters: dict[str, str]) -> str:
    number = counted.together.get(pair, 0)
    return str(number) if number else _letter(entry.pairs.get(pair, "?"), letters)


def _letter(reason: str, letters: dict[str, str]) -> str:
    return letters.setdefault(reason, ascii_lowercase[len(letters)])


def _legend(letters: Mapping[str, str]) -> Iterator[str]:
    for reason, letter in letters.items():
        yield f"* {letter}: {reason}"
    if letters:
        yield ""


def _outputs(entry: Entry, counted: Asked) -> Iterator[str]:
    for name, reason in entry.not_returned.items():
        yield f"No case requests the output `{name}`: {reason}.\n"
    if not entry.inputs:
        yield f"Cases by output: {', '.join(f'`{name}` {counted.outputs.get(name, 0)}' for name in entry.outputs)}.\n"
        return
    letters: dict[str, str] = {}
    yield "Cases that request an output, with the argument / without it:\n"
    yield f"| |{'|'.join(f' `{name}` ' for name in entry.outputs)}|"
    yield "|---|" + "---|" * len(entry.outputs)
    for name in entry.inputs:
        cells = [_output_cell(entry, counted, output, name, letters) for output in entry.outputs]
        yield f"| `{name}` |{'|'.join(f' {cell} ' for cell in cells)}|"
    yield ""
    yield from _legend(letters)


def _output_cell(entry: Entry, counted: Asked, output: str, name: str, letters: dict[str, str]) -> str:
    sides = " / ".join(str(counted.beside.get((output, name, present), 0)) for present in (True, False))
    reason = entry.beside.get((output, name))
    return f"{sides} {_letter(reason, letters)}" if reason else sides


def exported_said() -> dict[str, dict[str, str]]:
    """Return the content of exported.yaml with its named reasons written out."""
    said = yaml.safe_load(EXPORTED.read_text(encoding="utf-8"))
    reasons = said["reasons"]
    left_out = {name: reasons[why[1:]] if why.startswith("=") else why for name, why in said["left_out"].items()}
    return {"subjects": said["subjects"], "left_out": left_out}


def exported_complaints(exported: Mapping[str, Iterable[str]], said: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield names with neither subject nor reason, listed names that no package exports, and unknown subjects."""
    names = {name for each in exported.values() for name in each}
    listed = {*said["subjects"], *said["left_out"]}
    for name in sorted(names - listed):
        yield f"{name} is exported, and no subject asks it and no reason is given"
    for name in sorted(listed - names):
        yield f"{name} is listed, and no package exports it"
    for name, subject in said["subjects"].items():
        if subject not in adapters():
            yield f"{name}: there is no adapter {subject}"


def all_complaints(found: Results) -> list[str]:
    """Return all complaints about entry points, adapters and exported names."""
    texts = [text for entry, counted in found for text in complaints(entry, counted)]
    having = {adapter_of(entry.name) for entry, _counted in found}
    texts += [f"{name}: surface.yaml has no entry point of it" for name in sorted(set(adapters()) - having)]
    return [*texts, *exported_complaints(stored()["exported"], exported_said())]


def summary(found: Results) -> str:
    """Return one line for the terminal."""
    pairs = sum(len(entry.optional) * (len(entry.optional) - 1) // 2 for entry, _ in found)
    together = sum(len(counted.together) for _, counted in found)
    return f"{len(found)} entry points, {pairs} pairs of arguments: cases ask {together}, the others have a reason"


def main() -> int:
    """Write the pages; print what is missing."""
    found = results()
    PAGES.mkdir(exist_ok=True)
    for name, text in pages(found).items():
        (PAGES / name).write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    OVERVIEW.write_text(with_overview(OVERVIEW.read_text(encoding="utf-8")), encoding="utf-8")
    texts = all_complaints(found)
    print("\n".join(texts) or summary(found))
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main())
