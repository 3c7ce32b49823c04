"""The argument parsers of all commands; each command has an example."""

import argparse
import sys
from pathlib import Path

from conformance import __version__
from conformance.cli import options
from conformance.cli.argument_parser import Commands, Parser, command


def add_compare(commands: Commands) -> None:
    """Add `compare`."""
    parser = command(
        commands,
        "compare",
        "compare two runs and show what changed",
        "compare reports/before reports/after --out reports/diff",
    )
    parser.add_argument("base", type=Path, metavar="BASE", help="a run folder, or a baseline file")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run folder to compare with BASE")
    options.add_out(parser, "the output folder (default: reports/compare-<UTC>-<id>)")
    options.add_skip_budget(parser)
    options.add_junit(parser)
    options.add_annotations(parser)
    options.add_exit_zero(parser)
    parser.set_defaults(command="command_compare:compare")


def add_known(commands: Commands) -> None:
    """Add `known update`."""
    parser = command(commands, "known", "maintain lists of known deviations", "known update --from reports/latest")
    kinds = parser.add_subparsers(title="what", metavar="update", required=True, parser_class=Parser)
    update = command(
        kinds,
        "update",
        "print the edits that a run suggests, as a diff",
        "known update --from reports/latest mine.yaml",
    )
    update.add_argument("files", nargs="*", type=Path, metavar="FILE", help="the lists (default: the packaged one)")
    update.add_argument("--from", dest="run", type=Path, required=True, metavar="RUN", help="a run folder")
    update.set_defaults(command="command_known:update")


def add_upgrade(commands: Commands) -> None:
    """Add `upgrade`."""
    parser = command(
        commands, "upgrade", "show what an upgrade changes in attention", "upgrade keras==3.14.1 keras==3.15.0"
    )
    parser.add_argument(
        "pins",
        nargs="+",
        metavar="NAME==VERSION",
        help="the base version and the candidate version of a package; "
        "a single version is compared with the installed or locked one",
    )
    options.add_repeated(
        parser, "--both", metavar="NAME==VERSION", help_text="a version to use on both sides; may be repeated"
    )
    options.add_subjects(
        parser,
        "a subject, a glob, or the path of an adapter file; may be repeated "
        "(default: all subjects that require a changed package)",
    )
    options.add_cases(parser)
    options.add_thorough(parser)
    options.add_case_files(parser)
    options.add_provisioning(parser)
    options.add_no_cache(parser)
    options.add_skip_budget(parser)
    options.add_known_lists(parser)
    options.add_out(parser, "the output folder (default: reports/upgrade-<UTC>-<id>)")
    options.add_junit(parser)
    options.add_annotations(parser)
    options.add_exit_zero(parser)
    parser.set_defaults(command="command_upgrade:upgrade")


def add_bisect(commands: Commands) -> None:
    """Add `bisect`."""
    parser = command(
        commands,
        "bisect",
        "find the package release that changed the result of a case",
        "bisect 'combined/attention/boolean_and_causal[operator=sdpa]' 'keras.sdpa[torch]' "
        "--package keras --good 3.15.0 --bad 3.10.0",
    )
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a glob that matches only one case")
    parser.add_argument(
        "subject", metavar="SUBJECT", help="a subject; if several match, the first that both releases can run"
    )
    parser.add_argument("--package", required=True, metavar="NAME", help="the package whose releases are tried")
    parser.add_argument("--good", required=True, metavar="VERSION", help="a release with the right result")
    parser.add_argument(
        "--bad", required=True, metavar="VERSION", help="a release with the wrong result, older or newer than --good"
    )
    options.add_repeated(
        parser,
        "--both",
        metavar="NAME==VERSION",
        help_text="a version of another package, used with every release; may be repeated",
    )
    options.add_case_files(parser)
    options.add_provisioning(parser)
    parser.set_defaults(command="command_bisect:bisect_releases")


def add_import(commands: Commands) -> None:
    """Add `import onnx`."""
    parser = command(commands, "import", "import test vectors of other projects as cases", "import onnx vectors")
    kinds = parser.add_subparsers(title="what", metavar="onnx", required=True, parser_class=Parser)
    onnx = command(kinds, "onnx", "import the Attention tests of the onnx package as cases", "import onnx vectors")
    onnx.add_argument("folder", type=Path, metavar="DIR", help="a new folder for the suite and its arrays")
    onnx.add_argument("--python", default=sys.executable, help="an interpreter with onnx installed (default: this one)")
    onnx.set_defaults(command="command_import:import_onnx")


