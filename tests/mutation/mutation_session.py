"""
Mutation testing of this tool: what is killed, and what is named rightly or wrongly. `nox -s mutation`.

Mutants are lying adapters, judged by `conformance run`. Bugs are functions, judged by `conformance check`. Each
takes the whole path: case files, routing, worker process, judging, diagnosis, run folder.
"""

import argparse
import contextlib
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from conformance.checking.adapter_text import ADAPTER
from conformance.checking.function_check import CheckRequest, check
from conformance.checking.target import CheckError, parse_target
from conformance.cli.main import main as conformance
from conformance.diagnosis.conditions import always
from conformance.engine.cell_records import RunListener
from conformance.gate import decision
from conformance.report import Run, load_run

from .bugs_list import Bug, bugs
from .effects import Effects, every_case
from .leaking import leaks
from .mutants import Choice, Mutant, asked_of
from .scoring import OUTCOMES, Option, Said, outcome, said_of, score

# Number of pairs of deviations that are sampled.
PAIRS = 40

# True of nearly every bug; `leaking` tests each one.
LEAK = "nonfinite_value=leaks"

T = TypeVar("T")


@dataclass(frozen=True)
class Row:
    """The result of one mutant or bug. group: its row in the table. counts: False for the control."""

    group: str
    name: str
    outcome: str
    said: str
    counts: bool = True


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the tables, and return 1 if a result is below the bar."""
    asked = _parser().parse_args(arguments)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # for workers: processes run in parallel
    faults = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        of_bugs = () if asked.mutants else pool.map(judged_bug, _sampled(_bugs(asked.only), asked.sample))
        # Mutants are chosen here while the pool judges bugs.
        of_mutants = () if asked.bugs else pool.map(judged_mutant, _mutants(asked.sample))
        if not asked.mutants:
            faults += _table("bugs: attention as people write it, on every case", list(_shown(of_bugs)))
        if not asked.bugs:
            faults += _table("mutants: the oracle under deviations, on some cases", list(_shown(of_mutants)))
    print("\n".join(f"below the bar: {fault}" for fault in faults) or "the bar is met")
    return 1 if faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nox -s mutation --", description=(__doc__ or "").strip())
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="take every Nth alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="so many side by side")
    parser.add_argument("--only", default="", metavar="TEXT", help="bugs that have this in their name")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--bugs", action="store_true", help="leave the mutants out")
    one.add_argument("--mutants", action="store_true", help="leave the bugs out")
    return parser


def _bugs(text: str) -> list[Bug]:
    return [bug for bug in bugs() if text in bug.name]


def _mutants(sample: int) -> list[Mutant]:
    """Return every `sample`th mutant, and the control, which does not lie."""
    with tempfile.TemporaryDirectory() as folder:
        choice = Choice(asked_of(list(every_case().values()), Path(folder)))
    return [*_sampled([*choice.singles(), *choice.guarded(), *choice.pairs(PAIRS)], sample), choice.identity()]


def judged_mutant(mutant: Mutant) -> Row:
    """Score what `conformance run` reports for a mutant."""
    with tempfile.TemporaryDirectory() as folder:
        return row_of(mutant, run_mutant(Path(folder), mutant))


def run_mutant(folder: Path, mutant: Mutant) -> Run:
    """
    Judge a mutant, and return the run.

    Raises:
        RuntimeError: the run ended without a verdict.
    """
    out = folder / f"{mutant.name}.run"
    words = ["run", "-j", "1", "--no-cache", "--out", str(out), "-a", str(mutant.write(folder))]
    for case in mutant.cases:
        words += ["-k", case]
    if (code := quietly(lambda: conformance(words))) not in (decision.CONFORMS, decision.REJECTED):
        raise RuntimeError(f"{mutant.name} ended with exit code {code}: conformance {' '.join(words)}")
    return load_run(out)


def row_of(mutant: Mutant, run: Run) -> Row:
    """Score a mutant. The right cause is its lie under its condition; of two lies, either one or both together."""
    said = said_of(run)
    expected = [Option(frozenset({lie.key}), lie.when) for lie in mutant.lies]
    if len(mutant.lies) > 1:
        expected.append(Option(frozenset(lie.key for lie in mutant.lies), mutant.lies[0].when))
    found = outcome(said, expected, alike=Effects(run, mutant.path(run.folder.parent)).alike)
    counts = bool(mutant.lies)
    if not counts:  # the control is right if it survives
        found = "right" if found == "survived" else "wrong"
    lies = " and ".join(f"{lie.key} {lie.when.words}".strip() for lie in mutant.lies)
    return Row(f"{mutant.kind} {mutant.decision}", f"{mutant.kind}: {lies or 'no lie'}", found, text(said), counts)


def judged_bug(bug: Bug) -> Row:
    """Score what `conformance check` reports for a bug."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        request = CheckRequest(parse_target(bug.given), declare=bug.declare)
        try:
            done = quietly(lambda: check(request, folder, RunListener()))
        except CheckError as refused:  # a simple call already fails, so nothing is judged and no cause is named
            return Row(bug.name, bug.name, "unexplained", str(refused).splitlines()[0])
        said, effects = said_of(done.run), Effects(done.run, folder / ADAPTER)
        expected = also_leaking(bug)
        return Row(
            bug.name, bug.name, outcome(said, [*expected, *parts(expected)], bug.kinds, effects.alike), text(said)
        )


