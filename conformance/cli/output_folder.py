"""The output folder of a run: create it with a log and a header, or open it to resume an interrupted run."""

import argparse
import datetime as dt
import hashlib
import json
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.cli.argument_parser import FULL, EnvironmentFault, UsageError, resumable, sentence
from conformance.cli.offer import Offer
from conformance.disk import identity, unwritable
from conformance.engine.logged_cell import JudgedCell
from conformance.engine.records import Key
from conformance.engine.run_folder import graver_cells
from conformance.engine.run_header import case_records, header
from conformance.engine.runlog import (
    LOG,
    LoggedRecords,
    Record,
    RunLog,
    RunLogError,
    as_logged,
    case_count,
    read_log,
)
from conformance.spec.case import Case
from conformance.spec.texts import are


def new_folder(kind: str = "") -> Path:
    """Return the path of a new folder: reports/<kind><UTC>-<id>."""
    return Path("reports") / f"{kind}{dt.datetime.now(tz=dt.UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True)
class Opened:
    """
    An open run folder; its log is locked until it is closed.

    cases: a digest of the records of the cases. done: cells that were judged before the run was interrupted. footer:
    the last record if the run is finished; only reports may be missing then.
    """

    folder: Path
    log: RunLog
    cases: str
    done: Mapping[Key, JudgedCell] = field(default_factory=dict)
    footer: Record | None = None


def has_ended(arguments: argparse.Namespace) -> bool:
    """Return whether the run to resume is finished already."""
    if not arguments.resume or arguments.out is None:
        return False
    try:
        return read_log(arguments.out / LOG).complete
    except (RunLogError, OSError):
        return False  # open_folder reports the error


def open_folder(arguments: argparse.Namespace, offer: Offer, cases: Sequence[Case], *, left_out: int = 0) -> Opened:
    """
    Create the run folder and its log with a header, or open the folder of the run to resume.

    left_out: the number of cases that are asked only with --thorough.

    Raises:
        UsageError: there is nothing to resume, the cases or subjects have changed since, the folder has a run already,
            or another process uses it.
        EnvironmentFault: the disk is full.
    """
    if arguments.resume and arguments.out is None:
        raise UsageError("--resume needs the folder of the interrupted run, such as --out reports/nightly")
    folder = arguments.out or new_folder()
    command = ["conformance", *sys.argv[1:]]
    first = header(folder.name, command, arguments.device, cases, offer.subjects, offer.used, offer.not_offered)
    first["left_out"] = left_out
    try:
        if arguments.resume:
            opened = _resumed(folder, first, cases)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            opened = _begun(folder, RunLog.create(folder / LOG), first, cases)
    except FileExistsError as error:
        also = "" if arguments.resume is None else ", or add --resume"  # None: the command has no such option
        raise UsageError(f"{folder} has a run already: choose another --out{also}") from error
    except RunLogError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        if error.errno in FULL:
            fault = EnvironmentFault(sentence(error)) if arguments.resume is None else resumable(error, folder)
            raise fault from error
        raise UsageError(sentence(error) if arguments.resume else unwritable(folder, error)) from error
    if not opened.log.locked:
        print(f"conformance: files in {folder} cannot be locked: do not start a second run there", file=sys.stderr)
    if arguments.out is None:
        point_latest(folder)
    return opened


def _begun(folder: Path, log: RunLog, first: Mapping[str, Any], cases: Sequence[Case]) -> Opened:
    try:
        log.append(first)
        digest = _digest(map(log.append, case_records(cases)))
    except BaseException:
        log.close()
        raise
    return Opened(folder, log, digest)


def _digest(records: Iterable[Record]) -> str:
    """The digest of records as they are in the log."""
    digest = hashlib.sha256()
    for record in records:
        digest.update(json.dumps(record, sort_keys=True).encode())
    return digest.hexdigest()


def _resumed(folder: Path, first: Mapping[str, Any], cases: Sequence[Case]) -> Opened:
    """Open an interrupted run; a log without a header begins anew."""
    if not folder.is_dir():
        raise UsageError(f"nothing to resume: there is no folder {folder}; start the run without --resume")
    log, records = RunLog.resume(folder / LOG)
    if not records:
        return _begun(folder, log, first, cases)
    try:
        asked = _digest(map(as_logged, case_records(cases)))
        _see_same(as_logged(first), asked, records)
    except BaseException:
        log.close()
        raise
    done, repeated = graver_cells(records)
    if repeated:
        what = f"{are(repeated, 'cell')} in {folder / LOG} more than once"
        print(f"conformance: two processes wrote the log: {what}; the worse verdict counts", file=sys.stderr)
    return Opened(folder, log, asked, done, records[-1] if records[-1]["type"] == "footer" else None)


def _see_same(first: Mapping[str, Any], cases: str, records: LoggedRecords) -> None:
    """
    Check that the interrupted run asked the same as this run.

    first: the header of this run. cases: the digest of the records of its cases.

    Raises:
        UsageError: it did not.
    """
    before = records[0]
    same = {what: before.get(what) == first[what] for what in ("subjects", "environments", "judge", "device")}
    same["cases"] = _digest(records[1 : 1 + case_count(before)]) == cases
    for what in ("cases", *same):
        if not same[what]:
            changed = {"judge": "code that judges"}.get(what, what)
            raise UsageError(f"cannot resume: the {changed} changed since that run; start a new run without --resume")


def point_latest(folder: Path) -> None:
    """Make reports/latest a link to the newest run."""
    latest = folder.parent / "latest"
    if latest.is_symlink() or not latest.exists():
        link = latest.with_name(f".latest.{identity()}.part")
        link.unlink(missing_ok=True)
        link.symlink_to(folder.name, target_is_directory=True)
        link.replace(latest)
