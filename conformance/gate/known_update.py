"""Edits of a list of known deviations that follow from a run."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.engine.logged_cell import LoggedCell
from conformance.engine.runlog import logged_cases
from conformance.spec.texts import counted

# A record of the run log.
Record = Mapping[str, Any]


def narrowing(
    matched: Sequence[LoggedCell], conforming: Sequence[LoggedCell], cases: Mapping[str, Record]
) -> dict[str, Any]:
    """
    A field of `when`, or `subject`, that holds for all matched and for no conforming cells; {} if there is none.

    cases: the records of the cases in the log, by id.
    """
    if not matched or not conforming:
        return {}
    failing, others = ([_facts(cell, cases) for cell in cells] for cells in (matched, conforming))
    subjects = {facts["subject"] for facts in failing}
    if len(subjects) == 1 and subjects.isdisjoint(facts["subject"] for facts in others):
        return {"subject": subjects.pop()}
    for name in ("operator", "dtype"):
        values = sorted({facts[name] for facts in failing})
        if all(facts[name] not in values for facts in others):
            return {name: values if name == "dtype" else values[0]}
    return _of_sets(failing, others)


def _of_sets(failing: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    for name in ("slots", "kinds", "outputs", "elements"):
        inside, outside = ([set(facts[name]) for facts in cells] for cells in (failing, others))
        if found := sorted(set.intersection(*inside) - set.union(*outside)):
            return {name: dict([found[0]]) if name == "elements" else [found[0]]}
        if name != "elements" and (found := sorted(set.intersection(*outside) - set.union(*inside))):
            return {f"without_{name}": [found[0]]}
    return {}


def _facts(cell: LoggedCell, cases: Mapping[str, Record]) -> dict[str, Any]:
    case = cases[cell.case]
    return {
        "subject": cell.subject,
        "operator": case["operator"],
        "dtype": case["dtype"],
        "slots": [mask.slot for mask in cell.route],
        "kinds": [kind for mask in cell.route for kind in mask.kinds],
        "elements": [(mask.slot, mask.element) for mask in cell.route],
        "outputs": [output.output for output in cell.outputs],
    }


ENTRY = re.compile(r"^  - ")
WHEN = re.compile(r"    when: \{(?P<conditions>.*)\}(?P<rest>\s*(#.*)?)$")
# Lists of which any value may hold: a narrower list replaces the old one.
ANY_OF = ("dtype",)

ASIDE = re.compile(r"^\s*(#.*)?$")


@dataclass
class Seen:
    """The results of one entry in a run: the cells by outcome, and whether the gate reports it as dead."""

    matched: list[LoggedCell] = field(default_factory=list)
    conforming: list[LoggedCell] = field(default_factory=list)
    dead: bool = False


@dataclass(frozen=True)
class Proposal:
    """The new text of one file, and sentences about what cannot be edited."""

    text: str
    remarks: tuple[str, ...] = ()


def _cells(records: Sequence[Record]) -> Iterator[LoggedCell]:
    return (LoggedCell.model_validate(record) for record in records if record["type"] == "cell")


def seen_of(records: Sequence[Record]) -> dict[str, Seen]:
    """The results of each entry in the records of a run log, by origin (`known.yaml:12`)."""
    found: dict[str, Seen] = {}
    for cell in _cells(records):
        for origin, outcome in cell.covered_by.items():
            seen = found.setdefault(origin, Seen())
            if outcome in ("matched", "conforms"):
                (seen.matched if outcome == "matched" else seen.conforming).append(cell)
    for text in records[-1].get("gate", {}).get("known", {}).get("dead", ()):
        found.setdefault(text.partition(" (")[0], Seen()).dead = True
    return found


def propose(text: str, name: str, lines: Sequence[int], records: Sequence[Record]) -> Proposal:
    """
    Propose edits of one file.

    name: the name of the file in origins. lines: the first line of each entry, from 1. records: of a run log with a
    footer.

    Raises:
        ValueError: the run used a version of this file with other entries.
    """
    seen = {origin: found for origin, found in seen_of(records).items() if origin.rpartition(":")[0] == name}
    known = {f"{name}:{line}" for line in lines}
    if strange := sorted(seen.keys() - known):
        raise ValueError(f"{strange[0]} is not an entry any more: the list has changed since the run; run again")
    rows, remarks, cases = text.splitlines(keepends=True), [], logged_cases(records)
    for line in sorted(lines, reverse=True):
        found = seen.get(f"{name}:{line}")
        if found is None:
            continue
        first, last = line - 1, _end(rows, line - 1)
        if found.dead:
            rows[first:last] = []
        elif found.conforming:
            narrow = narrowing(found.matched, found.conforming, cases)
            edited = _narrowed(rows[first:last], narrow) if narrow else rows[first:last]
            if edited == rows[first:last]:
                remarks.append(_too_wide(f"{name}:{line}", found, narrow))
            rows[first:last] = edited
    return Proposal("".join(rows), tuple(reversed(remarks)))


def _too_wide(origin: str, seen: Seen, narrow: Mapping[str, Any]) -> str:
    case, subject = seen.conforming[0].key
    cells = "1 cell conforms" if len(seen.conforming) == 1 else f"{len(seen.conforming):,} cells conform"
    where = f"{cells} without it, first {case} on {subject}"
    if not seen.matched:
        return f"{origin}: {where}, and no cell of this run needs it: remove it if a complete run confirms this"
    if narrow:
        return f"{origin}: too wide: {where}; put {_flow(narrow)} into its `when` by hand"
    return f"{origin}: too wide: {where}; no single condition distinguishes them: narrow `cases` or `versions` by hand"


def _end(rows: Sequence[str], first: int) -> int:
    """The row after an entry; comments that belong to the next entry are not part of it."""
    end = next((n for n in range(first + 1, len(rows)) if ENTRY.match(rows[n])), len(rows))
    while end > first + 1 and ASIDE.match(rows[end - 1]):
        end -= 1
    return end


def _narrowed(rows: Sequence[str], narrow: Mapping[str, Any]) -> list[str]:
    """An entry with one more condition. `subject` is replaced; a `when` of several lines is left unchanged."""
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
    """Conditions in flow style with one more; an existing list or mapping of that name is extended."""
    existing = re.search(rf"(?<!\w){name}: (?P<value>\[[^\]]*\]|{{[^}}]*}})", conditions)
    if existing is None:
        return f"{conditions}{', ' if conditions else ''}{name}: {shown}"
    merged = shown if name in ANY_OF else f"{existing['value'][:-1]}, {shown[1:]}"
    return f"{conditions[: existing.start('value')]}{merged}{conditions[existing.end() :]}"


def _flow(value: Any) -> str:
    """A value in YAML's flow style; anything but a plain word is quoted."""
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_flow(key)}: {_flow(item)}' for key, item in value.items())}}}"
    return str(value) if re.fullmatch(r"[A-Za-z_]\w*", str(value)) else json.dumps(value)


