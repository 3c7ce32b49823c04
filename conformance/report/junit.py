"""
JUnit XML for CI systems: one suite per subject, one test per case.

A cell that the gate accepts although it is no pass is `skipped` with its reason; a cell that the gate rejects is a
`failure` or an `error`. So a CI system is red exactly if the gate is. Other objections of the gate form a suite of
their own. The file is valid under the schema that Jenkins' xUnit plug-in uses (junit-10.xsd): a test has no file
attribute, and versions are properties of a suite.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, starmap, zip_longest
from pathlib import Path
from xml.etree import ElementTree as ET

from conformance.disk import write_pieces
from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.engine.records import Key, LoggedSubject
from conformance.engine.run_folder import Run
from conformance.report.conclusion import gate_notes, subject_lines
from conformance.report.counts import kind_of, what_happened
from conformance.report.findings import Finding, finding_text, findings_of

# Rejected cell -> the findings that it belongs to.
Findings = Mapping[Key, Sequence[Finding]]

# Characters that XML 1.0 cannot contain, not even escaped.
ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

# Verdicts that are JUnit errors: the test could not be carried out.
BROKEN = frozenset({"error", "timeout", "crash"})


def write_junit(run: Run, path: Path) -> None:
    """Write the run as JUnit XML to `path`."""
    write_pieces(path, _pieces(run))


# The element that stands for the tests of a suite until they are written.
LATER = ET.Element("tests")

# Number of tests that are elements at the same time: written, a test takes a tenth of the memory.
AT_ONCE = 256


def junit_xml(run: Run) -> bytes:
    """The bytes of the JUnit XML file of a run."""
    return b"".join(_pieces(run))


def _pieces(run: Run) -> Iterator[bytes]:
    root = ET.Element("testsuites", name=legal(f"conformance {run.header.run}"))
    found = findings_of(run)
    written: list[bytes] = []
    for line in subject_lines(run):
        suite = ET.SubElement(root, "testsuite", name=legal(line.subject.name), timestamp=legal(run.header.started))
        add_properties(suite, _environment(run, line.subject))
        written.append(_written(suite, _tests(run, line.subject.name, found)))
    if notes := _gate_notes(run):
        suite = ET.SubElement(root, "testsuite", name="gate", timestamp=legal(run.header.started))
        written.append(_written(suite, starmap(_objection, notes)))
    sum_up(root)
    around = ET.tostring(root, encoding="utf-8", xml_declaration=True).split(ET.tostring(LATER))
    yield from (part for both in zip_longest(around, written, fillvalue=b"") for part in both)


def _written(suite: ET.Element, tests: Iterable[ET.Element]) -> bytes:
    """The tests of a suite as XML, counted in its attributes; LATER stands for them in the suite."""
    written: list[bytes] = []
    totals: Counter[str] = Counter()
    milliseconds = 0
    for some in _batches(tests):
        count(some)
        totals.update({name: int(some.get(name, 0)) for name in COUNTS})
        milliseconds += round(1000 * float(some.get("time", 0)))
        text = ET.tostring(some, encoding="utf-8")
        written.append(text[text.index(b">") + 1 : text.rindex(b"</")])
    for name in COUNTS:
        suite.set(name, str(totals[name]))
    suite.set("time", f"{milliseconds / 1000:.3f}")
    suite.append(LATER)
    return b"".join(written)


def _batches(tests: Iterable[ET.Element]) -> Iterator[ET.Element]:
    """Some tests at a time, in an element that only serves to write them."""
    rest = iter(tests)
    while some := list(islice(rest, AT_ONCE)):
        batch = ET.Element("testsuite")
        batch.extend(some)
        yield batch


def legal(text: str) -> str:
    """`text` with each character that XML cannot contain replaced by U+FFFD."""
    return ILLEGAL.sub("\N{REPLACEMENT CHARACTER}", text)


def _tests(run: Run, subject: str, found: Findings) -> Iterator[ET.Element]:
    """The tests of one subject, in the order of the cases."""
    for case in run.header.cases:
        cell = run.judged.get((case, subject))
        if cell is not None:
            yield _test(run, cell, found)
        elif (case, subject) in run.missing:
            test = new_test(case, subject)
            say(test, "error", "missing", "no verdict: the run is incomplete")
            yield test


def _environment(run: Run, subject: LoggedSubject) -> dict[str, str]:
    """Versions (those of the subject's worker override those of the coordinator), device, environment and platform."""
    found = {**run.header.versions, "device": subject.device, "environment": subject.environment}
    found |= {name: str(run.header.platform[name]) for name in ("system", "machine") if name in run.header.platform}
    for worker in run.workers:
        if subject.name in worker.subjects:
            found |= {**worker.versions, **({"python": worker.python} if worker.python else {})}
    return found


def add_properties(suite: ET.Element, found: Mapping[str, str]) -> None:
    """Add properties to a suite; without any, add no element."""
    if found:
        properties = ET.SubElement(suite, "properties")
        for name, value in found.items():
            ET.SubElement(properties, "property", name=legal(name), value=legal(value))


def new_test(case: str, subject: str, seconds: float = 0.0) -> ET.Element:
    """One test, which belongs to no suite yet."""
    return ET.Element("testcase", classname=legal(subject), name=legal(case), time=f"{seconds:.3f}")


def _test(run: Run, judged: JudgedCell, found: Findings) -> ET.Element:
    """The test of one cell; only of a cell that did not simply pass is the whole record read."""
    test = new_test(judged.case, judged.subject, judged.seconds)
    if judged.verdict != "pass" or judged.key in run.rejected:
        _add_result(test, run, run.cells[judged.key], found)
    return test


def _add_result(test: ET.Element, run: Run, cell: LoggedCell, found: Findings) -> None:
    if cell.key in run.rejected:
        tag = "error" if cell.verdict in BROKEN else "failure"
        own = found.get(cell.key, ())
        say(test, tag, kind_of(cell), _message(cell, own), _story(cell, own))
    elif cell.known is not None:
        link = f" ({cell.known.link})" if cell.known.link else ""
        say(test, "skipped", "known", f"known: {cell.known.reason}{link}")
    elif cell.verdict == "dialect":
        declared = "\n".join(f"{each.decision}: {each.name} {each.source}".rstrip() for each in cell.dialect)
        ET.SubElement(test, "system-out").text = legal(f"conforms to its declared dialect\n{declared}")
    elif cell.verdict != "pass":
        say(test, "skipped", kind_of(cell), f"{cell.verdict}: {what_happened(cell)}")


def say(test: ET.Element, tag: str, kind: str, message: str, story: str = "") -> None:
    """Add a `failure`, `error` or `skipped` element to a test; the story is its text, with the details."""
    element = ET.SubElement(test, tag, type=legal(kind), message=legal(message))
    element.text = legal(story) or None


def _message(cell: LoggedCell, found: Sequence[Finding]) -> str:
    """The first cause of a cell; if there are others, the story has them."""
    if found and found[0].explained:
        return f"{kind_of(cell)}: {finding_text(found[0])}"
    return f"{kind_of(cell)}: {what_happened(cell)}"


def _story(cell: LoggedCell, found: Sequence[Finding]) -> str:
    error = cell.error.traceback or cell.error.message if cell.error else ""
    also = [f"also: {finding_text(each)}" for each in found[1:]]
    ties = [f"equally possible: {other}" for each in found for other in each.ambiguous]
    outputs = [each.message for each in cell.outputs if each.message and each.message not in cell.reason]
    rerun = f"rerun: {cell.rerun}" if cell.rerun else ""
    return "\n".join(
        part for part in (_message(cell, found), *also, *ties, cell.reason, *outputs, error, rerun) if part
    )


def _gate_notes(run: Run) -> list[tuple[str, str]]:
    """The objections of the gate besides rejected verdicts, as (kind, text)."""
    if run.footer is None:
        return [("incomplete", "the run was interrupted before its end: its log has no footer")]
    return [] if run.footer.gate.conforms else gate_notes(run)


def _objection(kind: str, text: str) -> ET.Element:
    test = ET.Element("testcase", classname="gate", name=legal(f"{kind}: {text}"), time="0")
    say(test, "error" if kind == "incomplete" else "failure", kind, text)
    return test


# The counts of a suite that are whole numbers, in the order of its attributes.
COUNTS = ("failures", "errors", "skipped", "tests")


def count(suite: ET.Element) -> None:
    """Set the numbers of tests, failures, errors and skipped tests of a suite, and its seconds with three decimals."""
    tests = suite.findall("testcase")
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(test.find(tag) is not None for test in tests)))
    suite.set("tests", str(len(tests)))
    suite.set("time", f"{sum(float(test.get('time', 0)) for test in tests):.3f}")


def sum_up(root: ET.Element) -> None:
    """Set the sums over all suites on the root element."""
    suites = [suite.attrib for suite in root]
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite[name]) for suite in suites)))
    root.set("time", f"{sum(float(suite['time']) for suite in suites):.3f}")
