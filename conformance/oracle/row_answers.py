"""
Variations in which rows that have a name get an answer that is none of theirs: what a loop or a branch leaves out.

Which rows and which answer makes several hundred of them. So they are found by name, and looked for only where nothing
else explains what fails.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from conformance.oracle.named_rows import Rows, named_rows
from conformance.oracle.pipeline import Step, Steps, insert_after
from conformance.oracle.state import State
from conformance.oracle.variation import Family, Variation, unbounded_row
from conformance.spec.problem import Array, Problem

DECISION = "row_answer"


def _filled(state: State, number: float) -> Array:
    return np.full_like(state.probs, number)


def _mean_of_attended(state: State) -> Array:
    """As much of each key that is attended."""
    seen = np.broadcast_to(state.allowed, state.probs.shape)
    return np.asarray(seen / np.maximum(seen.sum(axis=-1, keepdims=True), 1))


def _unmasked(state: State) -> Array:
    """The softmax of the logits before the mask."""
    logits = state.capped if state.bias is None else state.capped + np.where(np.isfinite(state.bias), state.bias, 0.0)
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


ANSWERS: Mapping[str, tuple[str, Callable[[State], Array]]] = {
    "zero": ("returns zeros", lambda state: _filled(state, 0.0)),
    "nan": ("returns NaN", lambda state: _filled(state, np.nan)),
    "unmasked": ("attends every key", _unmasked),
    "mean": ("returns the mean of all values", lambda state: _filled(state, 1.0 / state.probs.shape[-1])),
    "mean_of_attended": ("returns the mean of the values that are attended", _mean_of_attended),
}
"""Name -> what it does in these rows, and the weights by which it does."""


@dataclass(frozen=True)
class RowAnswer:
    """answer: one of ANSWERS. where: rows by their name, and which these are."""

    answer: str
    where: str
    which: Rows

    @property
    def name(self) -> str:
        """As it is written after `row_answer=`."""
        return f"{self.answer}_{self.where.replace(',', '').replace(' ', '_')}"

    @property
    def sentence(self) -> str:
        """What it does, after "it"."""
        return f"{ANSWERS[self.answer][0]} in rows {self.where}"

    def rows(self, problem: Problem) -> Array:
        """Which rows, (batch, num_heads, seq_len_q)."""
        return _rows(self.which, problem)

    def shown(self, problem: Problem) -> bytes:
        """What tells it from others in a call; nothing where there is no such row."""
        rows = self.rows(problem)
        return self.answer.encode() + rows.tobytes() if rows.any() else b""


@lru_cache(maxsize=1024)
def _rows(which: Rows, problem: Problem) -> Array:
    """Of every answer that they could have."""
    return which(np.broadcast_to(problem.attended(), problem.logits_shape))


def row_answers() -> Iterator[RowAnswer]:
    """Every one, the plainest first."""
    for where, which in named_rows():
        yield from (RowAnswer(answer, where, which) for answer in ANSWERS)


def row_answer(each: RowAnswer) -> Variation:
    """The answer as a variation of every call that has such a row."""

    def answered(state: State) -> State:
        rows = each.rows(state.problem)[..., None]
        return state.but(probs=np.where(rows, ANSWERS[each.answer][1](state), state.probs))

    def left_out(state: State) -> State:
        """Zero, and not zero times a value that may be infinite."""
        rows = each.rows(state.problem)[..., None] & (each.answer == "zero")
        return state.but(context=np.where(rows, 0.0, state.context))

    def changed(steps: Steps, _: str) -> Steps:
        steps = insert_after(steps, "dead_rows", Step(DECISION, answered))
        return insert_after(steps, "weigh", Step(DECISION, left_out))

    return unbounded_row(
        DECISION, each.name, each.sentence, "", changed, lambda problem: bool(each.rows(problem).any())
    )


FAMILY = Family(
    DECISION,
    "one",
    "zero_of_the_last_query",
    {each.name: partial(row_answer, each) for each in row_answers()},
)
