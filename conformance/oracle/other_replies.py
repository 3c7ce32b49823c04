"""Variations that return another form of the same answer."""

from conformance.oracle.variation import Expected, Reply, ReplyMap, Variation
from conformance.spec.problem import Problem

GRADIENT = "grad_"
"""A gradient has the type of what it is by, whatever that of the result is."""


def averaged(reply: Reply) -> Reply:
    """Weights (batch, num_heads, seq_len_q, seq_len_k) as their mean over the heads."""
    if "weights" not in reply:
        return reply
    weights = reply["weights"]
    return {**reply, "weights": Expected(weights.values.mean(axis=1), weights.dtype)}


def _returned_as(dtype: str) -> ReplyMap:
    def apply(reply: Reply) -> Reply:
        results = {name: each for name, each in reply.items() if not name.startswith(GRADIENT)}
        if all(expected.dtype == dtype for expected in results.values()):
            return reply
        return {**reply, **{name: Expected(expected.values, dtype) for name, expected in results.items()}}

    return apply


def _weights_as(dtype: str) -> ReplyMap:
    def apply(reply: Reply) -> Reply:
        weights = {name: reply[name] for name in ("weights", "weights_mean") if name in reply}
        if all(expected.dtype == dtype for expected in weights.values()):
            return reply
        return {**reply, **{name: Expected(expected.values, dtype) for name, expected in weights.items()}}

    return apply


def _asks_per_head(problem: Problem) -> Problem:
    """Weights of each head where their mean is asked for."""
    if "weights_mean" not in problem.outputs or "weights" in problem.outputs:
        return problem
    return problem.but(outputs=tuple("weights" if name == "weights_mean" else name for name in problem.outputs))


def _per_head_as_mean(reply: Reply) -> Reply:
    return {("weights_mean" if name == "weights" else name): expected for name, expected in reply.items()}


def _asks_capped(problem: Problem) -> Problem:
    """The capped product where the one before the softcap is asked for."""
    if problem.softcap is None or "scaled" not in problem.outputs or "capped" in problem.outputs:
        return problem
    return problem.but(outputs=tuple("capped" if name == "scaled" else name for name in problem.outputs))


def _capped_as_scaled(reply: Reply) -> Reply:
    return {("scaled" if name == "capped" else name): expected for name, expected in reply.items()}


def _output_transposed(reply: Reply) -> Reply:
    if "output" not in reply or reply["output"].values.ndim != 4:  # noqa: PLR2004 - only (b, h, q, d) has heads
        return reply
    output = reply["output"]
    return {**reply, "output": Expected(output.values.swapaxes(1, 2), output.dtype)}


def _output_squeezed(reply: Reply) -> Reply:
    output = reply.get("output")
    if output is None or 1 not in output.values.shape:
        return reply
    return {**reply, "output": Expected(output.values.squeeze(), output.dtype)}


def row(decision: str, name: str, sentence: str, remedy: str, reply: ReplyMap) -> Variation:
    """One row of the table."""
    return Variation(decision, name, sentence, remedy, "reply", reply=reply)


ROWS: tuple[Variation, ...] = (
    row(
        "returned_weights",
        "averaged",
        "averages the returned weights over the heads",
        "ask for weights per head",
        averaged,
    ),
    Variation(
        "returned_weights",
        "not_averaged",
        "returns the weights of each head where their mean is asked for",
        "average them",
        "problem",
        problem=_asks_per_head,
        reply=_per_head_as_mean,
    ),
    Variation(
        "returned_scores",
        "capped_as_scaled",
        "returns the capped product where the one before the softcap is asked for",
        "ask for the product without a softcap",
        "problem",
        problem=_asks_capped,
        reply=_capped_as_scaled,
    ),
    row(
        "output_axes",
        "transposed",
        "returns (batch, seq_len, num_heads, head_dim)",
        "swap axes 1 and 2",
        _output_transposed,
    ),
    row(
        "output_axes",
        "squeezed",
        "drops every axis of the output that has a length of one",
        "reshape the output",
        _output_squeezed,
    ),
    *(
        row("result_dtype", dtype, f"returns {dtype}", "cast the result", _returned_as(dtype))
        for dtype in ("float64", "float32", "float16", "bfloat16")
    ),
    row(
        "returned_weights",
        "float32",
        "returns weights in float32, the output in the dtype of the inputs",
        "cast the weights",
        _weights_as("float32"),
    ),
)
