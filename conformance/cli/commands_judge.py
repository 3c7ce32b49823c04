"""What the commands take that put cases to subjects: run, smoke, check, probe, port."""

from pathlib import Path

from conformance.cli import options
from conformance.cli.words import Commands, command


def add_run(commands: Commands, name: str, summary: str) -> None:
    """`run`, or a tag of it."""
    parser = command(commands, name, summary, f"{name} -a 'torch.sdpa[math]' -k 'masks/*' --out reports/mine")
    parser.set_defaults(command="run:run", tag="smoke" if name == "smoke" else None)
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
    parser.set_defaults(command="preflight:check")
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
    parser.set_defaults(command="probe:probe")
    options.add_subjects(parser)
    options.add_choosing(parser, "only the subjects of verdicts that reports/latest rejected")
    options.add_probing(parser)


def add_port(commands: Commands) -> None:
    """From one subject to another."""
    parser = command(
        commands, "port", "say what to change where calls move to another subject", "port torch.mha 'keras.mha[jax]'"
    )
    parser.set_defaults(command="port:port")
    parser.add_argument("source", nargs="?", metavar="FROM", help="the subject whose calls are to be moved")
    parser.add_argument("target", nargs="?", metavar="TO", help="the subject that they are moved to")
    parser.add_argument("--run", type=Path, metavar="DIR", help="print what such a run found before; nothing is asked")
    parser.add_argument(
        "--code",
        action="store_true",
        help="print a program for each side that makes the same call; with --out DIR, write before.py and after.py",
    )
    options.add_probing(parser)
