"""The verdicts, their order of gravity, and the gist of an exception message. There is no default verdict."""

import re
from collections.abc import Iterable
from typing import Literal, get_args

# Maximum length of a message on one line. The end of a longer message is shown, because wrappers prepend their text.
MAX_CHARACTERS = 160

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Keras prepends which layer was called.
_OPENING = re.compile(r"Exception encountered when calling\b[^\n]*\n")
# Keras appends the arguments of the layer, JAX a note on its traceback.
_CLOSING = re.compile(r"\n\s*Arguments received by\b.*|\n-{10,}\nFor simplicity, JAX\b.*", re.DOTALL)
# Exception classes and codes ahead of the message itself: `Fail: [ONNXRuntimeError] : 1 : FAIL : `.
_CLASS = re.compile(r"(?:\[?[\w.]*(?:Error|Exception|Fail|Argument)\]?\s*:\s*)+(?:\d+\s*:\s*)?(?:[A-Z_]{4,}\s*:\s*)?")
# Addresses, the names of floating-point dtypes (`bfloat16`, `c10::Half`, `double`), and numbers.
_VARYING = re.compile(r"0x[0-9a-f]+|\b(?:c10::)?(?:b?float(?:16|32|64)?|double|half)\b|\d+", re.IGNORECASE)


def gist(message: str) -> str:
    """The essential part of an exception message, on one line of at most MAX_CHARACTERS."""
    text = _COLOURS.sub("", message)
    line = " ".join(_CLOSING.sub("", _OPENING.sub("", text)).split()) or " ".join(text.split())
    return line if len(line) <= MAX_CHARACTERS else f"… {line[2 - MAX_CHARACTERS :].partition(' ')[2]}"


def root(message: str) -> str:
    """
    The gist of a message without classes, codes, addresses, dtypes and numbers; equal for exceptions of one cause.

    The class is left out: one release may raise `Fail` where the previous one raised `RuntimeException`.
    """
    match = _CLASS.match(" ".join(message.split()))
    text = message if match is None else " ".join(message.split())[match.end() :]
    return _VARYING.sub("#", gist(text))


# All verdicts, from the least to the most severe.
Verdict = Literal["pass", "dialect", "unsupported", "inconclusive", "fail", "error", "timeout", "crash"]

GRAVITY: tuple[Verdict, ...] = get_args(Verdict)
CONFORMING = ("pass", "dialect")
# Verdicts that the gate accepts. It also accepts `known` deviations and inconclusive cells that are `uncalibrated`.
GREEN = (*CONFORMING, "unsupported")

# Verdicts on calls that were made and have no reply.
LOST = ("error", "timeout", "crash")

# The class of a fail where a call that has a mistake returns numbers instead of being refused.
NOT_REFUSED = "not_refused"

# The classes of a fail. `nondeterministic`, `order_dependent`: repeating the call gives different replies. `invariant`:
# only a changed call shows it. `not_refused`: a call that must be refused has a reply. `semantic`: a deviation explains
# it. Otherwise `impossible` if no implementation of the declared arithmetic can produce the reply, or if shape, dtype
# or the positions of non-finite values are wrong; otherwise `precision`.
CLASSES = ("precision", "impossible", "semantic", "nondeterministic", "order_dependent", "invariant", NOT_REFUSED)

# Classes of replies with wrong numbers that are reproducible and that no single decision explains.
OF_NUMBERS = ("precision", "impossible")


def is_green(verdict: str, *, known: bool, uncalibrated: bool) -> bool:
    """
    Whether the gate accepts a verdict.

    known: whether a known deviation accepts it. uncalibrated: whether its bound was not validated.
    """
    return known or verdict in GREEN or (verdict == "inconclusive" and uncalibrated)


def gravest(verdicts: Iterable[str]) -> str:
    """
    The most severe of some verdicts.

    Raises:
        ValueError: there are none, or one of them is not a verdict.
    """
    ranked = sorted((GRAVITY.index(verdict) for verdict in verdicts), reverse=True)
    if not ranked:
        raise ValueError("no verdict to choose from: nothing was judged")
    return GRAVITY[ranked[0]]
