"""
Hostile adapters and workers that break the protocol: each costs its one call, and the coordinator never ends with 3.

    python -m tests.hostile.hostile                      every behaviour and every attack
    python -m tests.hostile.hostile --only exits --only seconds_of_nan

Every behaviour is one run of three calls, of which the second is attacked.
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
# Seconds that a call and a start may take.
CALL, START = "1.5", "3"

# Seconds that a run of three calls may take in all; a hang costs its call several times, since it is asked again.
PATIENCE = 90

CONFORMS, REJECTED, INCOMPLETE = 0, 1, 7
# The exit code by what the attacked call comes to; any other verdict is rejected.
EXITS = {"": INCOMPLETE, "pass": CONFORMS, "dialect": CONFORMS}


@dataclass(frozen=True)
class Result:
    """What a run under attack came to: its exit code, the attacked verdict ("" where there is none), what is wrong."""

    name: str
    code: int
    verdict: str
    wrong: tuple[str, ...]
    seconds: float


def attacked(name: str, folder: Path) -> Result:
    """Run one behaviour or attack in a folder of its own, and look at everything that it left."""
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
    """The verdicts of a run, as its own reader reads them; empty where there is no log that can be believed."""
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
    """What the run says of the attacked call."""
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
    """Command lines of processes that a run left behind: they work in its folder, or have it in their environment."""
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
    """Attack with each, and tell each that costs more than it may."""
    results = []
    with tempfile.TemporaryDirectory(prefix="conformance-hostile-", ignore_cleanup_errors=True) as folder:
        for name in names:
            result = attacked(name, Path(folder))
            results.append(result)
            for wrong in result.wrong:
                print(f"{name}: {wrong}", flush=True)
    return results


def main(words: Sequence[str]) -> int:
    """Run the session; 1 where one of them costs more than its call."""
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
