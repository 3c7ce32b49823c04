"""What `run --baseline` adds: comparing the run with what is remembered, and remembering it."""

import argparse
import sys
from pathlib import Path

from conformance.cli.compare import load_baseline, tell
from conformance.cli.errors import UsageError
from conformance.engine.run import load_run
from conformance.gate.baseline import side_of_baseline, updated, within
from conformance.gate.baseline_file import BaselineFile, write_baseline
from conformance.gate.comparison import Comparison, compare, title
from conformance.gate.side import Side, side_of


class Memory:
    """The baseline that a run was given, if any: read before anything runs, so that a fault of it costs nothing."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        """
        Read the file.

        Raises:
            UsageError: it is absent and not to be made, or no baseline, with what to do.
        """
        self.path: Path | None = arguments.baseline
        self.update: bool = arguments.update_baseline
        self._skip_budget: int = arguments.skip_budget
        self._old: BaselineFile | None = None
        self._run: Side | None = None
        self._whole = False
        if self.path is None:
            if self.update:
                raise UsageError("--update-baseline needs --baseline FILE, the file to write")
            return
        if not self.path.exists():
            if not self.update:
                raise UsageError(f"there is no baseline {self.path}: write it with --update-baseline")
            return
        self._old = load_baseline(self.path)

    def compare(self, folder: Path, *, whole: bool) -> Comparison | None:
        """
        Compare the run so far with the baseline; None where there is none.

        whole: no case and no subject was deselected.
        """
        if self.path is None:
            return None
        self._whole = whole
        self._run = side_of(load_run(folder), plain=False)
        if self._old is None:
            return None
        base = within(side_of_baseline(self._old, str(self.path)), self._run, whole=whole)
        return compare(base, self._run, skip_budget=self._skip_budget)

    def problems(self, found: Comparison | None) -> list[str]:
        """What the gate holds against the run; nothing where the baseline is to follow the run."""
        if found is None or self.update:
            return []
        return [f"against {self.path}: {title(group.kind).lower()}: {group.sentence}" for group in found.rejected]

    def finish(self, found: Comparison | None, folder: Path, *, complete: bool) -> None:
        """Tell the comparison, and write the baseline where that was asked for."""
        if found is not None:
            print(f"Against {self.path}:")
            tell(found, folder / "comparison")
        if not self.update or self.path is None or self._run is None:
            return
        if not complete:
            print(f"conformance: {self.path} was not updated: the run is incomplete", file=sys.stderr)
            return
        write_baseline(self.path, updated(self._old, self._run, whole=self._whole))
        print(f"Baseline: {self.path}")
