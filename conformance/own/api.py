"""`conformance.check`: the same from Python, for a test-suite of one's own."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.engine.watch import Watch
from conformance.own.causes import Cause
from conformance.own.checking import TIMEOUT, Checked, Request
from conformance.own.checking import check as judge
from conformance.own.target import target_of


@dataclass(frozen=True)
class Result:
    """
    What became of a check.

    conforms: everything was judged, and accepted. findings: why not. notes: what was settled and observed. exit_code:
    that of the command. folder: the run folder, where there is something to look at.
    """

    conforms: bool
    findings: tuple[Cause, ...]
    notes: tuple[str, ...]
    exit_code: int
    folder: Path | None
    text: str

    def assert_conforms(self) -> None:
        """
        Do nothing if it conforms.

        Raises:
            AssertionError: it does not; the text says why, and where the report is.
        """
        if not self.conforms:
            raise AssertionError(self.text)


def check(
    function: Callable[..., Any],
    like: str | None = None,
    *,
    declare: Mapping[str, str] | None = None,
    profile: str | None = None,
    operator: str | None = None,
    cases: Sequence[str] = (),
    timeout: float = TIMEOUT,
    out: Path | None = None,
) -> Result:
    """
    Judge a function that is defined at the top level of a file (docs/check.md).

    like: the subject for which it is a drop-in, such as "torch.sdpa". declare: decision -> name. cases: globs. out: the
    run folder; without it, a temporary one that stays only where the function does not conform.

    Raises:
        CheckError: what was asked for cannot be checked.
    """
    request = Request(target_of(function), like, operator, profile, dict(declare or {}), tuple(cases), timeout)
    folder = out or Path(tempfile.mkdtemp(prefix="conformance-check-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        checked = _outside_loops(lambda: judge(request, folder, Watch()))
    except BaseException:
        _remove(folder, out)
        raise
    if checked.decision.conforms:
        _remove(folder, out)
    return _result(checked, folder if folder.exists() else None)


def _outside_loops(work: Callable[[], Checked]) -> Checked:
    """A notebook runs an event loop; ours then runs in a thread beside it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(work).result()


def _remove(folder: Path, asked: Path | None) -> None:
    if asked is None:
        shutil.rmtree(folder, ignore_errors=True)


def _result(checked: Checked, folder: Path | None) -> Result:
    decision = checked.decision
    lines = [*checked.lines(), *decision.incomplete]
    if folder is not None:
        lines.append(f"Report: {folder / 'index.html'}")
    return Result(decision.conforms, checked.causes, checked.notes, decision.exit_code, folder, "\n".join(lines))
