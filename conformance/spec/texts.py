"""Text: numbers with their noun, text from elsewhere made safe to store and to show, and the text files of users."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def counted(number: int, noun: str) -> str:
    """Say 1 verdict, 2,000 verdicts."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def are(number: int, noun: str) -> str:
    """Say 1 verdict is, 2,000 verdicts are."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"


# What a terminal takes for a command (ECMA-48).
SEQUENCE = re.compile(
    r"(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[ -/]+[0-~]"  # character sets
)

LINE_END = re.compile(r"\r\n?")

UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and newline
    r"\u2028-\u202e\u2066-\u2069"  # other ends of lines, and what turns the direction of writing
    r"\ud800-\udfff\ufffe\uffff]"  # half a character, and what is none: neither UTF-8 nor XML has them
)

# Where a CI system would begin to read a command: `::error::`, `##[error]`, `##vso[...]`, `##teamcity[...]`.
WORKFLOW = re.compile(r"^([^\S\n]*)(?=::)|(?<=#)(?=#(?:vso|teamcity)?\[)", re.MULTILINE)

UNSAFE_IN_LINE = re.compile(f"{UNSAFE.pattern}|::|##")


def harmless(value: Any) -> Any:
    r"""
    A JSON value in which every text, names of keys included, is safe: applied twice it changes nothing more.

    Sequences for terminals are left out. Other control characters and lone surrogates are written as escapes, such as
    `\x00` and `\udce9`. A backslash stands before what would be a command to a CI system.
    """
    if isinstance(value, str):
        return _text(value) if UNSAFE_IN_LINE.search(value) else value
    if isinstance(value, Mapping):
        return {harmless(key): harmless(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [harmless(entry) for entry in value]
    return value


def _text(text: str) -> str:
    plain = LINE_END.sub("\n", SEQUENCE.sub("", text))
    escaped = UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), plain)
    return WORKFLOW.sub(lambda found: f"{found[1] or ''}\\", escaped)


MAX_QUOTED = 60

# Control characters, other ends of lines, what turns the direction of writing, halves of characters.
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


def quoted(value: object) -> str:
    """Say a value as it stands in YAML, shortened; texts are quoted."""
    words = {True: "true", False: "false", None: "null"}
    return cut(words[value] if value is None or isinstance(value, bool) else repr(value))


def cut(text: str) -> str:
    """A text as it stands, shortened."""
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "..."


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
    return (error.strerror if isinstance(error, OSError) else None) or quoted(str(error))
