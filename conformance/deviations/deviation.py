"""
A deviation: one non-canonical semantic choice, as a value that changes a problem, its steps or its reply.

The same values are used for declared differences, mask conventions, diagnosis, and the harness's deliberately wrong
subjects.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np

from conformance.deviations.names import Words, words
from conformance.reference.pipeline import StepsMap
from conformance.reference.steps import State
from conformance.spec.problem import Array, MaskOperand, Problem

# Decision -> name of its deviation; decisions that are absent are canonical.
Dialect = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Expected:
    """One output of the oracle: float64 values, and the dtype in which it must be returned."""

    values: Array
    dtype: str


# Output name -> what is expected.
Reply = Mapping[str, Expected]

ProblemMap = Callable[[Problem], Problem]
HeadsMap = Callable[[State], State]
ReplyMap = Callable[[Reply], Reply]
Stage = Literal["problem", "heads", "steps", "reply"]
# The order in which the deviations of one dialect are composed.
STAGES: tuple[Stage, ...] = ("problem", "heads", "steps", "reply")

# Maximum number of logits of a problem whose changed versions are cached.
MAX_CACHED_LOGITS = 2**14


def always(_: Problem) -> bool:
    """The condition that every problem meets."""
    return True


@dataclass(frozen=True)
class Deviation:
    """
    One non-canonical choice of a decision.

    problem: Problem -> Problem. heads: State -> State after projection and split. steps: (Steps, dtype of the logits)
    -> Steps. reply: Reply -> Reply. Exactly one of the first three is given, or only reply; a reply given together with
    problem is applied only if the problem changed. Every map returns the same object if the deviation does not apply.
    bounded: whether bounds hold under it. concerns: whether it can affect a problem, judged by sizes and requested
    outputs. distinguishes: whether a problem shows that it is not a simpler deviation, so that it is tried there.
    wording: sentence and remedy if `names.toml` has none.

    Raises:
        ValueError: more than one of problem, heads and steps is given, or no map at all.
        KeyError: `names.toml` has no such name, and `wording` is not given.
    """

    decision: str
    name: str
    _: KW_ONLY
    problem: ProblemMap | None = None
    heads: HeadsMap | None = None
    steps: StepsMap | None = None
    reply: ReplyMap | None = None
    bounded: bool = True
    concerns: Callable[[Problem], bool] = always
    distinguishes: Callable[[Problem], bool] = always
    wording: Words | None = None

    def __post_init__(self) -> None:
        filled = [stage for stage in STAGES if getattr(self, stage) is not None]
        if filled not in ([self.stage], [self.stage, "reply"]):
            raise ValueError(
                f"{self.key}: expected exactly one of problem, heads and steps, with or without reply, or reply alone; "
                f"got {filled}"
            )
        if self.wording is None and words(self.decision, self.name) is None:
            raise KeyError(f"{self.key} has no line in names.toml")

    @property
    def stage(self) -> Stage:
        """The first stage at which it acts."""
        return next((stage for stage in STAGES if getattr(self, stage) is not None), "reply")

    @property
    def key(self) -> str:
        """`decision=name`, as in dialects and reports."""
        return f"{self.decision}={self.name}"

    @property
    def sentence(self) -> str:
        """What an implementation does, in the present tense, after "it"."""
        return self._words.sentence

    @property
    def remedy(self) -> str:
        """What its user can do about it at the call site, or "" if nothing helps."""
        return self._words.remedy

    @property
    def _words(self) -> Words:
        line = self.wording or words(self.decision, self.name)
        assert line is not None  # noqa: S101 - __post_init__ has checked it
        return line

    def changes(self, problem: Problem) -> bool:
        """Whether it changes the problem, or acts at a later stage, where only an evaluation shows a change."""
        return self.problem is None or self.posed(problem) is not problem

    def posed(self, problem: Problem) -> Problem:
        """Return the problem that is solved instead of `problem`; the same object if nothing changes."""
        if self.problem is None:
            return problem
        return (
            _posed(self.problem, problem)
            if prod(problem.logits_shape) <= MAX_CACHED_LOGITS
            else _pose(self.problem, problem)
        )


def _pose(change: ProblemMap, problem: Problem) -> Problem:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return change(problem)


# Cached, because the search for causes changes the same problems repeatedly, in combination with other deviations.
_posed = lru_cache(maxsize=512)(_pose)


def each_operand(change: Callable[[Problem, MaskOperand], MaskOperand | None], slot: str | None = None) -> ProblemMap:
    """Make a map that changes every mask operand, or that of `slot`; `change` may return None to remove it."""

    def apply(problem: Problem) -> Problem:
        mask_operands = [change(problem, each) if slot in (None, each.slot) else each for each in problem.mask_operands]
        kept = tuple(operand for operand in mask_operands if operand is not None)
        same = len(kept) == len(problem.mask_operands) and all(
            a is b for a, b in zip(kept, problem.mask_operands, strict=True)
        )
        return problem if same else problem.but(mask_operands=kept)

    return apply


def with_params(problem: Problem, **params: Array) -> Problem:
    """Replace weights or biases of a problem."""
    return problem.but(params={**problem.params, **params})


def without_params(problem: Problem, *names: str) -> Problem:
    """Remove weights or biases from a problem; the same object if it has none of them."""
    kept = {name: array for name, array in problem.params.items() if name not in names}
    return problem if len(kept) == len(problem.params) else problem.but(params=kept)


def more_keys_than(count: int) -> Callable[[Problem], bool]:
    """Return a condition: the problem has more than `count` keys, including appended ones."""
    return lambda problem: problem.weights_shape[-1] > count


def asks_for_weights(problem: Problem) -> bool:
    """Whether the problem requests weights, per head or averaged."""
    return not {"weights", "weights_mean"}.isdisjoint(problem.outputs)
