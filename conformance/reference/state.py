"""What an attention call computes on its way, as one record."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.spec.problem import Array, Problem


@dataclass(frozen=True, eq=False)
class State:
    """
    Everything an attention call computes on its way; any field may be looked at.

    query, key, value: after projection, head split and repetition of grouped heads, (batch, num_heads, seq_len,
    head_dim or value_dim). scale: what the products are multiplied by. allowed: True = attend, shape of the logits.
    bias: added to the logits, or None. products: query . key. scaled: products * scale. capped: cap * tanh(scaled /
    cap), or scaled where there is no cap. logits: what the softmax sees, -inf where not attended. probs: after the
    softmax. dead: rows (batch, num_heads, seq_len_q) with nothing to attend. absorbed: rows whose logits a finite fill
    swallowed, so that they are uniform. passes: whether masked logits still depend on their products. normalises:
    whether a backward pass still divides by the sum of a row whose logits swallow its logarithm. context: probs .
    value. output, weights: the reply.
    """

    problem: Problem
    query: Array
    key: Array
    value: Array
    scale: float
    allowed: Array
    bias: Array | None
    products: Array
    scaled: Array
    capped: Array
    logits: Array
    probs: Array
    dead: Array
    absorbed: Array
    passes: bool
    normalises: bool
    context: Array
    output: Array
    weights: Array

    def but(self, **fields: Any) -> "State":
        """
        The same state except for `fields`; `dataclasses.replace` takes most of the time of a small problem.

        Raises:
            TypeError: a state has no such field.
        """
        changed = object.__new__(State)
        vars(changed).update(vars(self), **fields)
        if len(vars(changed)) > len(vars(self)):
            raise TypeError(f"a state has no {' or '.join(fields.keys() - vars(self).keys())}")
        return changed


def begin(problem: Problem) -> State:
    """A state in which nothing has been computed."""
    nothing = np.empty(0)
    return State(
        problem=problem,
        query=problem.query,
        key=problem.key,
        value=problem.value,
        scale=problem.applied_scale,
        allowed=problem.allowed(),
        bias=problem.bias(),
        products=nothing,
        scaled=nothing,
        capped=nothing,
        logits=nothing,
        probs=nothing,
        dead=nothing,
        absorbed=np.zeros(problem.logits_shape[:3], dtype=bool),
        passes=False,
        normalises=True,
        context=nothing,
        output=nothing,
        weights=nothing,
    )
