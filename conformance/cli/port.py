"""`conformance port`: what differs between two subjects, and what to change at the call site."""

import argparse
import json

from conformance.cli.asking import Sitter, ask
from conformance.cli.errors import UsageError
from conformance.cli.offer import make_offer
from conformance.cli.probe import pictured
from conformance.gate.decide import CONFORMS, REJECTED
from conformance.report.port_text import lines, record
from conformance.report.porting import Side
from conformance.report.porting import port as compare


def port(arguments: argparse.Namespace) -> int:
    """Ask both, print the advice, and return the exit code; that a declaration is contradicted is probe's to say."""
    chosen = [_first(pattern, arguments) for pattern in (arguments.source, arguments.target)]
    if chosen[0] == chosen[1]:
        raise UsageError(f"{arguments.source} and {arguments.target} are both {chosen[0]}")
    asked = ask(arguments, [arguments.source, arguments.target], only=chosen)
    sides = {sitter.subject.name: _side(sitter) for sitter in asked.sitters}
    for sentence in asked.decision.incomplete:
        print(sentence)
    found = compare(sides[chosen[0]], sides[chosen[1]])
    print("\n".join(lines(found)))
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(record(found), indent=2) + "\n", encoding="utf-8")
    print(f"Report: {asked.folder / 'index.html'}")
    return CONFORMS if asked.decision.exit_code == REJECTED else asked.decision.exit_code


def _first(pattern: str, arguments: argparse.Namespace) -> str:
    """The first of the subjects that are called so; each of the others is a subject of its own."""
    offer = make_offer([pattern], arguments.env, arguments.device)
    if not offer.subjects:
        raise UsageError("; ".join(offer.incomplete) or f"{pattern} cannot run here")
    return next((subject.name for subject in offer.subjects if subject.counted), offer.subjects[0].name)


def _side(sitter: Sitter) -> Side:
    return Side(sitter.subject, pictured(sitter), sitter.records)
