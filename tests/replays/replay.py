"""
Replay released regressions with `conformance upgrade`: each is reported in its words, and its neighbours pass.

    python tests/replays/replay.py                     every row of replays.yaml
    python tests/replays/replay.py 'ort_*' --out DIR   some, by glob

It is slow and installs from the network, so it has its own session (`nox -s replays`), and the tests do not run it.
"""

import json
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).parent / "replays.yaml"
Row = Mapping[str, Any]


def rows(globs: Sequence[str]) -> list[Row]:
    """Return the rows whose id matches one of the globs, or all rows if there are no globs."""
    found = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [row for row in found if not globs or any(fnmatchcase(row["id"], glob) for glob in globs)]


def upgrade(row: Row, base: str, candidate: str, out: Path, more: Sequence[str]) -> dict[str, Any]:
    """Return the comparison of two releases. If the command writes none, the headline is its last line of stderr."""
    words = [
        "upgrade",
        f"{row['package']}=={base}",
        f"{row['package']}=={candidate}",
        "-a",
        row["subject"],
        "--out",
        str(out),
    ]
    words += [word for case in row["cases"] for word in ("-k", case)]
    words += [word for pin in row.get("both", ()) for word in ("--both", pin)]
    return conformance([*words, *more], out)


def conformance(words: Sequence[str], out: Path) -> dict[str, Any]:
    """Run one command that writes comparison.json into `out`, and return its content."""
    done = subprocess.run([sys.executable, "-m", "conformance", *words], capture_output=True, text=True, check=False)
    if not (out / "comparison.json").is_file():
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        return {"exit_code": done.returncode, "headline": last}
    found: dict[str, Any] = json.loads((out / "comparison.json").read_text(encoding="utf-8"))
    return found


def trials(row: Row, out: Path, more: Sequence[str]) -> list[tuple[str, bool, str]]:
    """Return what was tried, whether the result is as expected, and the headline."""
    there = upgrade(row, row["good"], row["bad"], out / "there", more)
    flagged = there["exit_code"] == 1 and re.search(row["says"], there["headline"]) is not None
    found = [(f"{row['good']} -> {row['bad']}", flagged, there["headline"])]
    back = conformance(
        ["compare", *(str(out / "there" / side) for side in ("candidate", "base")), "--out", str(out / "back")],
        out / "back",
    )
    right = back["exit_code"] == (1 if row.get("change") else 0) and not back["headline"].startswith("Unchanged")
    found.append((f"{row['bad']} -> {row['good']}", right, back["headline"]))
    one, other = row["neighbours"]
    calm = upgrade(row, one, other, out / "neighbours", more)
    found.append((f"{one} -> {other}", calm["exit_code"] == 0, calm["headline"]))
    return found


def main() -> int:
    """Replay and print the table; return 1 if a result is not as expected or no row was chosen."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("globs", nargs="*", metavar="ID", help="rows of replays.yaml, by glob (default: all)")
    parser.add_argument("--out", type=Path, default=Path("reports") / "replays", help="where the run folders go")
    parser.add_argument("--constraint", metavar="FILE", help="versions of all that no row pins")
    arguments = parser.parse_args()
    more = ["--constraint", arguments.constraint] if arguments.constraint else []
    wrong = 0
    chosen = rows(arguments.globs)
    for row in chosen:
        for what, right, said in trials(row, arguments.out / row["id"], more):
            wrong += not right
            print(f"{'as expected' if right else 'WRONG':11}  {row['id']}  {row['package']} {what}: {said}", flush=True)
    print(f"{len(chosen)} replays, {wrong} not as expected")
    return 1 if wrong or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
