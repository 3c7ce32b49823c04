"""
Inject external faults into runs: `nox -s faults`, or `python tests/faults/faults.py --seed 7 --kills 40`.

Runs are killed at random moments, including while reports are written, and resumed. They are ended by signals, they
write to full disks, and two resumes start at once. After each fault, the run folder must be the same as after an
undisturbed run, and nothing may be left: no process, no temporary folder, no half-written file. A table shows what was
tried and what failed; the exit code is 1 if anything failed. The seed is printed, so that a failure can be reproduced.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
VARIED = ROOT / "tests" / "fakes" / "varied.py"
LIAR = ROOT / "tests" / "fakes" / "liar.py"
KILLED = str(Path(__file__).with_name("killed.py"))
FILES = ("run.jsonl", "verdict.json", "index.html", "junit.xml", "summary.md")
# One subject conforms and one does not, so that the run has tensors, a second look and a diagnosis.
ASKED = ("-a", "numpy.sdpa", "-a", f"{VARIED}[inverted_mask]", "-k", "masks/attention_2d/*", "-k", "shapes/cross_*")

# Time limit of one run, in seconds.
PATIENCE = 180

# Workers must end within so many seconds after their coordinator.
GONE = 5.0

RECORDS = ("header", "footer")
COLUMNS = (34, 6, 6)


@dataclass
class Row:
    """One kind of fault: the number of trials, and a sentence for each trial that failed."""

    name: str
    tried: int = 0
    missed: list[str] = field(default_factory=list)

    def add(self, what: str, problems: Sequence[str]) -> None:
        """Count one trial."""
        self.tried += 1
        if problems:
            self.missed.append(f"{what}: {'; '.join(problems)}")

    def __str__(self) -> str:
        first, second, third = COLUMNS
        return f"{self.name:<{first}}{self.tried:>{second}}{self.tried - len(self.missed):>{third}}"


@dataclass(frozen=True)
class Whole:
    """
    An undisturbed run: its exit code and two of its files.

    since: CPU seconds used after the start, after the header was written, and after the footer was written. Moments are
    measured in CPU time, since the machine may be busy with other processes.
    """

    code: int
    verdict: bytes
    baseline: bytes
    since: Mapping[str, float]


@dataclass(frozen=True)
class Place:
    """The working folder of one trial, with its own temporary folder."""

    folder: Path
    asked: tuple[str, ...] = ASKED

    @property
    def out(self) -> Path:
        """The run folder."""
        return self.folder / "run"

    @property
    def temporary(self) -> Path:
        """The value of TMPDIR."""
        return self.folder / "tmp"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables, which select this checkout and the temporary folder of the trial."""
        return {**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}

    def start(
        self,
        *more: str,
        kill: tuple[str, str] | None = None,
        before: Callable[[], object] | None = None,
        **streams: Any,
    ) -> "subprocess.Popen[str]":
        """Start or resume a run. kill: the event and the CPU seconds after it. before: called first in the process."""
        self.temporary.mkdir(parents=True, exist_ok=True)
        words = ["run", "--no-cache", *self.asked, "--out", "run", "--baseline", "base.json", "--update-baseline"]
        words += ["--junit", "ci/junit.xml", "-j", "2", *more]
        return subprocess.Popen(
            [sys.executable, *(["-m", "conformance"] if kill is None else [KILLED, *kill]), *words],
            cwd=self.folder,
            env=self.variables,
            stdout=streams.get("stdout", subprocess.DEVNULL),
            stderr=streams.get("stderr", subprocess.PIPE),
            text=True,
            preexec_fn=before,  # noqa: PLW1509 - this process has one thread
        )

    def run(self, *more: str, **options: Any) -> tuple[int, str]:
        """Run to the end, and return the exit code and stderr."""
        process = self.start(*more, **options)
        _, said = process.communicate(timeout=PATIENCE)
        return process.returncode, said or ""

    def killed(self, since: str, seconds: float, *more: str) -> bool:
        """Run until it is killed after so many CPU seconds; return False if it ended before."""
        process = self.start(*more, kill=(since, str(seconds)), stderr=subprocess.DEVNULL)
        return process.wait(PATIENCE) == -signal.SIGKILL

    def go_on(self) -> tuple[int, str]:
        """Resume the run, or start it if it has no folder yet."""
        return self.run("--resume") if self.out.is_dir() else self.run()

    def left_over(self) -> list[str]:
        """Return files, folders and processes that must not exist after the end of a run."""
        found = [f"left in TMPDIR: {each.name}" for each in self.temporary.iterdir()]
        places = (self.folder, self.out, self.out / "tensors", self.folder / "ci")
        found += [f"left: {each}" for place in places for each in place.glob(".*")]
        if (self.out / "owner.json").exists():
            found.append("left: owner.json")
        return found + self.living()

    def living(self) -> list[str]:
        """Return the processes of this trial that are still alive after a grace period."""
        deadline = time.monotonic() + GONE
        while found := list(self._processes()):
            if time.monotonic() > deadline:
                return [f"process {each} lives" for each in found]
            time.sleep(0.02)
        return []

    def _processes(self) -> Iterator[int]:
        mark = os.fsencode(f"TMPDIR={self.temporary}")
        for each in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    mark in (each / "environ").read_bytes()
                    or os.fsencode(self.temporary) in (each / "cmdline").read_bytes()
                ):
                    yield int(each.name)
            except OSError:
                continue  # it has just ended

    def differs(self, whole: Whole, code: int, said: str) -> list[str]:
        """Return the differences between the folder and that of an undisturbed run."""
        found = [] if code == whole.code else [f"exit code {code}, expected {whole.code}: {said[-300:]}"]
        found += [f"no {name}" for name in FILES if not (self.out / name).is_file()]
        found += [] if (self.folder / "ci" / "junit.xml").is_file() else ["no JUnit XML where it was asked for"]
        for path, expected in ((self.out / "verdict.json", whole.verdict), (self.folder / "base.json", whole.baseline)):
            if not path.is_file():
                found.append(f"no {path.name}")
            elif path.read_bytes() != expected:
                found.append(f"{path.name} differs")
        return found + self.left_over()

    def stage(self) -> str:
        """Return how far a run got, judged by the files in its folder."""
        if not self.out.is_dir():
            return "before the folder"
        log = self.out / "run.jsonl"
        lines = log.read_bytes().split(b"\n")[:-1] if log.is_file() else []
        if not lines:
            return "before the header"
        if b'"type": "footer"' not in lines[-1][:40]:
            return f"after {sum(b'cell' in line[:20] for line in lines)} cells"
        absent = [name for name in FILES if not (self.out / name).is_file()]
        absent += [] if (self.folder / "base.json").is_file() else ["base.json"]
        return f"after the footer, without {absent[0]}" if absent else "when every file was there"


