"""
JUnit XML of a comparison: one suite per subject, one test per case, red exactly where the comparison is.

What changed and is rejected is `failure` or `error` with the sentence of its group; what is red on both sides is no
news and `skipped`, like what was declined, accepted or not compared. What is missing for a verdict is a suite of its
own.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from conformance.disk import write_whole
from conformance.report.comparison import heading, sides
from conformance.report.junit import BROKEN, add_properties, case_of, count, legal, say, sum_up

Record = Mapping[str, Any]

PUT_UP_WITH = ("support_lost", "accepted", "deleted", "case_changed", "judge_changed")
"""Kinds of which nothing conforms, or nothing is known, though the gate does not reject them."""


def write_comparison_junit(record: Record, still: Iterable[Record], path: Path) -> None:
    """
    Write JUnit XML to `path`.

    record: the content of comparison.json. still: the cells that show the same on both sides, which it only counts,
    each with `case`, `subject`, `source`, `verdict` and `red`.
    """
    write_whole(path, comparison_junit_xml(record, still))


def comparison_junit_xml(record: Record, still: Iterable[Record]) -> bytes:
    """The comparison as a file of JUnit XML; the arguments are those of `write_comparison_junit`."""
    return bytes(ET.tostring(comparison_junit(record, still), encoding="utf-8", xml_declaration=True))


def comparison_junit(record: Record, still: Iterable[Record]) -> ET.Element:
    """The whole document."""
    root = ET.Element("testsuites", name=legal(f"conformance compare: {record['headline']}"))
    suites: dict[str, ET.Element] = {}
    for group in record["groups"]:
        for cell in group["cells"]:
            _changed(_test(root, suites, cell, record), group, cell)
    for cell in still:
        _unchanged(_test(root, suites, cell, record), cell)
    if record["incomplete"]:
        suites["gate"] = ET.SubElement(root, "testsuite", name="gate")
    for text in record["incomplete"]:
        say(case_of(suites["gate"], f"incomplete: {text}", "gate"), "error", "incomplete", text)
    for suite in suites.values():
        count(suite)
    sum_up(root)
    return root


def _test(root: ET.Element, suites: dict[str, ET.Element], cell: Record, record: Record) -> ET.Element:
    subject = cell["subject"]
    if subject not in suites:
        suites[subject] = ET.SubElement(root, "testsuite", name=legal(subject))
        add_properties(suites[subject], _versions(record, subject))
    return case_of(suites[subject], cell["case"], subject)


def _versions(record: Record, subject: str) -> dict[str, str]:
    """The versions on either side."""
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
    elif group["kind"] in PUT_UP_WITH:
        say(test, "skipped", heading(group), message, story)
    else:
        ET.SubElement(test, "system-out").text = legal(story)


def _unchanged(test: ET.Element, cell: Record) -> None:
    if cell["red"]:
        say(test, "skipped", "red on both sides", f"{cell['verdict']} on both sides: nothing new")
    elif cell["verdict"] == "unsupported":
        say(test, "skipped", "unsupported", "declined on both sides")
