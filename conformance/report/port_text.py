"""Advice for moving calls from one subject to another: on the terminal, as JSON and as Markdown."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from conformance import places
from conformance.engine.adapter_facts import Slot
from conformance.engine.adapters import Subject, subjects_of
from conformance.report.call_site_advice import ALIGNED, argument_changes, counts
from conformance.report.port_code import NoCodeError, before_and_after
from conformance.report.port_differences import Argument, Difference, Port, PortedSubject, PortRefusal
from conformance.report.summary import code, words
from conformance.spec.problem import AXES

# The topics of an entry point, in the order of the report; functions have no constructor and no parameters.
CALL_TOPICS = ("constructor", "call", "weights", "dropout", "gradients", "parameters")

# Adapter -> topic -> text, and under `defaults` the defaults that the texts mention, by callable and argument.
CALLS: dict[str, dict[str, Any]] = tomllib.loads((files(__package__) / "calls.toml").read_text(encoding="utf-8"))


def side_by_side(here: str, there: str) -> list[dict[str, str]]:
    """The texts of two adapters for every topic that one of them has; "" if the other has none."""
    old, new = _texts(here), _texts(there)
    return [
        {"topic": topic, "from": old.get(topic, ""), "to": new.get(topic, "")}
        for topic in CALL_TOPICS
        if topic in old or topic in new
    ]


def is_described(adapter: str) -> bool:
    """Whether calls.toml describes an adapter."""
    return adapter in CALLS


def _texts(adapter: str) -> Mapping[str, str]:
    return CALLS.get(adapter, {})


# How the points begin that matter to somebody who writes the call. The other points are about masks, which SLOTS
# describe, or about this package.
ARRAY_TOPICS = ("arrays", "weights")


def conventions(path: Path) -> tuple[str, ...]:
    """The points about arrays and weights in the docstring of an adapter file, each on one line."""
    text = ast.get_docstring(ast.parse(path.read_bytes(), str(path))) or ""
    points: list[str] = []
    for line in text.splitlines():
        if line.startswith("* "):
            points.append(line.removeprefix("* ").strip())
        elif points and line.startswith("  "):
            points[-1] += f" {line.strip()}"
    return tuple(point for point in points if point.startswith(ARRAY_TOPICS))


# The name of the record in the run folder.
FILE = "port.json"

# The name of the Markdown page in the run folder.
PAGE = "port.md"

Record = Mapping[str, Any]

ROLES = {
    "key_padding": "padding mask",
    "attention": "attention mask",
    "causal": "causal mask",
    "window": "window",
    "additive": "numbers added to the logits",
}
MEANINGS = {
    ("bool", "attend"): "True attends",
    ("bool", "ignore"): "True ignores",
    ("int", "attend"): "non-zero attends",
    ("int", "ignore"): "non-zero ignores",
    ("int", "add"): "integers are added",
    ("float", "add"): "floats are added",
    ("float", "attend"): "floats are cast to bool",
}
# Capabilities of the harness rather than the framework: here, that the adapter can set the memory layout of arrays.
HARNESS_CAPABILITIES = frozenset({"layout"})

HARNESS_REASONS = frozenset(f"does not support: {name}" for name in HARNESS_CAPABILITIES)

# Output or capability -> what it means, where the name does not say it to somebody who writes the call.
EXPLAINED = {
    "weights_mean": "attention weights averaged over the heads",
    "bias_kv": "a learned key and value are appended",
    "zero_key": "a key and a value of zeros are appended",
    "mistaken_heads": "refuses a num_heads that does not divide the width",
}

# Printed for a side that has no text.
NO_TEXT = "-"

VERBS = {"unsupported": "declines", "error": "raises", "crash": "crashes", "timeout": "hangs"}


def lines(advice: Record) -> Iterator[str]:
    """The advice of a record, line by line."""
    old, new = advice["from"], advice["to"]
    yield f"From {old} to {new}"
    yield ""
    yield from _called(advice)
    if any(advice["conventions"].values()):
        yield 'Arrays and parameters ("given" means the form that the cases use):'
        for side, name in (("from", old), ("to", new)):
            yield from (f"  {name}: {point}" for point in advice["conventions"][side])
        yield ""
    yield "Arguments:"
    for each in advice["arguments"]:
        if each["from"] or each["to"]:
            yield f"  {ROLES[each['kind']]}: {each['described']['from']} -> {each['described']['to']}"
        yield from (f"    change: {change}" for change in each["changes"])
    yield ""
    if not advice["shared"]:
        yield "No probe case was judged on both sides: the differences are unknown."
    elif advice["differences"]:
        number = len(advice["differences"])
        yield f"Where they differ ({number}; {advice['shared']} probe cases were judged on both sides):"
    else:
        yield f"No difference found in the {advice['shared']} probe cases that were judged on both sides."
    for each in advice["differences"]:
        yield from _difference(advice, each)
    yield from advice["notes"]
    for each in advice["refused"]:
        yield each["sentence"]
        yield f"    see: {each['command']}"


def _called(advice: Record) -> Iterator[str]:
    if advice.get("calls"):  # a folder of an earlier version has none
        yield "How each is called:"
        for each in advice["calls"]:
            yield f"  {each['topic']}"
            yield from (f"    {advice[side]}: {each[side] or NO_TEXT}" for side in ("from", "to"))
        yield ""


def _difference(advice: Record, each: Record) -> Iterator[str]:
    yield f"  {advice['from']} {each['sentences']['from']}; {advice['to']} {each['sentences']['to']}"
    for change in each["changes"]:
        yield f"    change: {change}"
    shown = {what: f"{each[what]['from']} -> {each[what]['to']}" for what in ("declared", "observed")}
    if len(set(shown.values())) == 1:
        shown = {"declared and observed": shown["observed"]}
    yield from (f"    {what}: {text}" for what, text in shown.items())
    yield f"    see: {each['command']}"


def markdown(advice: Record) -> Iterator[str]:
    """The advice of a record as a Markdown page: the differences first, then how to call the new subject."""
    yield f"# From {code(advice['from'])} to {code(advice['to'])}"
    yield ""
    versions = ", ".join(f"{name} {version}" for name, version in advice["versions"].items())
    yield f"Based on {advice['shared']} probe cases that were judged on both sides, with {words(versions)}."
    differ = ((each["sentences"]["from"], each["sentences"]["to"], each["changes"]) for each in advice["differences"])
    yield from _table("Where they differ", (advice["from"], advice["to"], "change"), differ)
    yield from _table(
        "How each is called",
        ("", advice["from"], advice["to"]),
        ((each["topic"], each["from"] or NO_TEXT, each["to"] or NO_TEXT) for each in advice["calls"]),
    )
    yield from _table(
        "Arguments",
        ("for", advice["from"], advice["to"], "change"),
        (
            (ROLES[each["kind"]], each["described"]["from"], each["described"]["to"], each["changes"])
            for each in advice["arguments"]
            if each["from"] or each["to"]
        ),
    )
    points = [f"{advice[side]}: {point}" for side in ("from", "to") for point in advice["conventions"][side]]
    for title, texts in (
        ("Arrays and parameters", points),
        ("What only one of them takes", [*advice["notes"], *(each["sentence"] for each in advice["refused"])]),
    ):
        if texts:
            yield from ("", f"## {title}", "", *(f"* {words(text.strip())}" for text in texts))
    try:
        programs = before_and_after(advice["from"], advice["to"])
    except NoCodeError:
        return
    yield from ("", "## One call, before and after", "")
    yield "Both programs make the same call, and their outputs agree to float32 rounding."
    for program in programs.values():
        yield from ("", "```python", program.strip(), "```")


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str | Sequence[str]]]) -> Iterator[str]:
    """A table; a cell is a text or several texts, each of which `words` shortens by itself."""
    cells = ([[cell] if isinstance(cell, str) else cell for cell in row] for row in rows)
    lines = [f"| {' | '.join('; '.join(map(words, cell)) for cell in row)} |" for row in cells]
    if lines:
        yield from ("", f"## {title}", "", f"| {' | '.join(map(words, heads))} |", "|" + "---|" * len(heads), *lines)


def described(slot: Slot | None) -> str:
    """An argument with what its framework documents about it, in words."""
    if slot is None:
        return "no argument"
    about = [*_form(slot), f"since {slot.since}" if slot.since else ""]
    return f"{slot.title} ({', '.join(filter(None, about))})"


def _form(slot: Slot) -> Iterator[str]:
    """What an argument takes, in words."""
    if slot.role == "mask":
        yield from (MEANINGS.get(element, f"{element[0]} masks are not documented") for element in slot.elements)
    yield counts(slot)
    if slot.role == "window" and slot.alignment == "past":
        yield "shifted by the number of past keys"
    if slot.role == "causal":
        yield ALIGNED[slot.alignment]
    if slot.attached:
        yield "carried by a tensor"
    if slot.hint:
        yield f"only a hint, requires {' and '.join(slot.requires)}"


def _notes(found: Port) -> Iterator[str]:
    """What only one subject has, and which other variants of the other side have it too."""
    for side, other, has in ((found.here, found.there, found.lost), (found.there, found.here, found.gained)):
        missing = _without_harness(has)
        variants = [each for each in subjects_of([other.subject.adapter]) if not each.dense]
        for values, names in _by_variant(missing, variants).items():
            if not names:
                yield f"Only {side.name} has: {values}"
            else:
                yield f"{other.name} lacks what {', '.join([side.name, *names[:-1]])} and {names[-1]} have: {values}"
        if has is found.lost and "weights_mean" in has["outputs"] and "weights" in found.there.subject.outputs:
            yield f"    change: average the weights of {found.there.name} over axis 1, the heads"


def _by_variant(missing: Mapping[str, tuple[str, ...]], variants: Sequence[Subject]) -> dict[str, tuple[str, ...]]:
    """What a subject lacks, in words -> the other variants that have it; what no variant has comes first."""
    groups: dict[tuple[str, ...], dict[str, list[str]]] = {(): {}}
    for fact, values in missing.items():
        for value in values:
            names = tuple(each.name for each in variants if value in getattr(each, fact))
            groups.setdefault(names, {}).setdefault(fact, []).append(value)
    return {
        "; ".join(f"{fact} {', '.join(map(_explained, values))}" for fact, values in facts.items()): names
        for names, facts in groups.items()
        if facts
    }


def _explained(value: str) -> str:
    """An output or a capability, with its meaning if the name does not say it."""
    return f"{value} ({EXPLAINED[value]})" if value in EXPLAINED else value


def _without_harness(has: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The facts without those that are about the harness rather than the framework."""
    return {name: tuple(value for value in values if value not in HARNESS_CAPABILITIES) for name, values in has.items()}


