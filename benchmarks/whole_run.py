"""
Show where the time of a full run goes: the frameworks' time (import, compile, call) and our own, as shares of a run.

The floor is the time that the frameworks take in that run; all other time is ours. Run it in an environment with the
frameworks: `python benchmarks/whole_run.py`, or `nox -s benchmark`. All arguments are passed on to `conformance run`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def measured(command: list[str]) -> tuple[int, float, float]:
    """Return the exit code, wall seconds, and CPU seconds of the command and all processes that it waited for."""
    started = time.perf_counter()
    process = subprocess.Popen(command)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, time.perf_counter() - started, usage.ru_utime + usage.ru_stime


def read_log(folder: Path) -> list[Record]:
    """Return the records of a run."""
    lines = (folder / "run.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def rows(records: list[Record], wall: float, cpu: float) -> list[tuple[str, float, str]]:
    """Return the rows to print: name, number, unit. Shares are of all CPU time unless the unit says otherwise."""
    footer = records[-1]
    cells = [record for record in records if record["type"] == "cell"]
    called = [cell for cell in cells if "seconds" in cell and not cell.get("cached")]
    imports = sum(worker["start_cpu"] for worker in footer["workers"])
    compiles = sum(cell["seconds"].get("cpu", 0.0) for cell in called if cell["compiles"])
    calls = sum(cell["seconds"].get("cpu", 0.0) for cell in called if not cell["compiles"])
    workers = sum(worker["cpu"] for worker in footer["workers"])
    # The calls of the second look belong to no cell.
    further = sum(worker["call_cpu"] for worker in footer["workers"]) - compiles - calls
    frameworks = imports + compiles + calls + further
    coordinator = footer["timing"]["cpu"]
    judging = sum(cell["seconds"]["judge"] for cell in called)
    diagnosing = sum(cell["seconds"]["judge"] for cell in called if cell["verdict"] == "fail")
    diagnosing += sum(record["seconds"] for record in records if record["type"] == "diagnosis")
    judged = sum(cell["verdict"] != "unsupported" for cell in cells)
    ours = cpu - frameworks
    return [
        ("wall", wall, "s"),
        ("CPU", cpu, "s"),
        ("  frameworks", frameworks, "s"),
        ("    import", imports, "s"),
        ("    first call of a signature (compile)", compiles, "s"),
        ("    other calls", calls, "s"),
        ("    calls of the second look", further, "s"),
        ("  ours", ours, "s"),
        ("    worker: protocol, exit", workers - frameworks, "s"),
        ("    coordinator: judging (oracle, bounds, comparison)", judging, "s"),
        ("    coordinator: cases, routing, protocol, log", coordinator - judging, "s"),
        ("    report and start", cpu - workers - coordinator, "s"),
        ("ours of all CPU", 100 * ours / cpu, "%"),
        ("what fails, known or not: judged, searched, explained", 100 * diagnosing / ours, "% of ours"),
        ("judged cells", judged, ""),
        ("judged cells per CPU second", judged / cpu, "1/s"),
        ("compile signatures, all subjects", sum(footer["signatures"].values()), ""),
        ("compile signatures, most of one subject", max(footer["signatures"].values()), ""),
    ]


def peaks(records: list[Record]) -> list[tuple[str, float, str]]:
    """Return the peak memory of every worker process."""
    workers = sorted(records[-1]["workers"], key=lambda worker: -worker["peak"])
    return [(f"peak memory of {worker['worker']}", worker["peak"] / 2**20, "MiB") for worker in workers]


def main() -> int:
    """Run `conformance run` and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, epilog="example: whole_run.py -a 'torch.*'")
    _, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "run"
        words = ["--no-cache", *rest]  # with cached replies the frameworks would take no time
        command = [sys.executable, "-m", "conformance", "run", "--out", str(folder), *words]
        code, wall, cpu = measured(command)
        records = read_log(folder)
    for name, number, unit in [*rows(records, wall, cpu), *peaks(records)]:
        print(f"{name:<56} {number:>10.1f} {unit}")
    return code


if __name__ == "__main__":
    sys.exit(main())