def add_run(commands: Commands, name: str, summary: str) -> None:
    """Add `run`, or `smoke`, which is `run` with a tag."""
    parser = command(commands, name, summary, f"{name} -a 'torch.sdpa[math]' -k 'masks/*' --out reports/mine")
    parser.set_defaults(command="command_run:run", tag="smoke" if name == "smoke" else None)
    options.add_paths(parser, "case files or folders (default: the packaged cases)")
    options.add_subjects(parser)
    options.add_cases(parser)
    options.add_thorough(parser)
    options.add_repeated(
        parser,
        "--env",
        metavar="NAME=PYTHON",
        help_text="also judge in another environment: a name of your choice, and the path of its interpreter; it "
        "needs NumPy and the framework, but not conformance; may be repeated",
    )
    options.add_workers(parser)
    options.add_no_cache(parser)
    options.add_out(parser)
    options.add_known_lists(parser)
    options.add_baseline(parser)
    parser.add_argument("--resume", action="store_true", help="continue the interrupted run in --out")
    options.add_junit(parser)
    options.add_annotations(parser)
    parser.add_argument("-x", "--stop", action="store_true", help="stop at the first rejected verdict")
    options.add_exit_zero(parser)
    options.add_choosing(parser, "only the subjects and cases that reports/latest rejected")
    options.add_showing(parser)


def add_check(commands: Commands) -> None:
    """Add `check`."""
    parser = command(commands, "check", "judge a function of your own", "check mine.py:attention")
    parser.set_defaults(command="command_check:inspect_and_judge")
    parser.add_argument(
        "target",
        nargs="?",
        metavar="FILE:FUNCTION",
        help="a function or a layer class at the top level of a file, or of an importable module, such as "
        "torch.nn:MultiheadAttention (docs/check.md)",
    )
    parser.add_argument(
        "--as",
        dest="like",
        metavar="SUBJECT",
        help="check it as a drop-in replacement for this subject, such as torch.sdpa",
    )
    parser.add_argument(
        "--operator", choices=("sdpa", "mha"), help="what the function computes (default: read from its signature)"
    )
    parser.add_argument(
        "--framework", choices=("numpy", "torch", "jax"), help="the arrays that it takes (default: detected)"
    )
    parser.add_argument(
        "--layout",
        choices=("bhsd", "bshd", "sbhd", "bsd", "thd", "sd"),
        help="the order of its axes: b batch, h heads, s or t sequence, d dimension; bsd has no head axis, "
        "thd no batch axis, sd neither (default: detected)",
    )
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="the device of its arrays (default: that of the parameters of a module, else cpu)",
    )
    parser.add_argument(
        "--map",
        dest="mapping",
        action="append",
        default=[],
        metavar="ARGUMENT=ROLE",
        help="the role of an argument, such as my_mask=mask for a mask called my_mask, or slopes=default for one "
        "that keeps its default; docs/check.md lists the roles; may be repeated",
    )
    parser.add_argument(
        "--exclusive",
        metavar="ARGUMENT,ARGUMENT",
        help="arguments for masks of which a call may have only one, such as attn_mask,is_causal; several masks are "
        "then merged into one argument",
    )
    options.add_repeated(
        parser,
        "--declines",
        metavar="TEXT",
        help_text="a text of the exception with which the function refuses calls that it is documented not to take, "
        "such as 'float16 only'; the exception is accepted; may be repeated",
    )
    parser.add_argument(
        "--head-dim",
        dest="head_dims",
        type=int,
        action="append",
        default=[],
        metavar="N",
        help="a head_dim that the function takes (default: any, or detected); may be repeated",
    )
    parser.add_argument(
        "--seq-len-multiple",
        type=int,
        default=1,
        metavar="N",
        help="the function takes only multiples of N as seq_len_q and seq_len_k (default: 1, or detected)",
    )
    parser.add_argument(
        "--dtype",
        action="append",
        default=[],
        choices=("float64", "float32", "float16", "bfloat16"),
        help="judge only in this dtype; may be repeated",
    )
    parser.add_argument(
        "--profile",
        metavar="P",
        help="the profile of its arithmetic: naive, fused, stepwise, tf32, ... (default: measured on simple cases)",
    )
    options.add_repeated(
        parser,
        "--declare",
        metavar="DECISION=NAME",
        help_text="a behaviour that you intend and that the tool then requires, such as fully_masked_row=nan; "
        "may be repeated",
    )
    parser.add_argument(
        "--example",
        nargs="?",
        const="sdpa",
        choices=("sdpa", "mha"),
        help="write an example function with a mistake into this folder, to try the command",
    )
    options.add_out(parser)
    options.add_cases(parser)
    options.add_case_files(
        parser, "your own case files or folders, judged instead of the packaged cases; may be repeated"
    )
    options.add_jobs(parser, 1, "number of processes that share the cases; helps if the function is slow (default: 1)")
    options.add_timeout(parser, 30)
    parser.add_argument(
        "--min-judged",
        type=options.percentage,
        default=0.5,
        metavar="PERCENT",
        help="the minimum share of the cases that must be judged; otherwise the check is incomplete (default: 50)",
    )
    parser.add_argument("-x", "--stop", action="store_true", help="stop at the first rejected verdict")
    options.add_showing(parser)
    options.add_baseline(parser)
    options.add_junit(parser)
    options.add_annotations(parser)
    options.add_exit_zero(parser)