def _refusal(found: Port, refusal: PortRefusal) -> str:
    calls = "1 probe case" if refusal.count == 1 else f"{refusal.count} probe cases"
    reason = re.sub(r"\ba verbatim (int\b)?", lambda found: "an int" if found[1] else "a ", refusal.reason)
    reason = re.sub(r"\bover ([bhqk](?: [bhqk])*),", lambda found: f"with axes ({_axes(found[1])}),", reason)
    return f"{found.there.name} {VERBS.get(refusal.verdict, refusal.verdict)} ({calls}): {reason}"


def _axes(letters: str) -> str:
    return ", ".join(AXES[letter] for letter in letters.split())


def command(found: Port, case: str) -> str:
    """The command that runs one case on both subjects; an adapter of the user's is chosen by its file."""
    chosen = [word for side in (found.here, found.there) for word in ("-a", _chosen(side))]
    return shlex.join(["conformance", "run", *chosen, "-k", case])


def _chosen(side: PortedSubject) -> str:
    adapter = side.subject.adapter
    if adapter.path.parent == places.adapters():
        return side.name
    here = Path.cwd()
    file = adapter.path.relative_to(here) if adapter.path.is_relative_to(here) else adapter.path
    return f"{file}{side.name.removeprefix(adapter.name)}"


