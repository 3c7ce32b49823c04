"""
The pages of docs/coverage/, one for each framework, written from surface.yaml, arguments.yaml, cases and adapters.

`python -m tests.coverage.pages` writes them and needs no framework; `nox -s coverage` reads the surface first.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from string import ascii_lowercase

import yaml

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
READING = """\
Written by `nox -s coverage`: do not edit. [How to read it](../coverage.md#pairs-of-arguments).
"""
PHRASES = {
    "requirement": "the call has `{}`",
    "output": "`{}` is asked for",
    "variant": "variant `{}`",
    "size": "`{}` is not what it ordinarily is",
    "alias": "query, key and value: `{}`",
    "dtype": "dtype `{}`",
}
NAMES = {"onnxruntime": "ort"}
NOT_YET = "not asked yet"

Results = list[tuple[Entry, Asked]]


def results() -> Results:
    """Every entry point with what is asked of it."""
    found = entries(stored(), said_of_arguments())
    return [(entry, asked(entry, calls().get(adapter_of(entry.name), ()))) for entry in found]


def pages(found: Results) -> dict[str, str]:
    """Name of a file -> its text."""
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
    for entry, counted in members:
        yield from _entry(entry, counted)
    package = {short: name for name, short in NAMES.items()}.get(framework, framework)
    if names := exported.get(package):
        yield f"## What {package} exports\n"
        yield "| name | subject, or why there is none |"
        yield "|---|---|"
        for name in names:
            subject = said["subjects"].get(name)
            yield f"| `{name}` | {f'`{subject}`' if subject else said['left_out'].get(name, '')} |"
        yield ""


def _entry(entry: Entry, counted: Asked) -> Iterator[str]:
    version = stored()["versions"].get(owners(entry.name))
    release = f" ({owners(entry.name)} {version})" if version else ""
    called = entry.surface["entry"]
    yield f"## `{entry.name}`{'' if called == entry.name else f': {called}'}{release}\n"
    if entry.always:
        yield f"Every call gives {', '.join(f'`{name}`' for name in entry.always)}.\n"
    yield from _arguments(entry, counted)
    yield from _matrix(entry, counted)
    yield from _outputs(entry, counted)
    if counted.lacking:
        yield f"Every number is more than 0 in each of {', '.join(sorted(counted.lacking))}.\n"


def _arguments(entry: Entry, counted: Asked) -> Iterator[str]:
    rows = [(name, row) for name, row in entry.arguments.items() if name not in entry.always]
    if not rows:
        return
    yield "| | argument | of | default | cases | asked where, or why not |"
    yield "|---|---|---|---|---|---|"
    numbers = {name: str(number) for number, name in enumerate(entry.optional, 1)}
    for name, row in rows:
        number, cases = numbers.get(name, ""), str(counted.alone.get(name, 0)) if name in numbers else "-"
        why = entry.left_out[name] if name in entry.left_out else _where(name, entry.filled[name])
        default = row.get("default", "required") or "-"
        yield f"| {number} | `{name}` | {row['given']} | {default} | {cases} | {why} |"
    yield ""


def _where(name: str, expression: str) -> str:
    """What fills an argument, in words; nothing where it is filled by its own name."""
    if expression in (f"slot {name}", f"requirement {name}"):
        return ""
    return " or ".join(" and ".join(map(_phrase, part.split(" and "))) for part in expression.split(" or "))


def _phrase(word: str) -> str:
    bare = word.removeprefix("not ")
    kind, _, what = bare.partition(" ")
    phrase = PHRASES.get(kind, "`{}` is used").format(what)
    return phrase if word == bare else f"not: {phrase}"


def _matrix(entry: Entry, counted: Asked) -> Iterator[str]:
    names = entry.optional
    if not names[1:]:
        return
    letters: dict[str, str] = {}
    yield f"Cases with both of two arguments:\n\n| |{'|'.join(f' {number} ' for number in range(1, len(names)))}|"
    yield "|---|" + "---|" * (len(names) - 1)
    for number, name in list(enumerate(names, 1))[1:]:
        row = [_pair_cell(entry, counted, frozenset((name, other)), letters) for other in names[: number - 1]]
        yield f"| {number} `{name}` |{'|'.join(f' {cell} ' for cell in [*row, *[''] * (len(names) - number)])}|"
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
        yield f"The output `{name}`: {reason}.\n"
    if not entry.inputs:
        yield f"Cases by output: {', '.join(f'`{name}` {counted.outputs.get(name, 0)}' for name in entry.outputs)}.\n"
        return
    letters: dict[str, str] = {}
    yield "Cases by output, with an argument / without it:\n"
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
    """What exported.yaml says, its named reasons written out."""
    said = yaml.safe_load(EXPORTED.read_text(encoding="utf-8"))
    reasons = said["reasons"]
    left_out = {name: reasons[why[1:]] if why.startswith("=") else why for name, why in said["left_out"].items()}
    return {"subjects": said["subjects"], "left_out": left_out}


def exported_complaints(exported: Mapping[str, Iterable[str]], said: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Names that have neither a subject nor a reason, and what is said of names that nothing exports."""
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
    """Everything that is silently absent."""
    texts = [text for entry, counted in found for text in complaints(entry, counted)]
    having = {adapter_of(entry.name) for entry, _counted in found}
    texts += [f"{name}: surface.yaml has no entry point of it" for name in sorted(set(adapters()) - having)]
    return [*texts, *exported_complaints(stored()["exported"], exported_said())]


def summary(found: Results) -> str:
    """One line for the terminal."""
    pairs = sum(len(entry.optional) * (len(entry.optional) - 1) // 2 for entry, _ in found)
    together = sum(len(counted.together) for _, counted in found)
    return f"{len(found)} entry points, {pairs} pairs of arguments: cases ask {together}, the others have a reason"


def main() -> int:
    """Write the pages; complain of what is absent."""
    found = results()
    PAGES.mkdir(exist_ok=True)
    for name, text in pages(found).items():
        (PAGES / name).write_text(text.rstrip("\n") + "\n", encoding="utf-8")
    texts = all_complaints(found)
    print("\n".join(texts) or summary(found))
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main())
