"""What the command line takes. Every command has an example."""

import argparse
import sys
from pathlib import Path

from conformance import __version__
from conformance.cli import options
from conformance.cli.argument_parser import Commands, Parser, command


def add_compare(commands: Commands) -> None:
    """Two runs."""
    parser = command(
        commands,
        "compare",
        "tell what changed between two runs",
        "compare reports/before reports/after --out reports/diff",
    )
    parser.add_argument("base", type=Path, metavar="BASE", help="a run folder, or a baseline file")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run folder that is judged against it")
    options.add_out(parser, "where to write (default: reports/compare-<UTC>-<id>)")
    options.add_skip_budget(parser)
    options.add_junit(parser)
    options.add_annotations(parser)
    options.add_exit_zero(parser)
    parser.set_defaults(command="command_compare:compare")


def add_known(commands: Commands) -> None:
    """Lists of known deviations."""
    parser = command(commands, "known", "see to lists of known deviations", "known update --from reports/latest")
    kinds = parser.add_subparsers(title="what", metavar="update", required=True, parser_class=Parser)
    update = command(
        kinds,
        "update",
        "print the edits that a run suggests, as a diff",
        "known update --from reports/latest mine.yaml",
    )
    update.add_argument("files", nargs="*", type=Path, metavar="FILE", help="lists (default: the packaged one)")
    update.add_argument("--from", dest="run", type=Path, required=True, metavar="RUN", help="a run folder")
    update.set_defaults(command="command_known:update")


def add_upgrade(commands: Commands) -> None:
    """Two sets of versions."""
    parser = command(
        commands, "upgrade", "tell what an upgrade changes in attention", "upgrade keras==3.14.1 keras==3.15.0"
    )
    parser.add_argument(
        "pins",
        nargs="+",
        metavar="NAME==VERSION",
        help="of a name the first is base, the second candidate; one alone against what is installed or locked",
    )
    options.add_repeated(parser, "--both", metavar="NAME==VERSION", told="a pin of both sides; may be repeated")
    options.add_subjects(
        parser, "a subject, a glob, or the path of an adapter file (default: all that require what changes)"
    )
    options.add_cases(parser)
    options.add_thorough(parser)
    options.add_case_files(parser)
    options.add_provisioning(parser)
    options.add_no_cache(parser)
    options.add_skip_budget(parser)
    options.add_known_lists(parser)
    options.add_out(parser, "where to write (default: reports/upgrade-<UTC>-<id>)")
    options.add_junit(parser)
    options.add_annotations(parser)
    options.add_exit_zero(parser)
    parser.set_defaults(command="command_upgrade:upgrade")


def add_bisect(commands: Commands) -> None:
    """The releases of a package."""
    parser = command(
        commands,
        "bisect",
        "find the release that changed what a subject makes of a case",
        "bisect 'combined/attention/boolean_and_causal[operator=sdpa]' 'keras.sdpa[torch]' "
        "--package keras --good 3.15.0 --bad 3.10.0",
    )
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a glob that only it matches")
    parser.add_argument("subject", metavar="SUBJECT", help="a subject; of several that are meant, the first")
    parser.add_argument("--package", required=True, metavar="NAME", help="the distribution whose releases are tried")
    parser.add_argument("--good", required=True, metavar="VERSION", help="a release that is as it should be")
    parser.add_argument("--bad", required=True, metavar="VERSION", help="a release that is not, older or newer")
    options.add_repeated(parser, "--both", metavar="NAME==VERSION", told="a pin beside the package; may be repeated")
    options.add_case_files(parser)
    options.add_provisioning(parser)
    parser.set_defaults(command="command_bisect:bisect_releases")


def add_import(commands: Commands) -> None:
    """Others' test vectors."""
    parser = command(commands, "import", "write the test vectors of others as cases", "import onnx vectors")
    kinds = parser.add_subparsers(title="what", metavar="onnx", required=True, parser_class=Parser)
    onnx = command(kinds, "onnx", "write the Attention tests that ship inside onnx as cases", "import onnx vectors")
    onnx.add_argument("folder", type=Path, metavar="DIR", help="a new folder for the suite and its arrays")
    onnx.add_argument("--python", default=sys.executable, help="an interpreter that has onnx (default: this one)")
    onnx.set_defaults(command="command_import:import_onnx")


