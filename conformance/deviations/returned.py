"""Deviations of what is returned: axes, dtype, weights other than those multiplied by V, rows left at zero."""

from collections.abc import Callable
from functools import partial

import numpy as np

from conformance.deviations.deviation import Deviation, Expected, HeadsMap, Reply, ReplyMap, asks_for_weights
from conformance.deviations.layout import of_output
from conformance.deviations.regions import padded
from conformance.reference.pipeline import Step, StepsMap, following, replacing, wrapping
from conformance.reference.steps import State, softmax
from conformance.spec.problem import GRADIENT, Array, Problem

WEIGHTS = ("weights", "weights_mean")
HEADS_LAST = (0, 2, 1, 3)


def averaged(reply: Reply) -> Reply:
    """Replace weights (batch, num_heads, seq_len_q, seq_len_k) by their mean over the heads."""
    if "weights" not in reply:
        return reply
    return {**reply, "weights": Expected(reply["weights"].values.mean(axis=1), reply["weights"].dtype)}


def _returned_as(dtype: str, concerns: Callable[[str], bool], reply: Reply) -> Reply:
    """Change the dtype of the outputs whose name satisfies `concerns`."""
    results = {name: each for name, each in reply.items() if concerns(name)}
    if all(expected.dtype == dtype for expected in results.values()):
        return reply
    return {**reply, **{name: Expected(expected.values, dtype) for name, expected in results.items()}}


def _instead_of(name: str, other: str) -> tuple[Callable[[Problem], Problem], ReplyMap]:
    """Make the maps that return the output `other` under the name of the requested output `name`."""

    def ask(problem: Problem) -> Problem:
        if name not in problem.outputs or other in problem.outputs:
            return problem
        return problem.but(outputs=tuple(other if each == name else each for each in problem.outputs))

    return ask, lambda reply: {(name if each == other else each): expected for each, expected in reply.items()}


def _capped_as_scaled(problem: Problem) -> Problem:
    return problem if problem.softcap is None else _instead_of("scaled", "capped")[0](problem)


def _heads_last(output: Array) -> Array:
    return output.transpose(HEADS_LAST) if output.ndim == len(HEADS_LAST) else output


def _weights_are(weights: Callable[[State], Array]) -> StepsMap:
    return replacing("weights", lambda state: state.but(weights=weights(state)))


def _in_fully_masked_rows(weights: Callable[[int], float]) -> StepsMap:
    """Replace the returned weights of fully masked rows, given the number of keys; the output is unchanged."""

    def replaced(state: State, ordinary: HeadsMap) -> State:
        done = ordinary(state)
        constant = weights(done.weights.shape[-1])
        return done.but(weights=np.where(state.fully_masked[..., None], constant, done.weights))

    return wrapping("weights", replaced)


def _last_query_zero(state: State) -> State:
    queries = state.context.shape[-2]
    return state.but(context=np.where((np.arange(queries) == queries - 1)[:, None], 0.0, state.context))


def _of_first_head(state: State) -> State:
    return state.but(context=np.broadcast_to(state.context[:, :1], state.context.shape))


def _padded_queries(problem: Problem) -> Array | None:
    """Return the queries (batch or 1, seq_len_q) whose own position is padded; None unless seq_len_q = seq_len_k."""
    keys = padded(problem)
    return None if keys is None or problem.seq_len_q != problem.seq_len_k else keys[:, 0, 0]


def _blanked(*, weights: bool) -> StepsMap:
    """Zero the output of padded queries after all projections, and their weights if `weights` is true."""

    def blank(state: State) -> State:
        hidden = _padded_queries(state.problem)
        if hidden is None:
            return state
        done = state.but(output=np.where(hidden[..., None], 0.0, state.output))
        return done.but(weights=np.where(hidden[:, None, :, None], 0.0, state.weights)) if weights else done

    return lambda steps, _: (*steps, Step("blank", blank))


def _has_padded_queries(problem: Problem) -> bool:
    """Whether an mha problem has padded queries; in sdpa this equals padding that also masks queries."""
    hidden = _padded_queries(problem)
    return problem.operator == "mha" and hidden is not None and bool(hidden.any())


def _weights(name: str, steps: StepsMap, reply: ReplyMap | None = None, *, bounded: bool = False) -> Deviation:
    return Deviation("returned_weights", name, steps=steps, reply=reply, bounded=bounded, concerns=asks_for_weights)


PER_HEAD = _instead_of("weights_mean", "weights")
CAPPED = _instead_of("scaled", "capped")

ROWS: tuple[Deviation, ...] = (
    _weights("before_softmax", _weights_are(lambda state: state.scaled), bounded=True),
    _weights("masked_logits", _weights_are(lambda state: state.logits)),
    _weights("summed", _weights_are(lambda state: state.probs * state.problem.num_heads), averaged),
    _weights("uniform_in_fully_masked_rows", _in_fully_masked_rows(lambda keys: 1.0 / keys)),
    _weights("nan_in_fully_masked_rows", _in_fully_masked_rows(lambda _: float("nan"))),
    Deviation(
        "returned_weights",
        "unmasked",
        steps=_weights_are(lambda state: softmax(state.but(logits=state.capped)).probs),
        bounded=False,
    ),
    Deviation("returned_weights", "averaged", reply=averaged),
    Deviation("returned_weights", "not_averaged", problem=PER_HEAD[0], reply=PER_HEAD[1]),
    Deviation("returned_weights", "float32", reply=partial(_returned_as, "float32", WEIGHTS.__contains__)),
    Deviation("returned_scores", "capped_as_scaled", problem=_capped_as_scaled, reply=CAPPED[1]),
    Deviation("output_axes", "transposed", reply=of_output(_heads_last)),
    Deviation(
        "output_axes", "squeezed", reply=of_output(lambda output: output.squeeze() if 1 in output.shape else output)
    ),
    *(
        # Gradients keep the dtype of their input or parameter, whatever the dtype of the other outputs.
        Deviation("result_dtype", dtype, reply=partial(_returned_as, dtype, lambda name: not name.startswith(GRADIENT)))
        for dtype in ("float64", "float32", "float16", "bfloat16")
    ),
    Deviation("query_tail", "zero", steps=following("weigh", "query_tail", _last_query_zero), bounded=False),
    Deviation("head_result", "first", steps=following("weigh", "head_result", _of_first_head), bounded=False),
    Deviation("padded_queries", "zeroed", steps=_blanked(weights=False), bounded=False, concerns=_has_padded_queries),
    Deviation(
        "padded_queries",
        "zeroed_with_weights",
        steps=_blanked(weights=True),
        bounded=False,
        concerns=_has_padded_queries,
    ),
)
