"""
One semantic choice taken otherwise than canonical, as a value that changes a problem, its steps or its reply.

The same values serve declared differences, mask conventions, diagnosis and the harness's own liars.
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

# Decision -> name of the way it is taken; a decision that is absent is taken canonically.
Dialect = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Expected:
    """One output of the oracle: float64 values, and the dtype in which it is to be returned."""

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

# So many logits has a problem at most of which it is remembered what it becomes.
SMALL = 2**14


def _any(_: Problem) -> bool:
    return True


@dataclass(frozen=True)
class Deviation:
    """
    A decision taken in one non-canonical way.

    problem: Problem -> Problem. heads: State -> State after projection and split. steps: (Steps, dtype of the logits)
    -> Steps. reply: Reply -> Reply. One of the first three is given, or the reply alone; a reply beside one of them is
    mapped only where that changed the problem. What the deviation does not concern is returned as it is (the same
    object). bounded: whether bounds hold under it. concerns: the problems in which it can change anything, as far as
    their sizes and what is asked for tell. said: sentence and remedy where `names.toml` has none.

    Raises:
        ValueError: more than one of problem, heads and steps is given, or nothing at all.
        KeyError: `names.toml` has no such name, and nothing is said.
    """

    decision: str
    name: str
    _: KW_ONLY
    problem: ProblemMap | None = None
    heads: HeadsMap | None = None
    steps: StepsMap | None = None
    reply: ReplyMap | None = None
    bounded: bool = True
    concerns: Callable[[Problem], bool] = _any
    said: Words | None = None

    def __post_init__(self) -> None:
        filled = [stage for stage in STAGES if getattr(self, stage) is not None]
        if filled not in ([self.stage], [self.stage, "reply"]):
            raise ValueError(
                f"{self.key}: expected exactly one of problem, heads and steps, with or without reply, or reply alone; "
                f"got {filled}"
            )
        if self.said is None and words(self.decision, self.name) is None:
            raise KeyError(f"{self.key} has no line in names.toml")

    @property
    def stage(self) -> Stage:
        """Where it acts first."""
        return next((stage for stage in STAGES if getattr(self, stage) is not None), "reply")

    @property
    def key(self) -> str:
        """`decision=name`, as it is written in dialects and printed."""
        return f"{self.decision}={self.name}"

    @property
    def sentence(self) -> str:
        """What an implementation does, in the present tense, after "it"."""
        return self._words.sentence

    @property
    def remedy(self) -> str:
        """What its user can do about it at the call site, or "" where nothing helps."""
        return self._words.remedy

    @property
    def _words(self) -> Words:
        found = self.said or words(self.decision, self.name)
        assert found is not None  # noqa: S101 - __post_init__ has seen to it
        return found

    def posed(self, problem: Problem) -> Problem:
        """The problem that is solved in place of `problem`; the same object where this one is not concerned."""
        if self.problem is None:
            return problem
        return _posed(self.problem, problem) if prod(problem.logits_shape) <= SMALL else _pose(self.problem, problem)


def _pose(change: ProblemMap, problem: Problem) -> Problem:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return change(problem)


# The search for causes asks for the same again and again, beside one decision after the other.
_posed = lru_cache(maxsize=512)(_pose)


def each_operand(change: Callable[[Problem, MaskOperand], MaskOperand | None], slot: str | None = None) -> ProblemMap:
    """Change the mask of every argument, or of one (None removes it); the same problem where none changes."""

    def apply(problem: Problem) -> Problem:
        mask_operands = [change(problem, each) if slot in (None, each.slot) else each for each in problem.mask_operands]
        kept = tuple(operand for operand in mask_operands if operand is not None)
        same = len(kept) == len(problem.mask_operands) and all(
            a is b for a, b in zip(kept, problem.mask_operands, strict=True)
        )
        return problem if same else problem.but(mask_operands=kept)

    return apply


def with_params(problem: Problem, **params: Array) -> Problem:
    """The problem with other weights or biases."""
    return problem.but(params={**problem.params, **params})


def without_params(problem: Problem, *names: str) -> Problem:
    """The problem without these weights or biases; the same one where it has none of them."""
    kept = {name: array for name, array in problem.params.items() if name not in names}
    return problem if len(kept) == len(problem.params) else problem.but(params=kept)


def more_keys_than(count: int) -> Callable[[Problem], bool]:
    """Problems of more keys than so many, those that are appended among them."""
    return lambda problem: problem.weights_shape[-1] > count


def asks_for_weights(problem: Problem) -> bool:
    """Whether weights are asked for, of each head or their mean."""
    return not {"weights", "weights_mean"}.isdisjoint(problem.outputs)
