"""
Write every everyday mistake in several signatures, and print what `check` names. `nox -s everyday`.

A signature is a set of keyword arguments that can express the mistake: the fewest, all, and some random sets. With
`--pairs N`, check N functions with two mistakes each instead. With `--rows`, each function also returns NaN, or the
mean of V, for a fully masked row. This is accepted, so it must not be reported. With `--right N`, check N functions
without a mistake, each written in its own way. Nothing may be reported. With `--styled`, write each function with a
mistake in its own way, too.
"""

import argparse
import contextlib
import io
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from conformance.checking.function_check import CheckRequest, check
from conformance.checking.target import parse_target
from conformance.diagnosis.explanation import of_change
from conformance.engine.cell_records import RunListener
from conformance.engine.run_folder import Run
from tests.mutation.scoring import Named, Option, Said, said_of

from .everyday_mistakes import MHA, MISTAKES, SDPA, Mistake
from .writing import ARGUMENTS, OF_SOFTMAX, ROWS, STYLES, WITH_WEIGHTS, written

SEED = 16
# Argument -> the argument without which it has no meaning.
REQUIRED = {"causal_alignment": "is_causal", "average_weights": "need_weights"}

OUTCOMES = ("right", "tie", "more", "one", "wrong", "unexplained", "survived")


@dataclass(frozen=True)
class Trial:
    """
    A mistake in one signature.

    rows: what is returned for a fully masked row, a key of `writing.ROWS`. styles: part of the code -> the way in which
    it is written, keys of `writing.STYLES`.
    """

    mistake: Mistake
    operator: str
    arguments: tuple[str, ...]
    rows: str = "zero"
    styles: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The printed name."""
        rows = "" if self.rows == "zero" else f" ({self.rows})"
        styles = f" ({', '.join(f'{part} {way}' for part, way in self.styles.items())})" if self.styles else ""
        return f"{self.mistake.name} [{self.operator}: {' '.join(self.arguments) or 'mask alone'}]{rows}{styles}"

    @property
    def text(self) -> str:
        """The module with the function."""
        styled = {name: text for part, way in self.styles.items() for name, text in STYLES[part][way].items()}
        return written(self.operator, self.arguments, {**styled, **ROWS[self.rows], **self.mistake.lines})


def trials(drawn: int, mistakes: Sequence[Mistake] = MISTAKES, rows: str = "zero") -> Iterator[Trial]:
    """
    Every mistake with the fewest arguments, with all, and with up to this number of randomly drawn sets.

    rows: what is returned for a fully masked row. Mistakes in the lines that decide this are left out.
    """
    source = np.random.default_rng(SEED)
    for mistake in (each for each in mistakes if rows == "zero" or not (each.declare or {*each.lines} & {*ROWS[rows]})):
        for operator in mistake.operators:
            sets = dict.fromkeys([_closed(mistake.needs), _closed([*mistake.needs, *_free(mistake)])])
            for _ in range(drawn):
                some = [name for name in _free(mistake) if source.random() < 0.5]
                sets[_closed([*mistake.needs, *some])] = None
            yield from (Trial(mistake, operator, arguments, rows) for arguments in sets)


def right_trials(number: int) -> list[Trial]:
    """Draw this number of functions without a mistake: an operator, arguments, and the way in which each is written."""
    source = np.random.default_rng(SEED)
    none = Mistake("no mistake", (), {})
    found = []
    for _ in range(number):
        operator = str(source.choice((SDPA, MHA), p=(0.7, 0.3)))
        arguments = _closed([name for name in ARGUMENTS if source.random() < 0.3])
        found.append(Trial(none, operator, arguments, styles=_styles(none, arguments, source)))
    return found


def styled(every: Iterable[Trial]) -> Iterator[Trial]:
    """Draw for each function the way in which it is written, except in the lines of its mistake."""
    source = np.random.default_rng(SEED)
    for trial in every:
        yield replace(trial, styles=_styles(trial.mistake, trial.arguments, source))


def _styles(mistake: Mistake, arguments: Sequence[str], source: np.random.Generator) -> dict[str, str]:
    """
    Draw one way for each part of the code, of those that leave the lines of the mistake as they are.

    If something is declared for the mistake, the lines that decide what fully masked rows return stay, too.
    """
    kept = {*mistake.lines, *(name for lines in ROWS.values() for name in lines if mistake.declare)}
    found = {}
    for part, ways in STYLES.items():
        free = [way for way, lines in ways.items() if lines.keys().isdisjoint(kept)]
        if part == "softmax" and not mistake.lines.keys().isdisjoint(OF_SOFTMAX):
            free = [way for way in free if ways[way].keys() == {"output"}]
        elif part == "softmax" and "need_weights" in arguments:
            free = [way for way in free if way in WITH_WEIGHTS]
        if free:
            found[part] = str(source.choice(free))
    if "softmax" not in found:  # its lines cast the result
        found.pop("computes in", None)
    return found


def _free(mistake: Mistake) -> list[str]:
    """The further arguments that a signature may have."""
    taken = {*mistake.needs, *mistake.excludes}
    return [name for name in ARGUMENTS if name not in taken and REQUIRED.get(name) not in mistake.excludes]


def _closed(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the order of a signature, without those that have no meaning there."""
    return tuple(name for name in ARGUMENTS if name in names and REQUIRED.get(name, name) in names)


