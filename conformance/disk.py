"""Files that are there whole or not at all, and what processes that were killed have left behind."""

import errno
import glob
import os
import re
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

# Which word of /proc/PID/stat, counted after the state, says when a process started (proc(5)).
START = 19


@lru_cache(maxsize=1)
def _identity(pid: int) -> str:
    return f"{_namespace()}-{pid}-{_started(pid) or 0}"


def identity() -> str:
    """This process, told apart from every other that this machine runs, and from one that has its number later."""
    return _identity(os.getpid())


def lives(name: str) -> bool:
    """Whether the process with this `identity` lives; one that cannot be seen from here counts as alive."""
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
    """Which processes can be seen from here: a container has numbers of its own (Linux)."""
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    return "0"


def _started(pid: int) -> int | None:
    """When a process started, in ticks since the machine did; None where none lives, or the system does not say."""
    if sys.platform != "linux":
        return None
    with suppress(OSError):
        state, *words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if state in {b"Z", b"X"} else int(words[START - 1])
    return None


IDENTITY = r"(\d+-\d+-\d+)"


def scratch() -> "tempfile.TemporaryDirectory[str]":
    """
    A temporary folder of this process; those of processes that were killed go first.

    Raises:
        OSError: none can be written.
    """
    try:
        place = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        told = "no folder for temporary files can be written: free space, or let TMPDIR name another"
        raise OSError(errno.ENOSPC, told) from error
    for old in place.glob("conformance-*"):
        owner = re.match(rf"conformance-{IDENTITY}-", old.name)
        with suppress(OSError):
            about = old.lstat()
            if owner and stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not lives(owner[1]):
                shutil.rmtree(old, ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"conformance-{identity()}-", ignore_cleanup_errors=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """
    Write a file beside its place and move it there: what stands there is whole, the old or the new, at any moment.

    A link at that place is replaced, not followed.

    Raises:
        OSError: it cannot be written; it names `path`, and nothing stays beside it.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    part = _part(path, identity())
    try:
        with suppress(FileNotFoundError):
            part.unlink()
        with part.open("xb") as file:
            file.write(data)
        part.replace(path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def _part(path: Path, name: str) -> Path:
    """Where a file is written before it is moved; the folder may be a link."""
    return path.parent / f".{path.name[:100]}.{name}.part"


def write_asked(path: Path, content: str | bytes) -> None:
    """
    Write a file that the user named: its folder is made, a link is followed, and a device or a pipe is written to.

    Raises:
        OSError: it cannot be written.
    """
    real = path.resolve()
    if real.exists() and not real.is_file():
        real.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
        return
    real.parent.mkdir(parents=True, exist_ok=True)
    for old in real.parent.glob(f"{glob.escape(_part(real, '').name.removesuffix('.part'))}*.part"):
        writer = re.search(rf"\.{IDENTITY}\.part$", old.name)
        if writer and not lives(writer[1]):
            old.unlink(missing_ok=True)
    write_whole(real, content)


def see_writable(path: Path) -> None:
    """
    See that `write_asked` could write there now.

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
    """Remove what was being written in a folder, and in the folders in it, when its writer was killed."""
    for old in [*folder.glob(".*.part"), *folder.glob("*/.*.part")]:
        if re.search(rf"\.{IDENTITY}\.part$", old.name) and stat.S_ISREG(old.lstat().st_mode):
            old.unlink(missing_ok=True)