def record(found: Port, versions: Mapping[str, str]) -> dict[str, Any]:
    """
    The differences as JSON values, from which terminal, Markdown and page are written.

    versions: package name -> version, for the packages of both sides.
    """
    return {
        "schema": 1,
        "versions": dict(sorted(versions.items())),
        "from": found.here.name,
        "to": found.there.name,
        "calls": side_by_side(found.here.subject.adapter.name, found.there.subject.adapter.name),
        "conventions": {"from": _conventions(found.here), "to": _conventions(found.there)},
        "shared": found.shared,
        "arguments": [_argument_record(each, found) for each in found.arguments],
        "differences": [_difference_record(found, each) for each in found.differences],
        "only_from": {name: list(values) for name, values in found.lost.items()},
        "only_to": {name: list(values) for name, values in found.gained.items()},
        "notes": list(_notes(found)),
        "refused": [
            {
                "verdict": each.verdict,
                "reason": each.reason,
                "sentence": _refusal(found, each),
                "cases": each.count,
                "case": each.case,
                "command": command(found, each.case),
            }
            for each in found.refusals
            if each.reason not in HARNESS_REASONS
        ],
    }


def _conventions(side: PortedSubject) -> list[str]:
    """How an adapter passes arrays, for entry points that calls.toml does not describe."""
    adapter = side.subject.adapter
    return [] if is_described(adapter.name) else list(conventions(adapter.path))


def _argument_record(each: Argument, found: Port) -> dict[str, Any]:
    pairs = {other.kind: (other.here, other.there) for other in found.arguments}
    return {
        "kind": each.kind,
        "from": each.here and each.here.name,
        "to": each.there and each.there.name,
        "described": {"from": described(each.here), "to": described(each.there)},
        "changes": list(argument_changes(each.kind, pairs, each.array)),
    }


def _difference_record(found: Port, each: Difference) -> dict[str, Any]:
    def pair(values: tuple[str, str]) -> dict[str, str]:
        return {"from": values[0], "to": values[1]}

    return {
        "decision": pair(each.decision),
        "declared": pair(each.declared),
        "observed": pair(each.observed),
        "sentences": pair(each.sentences),
        "changes": list(each.changes),
        "case": each.case,
        "command": command(found, each.case),
    }