def has(place: Place, record: str) -> bool:
    """Whether the log contains a record of this type (header or footer)."""
    log = place.out / "run.jsonl"
    return log.is_file() and f'{{"type": "{record}"'.encode() in log.read_bytes()


def cells(place: Place) -> int:
    """Return the number of verdicts in the log."""
    log = place.out / "run.jsonl"
    return log.read_bytes().count(b'\n{"type": "cell"') if log.is_file() else 0


def wait(process: "subprocess.Popen[str]", until: Callable[[], bool]) -> bool:
    """Wait until a condition holds; return False if the run ended before."""
    while process.poll() is None:
        if until():
            return True
        time.sleep(0.002)
    return until()


def whole_run(place: Place) -> Whole:
    """
    Run once without a fault.

    Raises:
        RuntimeError: the run has the wrong exit code or leaves something.
    """
    process = place.start()
    began: dict[str, float] = {"start": 0.0}
    seconds = 0.0
    while process.poll() is None:
        seconds = max(seconds, used(process.pid))
        for record in RECORDS:
            if record not in began and has(place, record):
                began[record] = seconds
        time.sleep(0.005)
    _, said = process.communicate(timeout=PATIENCE)
    if process.returncode != 1 or place.left_over():
        raise RuntimeError(f"exit code {process.returncode}, expected 1; {place.left_over()}; {said[-2000:]}")
    verdict, baseline = (place.out / "verdict.json").read_bytes(), (place.folder / "base.json").read_bytes()
    return Whole(1, verdict, baseline, {name: seconds - before for name, before in began.items()})