def appended(text: str, entries: str) -> str:
    """The text of a file with entries appended, also if its list is empty."""
    if not entries:
        return text
    opened = re.sub(r"^deviations: \[\]\s*\Z", "deviations:\n", text, flags=re.MULTILINE)
    return f"{opened}{'' if opened.endswith(chr(10)) else chr(10)}{entries}"


def additions(records: Sequence[Record]) -> str:
    """
    Entries for the cells that the gate rejects, one for each subject and cause, with empty reason and link.

    They do not load until a person fills in reason and link. What explains a cell alone is no cause if the diagnosis of
    all cells of the subject rules it out.
    """
    rejected = {tuple(key) for key in records[-1].get("gate", {}).get("rejected", ())}
    diagnoses = [record for record in records if record["type"] == "diagnosis"]
    rejected -= {(case, each["subject"]) for each in diagnoses for case in each["unexplained"]}
    groups: dict[tuple[str, str], list[LoggedCell]] = {}
    for cell in _cells(records):
        if cell.key in rejected and (way := _way(cell)):
            groups.setdefault((cell.subject, way), []).append(cell)
    versions = _versions(records)
    return "".join(_entry(subject, way, cells, versions.get(subject, {})) for (subject, way), cells in groups.items())


def _way(cell: LoggedCell) -> str:
    if cell.explanation is not None:
        return f"delta: {{decisions: {_flow({cell.explanation.decision: cell.explanation.name})}}}"
    if cell.verdict in ("error", "crash", "timeout", "inconclusive"):
        line = next(iter(cell.reason.splitlines()), "")[:60]
        return f"accept: {{verdict: {cell.verdict}, message: {json.dumps(re.escape(line))}}}"
    return ""


def _versions(records: Sequence[Record]) -> dict[str, dict[str, str]]:
    ready = [record for record in records if record["type"] == "worker" and record["status"] == "ready"]
    return {subject: record.get("versions", {}) for record in ready for subject in record["subjects"]}


def _entry(subject: str, way: str, cells: Sequence[LoggedCell], versions: Mapping[str, str]) -> str:
    globs = _globs(cell.case for cell in cells)
    seen = {name: f">={version.partition('+')[0]}" for name, version in versions.items() if name != "numpy"}
    rows = [f"  - subject: {_flow(subject)}", f"    cases: {_flow(globs[0] if len(globs) == 1 else globs)}"]
    rows += [f"    versions: {_flow(seen)}"] if seen else []
    rows += [
        f"    {way}",
        f'    reason: ""  # {counted(len(cells), "cell")}: explain why, so that a reader understands it',
        '    link: ""',
    ]
    return "\n".join(rows) + "\n"


def _globs(cases: Iterable[str]) -> list[str]:
    """The folders of the cases (`causal/*`), in order; the id of a case that is alone in its folder."""
    folders: dict[str, list[str]] = {}
    for case in sorted(cases):
        folders.setdefault(case.partition("/")[0], []).append(case)
    return [found[0] if len(found) == 1 else f"{folder}/*" for folder, found in folders.items()]
