"""One check for all processes of a test session: the first that needs it judges, the others read what it found."""

import fcntl
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conformance.disk import write_whole
from conformance.own.api import check
from conformance.own.errors import CheckError
from conformance.own.outcomes import Outcome


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
