"""
Measure how a run grows with the number of cells, the number of subjects, and the size of the tensors.

The subjects are NumPy subjects: their own time is small, so the numbers show our own. Each row is a run in a process of
its own: CPU seconds of the coordinator, and its peak memory. Use: `python benchmarks/growth.py`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SIZES = {"batch": 2, "num_heads": 3, "seq_len_q": 5, "seq_len_k": 7, "head_dim": 11}
CELLS = (100, 1_000, 5_000, 20_000)
SUBJECTS = (1, 2, 4)
LENGTHS = (16, 64, 256, 1024)
# The largest number of cases in a suite.
MOST = 1_000

# The number of cases in the runs that grow in subjects or in seq_len.
FEW = 100


@dataclass(frozen=True)
class Measured:
    """One run: CPU seconds of the coordinator alone, wall seconds, its peak memory in MiB, and its judged cells."""

    cpu: float
    wall: float
    peak: float
    cells: int

    @property
    def row(self) -> str:
        """The columns of a table."""
        return f"{self.cells:8,} {self.cpu:8.1f} {1000 * self.cpu / self.cells:8.2f} {self.wall:8.1f} {self.peak:8.0f}"


def suites(cases: int, **sizes: int) -> dict[str, Any]:
    """Return this many cases, which differ in their seed, in suites of at most MOST: name -> content."""
    return {f"growth{first}": _suite(f"growth{first}", first, cases, sizes) for first in range(0, cases, MOST)}


def _suite(name: str, first: int, cases: int, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return a suite in which half of the cases have a mask."""
    seeds = list(range(first + 1, first + min(MOST, cases - first) // 2 + 1))
    plain: dict[str, Any] = {"name": "plain", "matrix": {"inputs.seed": seeds}}
    masked = {**plain, "name": "masked", "masks": [{"kind": "attention", "pattern": "holes"}]}
    head = {"format": 1, "suite": name, "summary": "Cases that grow in number."}
    return {**head, "defaults": {"operator": "sdpa", **SIZES, **sizes}, "cases": [plain, masked]}


def run(content: Mapping[str, Any], subjects: int = 1) -> Measured:
    """Judge suites on this many copies of a NumPy subject, each in an environment with another name."""
    with tempfile.TemporaryDirectory() as folder:
        cases = Path(folder) / "cases"
        cases.mkdir()
        for name, suite in content.items():
            (cases / f"{name}.yaml").write_text(json.dumps(suite), encoding="utf-8")
        out = Path(folder) / "run"
        words = ["run", str(cases), "-a", "numpy.sdpa", "--no-cache", "-q", "--out", str(out)]
        for number in range(1, subjects):
            words += ["--env", f"copy{number}={sys.executable}", "-a", f"numpy.sdpa@cpu:copy{number}"]
        process = subprocess.Popen([sys.executable, "-m", "conformance", *words], stdout=subprocess.DEVNULL)
        peak = _peak(process)
        lines = (out / "run.jsonl").read_text(encoding="utf-8").splitlines()
    if process.returncode:
        sys.exit(f"the run ended with exit code {process.returncode}")
    footer, cells = json.loads(lines[-1]), sum('"type": "cell"' in line for line in lines)
    return Measured(footer["timing"]["cpu"], footer["timing"]["wall"], peak, cells)


def _peak(process: "subprocess.Popen[bytes]") -> float:
    """Wait for a process, and return its own peak memory in MiB, without that of the workers."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_maxrss / 1024


def rows(most: int) -> Iterator[str]:
    """Yield the lines of every table."""
    head = f"{'cells':>8} {'CPU s':>8} {'ms/cell':>8} {'wall s':>8} {'peak MiB':>8}"
    yield f"{'cases':>12} {head}"
    for cells in [number for number in CELLS if number <= most]:
        yield f"{cells:12,} {run(suites(cells)).row}"
    yield f"{'subjects':>12} {head}"
    for subjects in SUBJECTS:
        yield f"{subjects:12} {run(suites(FEW), subjects).row}"
    yield f"{'seq_len':>12} {head}"
    for length in LENGTHS:
        yield f"{length:12} {run(suites(FEW, seq_len_q=length, seq_len_k=length, head_dim=16)).row}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--most", type=int, default=CELLS[-1], help=f"the largest number of cases (default {CELLS[-1]})"
    )
    for line in rows(parser.parse_args().most):
        print(line, flush=True)


if __name__ == "__main__":
    main()
