"""The words of a verdict, and which of two is graver. There is no default verdict."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

Verdict = Literal["pass", "dialect", "unsupported", "inconclusive", "fail", "error", "timeout", "crash"]
"""Every verdict, from the lightest to the gravest."""

GRAVITY: tuple[Verdict, ...] = get_args(Verdict)
CONFORMING = ("pass", "dialect")
GREEN = (*CONFORMING, "unsupported")
"""What is accepted as it is; so are `known` deviations and an inconclusive cell that is `uncalibrated`."""

LOST = ("error", "timeout", "crash")
"""What a call that was made came to where it has no reply."""

NOT_REFUSED = "not_refused"
"""The class of a fail that is not about numbers: there are some, where the call has a mistake."""

CLASSES = ("precision", "impossible", "semantic", "nondeterministic", "order_dependent", "invariant", NOT_REFUSED)
"""
What kind of fail: `nondeterministic` or `order_dependent` if the same call has other replies when it is asked again;
`invariant` if only a changed call shows it; `not_refused` if a call that must be refused has a reply; `semantic` if a
deviation explains it; else `impossible` if no implementation of the declared arithmetic can produce it, or if shape,
dtype or the pattern of non-finite values is wrong; else `precision`.
"""

OF_NUMBERS = ("precision", "impossible")
"""Classes of numbers that are wrong in every reply, and that no single decision explains."""


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
