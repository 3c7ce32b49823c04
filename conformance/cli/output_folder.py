"""The folder of a run: made with a header, or taken up where a run was cut."""

import argparse
import datetime as dt
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.cli.errors import FULL, UsageError, resumable, sentence
from conformance.cli.offer import Offer
from conformance.disk import identity
from conformance.engine.run_folder import graver_cells
from conformance.engine.run_header import header
from conformance.engine.runlog import LOG, Record, RunLog, RunLogError, as_logged, read_log
from conformance.spec.case import Case
from conformance.spec.texts import are


def new_folder(kind: str = "") -> Path:
    """A folder that nobody has: reports/<kind><UTC>-<id>."""
    return Path("reports") / f"{kind}{dt.datetime.now(tz=dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Opened:
    """
    A run folder that is ours: its log is locked until it is closed.

    header: the first record of the log. done: cells that were judged before the run was cut. footer: of a run that came
    to its end, and lacks files at most.
    """

    folder: Path
    log: RunLog
    header: Mapping[str, Any]
    done: Mapping[tuple[str, str], Record] = field(default_factory=dict)
    footer: Record | None = None


def has_ended(arguments: argparse.Namespace) -> bool:
    """Whether a run that is to be resumed has nothing left to judge."""
    if not arguments.resume or arguments.out is None:
        return False
    try:
        return read_log(arguments.out / LOG).complete
    except (RunLogError, OSError):
        return False  # it is told where the folder is opened


def open_folder(arguments: argparse.Namespace, offer: Offer, cases: Sequence[Case], *, left_out: int = 0) -> Opened:
    """
    Make the run folder and its log with a header, or take up the one that was cut.

    left_out: how many cases are asked only with --thorough.

    Raises:
        UsageError: there is nothing to resume, what was asked has changed since, a run stands there already, or another
            process holds it.
        EnvironmentFault: the disk is full.
    """
    if arguments.resume and arguments.out is None:
        raise UsageError("--resume goes on with a run that was cut: name its folder, such as --out reports/nightly")
    folder = arguments.out or new_folder()
    command = ["conformance", *sys.argv[1:]]
    first = header(folder.name, command, arguments.device, cases, offer.subjects, offer.used, offer.not_offered)
    first["left_out"] = left_out
    try:
        if arguments.resume:
            opened = _taken_up(folder, first)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            opened = _begun(folder, RunLog.create(folder / LOG), first)
    except FileExistsError as error:
        raise UsageError(f"{folder} holds a run already: choose another --out, or --resume it") from error
    except RunLogError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        if error.errno in FULL:
            raise resumable(error, folder) from error
        raise UsageError(sentence(error)) from error
    if not opened.log.locked:
        print(f"conformance: {folder} lies where files cannot be locked: start no second run there", file=sys.stderr)
    if arguments.out is None:
        point_latest(folder)
    return opened


def _begun(folder: Path, log: RunLog, first: Mapping[str, Any]) -> Opened:
    try:
        log.append(first)
    except BaseException:
        log.close()
        raise
    return Opened(folder, log, first)


def _taken_up(folder: Path, first: Mapping[str, Any]) -> Opened:
    """A run that was cut anywhere; one that had not written its header yet begins."""
    if not folder.is_dir():
        raise UsageError(f"nothing to resume: there is no folder {folder}; start the run without --resume")
    log, records = RunLog.resume(folder / LOG)
    if not records:
        return _begun(folder, log, first)
    try:
        _see_same(as_logged(first), records[0])
    except BaseException:
        log.close()
        raise
    done, repeated = graver_cells(records)
    if repeated:
        what = f"{are(repeated, 'cell')} in {folder / LOG} more than once"
        print(f"conformance: two processes wrote it at once: {what}; the graver verdict counts", file=sys.stderr)
    return Opened(folder, log, first, done, records[-1] if records[-1]["type"] == "footer" else None)


def _see_same(first: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """See that a cut run asked what this one asks."""
    for what in ("cases", "subjects", "environments", "judge", "device"):
        if before.get(what) != first[what]:
            raise UsageError(f"cannot resume: the {what} of that run were others; start a new run without --resume")


def point_latest(folder: Path) -> None:
    """Let reports/latest be the newest run; a link, so that nothing is copied."""
    latest = folder.parent / "latest"
    if latest.is_symlink() or not latest.exists():
        link = latest.with_name(f".latest.{identity()}.part")
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name, target_is_directory=True)
        link.replace(latest)
