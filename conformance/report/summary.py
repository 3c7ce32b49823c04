"""
summary.md, for the step summary of a CI system.

Text from the run is escaped, so that it can neither become markup nor break a table.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.disk import write_whole
from conformance.engine.records import Key
from conformance.engine.run_folder import Run
from conformance.report.conclusion import (
    SubjectLine,
    gate_notes,
    headline,
    known_groups,
    left_out_note,
    replies_note,
    subject_lines,
)
from conformance.report.counts import COUNTED, budget_text, kind_of, share_text, what_happened
from conformance.report.findings import Finding, advice, findings, unexplained_kind
from conformance.spec.texts import capital, counted

# Maximum number of rejected cells and of findings that are listed.
MAX_CELLS = 20
MAX_FINDINGS = 20
# Maximum number of characters of a text; the HTML page has the full text.
MAX_CHARACTERS = 300

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Characters with a meaning inside a line of Markdown; no text of the run begins a line.
MARKUP = re.compile(r"([\\`*_\[\]<>|~&$])")

ADDRESS = re.compile(r"https?://[^\s<>`|\\\"]+")


def write_summary(run: Run, path: Path) -> None:
    """Write the run as Markdown to `path`."""
    write_whole(path, "\n".join(summary(run)) + "\n")


def summary(run: Run) -> Iterator[str]:
    """The lines of the summary."""
    mark = "✅" if run.conforms else "❌"
    yield f"# {mark} {words(headline(run))}"
    yield ""
    yield from _notes(run)
    found = findings(run)
    yield from _findings(run, found)
    yield from _subjects(subject_lines(run))
    yield from _rejected(run, found)
    yield from _known(run)
    yield from _not_offered(run)
    for note in filter(None, (left_out_note(run), replies_note(run))):
        yield f"{words(capital(note))}."
        yield ""
    yield f"Run {code(run.header.run)}; everything else is in {code('index.html')}."


def words(text: str) -> str:
    """`text` on one line, shortened, with everything escaped that Markdown or HTML would interpret."""
    flat = CONTROL.sub(" ", text).strip()
    cut = flat if len(flat) <= MAX_CHARACTERS else f"{flat[: MAX_CHARACTERS - 1]}…"
    return MARKUP.sub(r"\\\1", cut)


def link(address: str) -> str:
    """`address` as a link if it is a web address, else as plain text."""
    return f"<{address}>" if ADDRESS.fullmatch(address) else words(address)


def code(text: str) -> str:
    """`text` as a code span that can also be used in a table."""
    flat = CONTROL.sub(" ", text).replace("|", r"\|")
    fence = "`" * (_longest_run(flat) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def block(text: str) -> str:
    """`text` as a fenced block of one line."""
    flat = CONTROL.sub(" ", text)
    fence = "`" * max(3, _longest_run(flat) + 1)
    return f"{fence}sh\n{flat}\n{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _notes(run: Run) -> Iterator[str]:
    if notes := gate_notes(run):
        yield from (f"- **{kind}**: {words(text)}" for kind, text in notes)
        yield ""


def _findings(run: Run, found: Sequence[Finding]) -> Iterator[str]:
    if not found:
        return
    yield "## Findings"
    yield ""
    for finding in found[:MAX_FINDINGS]:
        yield f"- {_finding(finding)}"
        yield from (f"  - {words(fact)}" for fact in finding.facts)
        yield from (f"  - equally possible: {words(other)}" for other in finding.ambiguous)
        if finding.explained and (rerun := run.cells[finding.example].rerun):
            yield f"  - rerun the simplest call: {code(rerun)}"
    if len(found) > MAX_FINDINGS:
        yield f"- … and {len(found) - MAX_FINDINGS} more in the report"
    yield ""


def _finding(finding: Finding) -> str:
    verdicts = f"{counted(finding.count, 'verdict')} of {code(finding.subject)}{finding.forms}"
    what_to_do = f"; {words(advice(finding.remedy))}" if finding.remedy else ""
    if not finding.explained:
        return f"{verdicts} ({words(unexplained_kind(finding))}): {words(finding.sentence)}{what_to_do}"
    return f"1 cause explains {verdicts}: **it {words(finding.full_sentence)}**{what_to_do}"


def _subjects(lines: list[SubjectLine]) -> Iterator[str]:
    verdicts = [verdict for verdict in COUNTED if any(verdict in line.counts for line in lines)]
    missing = any(line.missing for line in lines)
    head = ["Subject", *verdicts, *(["missing"] if missing else []), "rejected", "judged", "worst budget"]
    yield "## Subjects"
    yield ""
    yield f"| {' | '.join(head)} |"
    yield f"|:--{'|--:' * (len(head) - 1)}|"
    for line in lines:
        numbers = [line.counts.get(verdict, 0) for verdict in verdicts]
        numbers += [line.missing] if missing else []
        shown = [str(number) if number else "" for number in (*numbers, line.rejected)]
        row = [code(line.subject.name), *shown, share_text(line.share), words(budget_text(line.worst))]
        yield f"| {' | '.join(row)} |"
    yield ""


def _rejected(run: Run, found: Sequence[Finding]) -> Iterator[str]:
    keys = [key for key in run.judged if key in run.rejected]
    if not keys:
        return
    sentences: dict[Key, list[str]] = {}
    for key, sentence in ((key, each.sentence) for each in found if each.explained for key in each.cells):
        sentences.setdefault(key, []).append(sentence)
    first = "the first " if len(keys) > MAX_CELLS else ""
    yield f"## Rejected: {first}{min(len(keys), MAX_CELLS)} of {len(keys)}"
    yield ""
    for cell in (run.cells[key] for key in keys[:MAX_CELLS]):
        why = words("; ".join(sentences.get(cell.key, ())) or what_happened(cell))
        yield f"**{words(kind_of(cell))}** {code(cell.case)} on {code(cell.subject)}: {why}"
        yield ""
        if cell.rerun:
            yield block(cell.rerun)
            yield ""


def _known(run: Run) -> Iterator[str]:
    groups = known_groups(run)
    if not groups:
        return
    yield "## Known deviations"
    yield ""
    for group in groups:
        source = f", {link(group.known.link)}" if group.known.link else ""
        subjects = ", ".join(code(subject) for subject in group.subjects)
        yield f"- {counted(len(group.cells), 'verdict')} of {subjects}: {words(group.known.reason)}{source}"
    yield ""


def _not_offered(run: Run) -> Iterator[str]:
    if not run.header.not_offered:
        return
    yield "## Not installed here"
    yield ""
    for each in run.header.not_offered:
        install = f": {code(each.remedy)}" if each.remedy else ""
        yield f"- {code(each.adapter)} needs {words(', '.join(each.missing))}{install}"
    yield ""