def add_run(commands: Commands, name: str, summary: str) -> None:
    """`run`, or a tag of it."""
    parser = command(commands, name, summary, f"{name} -a 'torch.sdpa[math]' -k 'masks/*' --out reports/mine")
    parser.set_defaults(command="command_run:run", tag="smoke" if name == "smoke" else None)
    options.add_paths(parser, "suite files or folders (default: the packaged cases)")
    options.add_subjects(parser)
    options.add_cases(parser)
    options.add_thorough(parser)
    options.add_repeated(
        parser,
        "--env",
        metavar="NAME=PYTHON",
        told="judge in another interpreter as well; it needs NumPy and the framework, nothing of ours",
    )
    options.add_workers(parser)
    options.add_no_cache(parser)
    options.add_out(parser)
    options.add_known_lists(parser, "more known deviations, beside the packaged ones")
    options.add_baseline(parser)
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out that was cut")
    options.add_junit(parser)
    options.add_annotations(parser)
    parser.add_argument("-x", "--stop", action="store_true", help="stop at the first verdict that the gate rejects")
    options.add_exit_zero(parser)
    options.add_choosing(parser, "only the subjects and cases of verdicts that reports/latest rejected")
    options.add_showing(parser)


def add_check(commands: Commands) -> None:
    """A function without an adapter."""
    parser = command(commands, "check", "judge a function of your own", "check mine.py:attention")
    parser.set_defaults(command="command_check:preflight_check")
    parser.add_argument(
        "target", nargs="?", metavar="FILE:FUNCTION", help="a function at the top level of a file (docs/check.md)"
    )
    parser.add_argument(
        "--as", dest="like", metavar="SUBJECT", help="it is a drop-in for this subject, such as torch.sdpa"
    )
    parser.add_argument("--operator", choices=("sdpa", "mha"), help="what it computes (default: from its signature)")
    parser.add_argument(
        "--framework", choices=("numpy", "torch", "jax"), help="whose arrays it takes (default: found out)"
    )
    parser.add_argument(
        "--layout",
        choices=("bhsd", "bshd", "sbhd", "bsd", "thd"),
        help="the order of its axes: batch, heads, sequence, dimension; bsd: without heads, thd: without batch "
        "(default: found out)",
    )
    parser.add_argument(
        "--map",
        dest="mapping",
        action="append",
        default=[],
        metavar="ARGUMENT=ROLE",
        help="what an argument is, such as allowed=mask; may be repeated",
    )
    parser.add_argument(
        "--dtype",
        action="append",
        default=[],
        choices=("float64", "float32", "float16", "bfloat16"),
        help="judge only in this dtype; may be repeated",
    )
    parser.add_argument(
        "--profile", metavar="P", help="its arithmetic, such as tf32 (default: calibrated on plain cases)"
    )
    options.add_repeated(
        parser,
        "--declare",
        metavar="DECISION=NAME",
        told="a decision that it takes on purpose, such as fully_masked_row=nan; may be repeated",
    )
    parser.add_argument(
        "--example",
        nargs="?",
        const="sdpa",
        choices=("sdpa", "mha"),
        help="write a function with a mistake in it into this folder, to try the command on",
    )
    options.add_out(parser)
    options.add_cases(parser)
    options.add_jobs(parser, 1, "processes that share the cases, for a function that is slow (default: 1)")
    options.add_timeout(parser, 30)
    parser.add_argument(
        "--min-judged",
        type=options.percentage,
        default=0.5,
        metavar="PERCENT",
        help="the least part of the cases that is to be judged: fewer is incomplete (default: 50)",
    )
    parser.add_argument("-x", "--stop", action="store_true", help="stop at the first verdict that is rejected")
    options.add_showing(parser)
    options.add_baseline(parser)
    options.add_junit(parser)
    options.add_annotations(parser)
    options.add_exit_zero(parser)


def add_probe(commands: Commands) -> None:
    """What subjects mean."""
    parser = command(commands, "probe", "read off replies what subjects mean", "probe -a 'torch.mha*'")
    parser.set_defaults(command="command_probe:probe")
    options.add_subjects(parser)
    options.add_choosing(parser, "only the subjects of verdicts that reports/latest rejected")
    options.add_probing(parser)