@dataclass(frozen=True)
class PairTrial:
    """Two mistakes in one signature."""

    first: Mistake
    second: Mistake
    operator: str
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """The printed name."""
        return f"{self.first.name} + {self.second.name} [{self.operator}: {' '.join(self.arguments) or 'mask alone'}]"

    @property
    def text(self) -> str:
        """The module with the function."""
        return written(self.operator, self.arguments, self.mistake.lines)

    @property
    def mistake(self) -> Mistake:
        """Both mistakes as one; a name that is right for either of them is right."""
        one, other = self.first, self.second
        return Mistake(
            self.name,
            (*one.right, *other.right),
            {**one.lines, **other.lines},
            declare={**one.declare, **other.declare},
            raises=one.raises or other.raises,
        )


def pair_trials(number: int) -> list[PairTrial]:
    """Draw this number of pairs of mistakes in different lines, each with the fewest arguments that can express it."""
    source = np.random.default_rng(SEED)
    found: list[PairTrial] = []
    while len(found) < number:
        one, other = (MISTAKES[index] for index in source.choice(len(MISTAKES), 2, replace=False))
        needs = {*one.needs, *other.needs}
        operators = [each for each in one.operators if each in other.operators]
        same = {*one.lines, *one.declare} & {*other.lines, *other.declare}
        if operators and not same and not needs & {*one.excludes, *other.excludes}:
            found.append(PairTrial(one, other, str(source.choice(operators)), _closed([*needs])))
    return found


@dataclass(frozen=True)
class Outcome:
    """What `check` reported for a trial."""

    trial: Trial | PairTrial
    outcome: str
    said: str
    seconds: float