def used(process: int) -> float:
    """Return the CPU seconds that a process has used so far; 0 if it has ended."""
    try:
        words = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


# ---- trials ------------------------------------------------------------------------------------------------------


# Kills a run at a moment between 0 and 1 and resumes it. Returns how far the run got and the problems, or None if it
# ended before.
Kill = Callable[[Place, Whole, float], tuple[str, list[str]] | None]


def kill(since: str) -> Kill:
    """Return a trial that kills a run after a part of the CPU time since its start, its header or its footer."""

    def killed(place: Place, whole: Whole, moment: float) -> tuple[str, list[str]] | None:
        return _finished(place, whole) if place.killed(since, moment * whole.since[since]) else None

    return killed


def kill_twice(place: Place, whole: Whole, moment: float) -> tuple[str, list[str]] | None:
    """Kill a run after it has begun to judge, then kill its resume."""
    place.killed("header", 0.3 * whole.since["header"])
    return _finished(place, whole) if place.killed("start", moment * whole.since["start"], "--resume") else None


def _finished(place: Place, whole: Whole) -> tuple[str, list[str]]:
    stage, living = place.stage(), place.living()
    return stage, [*living, *place.differs(whole, *place.go_on())]


def signalled(
    place: Place, whole: Whole, number: signal.Signals, *, telling: bool = False, background: bool = False
) -> list[str]:
    """End a run by a signal, check what it leaves, and resume it. background: start it like `command &` in a shell."""

    def as_a_shell_starts_it() -> None:
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):  # e.g. nohup makes its children ignore SIGHUP
            signal.signal(each, signal.SIG_DFL)
        if background:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = place.start(before=as_a_shell_starts_it)
    wait(process, lambda: has(place, "footer") if telling else cells(place) >= 5)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    found = [] if process.returncode == 2 else [f"exit code {process.returncode}, expected 2: {said[-300:]}"]
    verdict = place.out / "verdict.json"
    code = json.loads(verdict.read_bytes())["exit_code"] if verdict.is_file() else None
    expected = whole.code if has(place, "footer") else 2
    found += [] if code == expected else [f"verdict.json says {code}, expected {expected}"]
    found += [] if "continue with --out run --resume" in said else [f"does not say how to go on: {said[-300:]}"]
    return [*found, *place.left_over(), *place.differs(whole, *place.go_on())]


def limited(place: Place, whole: Whole, size: int) -> list[str]:
    """Limit the size of every file to so many bytes."""
    code, said = place.run(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    return [*_said_fault(code, said, "File too large"), *place.left_over(), *place.differs(whole, *place.go_on())]


def _said_fault(code: int, said: str, why: str) -> list[str]:
    found = [] if code == 3 else [f"exit code {code}, expected 3"]
    last = said.strip().splitlines()[-1:] or [""]
    if not re.fullmatch(rf"conformance: \S+: {why}; when this is fixed, continue with --out run --resume", last[0]):
        found.append(f"says {last[0]!r}")
    return found + (["a traceback"] if "Traceback" in said or "internal error" in said else [])


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Callable[[str], None] | None]:
    """Mount a disk of this size and yield a function that resizes it; yield None if mounting fails."""
    folder.mkdir(parents=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "faults", str(folder)], check=False, stderr=-3)
    if made.returncode:
        yield None
        return

    def resize(size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)

    try:
        yield resize
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def full_disk(place: Place, whole: Whole, size: str) -> list[str] | None:
    """Fill the disk of the run folder; return None if no disk can be mounted."""
    with small_disk(place.out, size) as resize:
        if resize is None:
            return None
        found = _said_fault(*place.run(), "No space left on device")
        resize("64m")
        return [*found, *place.living(), *place.differs(whole, *place.go_on())]


