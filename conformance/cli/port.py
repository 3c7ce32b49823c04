"""`conformance port`: what differs between two subjects, and what to change at the call site."""

import argparse
import json

from conformance.cli.asking import Sitter, as_json, ask, keep
from conformance.cli.errors import UsageError
from conformance.cli.offer import make_offer
from conformance.cli.probe import pictured, portraits
from conformance.gate.decide import CONFORMS, REJECTED
from conformance.report.port_text import FILE, lines, record
from conformance.report.porting import Side
from conformance.report.porting import port as compare
from conformance.report.portrait import FILE as PROBE


def port(arguments: argparse.Namespace) -> int:
    """Ask both, print the advice, and return the exit code; that a declaration is contradicted is probe's to say."""
    if arguments.run is not None:
        return _again(arguments)
    if arguments.target is None:
        raise UsageError("expected FROM and TO, such as torch.mha 'keras.mha[jax]', or --run DIR")
    chosen = [_first(pattern, arguments) for pattern in (arguments.source, arguments.target)]
    if chosen[0] == chosen[1]:
        raise UsageError(f"{arguments.source} and {arguments.target} are both {chosen[0]}")
    asked = ask(arguments, [arguments.source, arguments.target], only=chosen)
    sides = {sitter.subject.name: _side(sitter) for sitter in asked.sitters}
    for sentence in asked.decision.incomplete:
        print(sentence)
    told = record(compare(sides[chosen[0]], sides[chosen[1]]))
    print("\n".join(lines(told)))
    files = {FILE: as_json(told), PROBE: portraits(pictured(sitter) for sitter in asked.sitters)}
    keep(asked, files, FILE, arguments.json)
    print(f"Report: {asked.folder / 'index.html'}")
    return CONFORMS if asked.decision.exit_code == REJECTED else asked.decision.exit_code


def _again(arguments: argparse.Namespace) -> int:
    """Print the advice that stands in a run folder; nothing is asked."""
    if arguments.source is not None:
        raise UsageError("--run prints what stands in that folder: leave FROM and TO out")
    path = arguments.run / FILE
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise UsageError(f"there is no {path}: conformance port FROM TO --out {arguments.run} writes it") from None
    except ValueError as error:
        raise UsageError(f"{path} is no JSON: {error}") from None
    print("\n".join(lines(told)))
    return CONFORMS


def _first(pattern: str, arguments: argparse.Namespace) -> str:
    """The first of the subjects that are called so; each of the others is a subject of its own."""
    offer = make_offer([pattern], arguments.env, arguments.device)
    if not offer.subjects:
        raise UsageError("; ".join(offer.incomplete) or f"{pattern} cannot run here")
    return next((subject.name for subject in offer.subjects if subject.counted), offer.subjects[0].name)


def _side(sitter: Sitter) -> Side:
    return Side(sitter.subject, pictured(sitter), sitter.records)
