"""The `--baseline` option of `run` and `check`: compare a run with a baseline file, and update the file."""

import argparse
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.cli.argument_parser import UsageError, see_writable_files
from conformance.cli.command_compare import load_baseline, report_comparison
from conformance.engine.records import native
from conformance.engine.run_folder import load_run
from conformance.gate.baseline import BaselineFile, side_of_baseline, text_of, updated, within, write_baseline
from conformance.gate.change_groups import ChangeGroup
from conformance.gate.comparison import Comparison, compare, title
from conformance.gate.decision import Objections
from conformance.gate.observations import ComparedRun, side_of

# Maximum number of subjects that a sentence names.
MAX_NAMES = 3


class BaselineOption:
    """The baseline of a run, if it has one. It is read before anything runs, so that a bad file is reported at once."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """
        Read the baseline file that the arguments name.

        Raises:
            UsageError: the file is absent and --update-baseline was not given, or it is not a baseline.
        """
        self.path: Path | None = arguments.baseline
        self.update: bool = arguments.update_baseline
        self._skip_budget: int = arguments.skip_budget
        self._old: BaselineFile | None = None
        self._run: ComparedRun | None = None
        self._comparison: Comparison | None = None
        self._folder = Path()
        self._whole = False
        self._left_out: Collection[str] = ()
        if self.path is None:
            if self.update:
                raise UsageError("--update-baseline needs --baseline FILE, the file to write")
            return
        if self.update:
            see_writable_files(self.path)
        if not self.path.exists():
            if not self.update:
                raise UsageError(f"there is no baseline {self.path}: write it with --update-baseline")
            return
        target = vars(arguments).get("target")  # only `check` has one
        writer = "conformance run" if target is None else f"conformance check {shlex.quote(target)}"
        self._old = load_baseline(self.path, writer)

    def problems(self, folder: Path, *, whole: bool, left_out: Collection[str] = ()) -> Objections:
        """
        Compare the cells judged so far with the baseline, and return what the gate objects to.

        With --update-baseline nothing is rejected. whole: no case and no subject was deselected. left_out: ids of cases
        that only a thorough run asks; their entries in the baseline are kept.
        """
        if self.path is None:
            return Objections()
        self._folder, self._whole, self._left_out = folder, whole, left_out
        self._run = side_of(load_run(folder), plain=False)
        if self._old is None:
            return Objections()
        base = within(side_of_baseline(self._old, str(self.path)), self._run, whole=whole, left_out=left_out)
        self._comparison = compare(base, self._run, skip_budget=self._skip_budget)
        if self.update:
            return Objections()
        texts = map(_rejected, self._comparison.rejected)
        uncompared = self._uncompared(self._old, self._run) if self._comparison.says_nothing else ()
        return Objections(*(tuple(f"against {self.path}: {each}" for each in some) for some in (texts, uncompared)))

    def _uncompared(self, old: BaselineFile, run: ComparedRun) -> Iterator[str]:
        """Yield why nothing was compared, and what to do."""
        again = "write the baseline again with --update-baseline"
        if self._comparison is not None and self._comparison.compared:
            yield f"nothing was compared: no verdict was judged on both sides: {again}"
        elif old.subjects.keys() & run.asked.keys():
            yield f"nothing was compared: the file has no case of this run: choose others, or {again}"
        else:
            theirs, ours = (_listed([*each]) for each in (old.subjects, run.asked))
            yield f"nothing was compared: the file has {theirs}, not {ours}: if this is a new name, {again}"

    def finish(self, *, complete: bool, again: bool = False) -> None:
        """
        Print the comparison, and write the baseline if --update-baseline was given.

        again: the run had already finished before this command. If it also wrote its baseline, the comparison with the
        previous baseline was reported then, and is kept.
        """
        if self._comparison is not None and not (again and self._is_written()):
            print(f"Against {self.path}:")
            report_comparison(self._comparison, self._folder / "comparison")
        if not self.update or self.path is None or self._run is None:
            return
        if not complete:
            print(f"conformance: {self.path} was not updated: the run is incomplete", file=sys.stderr)
            return
        write_baseline(self.path, self._new(self._run))
        print(f"Baseline: {self.path}")

    def _new(self, run: ComparedRun) -> Mapping[str, Any]:
        """Return the new content of the baseline file."""
        return updated(self._old, run, whole=self._whole, left_out=self._left_out)

    def _is_written(self) -> bool:
        """Return whether the file already has the content that this run would write."""
        if not self.update or self.path is None or self._run is None or self._old is None:
            return False
        return text_of(self._new(self._run)) == self.path.read_text(encoding="utf-8")


def _rejected(group: ChangeGroup) -> str:
    """The sentence about a change that the gate rejects, with the ways out if a known deviation accepts the cells."""
    text = f"{title(group.kind).lower()}: {group.sentence}"
    if not all(change.candidate is not None and change.candidate.known for change in group.changes):
        return text
    ways = "write the baseline again with --update-baseline, or limit the entry to newer releases under `versions`"
    return f"{text}; a known deviation accepts this, but the baseline does not have it: {ways}"


def _listed(names: Sequence[str]) -> str:
    """Format names of subjects, at most MAX_NAMES; dense forms go with their subject."""
    shown = [name for name in names if native(name) == name]
    more = f" and {len(shown) - MAX_NAMES} more" if len(shown) > MAX_NAMES else ""
    return f"{', '.join(shown[:MAX_NAMES])}{more}" if shown else "no subject"
