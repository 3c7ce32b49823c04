"""
A comparison, told: on the terminal, as Markdown for a step summary, and as the JSON that both are functions of.

The record is that of docs/comparing.md; nothing is decided here.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from rich.text import Text

from conformance.bridge.values import plain as json_values
from conformance.disk import write_whole
from conformance.report.numbers import budget_text
from conformance.report.summary import block, code, words
from conformance.report.terminal import plain, plain_console
from conformance.spec.counting import counted

NAME = "comparison.json"
SHOWN_CELLS = 5
SHOWN_GROUPS = 20
Record = Mapping[str, Any]


def write_comparison(record: Record, folder: Path) -> None:
    """Write comparison.json and summary.md into `folder`, which is made where it is absent."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(json_values(dict(record)), indent=1, allow_nan=False)
    write_whole(folder / NAME, text + "\n")
    write_whole(folder / "summary.md", "\n".join(comparison_summary(record)) + "\n")


def print_comparison(record: Record, stream: IO[str], folder: Path | None = None, about: Iterable[str] = ()) -> None:
    """Tell it on `stream`: the conclusion, `about`, then each group, with a rerun command where the gate rejects."""
    console = plain_console(stream)
    console.print(Text(plain(record["headline"]), style="bold green" if record["conforms"] else "bold red"))
    for text in about:
        console.print(Text(plain(text)))
    for text in record["incomplete"]:
        console.print(Text(f"incomplete: {plain(text)}", style="bold yellow"))
    for group in record["groups"][:SHOWN_GROUPS]:
        console.print(Text(plain(f"{heading(group)}: {group['sentence']}"), style="red" if group["rejected"] else ""))
        if group["rejected"] and (rerun := example(group)):
            console.print(Text(f"  rerun: {plain(rerun)}", style="dim"))
    if (left := len(record["groups"]) - SHOWN_GROUPS) > 0:
        console.print(Text(f"… and {counted(left, 'more group')} in the report"))
    for text in record["notes"]:
        console.print(Text(f"note: {plain(text)}", style="dim"))
    console.print(Text(plain(totals(record))))
    if folder is not None:
        console.print(Text(f"Report: {plain(str(folder / 'index.html'))}"))


def heading(group: Record) -> str:
    """The kind of a group in words: `support lost`."""
    return "fails in another way" if group["kind"] == "fails_otherwise" else str(group["kind"]).replace("_", " ")


def totals(record: Record) -> str:
    """How many cells changed in each kind, and how many did not."""
    parts = [f"{number:,} {heading({'kind': kind})}" for kind, number in record["counts"].items()]
    parts.append(f"{record['unchanged']:,} unchanged")
    return f"{counted(record['compared'], 'cell')} compared: {', '.join(parts)}"


def example(group: Record) -> str:
    """The command that reruns the first cell of a group, of the candidate where it has one."""
    for cell in group["cells"]:
        for side in ("candidate", "base"):
            if rerun := cell.get(side, {}).get("rerun", ""):
                return str(rerun)
    return ""


def comparison_summary(record: Record) -> Iterator[str]:
    """The lines of summary.md."""
    yield f"# {'✅' if record['conforms'] else '❌'} {words(record['headline'])}"
    yield ""
    between = f"Base: {code(record['base']['name'])}, candidate: {code(record['candidate']['name'])}."
    yield f"{words(totals(record))}. {between}"
    yield ""
    notes = [*(("incomplete", text) for text in record["incomplete"]), *(("note", text) for text in record["notes"])]
    if notes:
        yield from (f"- **{kind}**: {words(text)}" for kind, text in notes)
        yield ""
    last = ""
    for group in record["groups"][:SHOWN_GROUPS]:
        if group["kind"] != last:
            last = group["kind"]
            yield f"## {heading(group).capitalize()}: {words(group['meaning'])}"
            yield ""
        yield from _group(group)
    if (left := len(record["groups"]) - SHOWN_GROUPS) > 0:
        yield f"… and {counted(left, 'more group')} in {code('index.html')}."


def _group(group: Record) -> Iterator[str]:
    yield f"**{words(group['sentence'])}**"
    yield ""
    if group["kind"] == "drifted":
        return
    for cell in group["cells"][:SHOWN_CELLS]:
        yield f"- {code(cell['case'])} on {code(cell['subject'])}: {words(sides(cell))}"
    if (left := len(group["cells"]) - SHOWN_CELLS) > 0:
        yield f"- … and {left:,} more"
    yield ""
    if group["rejected"] and (rerun := example(group)):
        yield block(rerun)
        yield ""


def sides(cell: Record) -> str:
    """A cell's verdicts, before and now: `pass (0.31) → fail (inf)`."""
    return " → ".join(_verdict(cell.get(side)) for side in ("base", "candidate"))


def _verdict(side: Record | None) -> str:
    if side is None:
        return "absent"
    budget = side.get("budget")
    known = ", known" if side.get("known") else ""
    return (
        f"{side['verdict']} ({budget_text(float(budget))}{known})"
        if budget is not None
        else f"{side['verdict']}{known}"
    )
