"""Errors of the command line, and checks that are made before anything runs."""

import difflib
import errno
import shlex
import shutil
from pathlib import Path

from conformance.disk import see_writable


class UsageError(Exception):
    """The user gave a wrong argument; the message says what to do."""


class EnvironmentFault(Exception):  # noqa: N818 - neither our error nor the user's
    """The machine prevents us from continuing; the message says what is wrong and what to do."""


# Errors of the operating system that are faults of the environment: a full disk, a limit, a forbidden file.
FAULTS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENAMETOOLONG, errno.ESTALE),
    }
)


# Those of them that another folder name does not solve.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def resumable(error: OSError, folder: Path) -> EnvironmentFault:
    """Return the fault that stopped a run, with the options that resume it."""
    again = f"continue with --out {shlex.quote(str(folder))} --resume"
    return EnvironmentFault(f"{sentence(error)}; when this is fixed, {again}")


def is_fault(error: OSError) -> bool:
    """Return whether an error is a fault of the environment and not a bug."""
    return error.errno in FAULTS or isinstance(error, shutil.Error)


def sentence(error: OSError) -> str:
    """Return the message of the operating system, with the path."""
    if isinstance(error, shutil.Error):
        return "; ".join(f"{path}: {why}" for _, path, why in error.args[0])
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


def see_writable_files(*paths: Path | None) -> None:
    """
    Check, before anything runs, that these files can be written.

    Raises:
        UsageError: a file cannot be written.
    """
    for path in paths:
        try:
            if path is not None:
                see_writable(path)
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: a loop of links; ValueError: a NUL
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{path} cannot be written: {why}; nothing was run: name another file") from error


def see_run(folder: Path) -> None:
    """
    Check that a run folder exists.

    Raises:
        UsageError: it does not; the message suggests the nearest name.
    """
    if not folder.exists():
        raise absent("run folder", folder)


def absent(kind: str, path: Path) -> UsageError:
    """Return the error for a missing path, with the nearest name in its folder; kind: what the path should be."""
    names = sorted(each.name for each in path.parent.glob("*"))
    near = difflib.get_close_matches(path.name, names, 1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    return UsageError(f"there is no {kind} {path}{hint}")
