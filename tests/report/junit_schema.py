"""
Find the errors in a JUnit XML document, by our own reading of the schema that Jenkins' xUnit plug-in enforces.

It is junit-10.xsd of xunit-plugin 3.1.6, the strictest schema in use: it refuses any attribute that it does not name.
GitLab reads a subset of it and identifies tests by class and test name; of two that are the same it takes the first.
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

# Element -> required attributes, and allowed attributes.
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
    """Return every fault with its element; a valid document has none."""
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
