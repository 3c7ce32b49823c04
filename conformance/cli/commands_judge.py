"""What the commands take that put cases to subjects: run, smoke, check, probe, port."""

import os
from pathlib import Path

from conformance.cli.options import add_annotations, add_junit, add_probing, add_skip_budget, at_least_one, seconds
from conformance.cli.words import Commands, command


def add_run(commands: Commands, name: str, summary: str) -> None:
    """`run`, or a tag of it."""
    parser = command(commands, name, summary, f"{name} -a 'torch.sdpa[math]' -k 'masks/*' --out reports/mine")
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
        type=at_least_one,
        default=(os.cpu_count() or 1) + 1,
        help="workers alive at once (default: cores + 1)",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="seconds that one call may take (default: 60)"
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
    add_skip_budget(parser)
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out that was cut")
    add_junit(parser)
    add_annotations(parser)
    parser.add_argument("-x", "--stop", action="store_true", help="stop at the first verdict that the gate rejects")
    parser.add_argument("--exit-zero", action="store_true", help="exit with 0 instead of 1: report only")


def add_check(commands: Commands) -> None:
    """A function without an adapter."""
    parser = command(commands, "check", "judge a function of your own", "check mine.py:attention")
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
        "--timeout", type=seconds, default=30.0, metavar="S", help="seconds that one call may take (default: 30)"
    )


def add_probe(commands: Commands) -> None:
    """What subjects mean."""
    parser = command(commands, "probe", "read off replies what subjects mean", "probe -a 'torch.mha*'")
    parser.set_defaults(command="probe:probe")
    parser.add_argument(
        "-a",
        "--subject",
        action="append",
        default=[],
        metavar="SUBJECT",
        help="a subject, a glob (* and ?), or the path of an adapter file; may be repeated",
    )
    add_probing(parser)


def add_port(commands: Commands) -> None:
    """From one subject to another."""
    parser = command(
        commands, "port", "say what to change where calls move to another subject", "port torch.mha 'keras.mha[jax]'"
    )
    parser.set_defaults(command="port:port")
    parser.add_argument("source", nargs="?", metavar="FROM", help="the subject whose calls are to be moved")
    parser.add_argument("target", nargs="?", metavar="TO", help="the subject that they are moved to")
    parser.add_argument("--run", type=Path, metavar="DIR", help="print what such a run found before; nothing is asked")
    add_probing(parser)
