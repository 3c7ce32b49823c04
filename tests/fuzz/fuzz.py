"""
Feed mutated and made-up files to every reader: none may cause a traceback, take over 2 s, or over 300 MB.

    python -m tests.fuzz.fuzz                       the whole session: 100,000 inputs, seeds printed
    python -m tests.fuzz.fuzz --count 2000 --only cases --seed 7
    python -m tests.fuzz.fuzz --seed 7 --again logs:123     one input again, with its result

A mutated input depends only on the seed, the reader, its number, and the real files that are mutated.
For YAML and JSON, hypothesis makes up every tenth input; these depend on the seed and the reader.
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
# CPU seconds that one input may take. Wall time would depend on what else the machine does.
SECONDS = 2.0

# MB by which one input may raise the peak memory of the process.
MEGABYTES = 300

# CPU seconds after which an input is aborted.
HANG = 20.0

INTERNAL = 3
# One input in this many is made up.
MADE_UP = 10


@dataclass(frozen=True)
class Failure:
    """An input that a reader failed on: the reader, the number of the input, the failure in words, and the bytes."""

    reader: str
    number: int
    said: str
    content: bytes = field(repr=False)


class TooLong(BaseException):
    """An input took so long that it was aborted. It is a BaseException, so no `except Exception` catches it."""


def _give_up(_signal: int, _frame: Any) -> None:
    raise TooLong


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Abort the block after HANG seconds of CPU time."""
    before = signal.signal(signal.SIGVTALRM, _give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def peak() -> float:
    """Return the peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bears(reader: Reader, shelf: Shelf, content: bytes) -> tuple[str, int]:
    """Return why the reader fails on an input, or "" if it does not, and its exit code."""
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
    except Exception:  # noqa: BLE001 - tracebacks are what this looks for
        said = traceback.format_exc()[-3000:]
    seconds, megabytes = time.process_time() - started, peak() - memory
    if not said and seconds > SECONDS:
        said = f"took {seconds:.1f} s"
    if not said and megabytes > MEGABYTES:
        said = f"took {megabytes:.0f} MB"
    return said, code


def input_of(reader: Reader, shelf: Shelf, seed: int, number: int) -> bytes:
    """Return a mutated real file."""
    rng = random.Random(f"{seed}/{reader.name}/{number}")  # noqa: S311 - no secret
    return mutated(rng, shelf.corpus[reader.name], reader.kind)


def made_up(reader: Reader, seed: int, count: int, take: Callable[[bytes], None]) -> None:
    """Pass `count` files that hypothesis makes up to `take`: any mapping in the format of the reader, or any bytes."""
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
    """The counts of the inputs read so far, and the inputs that failed."""

    shelf: Shelf
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)

    def read(self, reader: Reader, number: int, content: bytes) -> None:
        """Pass one input to the reader and record the result."""
        started = time.process_time()
        said, code = bears(reader, self.shelf, content)
        self.counts[reader.name] += 1
        self.refused[reader.name] += code == USAGE
        self.slowest[reader.name] = max(self.slowest.get(reader.name, 0.0), time.process_time() - started)
        if said:
            self.failures.append(Failure(reader.name, number, said, content))

    def run(self, reader: Reader, count: int) -> None:
        """Pass `count` inputs to one reader; those that are made up have negative numbers."""
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
    """Return how many inputs each reader gets."""
    total = sum(reader.share for reader in readers)
    found = {reader.name: count * reader.share // total for reader in readers}
    found[readers[0].name] += count - sum(found.values())
    return found


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse the options of a session."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().partition("\n")[0])
    parser.add_argument("--count", type=int, default=COUNT, help="inputs in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("--only", action="append", choices=[reader.name for reader in READERS], help="may be repeated")
    parser.add_argument("--again", metavar="READER:NUMBER", help="one input again")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where inputs that fail are written")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    """Run a session and print its counts; return 1 if an input failed."""
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
