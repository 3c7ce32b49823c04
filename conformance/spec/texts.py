"""Text files of users: looked at before they are read, and refused with the place at which they are no text."""

import re
from pathlib import Path

MAX_SHOWN = 60

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
"""Control characters, other ends of lines, what turns the direction of writing, halves of characters."""


def shown(value: object) -> str:
    """Say a value as it stands in YAML, shortened; texts are quoted."""
    words = {True: "true", False: "false", None: "null"}
    return cut(words[value] if value is None or isinstance(value, bool) else repr(value))


def cut(text: str) -> str:
    """A text as it stands, shortened."""
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def printable(text: str) -> str:
    """A text on one line, without what a terminal obeys and what no file can hold."""
    return UNPRINTABLE.sub(" ", text).strip()


class NoText(Exception):  # noqa: N818 - what the file is
    """A file that is not read as text; line and column count from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line, self.column, self.message = line, column, message


def read_text(path: Path, most: int) -> str:
    """
    The text of a UTF-8 file, its lines ended by a line feed.

    most: how many bytes it may have; a larger one is not read.

    Raises:
        NoText: it cannot be read, is larger, or is not UTF-8.
    """
    try:
        size = path.stat().st_size
        if size > most:
            raise NoText(1, 1, f"the file has {size} bytes; at most {most} are read")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise NoText(1, 1, f"cannot be read: {reason(error)}") from None
    if len(content) > most:
        raise NoText(1, 1, f"the file has more than {most} bytes; at most {most} are read")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode()
        column = len(before) - before.rfind("\n")
        told = f"cannot be read: not UTF-8: byte 0x{content[error.start]:02x}; save the file as UTF-8"
        raise NoText(before.count("\n") + 1, column, told) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def reason(error: OSError | ValueError) -> str:
    """Why a path cannot be opened, without the path: it is named where the message stands, and may be long."""
    return (error.strerror if isinstance(error, OSError) else None) or shown(str(error))
