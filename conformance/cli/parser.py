"""What the command line takes. Every command has an example."""

import argparse

from conformance import __version__
from conformance.cli.commands_changes import add_bisect, add_compare, add_import, add_known, add_upgrade
from conformance.cli.commands_judge import add_check, add_port, add_probe, add_run
from conformance.cli.commands_look import (
    add_audit,
    add_completion,
    add_explain,
    add_list,
    add_report,
    add_repro,
    add_schema,
    add_validate,
)
from conformance.cli.words import Parser


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands; each sets `command` to the function that runs it."""
    parser = Parser(
        prog="conformance",
        description="Decide whether attention implementations mean the same thing.",
        epilog="example: conformance run -a 'torch.*' -k 'causal/*'",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.set_defaults(command="first:greet")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    add_run(commands, "run", "judge subjects on cases and write a report")
    add_run(commands, "smoke", "judge the cases tagged smoke: a minute, to see that everything works")
    add_check(commands)
    add_probe(commands)
    add_port(commands)
    add_list(commands)
    add_validate(commands)
    add_audit(commands)
    add_explain(commands)
    add_schema(commands)
    add_report(commands)
    add_repro(commands)
    add_compare(commands)
    add_known(commands)
    add_upgrade(commands)
    add_bisect(commands)
    add_import(commands)
    add_completion(commands)
    return parser
