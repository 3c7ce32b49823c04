"""The words of a verdict, which of two is graver, and what an exception says. There is no default verdict."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

# Of a message that is shown in one line. Of a longer one the end is shown: what wraps it stands before it.
MAX_CHARACTERS = 160

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Keras says first which layer was called.
_OPENING = re.compile(r"Exception encountered when calling\b[^\n]*\n")
# Keras ends with the arguments of the layer, JAX with a note on its traceback.
_CLOSING = re.compile(r"\n\s*Arguments received by\b.*|\n-{10,}\nFor simplicity, JAX\b.*", re.DOTALL)
# Classes and codes before the message itself: `Fail: [ONNXRuntimeError] : 1 : FAIL : `.
_CLASS = re.compile(r"(?:\[?[\w.]*(?:Error|Exception|Fail|Argument)\]?\s*:\s*)+(?:\d+\s*:\s*)?(?:[A-Z_]{4,}\s*:\s*)?")
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


# Every verdict, from the lightest to the gravest.
Verdict = Literal["pass", "dialect", "unsupported", "inconclusive", "fail", "error", "timeout", "crash"]

GRAVITY: tuple[Verdict, ...] = get_args(Verdict)
CONFORMING = ("pass", "dialect")
# What is accepted as it is; so are `known` deviations and an inconclusive cell that is `uncalibrated`.
GREEN = (*CONFORMING, "unsupported")

# What a call that was made came to where it has no reply.
LOST = ("error", "timeout", "crash")

# The class of a fail that is not about numbers: there are some, where the call has a mistake.
NOT_REFUSED = "not_refused"

# What kind of fail: `nondeterministic` or `order_dependent` if the same call has other replies when it is asked again;
# `invariant` if only a changed call shows it; `not_refused` if a call that must be refused has a reply; `semantic` if a
# deviation explains it; else `impossible` if no implementation of the declared arithmetic can produce it, or if shape,
# dtype or the pattern of non-finite values is wrong; else `precision`.
CLASSES = ("precision", "impossible", "semantic", "nondeterministic", "order_dependent", "invariant", NOT_REFUSED)

# Classes of numbers that are wrong in every reply, and that no single decision explains.
OF_NUMBERS = ("precision", "impossible")


def is_green(record: Mapping[str, Any]) -> bool:
    """Whether the gate accepts one cell of the run log."""
    if record["verdict"] in GREEN or "known" in record:
        return True
    return record["verdict"] == "inconclusive" and bool(record.get("uncalibrated"))


def graver(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether the second of two records of one cell is the graver one: red before green, then by its verdict."""
    ranks = [(not is_green(record), GRAVITY.index(record["verdict"])) for record in (before, now)]
    return ranks[1] > ranks[0]


def gravest(verdicts: Iterable[str]) -> str:
    """
    The gravest of some verdicts.

    Raises:
        ValueError: there is none, or one of them is no verdict.
    """
    ranked = sorted((GRAVITY.index(verdict) for verdict in verdicts), reverse=True)
    if not ranked:
        raise ValueError("no verdict to choose from: nothing was judged")
    return GRAVITY[ranked[0]]
