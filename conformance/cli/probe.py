"""`conformance probe`: what subjects declare beside what their replies show."""

import argparse
from collections.abc import Iterable

from conformance.cli.asking import Sitter, as_json, ask, collect_probes, keep
from conformance.cli.closing import open_page, print_slowest
from conformance.report.portrait import FILE, Pictured, markdown, record, table


def probe(arguments: argparse.Namespace) -> int:
    """Ask, print a table for each subject, and return the exit code: 1 where behaviour contradicts a declaration."""
    if arguments.collect_only:
        return collect_probes(arguments)
    asked = ask(arguments, arguments.subject)
    pictures = [pictured(sitter) for sitter in asked.sitters]
    for picture in pictures:
        print("\n".join(table(picture)), end="\n\n")
    for sentence in (*asked.decision.incomplete, *asked.decision.problems):
        print(sentence)
    files = {"probe.md": "\n".join(markdown(pictures)) + "\n", FILE: portraits(pictures)}
    keep(asked, files, FILE, arguments.json)
    print_slowest([record for sitter in asked.sitters for record in sitter.records], arguments.durations)
    print(f"Report: {asked.folder / 'probe.md'}")
    if arguments.open:
        open_page(asked.folder)
    return asked.decision.exit_code


def portraits(pictures: Iterable[Pictured]) -> str:
    """All portraits as JSON."""
    return as_json({"schema": 1, "subjects": [record(picture) for picture in pictures]})


def pictured(sitter: Sitter) -> Pictured:
    """What is told of a subject."""
    name = sitter.subject.name
    broken = tuple(r["case"] for r in sitter.records if r["verdict"] in ("error", "crash", "timeout"))
    rerun = {r["case"]: r["rerun"] for r in sitter.records if "rerun" in r}
    return Pictured(name, sitter.portrait, sitter.undocumented, broken, rerun, len(sitter.records))
