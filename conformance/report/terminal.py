"""
The summary of a run on the terminal: one line per subject, the findings, the conclusion, the path of the report.

It is written to stdout. On a pipe it has no control codes, and lines are neither cut nor wrapped.
"""

from collections.abc import Iterator, Sequence
from typing import IO

from rich.console import Console
from rich.text import Text

from conformance.engine.run_folder import Run
from conformance.report.conclusion import SubjectLine, gate_notes, headline, left_out_note, replies_note, subject_lines
from conformance.report.counts import COUNTED, budget_text, share_text
from conformance.report.findings import Finding, findings, first_words
from conformance.spec.texts import counted, printable

# Maximum number of findings, and of ambiguous causes per finding.
MAX_FINDINGS = 12
MAX_TIES = 3
STYLES = {
    "pass": "green",
    "dialect": "blue",
    "unsupported": "dim",
    "inconclusive": "yellow",
    "known": "dim",
    "fail": "bold red",
    "error": "bold magenta",
    "timeout": "bold magenta",
    "crash": "bold magenta",
    "missing": "bold yellow",
}


def plain_console(stream: IO[str]) -> Console:
    """A console that writes texts unchanged: it interprets no markup and wraps no line."""
    return Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_summary(run: Run, stream: IO[str], *, with_findings: bool = True, brief: bool = False) -> None:
    """Print the summary of a run; `with_findings=False` omits the findings, `brief` omits the subjects."""
    console = plain_console(stream)
    not_working = run.footer.gate.not_working.values() if run.footer else ()
    for sentence in not_working:
        console.print(Text(f"incomplete: {plain(sentence)}", style="bold red"))
    lines = [] if brief else subject_lines(run)
    width = max((len(plain(line.subject.name)) for line in lines), default=0)
    for line in lines:
        console.print(_subject(line, width))
    found = _findings(run, findings(run)) if with_findings else []
    for text in (*found, *(() if brief else _not_offered(run)), *_notes(run)):
        console.print(text)
    for note in filter(None, (left_out_note(run), replies_note(run))):
        console.print(Text(note, style="dim"))
    console.print(Text(plain(headline(run)), style="bold green" if run.conforms else "bold red"))
    console.print(Text(f"Report: {plain(str(run.folder / 'index.html'))}"))


def plain(text: str) -> str:
    """`text` on one line, without control sequences."""
    return printable(text)


def _count(line: SubjectLine, verdict: str) -> int:
    return line.missing if verdict == "missing" else line.counts.get(verdict, 0)


def _subject(line: SubjectLine, width: int) -> Text:
    text = Text(plain(line.subject.name).ljust(width), style="bold red" if line.rejected else "")
    text.append(f"  judged {share_text(line.share) or '-':>5}  worst budget {budget_text(line.worst) or '-':>5} ")
    for verdict in (*COUNTED, "missing"):
        if number := _count(line, verdict):
            text.append(f"  {number} {verdict}", style=STYLES[verdict])
    return text


def _findings(run: Run, found: Sequence[Finding]) -> list[Text]:
    shown = []
    for finding in found[:MAX_FINDINGS]:
        shown.append(Text(plain(first_words(finding))))
        shown += [Text(f"  {plain(fact)}") for fact in finding.facts]
        shown += [Text(f"  equally possible: {plain(other)}") for other in finding.ambiguous[:MAX_TIES]]
        if rerun := run.cells[finding.example].rerun:
            shown.append(Text(f"  rerun: {plain(rerun)}", style="dim"))
    if len(found) > MAX_FINDINGS:
        shown.append(Text(f"… and {counted(len(found) - MAX_FINDINGS, 'more finding')} in the report"))
    return shown


def _not_offered(run: Run) -> Iterator[Text]:
    """One line for each install command that would add subjects."""
    by_remedy: dict[str, list[str]] = {}
    for each in run.header.not_offered:
        by_remedy.setdefault(each.remedy, []).append(each.adapter)
    for remedy, names in by_remedy.items():
        install = f"; to install: {remedy}" if remedy else ""
        yield Text(plain(f"not installed here: {', '.join(names)}{install}"), style="dim")


def _notes(run: Run) -> list[Text]:
    printed = set(run.footer.gate.not_working.values()) if run.footer else set()  # by `print_summary`, at the top
    return [Text(plain(f"{kind}: {text}")) for kind, text in gate_notes(run) if text not in printed]
