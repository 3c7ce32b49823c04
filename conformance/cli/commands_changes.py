"""What the commands take that are about changes and lists: compare, known, upgrade, bisect, import."""

import sys
from pathlib import Path

from conformance.cli import options
from conformance.cli.words import Commands, Parser, command


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
    parser.set_defaults(command="compare:compare")


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
    update.set_defaults(command="known:update")


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
    parser.set_defaults(command="upgrade:upgrade")


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
    parser.set_defaults(command="bisect:bisect_releases")


def add_import(commands: Commands) -> None:
    """Others' test vectors."""
    parser = command(commands, "import", "write the test vectors of others as cases", "import onnx vectors")
    kinds = parser.add_subparsers(title="what", metavar="onnx", required=True, parser_class=Parser)
    onnx = command(kinds, "onnx", "write the Attention tests that ship inside onnx as cases", "import onnx vectors")
    onnx.add_argument("folder", type=Path, metavar="DIR", help="a new folder for the suite and its arrays")
    onnx.add_argument("--python", default=sys.executable, help="an interpreter that has onnx (default: this one)")
    onnx.set_defaults(command="importing:import_onnx")
