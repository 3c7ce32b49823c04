"""
Hostile adapters and workers that break the protocol: each costs only its one call, and no run ends with exit code 3.

    python -m tests.hostile.hostile                      every behaviour and every attack
    python -m tests.hostile.hostile --only exits --only seconds_of_nan

Each behaviour or attack gets one run of three calls; the second call is attacked.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.report import RunLogError, load_run
from tests.hostile.attacks import ATTACKS
from tests.hostile.behaviours import BEHAVIOURS, adapter_text

SUITE = """\
format: 1
suite: three
summary: Three calls, of which the second is attacked.
defaults: {operator: sdpa, num_heads: 2, head_dim: 3, seq_len_q: 5, seq_len_k: 7}
cases:
  - {name: before, batch: 2}
  - {name: attacked, batch: 13}
  - {name: after, batch: 3}
"""
ATTACKED, OTHERS = "three/attacked", ("three/before", "three/after")

FAKE_WORKER = Path(__file__).with_name("fake_worker.py")
# Timeouts of a call and of the start of a worker, in seconds.
CALL, START = "1.5", "3"

# Time limit of a run of three calls, in seconds. A hang costs several call timeouts, since the call is retried.
PATIENCE = 90

CONFORMS, REJECTED, INCOMPLETE = 0, 1, 7
# Verdict of the attacked call to exit code of the run; any other verdict gives REJECTED.
EXITS = {"": INCOMPLETE, "pass": CONFORMS, "dialect": CONFORMS}


@dataclass(frozen=True)
class Result:
    """The result of a run under attack: exit code, verdict of the attacked call ("" if none), and what is wrong."""

    name: str
    code: int
    verdict: str
    wrong: tuple[str, ...]
    seconds: float


def attacked(name: str, folder: Path) -> Result:
    """Run one behaviour or attack in its own folder, and check everything that it leaves."""
    place = folder / name
    (place / "cases").mkdir(parents=True)
    (place / "cases" / "three.yaml").write_text(SUITE, encoding="utf-8")
    costs = BEHAVIOURS[name].costs if name in BEHAVIOURS else ATTACKS[name].costs
    command = [sys.executable, "-m", "conformance", "run", "cases", *_subject(name, place), "--out", "out"]
    command += ["--timeout", CALL, "--start-timeout", START, "-j", "1", "--no-cache"]
    started = time.monotonic()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
            cwd=place,
            env={**os.environ, "TMPDIR": str(place)},
        )
    except subprocess.TimeoutExpired:
        return Result(name, -1, "", (f"did not end within {PATIENCE} s",), time.monotonic() - started)
    seconds = time.monotonic() - started
    verdicts = _verdicts(place / "out")
    spills = name in BEHAVIOURS and BEHAVIOURS[name].spills
    wrong = tuple(_wrong(costs, done, verdicts, place, spills=spills))
    return Result(name, done.returncode, verdicts.get(ATTACKED, ""), wrong, seconds)


def _subject(name: str, place: Path) -> list[str]:
    if name in BEHAVIOURS:
        (place / "hostile_adapter.py").write_text(adapter_text(name), encoding="utf-8")
        return ["-a", "hostile_adapter.py"]
    attack = ATTACKS[name]
    python = place / "python"
    words = shlex.join([sys.executable, str(FAKE_WORKER), name, attack.when, attack.code])
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -I ] && exec {shlex.quote(sys.executable)} "$@"\nexec {words} "$@"\n', encoding="utf-8"
    )
    python.chmod(0o755)
    return ["-a", "numpy.sdpa", "--env", f"default={python}"]


def _verdicts(folder: Path) -> dict[str, str]:
    """Return the verdicts of a run as `load_run` reads them; empty if there is no valid log."""
    try:
        return {case: cell.verdict for (case, _), cell in load_run(folder).cells.items()}
    except RunLogError:
        return {}


def _wrong(
    costs: str, done: "subprocess.CompletedProcess[str]", verdicts: dict[str, str], place: Path, *, spills: bool
) -> Iterator[str]:
    found = verdicts.get(ATTACKED, "")
    if found not in (costs.split() or [""]):
        yield f"the attacked call is {found or 'not there'!r}; it may be {costs!r}: {_reason(place)}"
    exits = {CONFORMS, REJECTED} if spills else {EXITS.get(found, REJECTED)}
    if done.returncode not in exits:
        yield f"exit code {done.returncode} for the verdict {found!r}: {done.stdout[-500:]}{done.stderr[-500:]}"
    if "Traceback" in done.stderr or "internal error" in done.stderr or "Traceback" in done.stdout:
        yield f"a traceback of ours: {done.stderr[-1500:]}"
    if found:
        lost = [case for case in OTHERS if verdicts.get(case) != "pass" and not (spills and case in verdicts)]
        yield from (f"{case} is {verdicts.get(case)!r}" for case in lost)
    for name in ("run.jsonl", "verdict.json", "index.html", "junit.xml", "summary.md"):
        if not (place / "out" / name).is_file():
            yield f"there is no {name}"
    if left := sorted(_left(place)):
        yield f"processes are left: {left}"
    if left := sorted(each.name for each in place.glob("conformance-*")):
        yield f"temporary folders are left: {left}"


def _reason(place: Path) -> str:
    """Return the reasons that the log gives for the attacked call or for a failed worker."""
    try:
        lines = (place / "out" / "run.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "there is no log"
    records: list[dict[str, Any]] = [json.loads(line) for line in lines]
    said = [
        str(each["reason"])
        for each in records
        if "reason" in each and (each.get("case") == ATTACKED or each.get("status") == "failed")
    ]
    return "; ".join(said)[:500]


def _left(place: Path) -> Iterator[str]:
    """
    The command lines of processes that a run left.

    Their working folder, command line or environment contains the folder of the run.
    """
    for each in Path("/proc").glob("[0-9]*"):
        try:
            state = (each / "stat").read_bytes().rpartition(b")")[2].split()[0]
            said = (each / "cmdline").read_bytes()
            about = (each / "environ").read_bytes() + said + bytes((each / "cwd").readlink())
        except OSError:
            continue
        if state != b"Z" and str(place).encode() in about:
            yield said.replace(b"\0", b" ").decode(errors="replace")


def session(names: Sequence[str]) -> list[Result]:
    """Run each behaviour or attack, and print everything that is wrong."""
    results = []
    with tempfile.TemporaryDirectory(prefix="conformance-hostile-", ignore_cleanup_errors=True) as folder:
        for name in names:
            result = attacked(name, Path(folder))
            results.append(result)
            for wrong in result.wrong:
                print(f"{name}: {wrong}", flush=True)
    return results


def main(words: Sequence[str]) -> int:
    """Run the session; return 1 if a behaviour or attack costs more than its call."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="may be repeated")
    options = parser.parse_args(words)
    every = [*BEHAVIOURS, *ATTACKS]
    if unknown := set(options.only) - set(every):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    results = session(options.only or every)
    codes = {code: sum(result.code == code for result in results) for code in sorted({r.code for r in results})}
    wrong = [result.name for result in results if result.wrong]
    adapters = sum(result.name in BEHAVIOURS for result in results)
    print(f"{adapters} hostile adapters, {len(results) - adapters} protocol attacks; exit codes {codes}")
    print(f"{len(wrong)} cost more than their call{': ' if wrong else ''}{', '.join(wrong)}")
    slowest = max(results, key=lambda result: result.seconds)
    print(f"the slowest: {slowest.name}, {slowest.seconds:.1f} s")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