def streams(place: Place, whole: Whole, words: str) -> list[str]:
    """Full or closed standard streams (`words` in shell syntax) change neither the files nor the exit code."""
    full = {">/dev/full": {"stdout": 1}, "2>/dev/full": {"stderr": 2}}
    closed = [{">&-": 1, "2>&-": 2}[word] for word in words.split() if word.endswith("&-")]
    with Path("/dev/full").open("w") as nothing:
        given = {name: nothing for word in words.split() for name in full.get(word, ())}
        code, said = place.run(before=lambda: close(closed), **given)
    return place.differs(whole, code, said)


def close(descriptors: Sequence[int]) -> None:
    """Close these file descriptors."""
    for each in descriptors:
        os.close(each)


def unwritable(place: Place) -> list[str]:
    """A file that cannot be written is reported before anything runs."""
    (place.folder / "notes").write_text("no folder", encoding="utf-8")
    code, said = place.run("--junit", "notes/junit.xml")
    found = [] if code == 4 else [f"exit code {code}, expected 4"]
    found += (
        [] if "notes/junit.xml cannot be written" in said and "nothing was run" in said else [f"says {said[-300:]}"]
    )
    return found + (["a run folder was made"] if place.out.exists() else [])


def second_owner(place: Place, whole: Whole) -> list[str]:
    """A resume of a live run is refused with the process id of the owner; the live run is not affected."""
    first = place.start()
    wait(first, lambda: cells(place) >= 5)
    first.send_signal(signal.SIGSTOP)  # so that it is still alive, even if it is fast
    code, said = place.run("--resume")
    first.send_signal(signal.SIGCONT)
    _, told = first.communicate(timeout=PATIENCE)
    found = [] if code == 4 else [f"exit code {code}, expected 4: {said[-300:]}"]
    found += [] if f"in use by process {first.pid} on " in said else [f"does not name the owner: {said[-300:]}"]
    return [*found, *place.differs(whole, first.returncode, told)]


def two_resumes(place: Place, whole: Whole) -> list[str]:
    """If two resumes start at once, one continues and the other is refused, or it finds the run finished."""
    place.killed("header", 0.3 * whole.since["header"])
    both = [place.start("--resume") for _ in range(2)]
    ended = [(process.communicate(timeout=PATIENCE)[1], process.returncode) for process in both]
    told = [said for said, code in ended if code == 4 and "is in use by process" in said]
    after = [said for said, code in ended if code == whole.code and "the run is finished already" in said]
    went_on = [said for said, code in ended if code == whole.code]
    found = [] if len(went_on) == 2 - len(told) and len(told) + len(after) == 1 else [f"{ended}"]
    return [*found, *place.differs(whole, whole.code, "")]


def restored(place: Place, whole: Whole) -> list[str]:
    """`conformance report` recreates every file of a run except the log and the tensors."""
    code, said = place.run()
    for name in FILES[1:]:
        (place.out / name).unlink()
    command = [sys.executable, "-m", "conformance", "report", "run"]
    done = subprocess.run(command, cwd=place.folder, env=place.variables, capture_output=True, text=True, check=False)
    found = [] if done.returncode == 0 else [f"report ended with {done.returncode}: {done.stderr[-300:]}"]
    return [*found, *place.differs(whole, code, said)]


# ---- the session -------------------------------------------------------------------------------------------------


