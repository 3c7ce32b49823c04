"""Atomic writes of files, and the removal of temporary files that killed processes left behind."""

import errno
import glob
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

# Position of the start time in /proc/PID/stat, counted after the state (proc(5)).
START_FIELD = 19


@lru_cache(maxsize=1)
def _identity(pid: int) -> str:
    return f"{_namespace()}-{pid}-{_started(pid) or 0}"


def identity() -> str:
    """A name of this process that no other process on this machine has, not even a later one with the same id."""
    return _identity(os.getpid())


def lives(name: str) -> bool:
    """Whether the process with this `identity` is alive; one in another process namespace counts as alive."""
    namespace, pid, started = name.split("-")
    if namespace != _namespace():
        return True
    if started != "0":
        return _started(int(pid)) == int(started)
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _namespace() -> str:
    """The process namespace: a container has its own process ids (Linux); "0" on other systems."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    return "0"


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it is not alive or the system does not say."""
    if sys.platform != "linux":
        return None
    with suppress(OSError):
        state, *words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if state in {b"Z", b"X"} else int(words[START_FIELD - 1])
    return None


# A regular expression for `identity()`.
IDENTITY = r"(\d+-\d+-\d+)"


def scratch() -> "tempfile.TemporaryDirectory[str]":
    """
    Create a temporary folder for this process, after removing those of killed processes.

    Raises:
        OSError: no temporary folder can be written.
    """
    try:
        parent = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        message = "no folder for temporary files is writable: free some space, or set TMPDIR to another folder"
        raise OSError(errno.ENOSPC, message) from error
    for old in parent.glob("conformance-*"):
        owner = re.match(rf"conformance-{IDENTITY}-", old.name)
        with suppress(OSError):
            status = old.lstat()
            if owner and stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not lives(owner[1]):
                shutil.rmtree(old, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"conformance-{identity()}-", ignore_cleanup_errors=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """
    Write a file atomically: at any moment, `path` has either the complete old content or the complete new one.

    The content is written to a file next to `path`, which is then moved. A link at `path` is replaced, not followed.

    Raises:
        OSError: the file cannot be written. The error names `path`; no partial file is left.
    """
    write_pieces(path, [content])


def write_pieces(path: Path, pieces: Iterable[str | bytes]) -> None:
    """
    Write a file as `write_whole` does, from pieces that need not all be in memory.

    Raises:
        OSError: as `write_whole`.
    """
    part = _part(path, identity())
    try:
        with suppress(FileNotFoundError):
            part.unlink()
        with part.open("xb") as file:
            for piece in pieces:
                file.write(_encoded(piece))
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _encoded(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")


def _part(path: Path, name: str) -> Path:
    """The path that a file is written to before it is moved; the folder may be a link."""
    return path.parent / f".{path.name[:100]}.{name}.part"


def write_asked(path: Path, content: str | bytes) -> None:
    """
    Write a file that the user named: create its folder, follow links, and write to a device or a pipe directly.

    Raises:
        OSError: the file cannot be written.
    """
    real = path.resolve()
    if real.exists() and not real.is_file():
        real.write_bytes(_encoded(content))
        return
    real.parent.mkdir(parents=True, exist_ok=True)
    for old in real.parent.glob(f"{glob.escape(_part(real, '').name.removesuffix('.part'))}*.part"):
        writer = re.search(rf"\.{IDENTITY}\.part$", old.name)
        if writer and not lives(writer[1]):
            old.unlink(missing_ok=True)
    write_whole(real, content)


def unwritable(folder: Path, error: Exception) -> str:
    """The sentence that a run folder cannot be written."""
    why = error.strerror if isinstance(error, OSError) and error.strerror else error
    return f"the folder {folder} cannot be written: {why}; nothing was run: choose another --out"


def see_writable(path: Path) -> None:
    """
    Check that `write_asked` could write to `path` now.

    Raises:
        OSError: it could not.
    """
    real = path.resolve()
    if real.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if real.exists() and not os.access(real, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if real.exists() and not real.is_file():
        return
    real.parent.mkdir(parents=True, exist_ok=True)
    probe = _part(real, identity())
    probe.touch()
    probe.unlink()


def remove_parts(folder: Path) -> None:
    """Remove the partial files of killed writers in a folder and in its direct subfolders."""
    for old in [*folder.glob(".*.part"), *folder.glob("*/.*.part")]:
        if re.search(rf"\.{IDENTITY}\.part$", old.name) and stat.S_ISREG(old.lstat().st_mode):
            old.unlink(missing_ok=True)
