"""What the commands take that look and judge nothing: list, validate, audit, explain, report, completion and others."""

from pathlib import Path

from conformance.cli import options
from conformance.cli.words import Commands, Parser, command


def add_list(commands: Commands) -> None:
    """Cases and subjects."""
    parser = command(commands, "list", "list cases or adapters", "list adapters")
    kinds = parser.add_subparsers(title="what", metavar="cases|adapters", required=True, parser_class=Parser)
    cases = command(kinds, "cases", "list the ids of all cases", "list cases -k 'causal/*'")
    options.add_paths(cases)
    options.add_cases(cases, "only such ids")
    cases.set_defaults(command="look:list_cases")
    adapters = command(kinds, "adapters", "list subjects, and what is missing for the others", "list adapters")
    adapters.add_argument("--table", action="store_true", help="what every adapter covers, as a Markdown table")
    adapters.set_defaults(command="look:list_adapters")


def add_validate(commands: Commands) -> None:
    """Case files."""
    parser = command(commands, "validate", "check case files and run nothing", "validate cases/masks --strict")
    options.add_paths(parser)
    parser.add_argument("--strict", action="store_true", help="also refuse cases that are equal or of no use")
    parser.set_defaults(command="look:validate")


def add_audit(commands: Commands) -> None:
    """What cases tell apart."""
    parser = command(commands, "audit", "show which deviations the cases tell apart from canonical", "audit cases")
    options.add_paths(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, with every case and its distance")
    told = (
        "say instead whether the cases that are asked by default tell apart all that every case does, for each subject"
    )
    parser.add_argument("--tiers", action="store_true", help=told)
    parser.set_defaults(command="audit:audit")


def add_explain(commands: Commands) -> None:
    """One case."""
    example = "explain 'masks/key_padding/trailing[operator=sdpa]'"
    parser = command(commands, "explain", "show everything that one case asks, and of whom", example)
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a glob that only it matches")
    options.add_case_files(parser)
    options.add_subjects(parser, "only these: a subject, a glob, or the path of an adapter file; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON, with every distance")
    parser.set_defaults(command="explain:explain")


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
    parser.set_defaults(command="look:schema")


def add_report(commands: Commands) -> None:
    """Reports of a run."""
    parser = command(commands, "report", "write the reports of a run folder again", "report reports/latest")
    parser.add_argument("folder", type=Path, metavar="RUN", help="a run folder")
    parser.set_defaults(command="look:report")


def add_repro(commands: Commands) -> None:
    """One cell of a run."""
    example = "repro reports/latest 'masks/key_padding/trailing[operator=sdpa]' numpy.sdpa"
    parser = command(commands, "repro", "write one cell of a run as a script that needs no harness", example)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a glob")
    parser.add_argument("subject", metavar="SUBJECT", help="the name of a subject, or a glob")
    options.add_case_files(parser, "suite files or folders (default: those of the run)")
    options.add_out(parser, "a new folder (default: repro-<case>-<subject>)")
    parser.set_defaults(command="repro:repro")


def add_completion(commands: Commands) -> None:
    """Words that a shell completes."""
    parser = command(commands, "completion", "print the script that lets a shell complete words", "completion bash")
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="its first line says where it goes")
    parser.set_defaults(command="completion:completion")
