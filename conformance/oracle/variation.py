"""
One semantic choice taken otherwise than canonical, as a value that transforms a problem, its steps or its reply.

The same values serve declared differences, mask conventions, diagnosis and the harness's own liars.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from conformance.oracle.pipeline import Steps
from conformance.oracle.state import State
from conformance.spec.problem import Array, Problem

Dialect = Mapping[str, str]
"""Decision -> name of the way it is taken; a decision that is absent is taken canonically."""


@dataclass(frozen=True, eq=False)
class Expected:
    """One output of the oracle: float64 values, and the dtype in which it is to be returned."""

    values: Array
    dtype: str


Reply = Mapping[str, Expected]
"""Output name -> what is expected."""

ProblemMap = Callable[[Problem], Problem]
HeadsMap = Callable[[State], State]
StepsMap = Callable[[Steps, str], Steps]
ReplyMap = Callable[[Reply], Reply]
Stage = Literal["problem", "heads", "steps", "reply"]
STAGES: tuple[Stage, ...] = ("problem", "heads", "steps", "reply")
"""The order in which the variations of one dialect are composed."""


def _any(_: Problem) -> bool:
    return True


def more_keys_than(count: int) -> Callable[[Problem], bool]:
    """Problems of more keys than so many, those that are appended among them."""
    return lambda problem: problem.weights_shape[-1] > count


def asks_for_weights(problem: Problem) -> bool:
    """Whether weights are asked for, of each head or their mean."""
    return not {"weights", "weights_mean"}.isdisjoint(problem.outputs)


@dataclass(frozen=True)
class Variation:
    """
    A decision taken in one non-canonical way.

    sentence: what an implementation does, in the present tense, after "it". remedy: what its user can do about it
    at the call site, or "" where nothing helps. The map of its stage: "problem" Problem -> Problem; "heads" State ->
    State after projection and split; "steps" (Steps, score dtype) -> Steps; "reply" Reply -> Reply. A problem or reply
    that the variation does not concern is returned as it is (the same object). A variation of problem or steps may map
    the reply as well; it does so only where it changed the problem. bounded: whether bounds hold under it. concerns:
    the problems in which it can change anything, as far as their sizes and what is asked for tell. roundings: by so
    many of them a weight may be off for how it is computed, where no bounds hold.
    """

    decision: str
    name: str
    sentence: str
    remedy: str
    stage: Stage
    problem: ProblemMap | None = None
    heads: HeadsMap | None = None
    steps: StepsMap | None = None
    reply: ReplyMap | None = None
    bounded: bool = True
    concerns: Callable[[Problem], bool] = _any
    roundings: float = 0.0

    def __post_init__(self) -> None:
        filled = [stage for stage in STAGES if getattr(self, stage) is not None]
        if filled not in ([self.stage], [self.stage, "reply"]):
            raise ValueError(f"{self.key}: a {self.stage} variation has its map there, not in {filled}")

    @property
    def key(self) -> str:
        """`decision=name`, as it is written in dialects and printed."""
        return f"{self.decision}={self.name}"

    def posed(self, problem: Problem) -> Problem:
        """The problem that is solved in place of `problem`; the same object where this one is not concerned."""
        if self.problem is None:
            return problem
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return self.problem(problem)


def problem_row(decision: str, name: str, sentence: str, remedy: str, problem: ProblemMap) -> Variation:
    """One row of the table that solves another problem."""
    return Variation(decision, name, sentence, remedy, "problem", problem=problem)


def steps_row(decision: str, name: str, sentence: str, remedy: str, steps: StepsMap) -> Variation:
    """One row of the table that takes another step, under which bounds hold."""
    return Variation(decision, name, sentence, remedy, "steps", steps=steps)


def unbounded_row(
    decision: str,
    name: str,
    sentence: str,
    remedy: str,
    steps: StepsMap,
    concerns: Callable[[Problem], bool] = _any,
) -> Variation:
    """One row of the table that takes another step: diagnosed, not declared."""
    return Variation(decision, name, sentence, remedy, "steps", steps=steps, bounded=False, concerns=concerns)


@dataclass(frozen=True)
class Family:
    """
    Variations of one decision that are too many for the table.

    what: one of them, as "a loop"; example: the name of one. rows: makes each by its name.
    """

    decision: str
    what: str
    example: str
    rows: Mapping[str, Callable[[], Variation]]

    def find(self, name: str) -> Variation:
        """
        The variation of that name.

        Raises:
            KeyError: none is called that.
        """
        if name not in self.rows:
            raise KeyError(f"no variation {self.decision}={name}: {self.what} has a name such as {self.example}")
        return self.rows[name]()


_SLOT = re.compile(r"(?P<family>\w+)\[(?P<slot>[^\]]+)\]")


def slot_of(decision: str) -> tuple[str, str | None]:
    """Split `polarity[attn_mask]` into its family and its argument; other decisions have no argument."""
    match = _SLOT.fullmatch(decision)
    return (match["family"], match["slot"]) if match else (decision, None)