def also_leaking(bug: Bug) -> tuple[Option, ...]:
    """Return the right causes of a bug. If it leaks masked values (zero times NaN is NaN), the leak is also right."""
    if not leaks(bug):
        return bug.expected
    both = [Option(option.keys | {LEAK}, option.when) for option in bug.expected]
    return (*bug.expected, *both, Option(frozenset({LEAK}), always()))


def parts(expected: Iterable[Option]) -> Iterator[Option]:
    """Yield each deviation of options that have several: the report makes them separate findings if that is shorter."""
    return (Option(frozenset({key}), each.when) for each in expected if len(each.keys) > 1 for key in each.keys)


def quietly(work: Callable[[], T]) -> T:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return work()


def text(said: Said) -> str:
    """Return the named causes with their conditions, ties after a slash, then the kinds of unexplained rejections."""
    causes = [
        " / ".join(f"{'+'.join(sorted(option.keys))} {option.when.words}".strip() for option in named.options)
        for named in said.named
    ]
    return "; ".join([*causes, *(f"({kind})" for kind in said.others)])


def _sampled(each: Sequence[T], sample: int) -> Sequence[T]:
    return each[::sample]


def _shown(rows: Iterable[Row]) -> Iterator[Row]:
    """Print each row as soon as it is known: problems to stdout, the others to stderr to show progress."""
    for row in rows:
        fine = row.outcome in ("right", "tie")
        said = "" if fine else f"  ->  {row.said or 'conforms'}"
        print(f"{row.outcome:11}  {row.name}{said}", file=sys.stderr if fine else sys.stdout, flush=True)
        yield row


def _table(title: str, rows: Sequence[Row]) -> list[str]:
    """Print the number of results for each outcome, and return what is below the bar."""
    if not rows:
        return [f"none of the {title.partition(':')[0]} is chosen: nothing is judged"]
    groups: dict[str, Counter[str]] = {}
    for row in rows:
        groups.setdefault(row.group, Counter())[row.outcome] += 1
    width = max(map(len, groups))
    print(f"\n{title}\n{'':{width}}  {'  '.join(f'{name:>11}' for name in OUTCOMES)}")
    for group, counts in groups.items():
        print(f"{group:{width}}  {'  '.join(f'{counts[name]:>11}' for name in OUTCOMES)}")
    counted = score(row.outcome for row in rows if row.counts)
    print(f"{'together':{width}}  {'  '.join(f'{counted.counts[name]:>11}' for name in OUTCOMES)}\n")
    control = [
        f"a mutant that does not lie is rejected: {row.said}"
        for row in rows
        if row.counts is False and row.outcome == "wrong"
    ]
    return [*control, *counted.faults()]


if __name__ == "__main__":
    sys.exit(main())
