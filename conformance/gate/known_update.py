"""Edits of a list of known deviations that a run suggests."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# A cell of the run log.
Cell = Mapping[str, Any]


def narrowing(matched: Sequence[Cell], conforming: Sequence[Cell], cases: Mapping[str, Cell]) -> dict[str, Any]:
    """
    A field of `when`, or `subject`, that holds for every matched cell and for none that conforms; {} if none does.

    cases: the header's, by id.
    """
    if not matched or not conforming:
        return {}
    mine, others = ([_facts(cell, cases) for cell in cells] for cells in (matched, conforming))
    subjects = {facts["subject"] for facts in mine}
    if len(subjects) == 1 and subjects.isdisjoint(facts["subject"] for facts in others):
        return {"subject": subjects.pop()}
    for name in ("operator", "dtype"):
        values = sorted({facts[name] for facts in mine})
        if all(facts[name] not in values for facts in others):
            return {name: values if name == "dtype" else values[0]}
    return _of_sets(mine, others)


def _of_sets(mine: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    for name in ("slots", "kinds", "outputs", "elements"):
        here, there = ([set(facts[name]) for facts in cells] for cells in (mine, others))
        if found := sorted(set.intersection(*here) - set.union(*there)):
            return {name: dict([found[0]]) if name == "elements" else [found[0]]}
        if name != "elements" and (found := sorted(set.intersection(*there) - set.union(*here))):
            return {f"without_{name}": [found[0]]}
    return {}


def _facts(cell: Cell, cases: Mapping[str, Cell]) -> dict[str, Any]:
    case, route = cases[cell["case"]], cell.get("route", ())
    return {
        "subject": cell["subject"],
        "operator": case["operator"],
        "dtype": case["dtype"],
        "slots": [mask["slot"] for mask in route],
        "kinds": [kind for mask in route for kind in mask["kinds"]],
        "elements": [(mask["slot"], mask["element"]) for mask in route],
        "outputs": [output.get("output", "") for output in cell.get("outputs", ())],
    }


ENTRY = re.compile(r"^  - ")
WHEN = re.compile(r"    when: \{(?P<conditions>.*)\}(?P<rest>\s*(#.*)?)$")
# Conditions of which any may hold: those that do take the place of more.
ANY_OF = ("dtype",)

ASIDE = re.compile(r"^\s*(#.*)?$")


@dataclass
class Seen:
    """What a run says of one entry: cells of the run log by how they fared, and whether the gate calls it dead."""

    matched: list[Mapping[str, Any]] = field(default_factory=list)
    conforming: list[Mapping[str, Any]] = field(default_factory=list)
    dead: bool = False


@dataclass(frozen=True)
class Proposal:
    """A new text of one file, and what cannot be edited, in sentences."""

    text: str
    remarks: tuple[str, ...] = ()


def seen_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Seen]:
    """What the records of a run log say of each entry, by its origin (`known.yaml:12`)."""
    found: dict[str, Seen] = {}
    for record in records:
        covered = record.get("covered_by", {}) if record["type"] == "cell" else {}
        for origin, outcome in covered.items():
            seen = found.setdefault(origin, Seen())
            if outcome in ("matched", "conforms"):
                (seen.matched if outcome == "matched" else seen.conforming).append(record)
    for text in records[-1].get("gate", {}).get("known", {}).get("dead", ()):
        found.setdefault(text.partition(" (")[0], Seen()).dead = True
    return found


def propose(text: str, name: str, lines: Sequence[int], records: Sequence[Mapping[str, Any]]) -> Proposal:
    """
    Edit one file.

    name: as it stands in origins. lines: where its entries begin, from 1. records: of a run log with a footer.

    Raises:
        ValueError: the run knew other entries of this file.
    """
    seen = {origin: found for origin, found in seen_of(records).items() if origin.rpartition(":")[0] == name}
    known = {f"{name}:{line}" for line in lines}
    if strange := sorted(seen.keys() - known):
        raise ValueError(f"{strange[0]} is not an entry any more: the list has changed since the run; run again")
    rows, remarks = text.splitlines(keepends=True), []
    for line in sorted(lines, reverse=True):
        found = seen.get(f"{name}:{line}")
        if found is None:
            continue
        first, last = line - 1, _end(rows, line - 1)
        if found.dead:
            rows[first:last] = []
        elif found.conforming:
            narrow = narrowing(found.matched, found.conforming, records[0]["cases"])
            edited = _narrowed(rows[first:last], narrow) if narrow else rows[first:last]
            if edited == rows[first:last]:
                remarks.append(_too_wide(f"{name}:{line}", found, narrow))
            rows[first:last] = edited
    return Proposal("".join(rows), tuple(reversed(remarks)))


def _too_wide(origin: str, seen: Seen, narrow: Mapping[str, Any]) -> str:
    case, subject = seen.conforming[0]["case"], seen.conforming[0]["subject"]
    cells = "1 cell conforms" if len(seen.conforming) == 1 else f"{len(seen.conforming):,} cells conform"
    where = f"{cells} without it, first {case} on {subject}"
    if not seen.matched:
        return f"{origin}: {where}, and no cell of this run needs it: remove it if a complete run confirms this"
    if narrow:
        return f"{origin}: too wide: {where}; put {_flow(narrow)} into its `when` by hand"
    return f"{origin}: too wide: {where}; no single condition distinguishes them: narrow `cases` or `versions` by hand"


def _end(rows: Sequence[str], first: int) -> int:
    """Where an entry ends: before the next one, and before the comments that belong to that."""
    end = next((n for n in range(first + 1, len(rows)) if ENTRY.match(rows[n])), len(rows))
    while end > first + 1 and ASIDE.match(rows[end - 1]):
        end -= 1
    return end


def _narrowed(rows: Sequence[str], narrow: Mapping[str, Any]) -> list[str]:
    """An entry with one more condition; `subject` replaces what stands there, a `when` of several lines stays."""
    ((name, value),) = narrow.items()
    shown = _flow(value)
    if name == "subject":
        return [re.sub(r"subject: .*", lambda _: f"subject: {shown}", row, count=1) for row in rows]
    for number, row in enumerate(rows):
        if found := WHEN.match(row):
            inner = _with(found["conditions"], name, shown)
            return [*rows[:number], f"    when: {{{inner}}}{found['rest']}\n", *rows[number + 1 :]]
        if row.startswith("    when:"):
            return list(rows)
    return [rows[0], f"    when: {{{name}: {shown}}}\n", *rows[1:]]


def _with(conditions: str, name: str, shown: str) -> str:
    """Conditions in flow style and one more; a list or mapping that stands there under its name gets what it has."""
    there = re.search(rf"(?<!\w){name}: (?P<value>\[[^\]]*\]|{{[^}}]*}})", conditions)
    if there is None:
        return f"{conditions}{', ' if conditions else ''}{name}: {shown}"
    together = shown if name in ANY_OF else f"{there['value'][:-1]}, {shown[1:]}"
    return f"{conditions[: there.start('value')]}{together}{conditions[there.end() :]}"


def _flow(value: Any) -> str:
    """A value in YAML's flow style; what is no plain word is quoted."""
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_flow(key)}: {_flow(item)}' for key, item in value.items())}}}"
    return str(value) if re.fullmatch(r"[A-Za-z_]\w*", str(value)) else json.dumps(value)


