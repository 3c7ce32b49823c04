"""
Call every adapter in the releases of versions.yaml, on a few plain cases, and print the results.

    python tests/versions/versions.py                      every row of versions.yaml
    python tests/versions/versions.py 'onnx*' --out DIR    some packages, by glob

A subject that claims a release in REQUIRES must be judged there at least once, or raise an error that the list of known
deviations accepts. No call may fail because the release does not know an attribute or argument. This script is slow and
installs from the network, so it has its own session (`nox -s versions`).
"""

import contextlib
import io
import re
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from conformance.cli import provisioning
from conformance.cli.command_run import run
from conformance.cli.parser import build_parser
from conformance.engine.adapters import Subject
from conformance.engine.package_pins import Locked, Sides, recipes
from conformance.engine.provision import Provisioned, ProvisionError, provision
from conformance.gate.observations import read_side

TABLE = Path(__file__).parent / "versions.yaml"
CASES = (
    "causal/square/one_tensor*",
    "causal/square/three_tensors*",
    "causal/square/with_weights*",
    "masks/attention_2d/holes*",
    "masks/key_padding/trailing?operator=*",
    "masks/key_padding/with_weights",
    "masks/key_padding_self/trailing?operator=*",
    "published/multiple/relu_and_residual*",
    "shapes/kernel_sized/causal*",
    "shapes/self_attention/*",
)
JUDGED = ("pass", "dialect", "fail", "inconclusive")
# The words in which frameworks report something that a release does not know.
UNKNOWN = re.compile(
    r"unexpected keyword|[Uu]n(recogni[sz]ed|known|expected) (attribute|argument|keyword|input|parameter)|"
    r"takes .* positional|has (in|out)put size|No schema registered|has no attribute|Unsupported (opset|operator)"
)

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The result of one subject in one release. `wrong` says why it is not as expected, or is empty."""

    subject: str
    counts: Counter[str]
    wrong: str

    @property
    def line(self) -> str:
        """Return the outcome as a line of text."""
        told = "  ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        return f"    {self.subject:34} {told or 'no cell'}{f'  WRONG: {self.wrong}' if self.wrong else ''}"


def rows(globs: Sequence[str]) -> list[Row]:
    """Return the rows whose package matches one of the globs, or all rows if there are no globs."""
    found = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [row for row in found if not globs or any(fnmatchcase(row["package"], glob) for glob in globs)]


def claims(subject: Subject, package: str, release: str) -> bool:
    """Whether REQUIRES of the subject allows this release of the package."""
    return any(
        canonicalize_name(requirement.name) == canonicalize_name(package)
        and requirement.specifier.contains(release, prereleases=True)
        for choice in subject.requires
        for requirement in map(Requirement, choice)
    )


def forbidden(subject: Subject, made: Provisioned) -> str | None:
    """Return pip's warning about a package that the subject needs and that conflicts with the others, or None."""
    names = provisioning.requirement_names(subject)
    return next((line for line in made.warnings if canonicalize_name(line.split(" ", 1)[0]) in names), None)


def outcomes(folder: Path, subjects: Sequence[Subject]) -> Iterator[Outcome]:
    """Yield the outcome of each subject in a run."""
    cells = read_side(folder).cells
    for subject in subjects:
        of_it = [cell for (_, name), cell in cells.items() if name == subject.name]
        unknown = next((cell.text for cell in of_it if cell.verdict == "error" and UNKNOWN.search(cell.text)), "")
        counts = Counter(cell.verdict for cell in of_it)
        called = any(cell.verdict in JUDGED or cell.known for cell in of_it)
        last = next((cell.text for cell in of_it if cell.verdict != "unsupported"), "nothing was asked")
        yield Outcome(subject.name, counts, unknown or ("" if called else f"no call succeeded: {last}"))


def judge(subjects: Sequence[Subject], made: Provisioned, folder: Path) -> None:
    """Run the plain cases with `conformance run`."""
    words = ["run", "--env", f"default={made.python}", "--out", str(folder), "--exit-zero", "--timeout", "180"]
    for option, values in (("-a", provisioning.patterns_of(subjects)), ("-k", CASES)):
        words += [word for value in values for word in (option, value)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run(build_parser().parse_args(words))


def tried(row: Row, release: str, python: str, locked: Locked, out: Path) -> Iterator[tuple[str, bool]]:
    """Yield lines about one release, and whether each is as expected."""
    package = canonicalize_name(row["package"])
    named = [each for each in provisioning.named_subjects((), "cpu") if each.counted and requires(each, package)]
    both = row.get("both", {}) if Version(release) < Version(row.get("below", "0")) else {}
    sides = Sides({package: release}, {package: release}, {canonicalize_name(name): v for name, v in both.items()})
    needed = [choice for subject in named for choice in subject.requires]
    try:
        with provisioning.PipProgress() as telling:
            made = provision(recipes(python, needed, sides, locked)[1], provisioning.cache(), telling)
    except ProvisionError as error:
        yield f"{package} {release}: {error}", False
        return
    unfit = {each.name: said for each in named if (said := forbidden(each, made)) is not None}
    asked = [each for each in named if each.name not in unfit and claims(each, package, release)]
    yield f"{package} {release}: {len(asked)} subjects of {len(named)}", bool(asked)
    for said in dict.fromkeys(unfit.values()):
        left = ", ".join(name for name, why in unfit.items() if why == said)
        yield f"    left out, since {said.strip()}: {left}", True
    if asked:
        folder = out / f"{package}-{release}"
        judge(asked, made, folder)
        for outcome in outcomes(folder, asked):
            yield outcome.line, not outcome.wrong


def requires(subject: Subject, package: str) -> bool:
    """Whether the subject requires any release of the package."""
    return package in provisioning.requirement_names(subject)


def main() -> int:
    """Judge the releases and print the table; return 1 if a line is not as expected or no release was chosen."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("globs", nargs="*", metavar="PACKAGE", help="rows of versions.yaml, by glob (default: all)")
    parser.add_argument("--out", type=Path, default=Path("reports") / "versions", help="where the run folders go")
    parser.add_argument("--constraint", type=Path, metavar="FILE", help="versions of all that no row names")
    parser.add_argument("--only", metavar="RELEASE", help="one release of the rows")
    arguments = parser.parse_args()
    python, locked = provisioning.maker(Namespace(python=None, constraint=arguments.constraint))
    wrong = 0
    chosen = [(row, release) for row in rows(arguments.globs) for release in map(str, row["releases"])]
    chosen = [(row, release) for row, release in chosen if arguments.only in (None, release)]
    for row, release in chosen:
        for line, right in tried(row, release, python, locked, arguments.out):
            wrong += not right
            print(line, flush=True)
    print(f"{len(chosen)} releases, {wrong} lines not as they should be")
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
