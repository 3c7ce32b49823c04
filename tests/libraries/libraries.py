"""
Check attention in other libraries with `conformance check`, and compare the findings with libraries.yaml.

    python tests/libraries/libraries.py                     every row of libraries.yaml
    python tests/libraries/libraries.py 'ring_*' --out DIR  some, by glob
    python tests/libraries/libraries.py --packages          what pip has to install, one line for each installation

It installs from the network, so it has its own session (`nox -s libraries`), and the tests do not run it.
"""

import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).parent / "libraries.yaml"
# The line of a finding, with its number.
FINDING = re.compile(r"\d+\. (.+)")
JUDGED = re.compile(r"(\d+) calls judged")

Row = Mapping[str, Any]


def rows(globs: Sequence[str]) -> list[Row]:
    """Return the rows whose id matches one of the globs, or all rows if there are no globs."""
    found = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [row for row in found if not globs or any(fnmatchcase(row["id"], glob) for glob in globs)]


def packages(chosen: Sequence[Row]) -> list[str]:
    """Return the arguments of pip for each installation: packages with their dependencies, and those without."""
    alone = dict.fromkeys(row["needs"][0] for row in chosen if row.get("without_dependencies"))
    whole = dict.fromkeys(each for row in chosen for each in row["needs"] if each not in alone)
    return [" ".join(whole), *(f"--no-deps {each}" for each in alone)]


def findings(said: str) -> list[str]:
    """Return each finding with the lines that belong to it, as one line."""
    found: list[str] = []
    for line in said.splitlines():
        if (match := FINDING.match(line)) is not None:
            found.append(match[1])
        elif found and line.startswith("   "):
            found[-1] += " " + line.strip()
    return found


def wrong(row: Row, said: str) -> str:
    """Return what is not as the row says, or ""."""
    found, expected = findings(said), row["says"]
    if (match := JUDGED.search(said)) is None or int(match[1]) < row["judged"]:
        return f"fewer than {row['judged']} calls were judged: {said.strip()}"
    if len(found) != len(expected) or not all(map(re.search, expected, found)):
        return f"expected {expected}, found {found}"
    return ""


def checked(row: Row, out: Path) -> str:
    """Write the file of a row, and return what the check prints."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "mine.py").write_text(row["code"], encoding="utf-8")
    words = ["check", f"mine.py:{row['function']}", *row.get("options", ()), "--out", "run"]
    done = subprocess.run(
        [sys.executable, "-m", "conformance", *words], cwd=out, capture_output=True, text=True, check=False
    )
    return done.stdout or done.stderr


def main() -> int:
    """Check and print the table; return 1 if a result is not as expected or no row was chosen."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("globs", nargs="*", metavar="ID", help="rows of libraries.yaml, by glob (default: all)")
    parser.add_argument("--out", type=Path, default=Path("reports") / "libraries", help="where the run folders go")
    parser.add_argument("--packages", action="store_true", help="print what pip has to install, and check nothing")
    arguments = parser.parse_args()
    chosen = rows(arguments.globs)
    if arguments.packages:
        print("\n".join(packages(chosen)))
        return 0
    failed = 0
    for row in chosen:
        said = wrong(row, checked(row, arguments.out / row["id"]))
        failed += bool(said)
        print(f"{'WRONG' if said else 'as expected':11}  {row['id']}{f': {said}' if said else ''}", flush=True)
    print(f"{len(chosen)} functions, {failed} not as expected")
    return 1 if failed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
