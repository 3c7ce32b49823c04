"""`conformance.check`: the same from Python, for a test-suite of one's own."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.engine.watch import Watch
from conformance.own.causes import Cause
from conformance.own.checking import MIN_JUDGED, TIMEOUT, Checked, Request, asked
from conformance.own.checking import check as judge
from conformance.own.outcomes import Outcome
from conformance.own.preflight import Calling
from conformance.own.target import target_of


@dataclass(frozen=True)
class Result:
    """
    What became of a check.

    conforms: everything was judged, and accepted. findings: why not. notes: what was settled and observed. exit_code:
    that of the command. folder: the run folder, where there is something to look at. outcomes: what became of each
    case.
    """

    conforms: bool
    findings: tuple[Cause, ...]
    notes: tuple[str, ...]
    exit_code: int
    folder: Path | None
    text: str
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

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
    framework: str | None = None,
    layout: str | None = None,
    mapping: Mapping[str, str] | None = None,
    dtypes: Sequence[str] = (),
    cases: Sequence[str] = (),
    timeout: float = TIMEOUT,
    min_judged: float = MIN_JUDGED,
    out: Path | None = None,
) -> Result:
    """
    Judge a function that is defined at the top level of a file (docs/check.md).

    like: the subject for which it is a drop-in, such as "torch.sdpa". declare: decision -> name. framework, layout: as
    --framework and --layout. mapping: argument -> what it is, as --map. dtypes, cases: only these, by names and globs.
    min_judged: the least part of the cases that is to be judged. out: the run folder; without it, a temporary one that
    stays only where the function does not conform.

    Raises:
        CheckError: what was asked for cannot be checked.
    """
    calling = Calling(operator, framework, layout, dict(mapping or {}))
    request = Request(
        target_of(function),
        like,
        calling,
        profile,
        dict(declare or {}),
        tuple(cases),
        tuple(dtypes),
        timeout,
        min_judged,
    )
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


def cases_of(
    function: Callable[..., Any],
    like: str | None = None,
    *,
    operator: str | None = None,
    mapping: Mapping[str, str] | None = None,
    dtypes: Sequence[str] = (),
    cases: Sequence[str] = (),
) -> tuple[str, ...]:
    """
    The ids of the cases that `check` puts to a function; what is written with `def` is not called for it.

    Raises:
        CheckError: as `check`, as far as the signature and the case files tell.
    """
    calling = Calling(operator, mapping=dict(mapping or {}))
    request = Request(target_of(function), like, calling, globs=tuple(cases), dtypes=tuple(dtypes))
    return tuple(case.id for case in asked(request))


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
    text = "\n".join(lines)
    return Result(decision.conforms, checked.causes, checked.notes, decision.exit_code, folder, text, checked.outcomes)
