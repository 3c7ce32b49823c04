"""The folder of a run: made with a header, or taken up where a run was cut."""

import argparse
import datetime as dt
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.cli.errors import UsageError
from conformance.cli.offer import Offer
from conformance.engine.header import header
from conformance.engine.runlog import LOG, RunLog, RunLogError
from conformance.spec.case import Case


def new_folder(kind: str = "") -> Path:
    """A folder that nobody has: reports/<kind><UTC>-<id>."""
    return Path("reports") / f"{kind}{dt.datetime.now(tz=dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Opened:
    """An open run folder: its log, the header, and the cells that are judged already where the run is resumed."""

    folder: Path
    log: RunLog
    header: Mapping[str, Any]
    done: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)


def open_folder(arguments: argparse.Namespace, offer: Offer, cases: Sequence[Case], *, left_out: int = 0) -> Opened:
    """
    Make the run folder and its log with a header, or take up the one that was cut.

    left_out: how many cases are asked only with --thorough.

    Raises:
        UsageError: there is nothing to resume, what was asked has changed since, or a run stands there already.
    """
    if arguments.resume and arguments.out is None:
        raise UsageError("--resume goes on with a run that was cut: name its folder, such as --out reports/nightly")
    folder = arguments.out or new_folder()
    command = ["conformance", *sys.argv[1:]]
    first = header(folder.name, command, arguments.device, cases, offer.subjects, offer.used, offer.not_offered)
    first["left_out"] = left_out
    try:
        if arguments.resume:
            log, records = RunLog.resume(folder / LOG)
            return Opened(folder, log, first, _done(first, records))
        folder.mkdir(parents=True, exist_ok=True)
        log = RunLog.create(folder / LOG)
    except FileExistsError as error:
        raise UsageError(f"{folder} holds a run already: choose another --out, or --resume it") from error
    except (RunLogError, OSError) as error:
        raise UsageError(str(error)) from error
    log.append(first)
    if arguments.out is None:
        point_latest(folder)
    return Opened(folder, log, first)


def _done(first: Mapping[str, Any], records: Sequence[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The cells of a cut run, if it asked what this one asks."""
    before = records[0] if records else {}
    for what in ("cases", "subjects", "environments", "judge", "device"):
        if before.get(what) != first[what]:
            raise UsageError(f"cannot resume: the {what} of that run were others; start a new run without --resume")
    return {(record["case"], record["subject"]): record for record in records if record["type"] == "cell"}


def point_latest(folder: Path) -> None:
    """Let reports/latest be the newest run; a link, so that nothing is copied."""
    latest = folder.parent / "latest"
    if latest.is_symlink() or not latest.exists():
        latest.unlink(missing_ok=True)
        latest.symlink_to(folder.name, target_is_directory=True)
