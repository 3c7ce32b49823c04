"""What was worked out of a call or a reply, kept for subjects that were asked the same and answered the same."""

from collections.abc import Callable, Hashable, Mapping
from hashlib import blake2b
from typing import Any, TypeVar

from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.judge.expectation import Expectation
from conformance.spec.problem import Array, Problem

Found = TypeVar("Found")


class Remembered:
    """Answers by question: each is worked out once."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._known: dict[Hashable, Any] = {}

    def once(self, question: Hashable, work_out: Callable[[], Found]) -> Found:
        """The answer, worked out if it is not known yet."""
        if question not in self._known:
            self._known[question] = work_out()
        found: Found = self._known[question]
        return found


Shared = dict[Hashable, Remembered]
"""By call, and by call and reply; a call is known by the object that says what is declared for it."""


def call_key(case: str, problem: Problem, declared: Expectation, profile: Profile) -> Hashable:
    """What makes two calls one: the case, its masks in arguments of the same names, and what is declared."""
    groups = tuple(
        tuple(digest(value) if name == "values" else value for name, value in vars(each).items())
        for each in problem.groups
    )
    return case, groups, problem.outputs, declared, profile


def reply_key(actual: Mapping[str, Tensor]) -> Hashable:
    """What makes two replies one: every bit of every output."""
    return tuple((name, each.dtype, each.shape, digest(each.bits)) for name, each in sorted(actual.items()))


def digest(array: Array) -> Hashable:
    """The shape of an array, and a digest of its values."""
    return array.shape, blake2b(array.tobytes(), digest_size=16).digest()