def add_port(commands: Commands) -> None:
    """From one subject to another."""
    parser = command(
        commands, "port", "say what to change where calls move to another subject", "port torch.mha 'keras.mha[jax]'"
    )
    parser.set_defaults(command="command_port:port")
    parser.add_argument("source", nargs="?", metavar="FROM", help="the subject whose calls are to be moved")
    parser.add_argument("target", nargs="?", metavar="TO", help="the subject that they are moved to")
    parser.add_argument("--run", type=Path, metavar="DIR", help="print what such a run found before; nothing is asked")
    parser.add_argument(
        "--code",
        action="store_true",
        help="print a program for each side that makes the same call; with --out DIR, write before.py and after.py",
    )
    options.add_probing(parser)


def add_list(commands: Commands) -> None:
    """Cases and subjects."""
    parser = command(commands, "list", "list cases or adapters", "list adapters")
    kinds = parser.add_subparsers(title="what", metavar="cases|adapters", required=True, parser_class=Parser)
    cases = command(kinds, "cases", "list the ids of all cases", "list cases -k 'causal/*'")
    options.add_paths(cases)
    options.add_cases(cases, "only such ids")
    cases.set_defaults(command="read_only_commands:list_cases")
    adapters = command(kinds, "adapters", "list subjects, and what is missing for the others", "list adapters")
    adapters.add_argument("--table", action="store_true", help="what every adapter covers, as a Markdown table")
    adapters.set_defaults(command="read_only_commands:list_adapters")


def add_validate(commands: Commands) -> None:
    """Case files."""
    parser = command(commands, "validate", "check case files and run nothing", "validate cases/masks --strict")
    options.add_paths(parser)
    parser.add_argument("--strict", action="store_true", help="also refuse cases that are equal or of no use")
    parser.set_defaults(command="read_only_commands:validate")


def add_audit(commands: Commands) -> None:
    """What cases tell apart."""
    parser = command(commands, "audit", "show which deviations the cases tell apart from canonical", "audit cases")
    options.add_paths(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, with every case and its distance")
    told = (
        "say instead whether the cases that are asked by default tell apart all that every case does, for each subject"
    )
    parser.add_argument("--tiers", action="store_true", help=told)
    parser.set_defaults(command="command_audit:audit")


def add_explain(commands: Commands) -> None:
    """One case."""
    example = "explain 'masks/key_padding/trailing[operator=sdpa]'"
    parser = command(commands, "explain", "show everything that one case asks, and of whom", example)
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a glob that only it matches")
    options.add_case_files(parser)
    options.add_subjects(parser, "only these: a subject, a glob, or the path of an adapter file; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON, with every distance")
    parser.set_defaults(command="read_only_commands:explain")


def add_schema(commands: Commands) -> None:
    """File formats."""
    parser = command(commands, "schema", "print the JSON Schema of a file format", "schema > cases/case.schema.json")
    parser.add_argument(
        "format",
        nargs="?",
        default="cases",
        choices=("cases", "verdict", "comparison", "baseline"),
        help="case files, verdict.json, comparison.json or baselines (default: cases)",
    )
    parser.set_defaults(command="read_only_commands:schema")


def add_report(commands: Commands) -> None:
    """Reports of a run."""
    parser = command(commands, "report", "write the reports of a run folder again", "report reports/latest")
    parser.add_argument("folder", type=Path, metavar="RUN", help="a run folder")
    parser.set_defaults(command="read_only_commands:report")


def add_repro(commands: Commands) -> None:
    """One cell of a run."""
    example = "repro reports/latest 'masks/key_padding/trailing[operator=sdpa]' numpy.sdpa"
    parser = command(commands, "repro", "write one cell of a run as a script that needs no harness", example)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a glob")
    parser.add_argument("subject", metavar="SUBJECT", help="the name of a subject, or a glob")
    options.add_case_files(parser, "suite files or folders (default: those of the run)")
    options.add_out(parser, "a new folder (default: repro-<case>-<subject>)")
    parser.set_defaults(command="command_repro:repro")


def add_completion(commands: Commands) -> None:
    """Words that a shell completes."""
    parser = command(commands, "completion", "print the script that lets a shell complete words", "completion bash")
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="its first line says where it goes")
    parser.set_defaults(command="command_completion:completion")


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of all commands; each sets `command` to the function that runs it."""
    parser = Parser(
        prog="conformance",
        description="Decide whether attention implementations mean the same thing.",
        epilog="example: conformance run -a 'torch.*' -k 'causal/*'",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.set_defaults(command="read_only_commands:greet")
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
