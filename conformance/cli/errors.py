"""What the command line cannot do, and why."""

import difflib
import errno
import shlex
import shutil
from pathlib import Path

from conformance.disk import see_writable


class UsageError(Exception):
    """Something that the user asked for cannot be; the text says what to do."""


class EnvironmentFault(Exception):  # noqa: N818 - no error of ours, nor of the user
    """The place where we run does not let us go on; the text says what is wrong and what to do."""


# Errors of the system that are faults of the place where we run: a full disk, a limit, a forbidden file.
FAULTS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM),
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENAMETOOLONG, errno.ESTALE),
    }
)


# Those of them that no other name for a folder mends.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


def resumable(error: OSError, folder: Path) -> EnvironmentFault:
    """The fault that stopped a run in its folder, with how to go on."""
    again = f"go on with --out {shlex.quote(str(folder))} --resume"
    return EnvironmentFault(f"{sentence(error)}; when that is mended, {again}")


def is_fault(error: OSError) -> bool:
    """Whether an error is a fault of the environment, and none of ours."""
    return error.errno in FAULTS or isinstance(error, shutil.Error)


def sentence(error: OSError) -> str:
    """What the system refused, and where."""
    if isinstance(error, shutil.Error):
        return "; ".join(f"{place}: {why}" for _, place, why in error.args[0])
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


def see_writable_files(*paths: Path | None) -> None:
    """
    See, before anything is run, that the files can be written that were asked for.

    Raises:
        UsageError: one cannot.
    """
    for path in paths:
        try:
            if path is not None:
                see_writable(path)
        except (OSError, RuntimeError, ValueError) as error:  # the latter two: a loop of links, a NUL
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{path} cannot be written: {why}; nothing was run: name another file") from error


def see_run(folder: Path) -> None:
    """
    See that there is something where a run folder should be.

    Raises:
        UsageError: there is nothing; with the nearest name.
    """
    if not folder.exists():
        raise absent("run folder", folder)


def absent(kind: str, path: Path) -> UsageError:
    """The error for a path at which nothing is, with the nearest name beside it; kind: what it should be."""
    names = sorted(each.name for each in path.parent.glob("*"))
    near = difflib.get_close_matches(path.name, names, 1)
    hint = f"; did you mean {path.parent / near[0]}?" if near else ""
    return UsageError(f"there is no {kind} {path}{hint}")