def tried(trial: Trial | PairTrial, globs: tuple[str, ...] = ()) -> Outcome:
    """Check one trial, on all cases or on the chosen ones, and compare the reported names with the right names."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "mine.py"
        file.write_text(trial.text, encoding="utf-8")
        (folder / "run").mkdir()
        request = CheckRequest(parse_target(f"{file}:attention"), declare=trial.mistake.declare, globs=globs)
        started = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            done = check(request, folder / "run", RunListener())
        seconds = time.perf_counter() - started
        said = said_of(done.run)
        text = "; ".join([*map(_text, said.named), *(f"({kind})" for kind in said.others)])
        if isinstance(trial, PairTrial):
            told = _told(done.run)
            lines = [
                f"{len(done.causes)} findings",
                *(f"{' & '.join(sorted(names))} ({count})" for names, count in told),
            ]
            text = "; ".join([*lines, *(f"({kind})" for kind in said.others)])
            return Outcome(trial, pair_outcome(trial, [names for names, _ in told], said), text, seconds)
        return Outcome(trial, outcome_of(trial.mistake, said), text, seconds)


def pair_outcome(trial: PairTrial, told: Sequence[frozenset[str]], said: Said) -> str:
    """
    One of OUTCOMES for a function with two mistakes.

    told: the names in each finding. right: both mistakes are named, and nothing else. more: both are named, and
    something else is reported. one: only one of them is named. wrong: none is.
    """
    if said.conforms:
        return "survived"
    named = frozenset().union(*told)
    if not named:
        return "unexplained"
    rights = [{name for names in each.right for name in names.split("+")} for each in (trial.first, trial.second)]
    found = [bool(named & right) for right in rights]
    others = [kind for kind in said.others if not (trial.mistake.raises and kind == "error")]
    if not all(found):
        return "one" if any(found) else "wrong"
    return "more" if named - rights[0] - rights[1] or others else "right"


def _told(run: Run) -> list[tuple[frozenset[str], int]]:
    """The names in each finding of a run, and the number of verdicts of the finding."""
    causes = [cause for each in run.diagnoses.values() for cause in each.reported]
    return [
        (frozenset("=".join(way) for way in cause.decisions.items()) or frozenset({cause.arithmetic}), len(cause.cells))
        for cause in causes
    ]


def outcome_of(mistake: Mistake, said: Said) -> str:
    """
    One of OUTCOMES.

    right: every finding names the mistake first, and no alternative is rarer. tie: an alternative is rarer. more: a
    finding names the mistake first, but something else is reported too. wrong: no finding names the mistake first.
    Without a mistake, it is right that the function conforms.
    """
    if said.conforms:
        return "survived" if mistake.right else "right"
    if not said.named:
        return "unexplained"
    ours = [_key(each.options[0]) in mistake.right for each in said.named]
    others = [kind for kind in said.others if not (mistake.raises and kind == "error")]
    if not all(ours) or others:
        return "more" if any(ours) else "wrong"
    rarer = any(_bits(other) > _bits(each.options[0]) for each in said.named for other in each.options[1:])
    return "tie" if rarer else "right"


def _key(option: Option) -> str:
    return "+".join(sorted(option.keys))


def _bits(option: Option) -> float:
    """The cost of an option; an arithmetic costs more than any decision."""
    ways = [(decision, name) for decision, _, name in (key.partition("=") for key in option.keys)]
    return of_change(ways) if all(name for _, name in ways) else math.inf


def _text(named: Named) -> str:
    options = [f"{'+'.join(sorted(each.keys))} {each.when.words}".strip() for each in named.options]
    return f"{' / '.join(options)} ({named.count})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if the outcome of any trial is not `right`."""
    parser = argparse.ArgumentParser(prog="nox -s everyday --", description=(__doc__ or "").strip())
    parser.add_argument("--drawn", type=int, default=2, metavar="N", help="so many signatures that are drawn")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), metavar="N", help="so many side by side")
    parser.add_argument("--only", default="", metavar="TEXT", help="mistakes that have this in their name")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="N functions with two mistakes instead")
    parser.add_argument("--right", type=int, default=0, metavar="N", help="N functions without a mistake instead")
    parser.add_argument("--rows", choices=ROWS, default="zero", help="what is returned for a fully masked row")
    parser.add_argument("--styled", action="store_true", help="write each function in its own way")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="take every Nth alone")
    asked = parser.parse_args(arguments)
    kinds = {"--pairs": asked.pairs, "--right": asked.right, "--rows": asked.rows != "zero", "--styled": asked.styled}
    if len(given := [name for name in kinds if kinds[name]]) > 1:
        parser.error(f"{given[0]} cannot be used with {given[1]}: each of them says which functions are written")
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    every: Sequence[Trial | PairTrial] = pair_trials(asked.pairs) or right_trials(asked.right)
    alone = trials(asked.drawn, rows=asked.rows)
    every = every or [*(styled(alone) if asked.styled else alone)]
    chosen = [each for each in every if asked.only in each.mistake.name][:: asked.sample]
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(asked.jobs) as pool:
        for each in pool.map(tried, chosen):
            counts[each.outcome] += 1
            print(f"{each.outcome:11} {each.seconds:5.1f} s  {each.trial.name}  ->  {each.said or '-'}", flush=True)
    print("  ".join(f"{name}: {counts[name]}" for name in OUTCOMES))
    return 0 if counts["right"] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
