"""Reports of a comparison of two runs: terminal, Markdown, JSON, an HTML page and JUnit XML."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from xml.etree import ElementTree as ET

from markupsafe import Markup
from rich.text import Text

from conformance import __version__
from conformance.bridge.strict_json import plain_data
from conformance.bridge.strict_json import plain_data as json_values
from conformance.disk import write_whole
from conformance.report.counts import budget_text
from conformance.report.junit import BROKEN, add_properties, count, legal, new_test, say, sum_up
from conformance.report.page_data import asset, environment, policy, script_json, script_of
from conformance.report.run_page import PAGE_FILE, SYMBOLS
from conformance.report.summary import block, code, words
from conformance.report.terminal import plain, plain_console
from conformance.spec.texts import counted

COMPARISON_FILE = "comparison.json"
# Maximum number of cells that are listed per group, and of groups.
MAX_CELLS = 5
MAX_GROUPS = 20
Record = Mapping[str, Any]


def write_comparison(record: Record, folder: Path) -> None:
    """Write comparison.json and summary.md into `folder`, which is created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(json_values(dict(record)), indent=1, allow_nan=False)
    write_whole(folder / COMPARISON_FILE, text + "\n")
    write_whole(folder / "summary.md", "\n".join(comparison_summary(record)) + "\n")


def print_comparison(record: Record, stream: IO[str], folder: Path | None = None, about: Iterable[str] = ()) -> None:
    """Print the conclusion, `about`, and each group; a group that the gate rejects gets a rerun command."""
    console = plain_console(stream)
    console.print(Text(plain(record["headline"]), style="bold green" if record["conforms"] else "bold red"))
    for text in about:
        console.print(Text(plain(text)))
    for text in record["incomplete"]:
        console.print(Text(f"incomplete: {plain(text)}", style="bold yellow"))
    for group in record["groups"][:MAX_GROUPS]:
        console.print(Text(plain(f"{heading(group)}: {group['sentence']}"), style="red" if group["rejected"] else ""))
        if group["rejected"] and (rerun := example(group)):
            console.print(Text(f"  rerun: {plain(rerun)}", style="dim"))
    if (more := len(record["groups"]) - MAX_GROUPS) > 0:
        console.print(Text(f"… and {counted(more, 'more group')} in the report"))
    for text in record["notes"]:
        console.print(Text(f"note: {plain(text)}", style="dim"))
    console.print(Text(plain(totals(record))))
    if folder is not None:
        console.print(Text(f"Report: {plain(str(folder / 'index.html'))}"))


def heading(group: Record) -> str:
    """The kind of a group in words, such as `support lost`."""
    return "fails in another way" if group["kind"] == "fails_otherwise" else str(group["kind"]).replace("_", " ")


def totals(record: Record) -> str:
    """The number of changed cells of each kind, of unchanged cells, and of those that both sides decline."""
    parts = [f"{number:,} {heading({'kind': kind})}" for kind, number in record["counts"].items()]
    parts.append(f"{record['unchanged']:,} unchanged")
    if record["declined"]:
        parts.append(f"{record['declined']:,} declined on both sides")
    return f"{counted(record['compared'], 'cell')} compared: {', '.join(parts)}"


def example(group: Record) -> str:
    """The command that reruns the first cell of a group, for the candidate if possible; "" if there is none."""
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
    for group in record["groups"][:MAX_GROUPS]:
        if group["kind"] != last:
            last = group["kind"]
            yield f"## {heading(group).capitalize()}: {words(group['meaning'])}"
            yield ""
        yield from _group(group)
    if (more := len(record["groups"]) - MAX_GROUPS) > 0:
        yield f"… and {counted(more, 'more group')} in {code('index.html')}."


def _group(group: Record) -> Iterator[str]:
    yield f"**{words(group['sentence'])}**"
    yield ""
    if group["kind"] == "drifted":
        return
    for cell in group["cells"][:MAX_CELLS]:
        yield f"- {code(cell['case'])} on {code(cell['subject'])}: {words(sides(cell))}"
    if (left := len(group["cells"]) - MAX_CELLS) > 0:
        yield f"- … and {left:,} more"
    yield ""
    if group["rejected"] and (rerun := example(group)):
        yield block(rerun)
        yield ""


def sides(cell: Record) -> str:
    """The verdicts of a cell in base and candidate, such as `pass (0.31) → fail (inf)`."""
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


SCRIPTS = ("elements", "comparison")


def write_comparison_page(record: Record, folder: Path) -> Path:
    """Write index.html into `folder` and return its path."""
    path = folder / PAGE_FILE
    write_whole(path, comparison_page(record))
    return path


