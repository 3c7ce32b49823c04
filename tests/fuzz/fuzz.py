"""
Changed and made-up files for every reader: none may end in a traceback, take over 2 s, or over 300 MB.

    python -m tests.fuzz.fuzz                       the whole session: 100,000 inputs, seeds printed
    python -m tests.fuzz.fuzz --count 2000 --only cases --seed 7
    python -m tests.fuzz.fuzz --seed 7 --again logs:123     one input again, with what it says

An input is a function of the seed, the reader and its number, of the real files that are changed, and of nothing else.
Every tenth input is made up by hypothesis; what it makes up is a function of the seed and the reader.
"""

import argparse
import contextlib
import io
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from tests.fuzz.mutating import KEYS, VALUES, mutated
from tests.fuzz.readers import READERS, USAGE, Reader, Shelf

COUNT = 100_000
SEED = 19
# CPU time that one input may take: the machine may be busy with other things.
SECONDS = 2.0

# By which one input may raise the most memory that the process ever had.
MEGABYTES = 300

# CPU seconds after which an input is given up.
HANG = 20.0

INTERNAL = 3
# One input in so many is made up.
MADE_UP = 10


@dataclass(frozen=True)
class Failure:
    """An input that a reader did not bear: which, what came of it, and its bytes."""

    reader: str
    number: int
    said: str
    content: bytes = field(repr=False)


class TooLong(BaseException):
    """An input took so long that it was given up; no `except Exception` keeps it."""


def _give_up(_signal: int, _frame: Any) -> None:
    raise TooLong


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Give up what takes over HANG seconds of CPU time."""
    before = signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def peak() -> float:
    """The most memory that this process ever had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bears(reader: Reader, shelf: Shelf, content: bytes) -> tuple[str, int]:
    """Why an input fails, in words, "" where the reader bears it; and the exit code that it came to."""
    out, err = io.StringIO(), io.StringIO()
    memory, started = peak(), time.process_time()
    said, code = "", INTERNAL
    try:
        with limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = reader.read(shelf, content)
        if code == INTERNAL or any(line.startswith("Traceback (most") for line in err.getvalue().splitlines()):
            said = f"exit code {code}\n{err.getvalue()[-3000:]}"
    except TooLong:
        said = f"was given up after {HANG:g} s"
    except Exception:  # noqa: BLE001 - a traceback is what is looked for
        said = traceback.format_exc()[-3000:]
    seconds, megabytes = time.process_time() - started, peak() - memory
    if not said and seconds > SECONDS:
        said = f"took {seconds:.1f} s"
    if not said and megabytes > MEGABYTES:
        said = f"took {megabytes:.0f} MB"
    return said, code


def input_of(reader: Reader, shelf: Shelf, seed: int, number: int) -> bytes:
    """A changed real file."""
    rng = random.Random(f"{seed}/{reader.name}/{number}")  # noqa: S311 - no secret
    return mutated(rng, shelf.corpus[reader.name], reader.kind)


def made_up(reader: Reader, seed: int, count: int, take: Callable[[bytes], None]) -> None:
    """Give `take` so many files that hypothesis makes up: any value in the shape of the format, or any bytes."""
    texts = st.one_of(st.sampled_from([*KEYS, *reader.words]), st.text(max_size=8))
    leaves = st.one_of(st.sampled_from(VALUES), st.integers(), st.floats(), texts)
    values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=6))

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(st.one_of(st.dictionaries(texts, values, max_size=8), st.binary(max_size=300)))
    def each(value: Any) -> None:
        take(value if isinstance(value, bytes) else reader.written(value))

    each()


@dataclass
class Session:
    """Inputs that were read so far, and those that failed."""

    shelf: Shelf
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)

    def read(self, reader: Reader, number: int, content: bytes) -> None:
        """Let the reader have one input."""
        started = time.process_time()
        said, code = bears(reader, self.shelf, content)
        self.counts[reader.name] += 1
        self.refused[reader.name] += code == USAGE
        self.slowest[reader.name] = max(self.slowest.get(reader.name, 0.0), time.process_time() - started)
        if said:
            self.failures.append(Failure(reader.name, number, said, content))

    def run(self, reader: Reader, count: int) -> None:
        """So many inputs for one reader: those that are made up have negative numbers."""
        invented = count // MADE_UP if reader.kind in ("yaml", "json", "jsonl") else 0
        for number in range(count - invented):
            self.read(reader, number, input_of(reader, self.shelf, self.seed, number))
        before = self.counts[reader.name]
        if invented:
            made_up(
                reader,
                self.seed,
                invented,
                lambda content: self.read(reader, before - self.counts[reader.name] - 1, content),
            )


def shares(count: int, readers: Sequence[Reader]) -> dict[str, int]:
    """How many inputs each reader has."""
    total = sum(reader.share for reader in readers)
    found = {reader.name: count * reader.share // total for reader in readers}
    found[readers[0].name] += count - sum(found.values())
    return found


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options of a session."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--count", type=int, default=COUNT, help="inputs in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("--only", action="append", choices=[reader.name for reader in READERS], help="may be repeated")
    parser.add_argument("--again", metavar="READER:NUMBER", help="one input again")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where inputs that fail are written")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Run a session and tell its counts; 1 where an input failed."""
    options = parsed(words)
    folder = Path(tempfile.mkdtemp(prefix="conformance-fuzz-"))
    try:
        shelf = Shelf.made(folder)
        if options.again:
            return _again(options, shelf)
        session = Session(shelf, options.seed)
        chosen = [reader for reader in READERS if not options.only or reader.name in options.only]
        for name, count in shares(options.count, chosen).items():
            reader = next(each for each in chosen if each.name == name)
            started = time.monotonic()
            session.run(reader, count)
            failed = sum(failure.reader == name for failure in session.failures)
            print(
                f"{name}: seed {options.seed}, {session.counts[name]} inputs, {session.refused[name]} refused, "
                f"{failed} failed, slowest {session.slowest[name]:.2f} s, {time.monotonic() - started:.0f} s in all",
                flush=True,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _tell(session, options.keep)
    return int(bool(session.failures))


def _tell(session: Session, keep: Path | None) -> None:
    told: set[str] = set()
    for failure in session.failures:
        last = failure.said.strip().splitlines()[-1]
        if last not in told:
            told.add(last)
            print(f"{failure.reader}:{failure.number}: {failure.said.strip()}\n")
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{failure.reader}-{failure.number}").write_bytes(failure.content)
    print(f"{sum(session.counts.values())} inputs, {len(session.failures)} failed, most memory {peak():.0f} MB")


def _again(options: argparse.Namespace, shelf: Shelf) -> int:
    name, _, number = options.again.partition(":")
    reader = next(each for each in READERS if each.name == name)
    content = input_of(reader, shelf, options.seed, int(number))
    sys.stdout.buffer.write(content + b"\n")
    print(bears(reader, shelf, content)[0] or "is borne")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
