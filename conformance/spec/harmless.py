"""Text that came from elsewhere, made safe to store and to show: it can be written as UTF-8, and nothing obeys it."""

import re
from collections.abc import Mapping
from typing import Any

SEQUENCE = re.compile(
    r"(?:\x1b\]|\x9d)[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC: titles, links, clipboard
    r"|(?:\x1b[PX^_]|[\x90\x98\x9e\x9f])[^\x1b\x9c]*(?:\x1b\\|\x9c)"  # DCS, SOS, PM, APC
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[ -/]+[0-~]"  # character sets
)
"""What a terminal takes for a command (ECMA-48)."""

LINE_END = re.compile(r"\r\n?")

UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and newline
    r"\u2028-\u202e\u2066-\u2069"  # other ends of lines, and what turns the direction of writing
    r"\ud800-\udfff\ufffe\uffff]"  # half a character, and what is none: neither UTF-8 nor XML has them
)

WORKFLOW = re.compile(r"^([^\S\n]*)(?=::)|(?<=#)(?=#(?:vso|teamcity)?\[)", re.MULTILINE)
"""Where a CI system would begin to read a command: `::error::`, `##[error]`, `##vso[...]`, `##teamcity[...]`."""

SUSPECT = re.compile(f"{UNSAFE.pattern}|::|##")


def harmless(value: Any) -> Any:
    r"""
    A JSON value in which every text, names of keys included, is safe: applied twice it changes nothing more.

    Sequences for terminals are left out. Other control characters and lone surrogates are written as escapes, such as
    `\x00` and `\udce9`. A backslash stands before what would be a command to a CI system.
    """
    if isinstance(value, str):
        return _text(value) if SUSPECT.search(value) else value
    if isinstance(value, Mapping):
        return {harmless(key): harmless(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [harmless(entry) for entry in value]
    return value


def _text(text: str) -> str:
    plain = LINE_END.sub("\n", SEQUENCE.sub("", text))
    escaped = UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), plain)
    return WORKFLOW.sub(lambda found: f"{found[1] or ''}\\", escaped)
