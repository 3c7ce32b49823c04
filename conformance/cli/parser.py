"""What the command line takes. Every command has an example."""

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from conformance import __version__
from conformance.gate.decide import USAGE


class Parser(argparse.ArgumentParser):
    """argparse with our exit code for wrong usage."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, how the command is used, and exit with 4."""
        self.print_usage(sys.stderr)
        print(f"{self.prog}: {message}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(USAGE)


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands; each sets `command` to the function that runs it."""
    parser = Parser(
        prog="conformance",
        description="Decide whether attention implementations mean the same thing.",
        epilog="example: conformance run -a 'torch.*' -k 'causal/*'",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=Parser)
    _add_run(commands, "run", "judge subjects on cases and write a report")
    _add_run(commands, "smoke", "judge the cases tagged smoke: a minute, to see that everything works")
    _add_check(commands)
    _add_probe(commands)
    _add_port(commands)
    _add_list(commands)
    _add_validate(commands)
    _add_audit(commands)
    _add_schema(commands)
    _add_report(commands)
    _add_compare(commands)
    _add_known(commands)
    _add_upgrade(commands)
    _add_bisect(commands)
    _add_import(commands)
    return parser


def _command(commands: "argparse._SubParsersAction[Parser]", name: str, summary: str, example: str) -> Parser:
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example: conformance {example}",
        allow_abbrev=False,
    )


def _add_run(commands: "argparse._SubParsersAction[Parser]", name: str, summary: str) -> None:
    parser = _command(commands, name, summary, f"{name} -a 'torch.sdpa[math]' -k 'masks/*' --out reports/mine")
    parser.set_defaults(command="run:run", tag="smoke" if name == "smoke" else None)
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="CASE_PATH", help="suite files or folders (default: the packaged cases)"
    )
    parser.add_argument(
        "-a",
        "--subject",
        action="append",
        default=[],
        metavar="SUBJECT",
        help="a subject, a glob (* and ?), or the path of an adapter file; may be repeated",
    )
    parser.add_argument(
        "-k", "--case", action="append", default=[], metavar="GLOB", help="only cases with such ids; may be repeated"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help="judge in another interpreter as well; it needs NumPy and the framework, nothing of ours",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
    parser.add_argument(
        "-j",
        "--jobs",
        type=_at_least_one,
        default=(os.cpu_count() or 1) + 1,
        help="workers alive at once (default: cores + 1)",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="seconds that one call may take (default: 60)"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: reports/<UTC>-<id>)")
    parser.add_argument(
        "--known",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="more known deviations, beside the packaged ones",
    )
    parser.add_argument("--baseline", type=Path, metavar="FILE", help="reject what changed against this file")
    parser.add_argument("--update-baseline", action="store_true", help="write what this run shows into the baseline")
    _add_skip_budget(parser)
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out that was cut")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML here")
    _add_annotations(parser)
    parser.add_argument("-x", "--stop", action="store_true", help="stop at the first verdict that the gate rejects")
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 instead of 1: report only")


def _add_check(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(commands, "check", "judge a function of your own", "check mine.py:attention")
    parser.set_defaults(command="check:check")
    parser.add_argument(
        "target", nargs="?", metavar="FILE:FUNCTION", help="a function at the top level of a file (docs/check.md)"
    )
    parser.add_argument(
        "--as", dest="like", metavar="SUBJECT", help="it is a drop-in for this subject, such as torch.sdpa"
    )
    parser.add_argument("--operator", choices=("sdpa", "mha"), help="what it computes (default: from its signature)")
    parser.add_argument(
        "--profile", metavar="P", help="its arithmetic, such as tf32 (default: calibrated on plain cases)"
    )
    parser.add_argument(
        "--declare",
        action="append",
        default=[],
        metavar="DECISION=NAME",
        help="a decision that it takes on purpose, such as fully_masked_row=nan; may be repeated",
    )
    parser.add_argument(
        "--example",
        nargs="?",
        const="sdpa",
        choices=("sdpa", "mha"),
        help="write a function with a mistake in it into this folder, to try the command on",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: reports/<UTC>-<id>)")
    parser.add_argument(
        "-k", "--case", action="append", default=[], metavar="GLOB", help="only cases with such ids; may be repeated"
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=30.0, metavar="S", help="seconds that one call may take (default: 30)"
    )


def _add_probe(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(commands, "probe", "read off replies what subjects mean", "probe -a 'torch.mha*'")
    parser.set_defaults(command="probe:probe")
    parser.add_argument(
        "-a",
        "--subject",
        action="append",
        default=[],
        metavar="SUBJECT",
        help="a subject, a glob (* and ?), or the path of an adapter file; may be repeated",
    )
    _add_probing(parser)


def _add_port(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(
        commands, "port", "say what to change where calls move to another subject", "port torch.mha 'keras.mha[jax]'"
    )
    parser.set_defaults(command="port:port")
    parser.add_argument("source", nargs="?", metavar="FROM", help="the subject whose calls are to be moved")
    parser.add_argument("target", nargs="?", metavar="TO", help="the subject that they are moved to")
    parser.add_argument("--run", type=Path, metavar="DIR", help="print what such a run found before; nothing is asked")
    _add_probing(parser)


def _add_probing(parser: Parser) -> None:
    """Options of the commands that ask subjects for their dialect."""
    parser.set_defaults(paths=[], case=[], resume=False)
    parser.add_argument("--env", action="append", default=[], metavar="NAME=PYTHON", help="in another interpreter too")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
    parser.add_argument(
        "-j",
        "--jobs",
        type=_at_least_one,
        default=(os.cpu_count() or 1) + 1,
        help="workers alive at once (default: cores + 1)",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="seconds that one call may take (default: 60)"
    )
    parser.add_argument("--known", type=Path, action="append", default=[], metavar="FILE", help="more known deviations")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was found here, as JSON")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run folder (default: reports/<UTC>-<id>)")


def _add_list(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(commands, "list", "list cases or adapters", "list adapters")
    kinds = parser.add_subparsers(title="what", metavar="WHAT", required=True, parser_class=Parser)
    cases = _command(kinds, "cases", "list the ids of all cases", "list cases -k 'causal/*'")
    cases.add_argument("paths", nargs="*", type=Path, metavar="CASE_PATH", help="suite files or folders")
    cases.add_argument("-k", "--case", action="append", default=[], metavar="GLOB", help="only such ids")
    cases.set_defaults(command="look:list_cases")
    adapters = _command(kinds, "adapters", "list subjects, and what is missing for the others", "list adapters")
    adapters.add_argument("--table", action="store_true", help="what every adapter covers, as a Markdown table")
    adapters.set_defaults(command="look:list_adapters")


def _add_validate(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(commands, "validate", "check case files and run nothing", "validate cases/masks --strict")
    parser.add_argument("paths", nargs="*", type=Path, metavar="CASE_PATH", help="suite files or folders")
    parser.add_argument("--strict", action="store_true", help="also refuse cases that are equal or of no use")
    parser.set_defaults(command="look:validate")


def _add_audit(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(commands, "audit", "show which variations the cases tell apart from canonical", "audit cases")
    parser.add_argument("paths", nargs="*", type=Path, metavar="CASE_PATH", help="suite files or folders")
    parser.add_argument("--json", action="store_true", help="print JSON, with every case and its distance")
    parser.set_defaults(command="audit:audit")


def _add_schema(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(commands, "schema", "print the JSON Schema of a file format", "schema > cases/case.schema.json")
    parser.add_argument(
        "format",
        nargs="?",
        default="cases",
        choices=("cases", "verdict", "comparison", "baseline"),
        help="case files, verdict.json, comparison.json or baselines (default: cases)",
    )
    parser.set_defaults(command="look:schema")


def _add_report(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(commands, "report", "write the reports of a run folder again", "report reports/latest")
    parser.add_argument("folder", type=Path, metavar="RUN", help="a run folder")
    parser.set_defaults(command="look:report")


def _add_compare(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(
        commands,
        "compare",
        "tell what changed between two runs",
        "compare reports/before reports/after --out reports/diff",
    )
    parser.add_argument("base", type=Path, metavar="BASE", help="a run folder, or a baseline file")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run folder that is judged against it")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: reports/compare-<UTC>-<id>)")
    _add_skip_budget(parser)
    _add_annotations(parser)
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 instead of 1: report only")
    parser.set_defaults(command="compare:compare")


def _add_known(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(commands, "known", "see to lists of known deviations", "known update --from reports/latest")
    kinds = parser.add_subparsers(title="what", metavar="WHAT", required=True, parser_class=Parser)
    update = _command(
        kinds,
        "update",
        "print the edits that a run suggests, as a diff",
        "known update --from reports/latest mine.yaml",
    )
    update.add_argument("files", nargs="*", type=Path, metavar="FILE", help="lists (default: the packaged one)")
    update.add_argument("--from", dest="run", type=Path, required=True, metavar="RUN", help="a run folder")
    update.set_defaults(command="known:update")


def _add_annotations(parser: Parser) -> None:
    parser.add_argument("--annotations", choices=("github",), help="also print what is rejected as workflow commands")


def _add_skip_budget(parser: Parser) -> None:
    parser.add_argument(
        "--skip-budget", type=_at_least_none, default=0, metavar="N", help="cells that may lose support (default: 0)"
    )


def _add_upgrade(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(
        commands, "upgrade", "tell what an upgrade changes in attention", "upgrade keras==3.14.1 keras==3.15.0"
    )
    parser.add_argument(
        "pins",
        nargs="+",
        metavar="NAME==VERSION",
        help="of a name the first is base, the second candidate; one alone against what is installed or locked",
    )
    parser.add_argument(
        "--both", action="append", default=[], metavar="NAME==VERSION", help="a pin of both sides; may be repeated"
    )
    parser.add_argument(
        "-a",
        "--subject",
        action="append",
        default=[],
        metavar="SUBJECT",
        help="a subject, a glob, or the path of an adapter file (default: all that require what changes)",
    )
    parser.add_argument(
        "-k", "--case", action="append", default=[], metavar="GLOB", help="only cases with such ids; may be repeated"
    )
    parser.add_argument(
        "--cases", action="append", default=[], type=Path, metavar="CASE_PATH", help="suite files or folders"
    )
    _add_provisioning(parser)
    parser.add_argument(
        "--skip-budget", type=_at_least_none, default=0, metavar="N", help="cells that may lose support (default: 0)"
    )
    parser.add_argument("--known", type=Path, action="append", default=[], metavar="FILE", help="more known deviations")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where to write (default: reports/upgrade-<UTC>-<id>)")
    _add_annotations(parser)
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 instead of 1: report only")
    parser.set_defaults(command="upgrade:upgrade")


def _add_bisect(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(
        commands,
        "bisect",
        "find the release that changed what a subject makes of a case",
        "bisect 'combined/causal_and_mask*' 'keras.sdpa[torch]' --package keras --good 3.15.0 --bad 3.14.1",
    )
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a glob that only it matches")
    parser.add_argument("subject", metavar="SUBJECT", help="a subject; of several that are meant, the first")
    parser.add_argument("--package", required=True, metavar="NAME", help="the distribution whose releases are tried")
    parser.add_argument("--good", required=True, metavar="VERSION", help="a release that is as it should be")
    parser.add_argument("--bad", required=True, metavar="VERSION", help="a release that is not, older or newer")
    parser.add_argument(
        "--both", action="append", default=[], metavar="NAME==VERSION", help="a pin beside the package; may be repeated"
    )
    parser.add_argument(
        "--cases", action="append", default=[], type=Path, metavar="CASE_PATH", help="suite files or folders"
    )
    _add_provisioning(parser)
    parser.set_defaults(command="bisect:bisect_releases")


def _add_provisioning(parser: Parser) -> None:
    """Options of the commands that make environments and judge in them."""
    parser.add_argument(
        "--constraint", type=Path, metavar="FILE", help="versions of all else (default: those that are installed)"
    )
    parser.add_argument(
        "--python", metavar="PYTHON", help="makes the environments, and has what counts as installed (default: ours)"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
    parser.add_argument(
        "-j",
        "--jobs",
        type=_at_least_one,
        default=(os.cpu_count() or 1) + 1,
        help="workers alive at once (default: cores + 1)",
    )
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="seconds that one call may take (default: 60)"
    )


def _at_least_none(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is less than none")
    return number


def _add_import(commands: "argparse._SubParsersAction[Parser]") -> None:
    parser = _command(commands, "import", "write the test vectors of others as cases", "import onnx vectors")
    kinds = parser.add_subparsers(title="what", metavar="WHAT", required=True, parser_class=Parser)
    onnx = _command(kinds, "onnx", "write the Attention tests that ship inside onnx as cases", "import onnx vectors")
    onnx.add_argument("folder", type=Path, metavar="DIR", help="a new folder for the suite and its arrays")
    onnx.add_argument("--python", default=sys.executable, help="an interpreter that has onnx (default: this one)")
    onnx.set_defaults(command="importing:import_onnx")


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than one")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no positive number of seconds")
    return number
