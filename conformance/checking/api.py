"""`conformance.check`: the same from Python, for a test suite, and once for all processes of a test session."""

import asyncio
import fcntl
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from conformance.checking.check_report import Cause, Outcome
from conformance.checking.function_check import MIN_JUDGED, TIMEOUT, Checked, Request, asked
from conformance.checking.function_check import check as judge
from conformance.checking.preflight import Calling
from conformance.checking.target import CheckError, target_of
from conformance.disk import write_whole
from conformance.engine.job import RunListener


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
        checked = _outside_loops(lambda: judge(request, folder, RunListener()))
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


def judged_once(
    folder: Path, name: str, function: Callable[..., Any], ids: Sequence[str], options: dict[str, Any]
) -> dict[str, Outcome]:
    """
    Judge a function in these cases, unless a process has that works in the same folder: case -> what became of it.

    folder: of this session alone, where the run folder stays, too. name: what tells this check from others of the
    session. options: those of `check`, but for `cases` and `out`. Where nothing can be checked, every case says why.
    """
    stem = hashlib.sha256(name.encode()).hexdigest()[:16]
    told = folder / f"conformance-{stem}.json"
    with told.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # falls with the process, so that another takes over where one dies
        if not told.exists():
            found = _judge(folder, function, ids, options)
            write_whole(told, json.dumps({case: asdict(each) for case, each in found.items()}))
    return {case: Outcome(**each) for case, each in json.loads(told.read_text(encoding="utf-8")).items()}


def _judge(
    folder: Path, function: Callable[..., Any], ids: Sequence[str], options: dict[str, Any]
) -> dict[str, Outcome]:
    out = Path(tempfile.mkdtemp(prefix="conformance-", dir=folder))
    try:
        result = check(function, **options, cases=ids, out=out)
    except CheckError as error:
        return {case: Outcome("error", accepted=False, text=str(error)) for case in ids}
    report = f"report: {out / 'index.html'}"
    return {
        case: each if each.accepted else Outcome(each.verdict, accepted=False, text=f"{each.text}\n{report}")
        for case, each in result.outcomes.items()
    }
