"""Text helpers: numbers with nouns, untrusted text made safe to store and print, and reading of users' text files."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: 1 verdict, 2,000 verdicts."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def are(number: int, noun: str) -> str:
    """Format a number with its noun and verb: 1 verdict is, 2,000 verdicts are."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"


def one_of(words: Sequence[str]) -> str:
    """Format choices: `a`, `a or b`, `one of a, b, c`."""
    return f"one of {', '.join(words)}" if words[2:] else " or ".join(words)


def capital(text: str) -> str:
    """Write the first letter as a capital."""
    return f"{text[:1].upper()}{text[1:]}"


NOT_A_TIME_LIMIT = "{} is not a positive number of seconds"


def is_time_limit(seconds: float) -> bool:
    """Return whether a number can be a time limit; if not, NOT_A_TIME_LIMIT says so."""
    return 0 < seconds < float("inf")


# Terminal control sequences (ECMA-48).
SEQUENCE = re.compile(
    r"(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[ -/]+[0-~]"  # character sets
)

LINE_END = re.compile(r"\r\n?")

UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters except tab and newline
    r"\u2028-\u202e\u2066-\u2069"  # other line ends, and changes of the text direction
    r"\ud800-\udfff\ufffe\uffff]"  # surrogates and noncharacters: not allowed in UTF-8 or XML
)

# Where a CI system would recognise a command: `::error::`, `##[error]`, `##vso[...]`, `##teamcity[...]`.
WORKFLOW = re.compile(r"^([^\S\n]*)(?=::)|(?<=#)(?=#(?:vso|teamcity)?\[)", re.MULTILINE)

UNSAFE_IN_LINE = re.compile(f"{UNSAFE.pattern}|::|##")


def harmless(value: Any) -> Any:
    r"""
    Make every string of a JSON value safe to print, keys included; the function is idempotent.

    Terminal sequences are removed. Other control characters and lone surrogates become escapes such as `\x00` and
    `\udce9`. A backslash is put before text that a CI system would execute as a command.
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
    escaped = UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), plain)
    return WORKFLOW.sub(lambda match: f"{match[1] or ''}\\", escaped)


MAX_QUOTED = 60

# Control characters, other line ends, changes of the text direction, surrogates.
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


def quoted(value: object) -> str:
    """Format a value as YAML would, shortened; strings are quoted."""
    words = {True: "true", False: "false", None: "null"}
    return cut(words[value] if value is None or isinstance(value, bool) else repr(value))


def cut(text: str) -> str:
    """Shorten a text to MAX_QUOTED characters."""
    return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + "..."


def printable(text: str) -> str:
    """Put a text on one line and remove control characters and surrogates."""
    return UNPRINTABLE.sub(" ", text).strip()


class NoText(Exception):  # noqa: N818 - what the file is
    """A file that cannot be read as text; line and column count from 1."""

    def __init__(self, line: int, column: int, message: str) -> None:
        super().__init__(message)
        self.line, self.column, self.message = line, column, message


def read_text(path: Path, limit: int) -> str:
    """
    Read a UTF-8 text file and convert its line ends to line feeds.

    limit: maximum size in bytes.

    Raises:
        NoText: the file cannot be read, is larger than `limit`, or is not UTF-8.
    """
    try:
        size = path.stat().st_size
        if size > limit:
            raise NoText(1, 1, f"the file has {size} bytes; at most {limit} are allowed")
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except (OSError, ValueError) as error:
        raise NoText(1, 1, f"cannot be read: {reason(error)}") from None
    if len(content) > limit:
        raise NoText(1, 1, f"the file has more than {limit} bytes; at most {limit} are allowed")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode()
        column = len(before) - before.rfind("\n")
        message = f"cannot be read: invalid UTF-8 byte 0x{content[error.start]:02x}; save the file as UTF-8"
        raise NoText(before.count("\n") + 1, column, message) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def reason(error: OSError | ValueError) -> str:
    """Explain why a path cannot be opened, without the path: the message names it already, and it may be long."""
    return (error.strerror if isinstance(error, OSError) else None) or quoted(str(error))