def trials(whole: Whole, place: Callable[[], Place], kills: int, chance: random.Random) -> Iterator[Row]:
    """Try every kind of fault, and yield a row after the trials of each kind."""
    kinds: tuple[tuple[str, Kill, int], ...] = (
        ("SIGKILL at any moment", kill("start"), kills - 3 * (kills // 4)),
        ("SIGKILL while it judges and tells", kill("header"), kills // 4),
        ("SIGKILL while files are written", kill("footer"), kills // 4),
        ("SIGKILL of the run and its resume", kill_twice, kills // 4),
    )
    for name, attempt, number in kinds:
        row = Row(name)
        while row.tried < number:
            moment = chance.random()
            found = attempt(place(), whole, moment)
            if found is not None:
                stage, problems = found
                row.add(f"at {moment:.3f}, {stage}", problems)
                tell(f"  {name}, at {moment:.3f}, {stage}: {'; '.join(problems) or 'whole'}")
        yield row
    row = Row("SIGTERM, SIGHUP, SIGINT")
    for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        row.add(each.name, signalled(place(), whole, each))
    row.add("SIGTERM in the background", signalled(place(), whole, signal.SIGTERM, background=True))
    row.add("SIGTERM while files are written", signalled(place(), whole, signal.SIGTERM, telling=True))
    yield row
    row = Row("file size limit")
    for size in (0, 20_000, 200_000):
        row.add(f"{size} bytes", limited(place(), whole, size) if size else no_bytes(place(), whole))
    yield row
    row = Row("full disk")
    for disk in ("100k", "400k", "700k"):
        missed = full_disk(place(), whole, disk)
        if missed is None:
            tell("  no disk can be mounted here: the file size limit stands for it")
        else:
            row.add(disk, missed)
    yield row
    row = Row("streams full or closed")
    for words in ("2>/dev/full", ">/dev/full", ">/dev/full 2>/dev/full", "2>&-", ">&-", ">&- 2>&-"):
        row.add(words, streams(place(), whole, words))
    yield row
    row = Row("JUnit XML that cannot be written")
    row.add("in a file", unwritable(place()))
    yield row
    row = Row("two owners")
    row.add("resume of a live run", second_owner(place(), whole))
    for _ in range(3):
        row.add("two resumes at once", two_resumes(place(), whole))
    yield row
    row = Row("conformance report")
    row.add("restores every file", restored(place(), whole))
    yield row


def no_bytes(place: Place, whole: Whole) -> list[str]:
    """If no file can be written at all, nothing runs."""
    code, said = place.run(before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
    last = said.strip().splitlines()[-1:] or [""]
    expected = (
        "conformance: no folder for temporary files is writable: free some space, or set TMPDIR to another folder"
    )
    found = [] if code == 3 and last == [expected] else [f"exit code {code}: {said[-300:]}"]
    return [*found, *place.left_over(), *place.differs(whole, *place.go_on())]


def tell(text: str) -> None:
    """Print without buffering."""
    print(text, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Try all faults, print the table, and return 1 if a trial failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=19, help="of the random moments (default: 19)")
    parser.add_argument("--kills", type=int, default=40, help="how many runs are killed (default: 40)")
    arguments = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore it
    base = Path(tempfile.mkdtemp(prefix="faults-"))
    number = iter(range(10_000))

    def place() -> Place:
        folder = base / f"{next(number):03d}"
        folder.mkdir()
        return Place(folder)

    whole = whole_run(place())
    took = ", ".join(f"{seconds:.2f} s since its {name}" for name, seconds in whole.since.items())
    tell(f"seed {arguments.seed}; a whole run uses the processor for {took}")
    rows = []
    for row in trials(whole, place, arguments.kills, random.Random(arguments.seed)):  # noqa: S311 - not a secret
        rows.append(row)
        tell(f"{row}")
    first, second, third = COLUMNS
    tell(f"\n{'fault':<{first}}{'tried':>{second}}{'whole':>{third}}")
    for row in rows:
        tell(f"{row}")
    missed = [f"{row.name}: {each}" for row in rows for each in row.missed]
    for each in missed:
        tell(f"missed: {each}")
    if not missed:
        shutil.rmtree(base)
    else:
        tell(f"the folders are kept in {base}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