def comparison_page(record: Record) -> str:
    """The whole page as text."""
    style, script = asset("page.css") + asset("comparison.css"), script_of(SCRIPTS)
    titles = {kind: heading({"kind": kind}) for kind in record["counts"]}
    versions = {side: record[side]["subjects"] for side in ("base", "candidate")}
    data = {"groups": record["groups"], "titles": titles, "symbols": SYMBOLS, "versions": versions}
    return (
        environment({})
        .get_template("comparison.html.j2")
        .render(
            **{name: record[name] for name in ("headline", "base", "candidate", "counts", "groups", "incomplete")},
            **{name: record[name] for name in ("notes", "compared", "unchanged", "declined")},
            mood="good" if record["conforms"] else "bad" if record["complete"] else "open",
            meanings={group["kind"]: group["meaning"] for group in record["groups"]},
            titles=titles,
            environments=_environments(record),
            version=__version__,
            style=Markup(style),  # noqa: S704 - our own files
            script=Markup(script),  # noqa: S704 - our own files
            policy=policy(style, script),
            index=Markup(script_json(plain_data(data))),  # noqa: S704 - escaped there
        )
    )


def _environments(record: Record) -> list[dict[str, Any]]:
    """Subjects grouped by their package versions on both sides; packages that differ are marked."""
    before, now = record["base"]["subjects"], record["candidate"]["subjects"]
    rows: dict[str, dict[str, Any]] = {}
    for subject in sorted({*before, *now}):
        base, candidate = before.get(subject, {}), now.get(subject, {})
        row = {"subjects": [], "base": base, "candidate": candidate, "changed": _changed_packages(base, candidate)}
        rows.setdefault(f"{sorted(base.items())} {sorted(candidate.items())}", row)["subjects"].append(subject)
    return list(rows.values())


def _changed_packages(base: Mapping[str, str], candidate: Mapping[str, str]) -> list[str]:
    return sorted(name for name in {*base, *candidate} if base.get(name) != candidate.get(name))


# Kinds of change that the gate does not reject although the cell does not conform or was not judged.
TOLERATED = ("support_lost", "accepted", "deleted", "case_changed", "judge_changed")


def write_comparison_junit(record: Record, unchanged: Iterable[Record], path: Path) -> None:
    """
    Write JUnit XML to `path`.

    record: the content of comparison.json. unchanged: the cells that are the same on both sides, which the record only
    counts; each has `case`, `subject`, `source`, `verdict` and `red`.
    """
    write_whole(path, comparison_junit_xml(record, unchanged))


def comparison_junit_xml(record: Record, unchanged: Iterable[Record]) -> bytes:
    """The bytes of the JUnit XML file; arguments as in `write_comparison_junit`."""
    return bytes(ET.tostring(comparison_junit(record, unchanged), encoding="utf-8", xml_declaration=True))


def comparison_junit(record: Record, unchanged: Iterable[Record]) -> ET.Element:
    """The JUnit document of a comparison; arguments as in `write_comparison_junit`."""
    root = ET.Element("testsuites", name=legal(f"conformance compare: {record['headline']}"))
    suites: dict[str, ET.Element] = {}
    for group in record["groups"]:
        for cell in group["cells"]:
            _changed(_test(root, suites, cell, record), group, cell)
    for cell in unchanged:
        _unchanged(_test(root, suites, cell, record), cell)
    if record["incomplete"]:
        suites["gate"] = ET.SubElement(root, "testsuite", name="gate")
    for text in record["incomplete"]:
        test = new_test(f"incomplete: {text}", "gate")
        say(test, "error", "incomplete", text)
        suites["gate"].append(test)
    for suite in suites.values():
        count(suite)
    sum_up(root)
    return root


def _test(root: ET.Element, suites: dict[str, ET.Element], cell: Record, record: Record) -> ET.Element:
    subject = cell["subject"]
    if subject not in suites:
        suites[subject] = ET.SubElement(root, "testsuite", name=legal(subject))
        add_properties(suites[subject], _versions(record, subject))
    test = new_test(cell["case"], subject)
    suites[subject].append(test)
    return test


def _versions(record: Record, subject: str) -> dict[str, str]:
    """The package versions of a subject on both sides, as `base.NAME` and `candidate.NAME`."""
    return {
        f"{side}.{name}": version
        for side in ("base", "candidate")
        for name, version in record[side]["subjects"].get(subject, {}).items()
    }


def _changed(test: ET.Element, group: Record, cell: Record) -> None:
    message = f"{heading(group)}: {group['sentence']}"
    texts = [f"{name}: {cell[name]['text']}" for name in ("base", "candidate") if cell.get(name, {}).get("text")]
    rerun = cell.get("candidate", cell.get("base", {})).get("rerun", "")
    story = "\n".join([message, sides(cell), *texts, *([f"rerun: {rerun}"] if rerun else [])])
    if group["rejected"]:
        broken = cell.get("candidate", {}).get("verdict") in BROKEN
        say(test, "error" if broken else "failure", heading(group), message, story)
    elif group["kind"] in TOLERATED:
        say(test, "skipped", heading(group), message, story)
    else:
        ET.SubElement(test, "system-out").text = legal(story)


def _unchanged(test: ET.Element, cell: Record) -> None:
    if cell["red"]:
        say(test, "skipped", "red on both sides", f"{cell['verdict']} on both sides: no change")
    elif cell["verdict"] == "unsupported":
        say(test, "skipped", "unsupported", "declined on both sides")