def appended(text: str, entries: str) -> str:
    """A file with entries at its end, also where its list is empty."""
    if not entries:
        return text
    opened = re.sub(r"^deviations: \[\]\s*\Z", "deviations:\n", text, flags=re.MULTILINE)
    return f"{opened}{'' if opened.endswith(chr(10)) else chr(10)}{entries}"


def additions(records: Sequence[Mapping[str, Any]]) -> str:
    """
    Entries for what the gate rejects, one for each subject and cause: reason and link are left to people.

    They do not load as they stand: an entry without a reason and a link accepts nothing.
    """
    rejected = {tuple(key) for key in records[-1].get("gate", {}).get("rejected", ())}
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        if record["type"] == "cell" and (record["case"], record["subject"]) in rejected and (way := _way(record)):
            groups.setdefault((record["subject"], way), []).append(record)
    versions = _versions(records)
    return "".join(_entry(subject, way, cells, versions.get(subject, {})) for (subject, way), cells in groups.items())


def _way(record: Mapping[str, Any]) -> str:
    if explanation := record.get("explanation"):
        decisions = {explanation["decision"]: explanation["name"]}
        return f"delta: {{decisions: {_flow(decisions)}}}"
    if record["verdict"] in ("error", "crash", "timeout", "inconclusive"):
        line = next(iter(record.get("reason", "").splitlines()), "")[:60]
        return f"accept: {{verdict: {record['verdict']}, message: {json.dumps(re.escape(line))}}}"
    return ""


def _versions(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    ready = [record for record in records if record["type"] == "worker" and record["status"] == "ready"]
    return {subject: record.get("versions", {}) for record in ready for subject in record["subjects"]}


def _entry(subject: str, way: str, cells: Sequence[Mapping[str, Any]], versions: Mapping[str, str]) -> str:
    cases = [cell["case"] for cell in cells]
    glob = cases[0] if len(cases) == 1 else f"{_common(cases)}*"
    seen = {name: f">={version.partition('+')[0]}" for name, version in versions.items() if name != "numpy"}
    rows = [f"  - subject: {_flow(subject)}", f"    cases: {_flow(glob)}"]
    rows += [f"    versions: {_flow(seen)}"] if seen else []
    rows += [
        f"    {way}",
        f'    reason: ""  # {len(cells)} cells: explain why, so that a reader understands it',
        '    link: ""',
    ]
    return "\n".join(rows) + "\n"


def _common(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:same]