def add_probe(commands: Commands) -> None:
    """Add `probe`."""
    parser = command(
        commands,
        "probe",
        "find out from their replies what subjects do, and show it next to what they declare",
        "probe -a 'torch.mha*'",
    )
    parser.set_defaults(command="command_probe:probe")
    options.add_subjects(parser)
    options.add_choosing(parser, "only the subjects that reports/latest rejected")
    options.add_probing(parser)


def add_port(commands: Commands) -> None:
    """Add `port`."""
    parser = command(
        commands,
        "port",
        "show what to change when you replace one implementation by another",
        "port torch.mha 'keras.mha[jax]'",
    )
    parser.set_defaults(command="command_port:port")
    parser.add_argument("source", nargs="?", metavar="FROM", help="the subject that is called now")
    parser.add_argument("target", nargs="?", metavar="TO", help="the subject to call instead")
    parser.add_argument(
        "--run", type=Path, metavar="DIR", help="print the advice in the folder of an earlier port, and call nothing"
    )
    parser.add_argument(
        "--code",
        action="store_true",
        help="print two programs that make the same call, one for each subject; with --out DIR, write before.py "
        "and after.py",
    )
    options.add_probing(parser)


def add_list(commands: Commands) -> None:
    """Add `list cases` and `list adapters`."""
    parser = command(commands, "list", "list cases or adapters", "list adapters")
    kinds = parser.add_subparsers(title="what", metavar="cases|adapters", required=True, parser_class=Parser)
    cases = command(kinds, "cases", "list the ids of all cases", "list cases -k 'causal/*'")
    options.add_paths(cases)
    options.add_cases(cases, "only ids that match; may be repeated")
    cases.set_defaults(command="read_only_commands:list_cases")
    adapters = command(kinds, "adapters", "list the available subjects, and what the others need", "list adapters")
    adapters.add_argument("--table", action="store_true", help="print a Markdown table of what every adapter covers")
    adapters.set_defaults(command="read_only_commands:list_adapters")


def add_validate(commands: Commands) -> None:
    """Add `validate`."""
    parser = command(commands, "validate", "check case files without running them", "validate cases/masks --strict")
    options.add_paths(parser)
    parser.add_argument(
        "--strict",
        action="store_true",
        help="also refuse duplicate cases, cases that detect nothing, and invalid calls without a valid counterpart",
    )
    parser.set_defaults(command="read_only_commands:validate")


def add_audit(commands: Commands) -> None:
    """Add `audit`."""
    parser = command(commands, "audit", "show which deviations the cases detect", "audit cases")
    options.add_paths(parser)
    parser.add_argument(
        "--json", action="store_true", help="print JSON, with every case and the size of its change in bounds"
    )
    help_text = "check instead, for each subject, that a plain run detects each deviation that all cases detect"
    parser.add_argument("--tiers", action="store_true", help=help_text)
    parser.set_defaults(command="command_audit:audit")


def add_explain(commands: Commands) -> None:
    """Add `explain`."""
    example = "explain 'masks/key_padding/trailing[operator=sdpa]'"
    parser = command(commands, "explain", "show the call of one case, and which subjects can make it", example)
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a glob that matches only one case")
    options.add_case_files(parser)
    options.add_subjects(parser, "only these subjects: a name, a glob, or the path of an adapter file; may be repeated")
    parser.add_argument("--json", action="store_true", help="print JSON, with the size of every change in bounds")
    parser.set_defaults(command="read_only_commands:explain")


def add_schema(commands: Commands) -> None:
    """Add `schema`."""
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
    """Add `report`."""
    parser = command(commands, "report", "write the reports of a run folder again", "report reports/latest")
    parser.add_argument("folder", type=Path, metavar="RUN", help="a run folder")
    parser.set_defaults(command="read_only_commands:report")


def add_repro(commands: Commands) -> None:
    """Add `repro`."""
    example = "repro reports/latest 'masks/key_padding/trailing[operator=sdpa]' numpy.sdpa"
    parser = command(commands, "repro", "write one call of a run as a script that runs without conformance", example)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("case", metavar="CASE", help="the id of a case, or a glob")
    parser.add_argument("subject", metavar="SUBJECT", help="the name of a subject, or a glob")
    options.add_case_files(parser, "case files or folders (default: those of the run)")
    options.add_out(parser, "a new folder (default: repro-<case>-<subject>)")
    parser.set_defaults(command="command_repro:repro")


def add_completion(commands: Commands) -> None:
    """Add `completion`."""
    parser = command(commands, "completion", "print a script for command-line completion", "completion bash")
    parser.add_argument(
        "shell", choices=("bash", "zsh", "fish"), help="the shell; the first line of the script says where to put it"
    )
    parser.set_defaults(command="command_completion:completion")


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of all commands; each command sets `command` to `module:function`."""
    parser = Parser(
        prog="conformance",
        description="Decide whether attention implementations mean the same thing. "
        "A subject is one implementation; a case is one attention call.",
        epilog="example: conformance run -a 'torch.*' -k 'causal/*'",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.set_defaults(command="read_only_commands:greet")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=Parser)
    add_run(commands, "run", "judge subjects on cases and write a report")
    add_run(commands, "smoke", "judge the cases tagged smoke: a quick test of about a minute")
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
