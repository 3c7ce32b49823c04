"""
What is wrong with a JUnit XML document: our reading of the schema to which Jenkins' xUnit plug-in holds one.

It is junit-10.xsd of xunit-plugin 3.1.6, the strictest of those in use: an attribute that it does not name is refused.
GitLab reads a subset of it, by the names of classes and tests, of which it takes the first where two are the same.
"""

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

TIME = re.compile(r"(([0-9]{0,3},)*[0-9]{3}|[0-9]{0,3})*(\.[0-9]{0,3})?")
OF_SUITES = {"name", "time", "tests", "failures", "errors"}
OF_SUITE = OF_SUITES | {
    *("group", "skipped", "timestamp", "hostname", "id", "package", "file", "log", "url", "version"),
}
SAID = {"type", "message"}

# Element -> attributes that it must have, and those that it may have.
ATTRIBUTES: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": (set(), OF_SUITES),
    "testsuite": ({"name", "tests", "failures", "errors"}, OF_SUITE),
    "properties": (set(), set()),
    "property": ({"name", "value"}, {"name", "value"}),
    "testcase": ({"name"}, {"name", "time", "classname", "group"}),
    "failure": (set(), SAID),
    "error": (set(), SAID),
    "skipped": (set(), SAID),
    "system-out": (set(), set()),
    "system-err": (set(), set()),
}

CHILDREN: dict[str, set[str]] = {
    "testsuites": {"testsuite"},
    "testsuite": {"properties", "testcase", "system-out", "system-err"},
    "properties": {"property"},
    "testcase": {"skipped", "error", "failure", "system-out", "system-err"},
}
TEXT = {"failure", "error", "skipped", "system-out", "system-err"}


def faults(root: ET.Element) -> list[str]:
    """Every fault, with the element that has it; none of a valid document."""
    return [*_at_root(root), *_of(root), *_twice(root)]


def _at_root(root: ET.Element) -> Iterator[str]:
    if root.tag not in ("testsuites", "testsuite"):
        yield f"the root is {root.tag}"


def _of(element: ET.Element) -> Iterator[str]:
    needed, allowed = ATTRIBUTES.get(element.tag, (set[str](), set[str]()))
    shown = f"{element.tag} {element.get('name', '')}".strip()
    yield from (f"{shown}: no attribute {name}" for name in sorted(needed - {*element.attrib}))
    yield from (f"{shown}: attribute {name} is not allowed" for name in sorted({*element.attrib} - allowed))
    if element.tag in ("testsuite", "testsuites") and not TIME.fullmatch(element.get("time", "")):
        yield f"{shown}: {element.get('time')} is no time"
    if element.tag not in TEXT and (element.text or "").strip():
        yield f"{shown}: text is not allowed"
    for child in element:
        if child.tag in CHILDREN.get(element.tag, set()):
            yield from _of(child)
        else:
            yield f"{shown}: {child.tag} is not allowed"


def _twice(root: ET.Element) -> Iterator[str]:
    seen: set[tuple[str | None, str | None]] = set()
    for test in root.iter("testcase"):
        key = (test.get("classname"), test.get("name"))
        if key in seen:
            yield f"{key[0]}, {key[1]} is there twice"
        seen.add(key)
