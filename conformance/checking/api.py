"""`conformance.check`: check a function from Python, and once for all processes of a test session."""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from conformance.checking.check_report import CaseOutcome, CheckCause
from conformance.checking.function_check import MIN_JUDGED, TIMEOUT, Checked, chosen_cases, see_writable_folder
from conformance.checking.function_check import check as judge
from conformance.checking.request_options import request_of
from conformance.checking.target import CheckError
from conformance.disk import write_whole
from conformance.engine.cell_records import RunListener


@dataclass(frozen=True)
class Result:
    """
    The result of a check.

    conforms: everything was judged and accepted. findings: the causes if it was not. notes: how the function was called
    and what was observed, as sentences. exit_code: the exit code of `conformance check`. folder: the run folder, None
    if it was removed. text: everything as printed. outcomes: the outcome of each case.
    """

    conforms: bool
    findings: tuple[CheckCause, ...]
    notes: tuple[str, ...]
    exit_code: int
    folder: Path | None
    text: str
    outcomes: Mapping[str, CaseOutcome] = field(default_factory=dict)

    def assert_conforms(self) -> None:
        """
        Check that the function conforms.

        Raises:
            AssertionError: it does not; the message has the causes and the path of the report.
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
    device: str | None = None,
    mapping: Mapping[str, str] | None = None,
    exclusive: Sequence[str] = (),
    declines: Sequence[str] = (),
    head_dims: Sequence[int] = (),
    seq_len_multiple: int = 1,
    dtypes: Sequence[str] = (),
    cases: Sequence[str] = (),
    case_paths: Sequence[str | os.PathLike[str]] = (),
    timeout: float = TIMEOUT,
    min_judged: float = MIN_JUDGED,
    out: str | os.PathLike[str] | None = None,
) -> Result:
    """
    Judge a function that is defined at the top level of a file (docs/check.md).

    like: the subject that it replaces, such as "torch.sdpa". declare: decision -> name. profile, operator,
    framework, layout, device: as the options of the command. mapping: argument -> role, as --map. exclusive: arguments
    for masks of which a call may have only one. declines: texts of exceptions with which the function refuses what it
    is documented not to take. head_dims: the values of head_dim that the function takes. seq_len_multiple: seq_len_q
    and seq_len_k have to be multiples of this number. dtypes, cases: names of dtypes and globs of cases to which the
    check is limited. exclusive, declines, dtypes and cases may be a string, and head_dims a number, which is a list of
    one. case_paths: files or folders of your own cases, which are judged instead of the packaged ones. timeout: seconds
    that one call may take. min_judged: minimum share of the cases that must be judged, from 0 to 1. out: the run
    folder; by default a temporary one, which is kept only if the function does not conform.

    Raises:
        CheckError: an option is wrong, or the function cannot be checked.
    """
    request = request_of(
        function,
        like,
        declare=declare,
        profile=profile,
        mapping=mapping,
        exclusive=exclusive,
        declines=declines,
        head_dims=head_dims,
        seq_len_multiple=seq_len_multiple,
        dtypes=dtypes,
        cases=cases,
        case_paths=case_paths,
        timeout=timeout,
        min_judged=min_judged,
        operator=operator,
        framework=framework,
        layout=layout,
        device=device,
    )
    folder = _made(out)
    try:
        checked = _outside_loops(lambda: judge(request, folder, RunListener()))
    except BaseException:
        _remove(folder, out)
        raise
    kept = folder if out is not None or not checked.decision.conforms else None
    result = _result(checked, kept)  # reads the log, so before the folder goes
    if kept is None:
        _remove(folder, out)
    return result


def _made(out: str | os.PathLike[str] | None) -> Path:
    """
    Create the run folder: a temporary one if none is named.

    Raises:
        CheckError: it is not a path, or the folder cannot be written.
    """
    if out is None:
        return Path(tempfile.mkdtemp(prefix="conformance-check-"))
    if not isinstance(out, str | os.PathLike):
        raise CheckError(f"out is the path of a folder, not {out!r}")
    see_writable_folder(Path(out))
    return Path(out)


def cases_of(function: Callable[..., Any], like: str | None = None, **options: Any) -> tuple[str, ...]:
    """
    Return the ids of the cases that `check` asks of a function; a function written with `def` is not called for this.

    options: those of `check`, except `out`.

    Raises:
        CheckError: an option is wrong, the signature is not usable, or no case matches.
    """
    request = request_of(function, like, **options)
    return tuple(case.id for case in _outside_loops(lambda: chosen_cases(request)))


Made = TypeVar("Made")


def _outside_loops(work: Callable[[], Made]) -> Made:
    """Run the work in a separate thread if an event loop is running already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(work).result()


def _remove(folder: Path, out: str | os.PathLike[str] | None) -> None:
    if out is None:
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
) -> dict[str, CaseOutcome]:
    """
    Judge a function on these cases, once for all processes that share the folder, and return case -> outcome.

    folder: a folder of this session, which also keeps the run folder. name: identifies this check in the session.
    options: those of `check`, except `cases` and `out`. If the function cannot be checked, every outcome says why.
    """
    stem = hashlib.sha256(name.encode()).hexdigest()[:16]
    result = folder / f"conformance-{stem}.json"
    with result.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the process dies, so that another one takes over
        if not result.exists():
            found = _judge(folder, function, ids, options)
            write_whole(result, json.dumps({case: asdict(each) for case, each in found.items()}))
    return {case: CaseOutcome(**each) for case, each in json.loads(result.read_text(encoding="utf-8")).items()}


def _judge(
    folder: Path, function: Callable[..., Any], ids: Sequence[str], options: dict[str, Any]
) -> dict[str, CaseOutcome]:
    out = Path(tempfile.mkdtemp(prefix="conformance-", dir=folder))
    try:
        result = check(function, **options, cases=ids, out=out)
    except CheckError as error:
        return {case: CaseOutcome("error", accepted=False, text=str(error)) for case in ids}
    report = f"report: {out / 'index.html'}"
    return {
        case: each if each.accepted else CaseOutcome(each.verdict, accepted=False, text=f"{each.text}\n{report}")
        for case, each in result.outcomes.items()
    }
