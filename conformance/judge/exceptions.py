"""What an exception says: the line to show, and the root by which two exceptions are one failure."""

import re

MAX_CHARACTERS = 160
"""Of a message that is shown in one line. Of a longer one the end is shown: what wraps it stands before it."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OPENING = re.compile(r"Exception encountered when calling\b[^\n]*\n")
"""Keras says first which layer was called."""
_CLOSING = re.compile(r"\n\s*Arguments received by\b.*|\n-{10,}\nFor simplicity, JAX\b.*", re.DOTALL)
"""Keras ends with the arguments of the layer, JAX with a note on its traceback."""
_CLASS = re.compile(r"(?:\[?[\w.]*(?:Error|Exception|Fail|Argument)\]?\s*:\s*)+(?:\d+\s*:\s*)?(?:[A-Z_]{4,}\s*:\s*)?")
"""Classes and codes before the message itself: `Fail: [ONNXRuntimeError] : 1 : FAIL : `."""
_VARYING = re.compile(r"0x[0-9a-fA-F]+|\d+")


def gist(message: str) -> str:
    """The part of a message that says what is wrong, in one line of at most MAX_CHARACTERS."""
    text = _COLOURS.sub("", message)
    line = " ".join(_CLOSING.sub("", _OPENING.sub("", text)).split()) or " ".join(text.split())
    return line if len(line) <= MAX_CHARACTERS else f"… {line[2 - MAX_CHARACTERS :].partition(' ')[2]}"


def root(message: str) -> str:
    """
    What two exceptions with one root share: the gist without classes, codes, addresses and numbers.

    The class does not count: a release may raise `Fail` where the one before raised `RuntimeException`.
    """
    match = _CLASS.match(" ".join(message.split()))
    said = message if match is None else " ".join(message.split())[match.end() :]
    return _VARYING.sub("#", gist(said))
