"""Variations that are habits of some models: right there, and not the attention that was asked for."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.other_masks import causal
from conformance.oracle.pipeline import Steps, replace_step
from conformance.oracle.state import State
from conformance.oracle.variation import ProblemMap, Variation, problem_row
from conformance.spec.problem import Array, Group, Problem
from conformance.spec.rounding import round_to

HABIT = "habit"
"""What stands for the argument of a mask or bias that nobody gave."""

NORMALISED = (("query", "key"), ("query",), ("key",))
"""What is divided by its root mean square."""

EPSILONS = ("1e-6", "1e-5", "1e-8", "")
"""What is added to the mean square, so that nothing is divided by zero; the last is none."""


def _causal_unasked(problem: Problem) -> Problem:
    if any(group.offset is not None for group in problem.groups):
        return problem
    seen = causal(problem.seq_len_q, problem.seq_len_k, 0)
    return problem.but(groups=(*problem.groups, Group(HABIT, (HABIT,), "bool", seen)))


def _without_flag(problem: Problem) -> Problem:
    """No causal flag, whichever argument carries it."""
    kept = tuple(group for group in problem.groups if group.offset is None)
    return problem if len(kept) == len(problem.groups) else problem.but(groups=kept)


def _without_flag_beside_others(problem: Problem) -> Problem:
    return _without_flag(problem) if len(problem.groups) > 1 else problem


def _always(position: Callable[[Problem], Array]) -> ProblemMap:
    """Let every mask attend where `position` says so, broadcastable to (seq_len_q, seq_len_k); finite biases stay."""

    def shown(problem: Problem, group: Group) -> Group:
        seen = position(problem)
        if group.element == "float":
            opened = np.where(seen & (group.values == -np.inf), 0.0, group.values)
            return replace(group, values=opened)
        return replace(group, element="bool", values=(group.values != 0) | seen, offset=None, window=None)

    def apply(problem: Problem) -> Problem:
        if not problem.groups:
            return problem
        return problem.but(groups=tuple(shown(problem, group) for group in problem.groups))

    return apply


def _single_key(problem: Problem) -> Problem:
    return _always(_first_key)(problem) if problem.seq_len_k == 1 else problem


def _first_key(problem: Problem) -> Array:
    return np.asarray(np.arange(problem.seq_len_k) == 0)[None, :]


def _own_position(problem: Problem) -> Array:
    return np.eye(problem.seq_len_q, problem.seq_len_k, dtype=bool)


def _distance_bias(problem: Problem) -> Problem:
    """Press, Smith, Lewis 2021 (ALiBi): head h of n adds -2^(-8 (h + 1) / n) times the distance to the logits."""
    slopes = 2.0 ** (-8.0 * np.arange(1, problem.num_heads + 1) / problem.num_heads)
    apart = np.abs(np.arange(problem.seq_len_q)[:, None] - np.arange(problem.seq_len_k)[None, :])
    bias = -slopes[:, None, None] * apart
    return problem.but(groups=(*problem.groups, Group(HABIT, (HABIT,), "float", np.asarray(bias[None]))))


def _eighth(problem: Problem) -> Problem:
    scale = problem.applied_scale
    return problem if scale == 0.125 else problem.but(scale=0.125)  # noqa: PLR2004 - 1/sqrt(64), the habit


def _unit_length(state: State) -> State:
    return state.but(query=_normalised(state.query), key=_normalised(state.key))


def _normalised(rows: Array) -> Array:
    """Rows of length one; a row of zeros stays."""
    length = np.sqrt((rows**2).sum(axis=-1, keepdims=True))
    return np.asarray(rows / np.where(length == 0, 1.0, length))


def _root_mean_square(names: tuple[str, ...], epsilon: float) -> Callable[[State], State]:
    """Zhang and Sennrich 2019 (RMSNorm) over head_dim, with no weights of its own; a row of zeros stays."""

    def normalised(state: State) -> State:
        return state.but(**{name: _by_root_mean_square(getattr(state, name), epsilon) for name in names})

    return normalised


def _by_root_mean_square(rows: Array, epsilon: float) -> Array:
    root = np.sqrt((rows**2).mean(axis=-1, keepdims=True) + epsilon)
    return np.asarray(rows / np.where(root == 0, 1.0, root))


def _root_mean_square_row(names: tuple[str, ...], epsilon: str) -> Variation:
    whose = "their" if len(names) > 1 else "its"
    added = f", {epsilon} added under the root" if epsilon else ""
    return Variation(
        "query_key_norm",
        "_".join(part for part in ("rms_of", *names, epsilon) if part),
        f"divides {' and '.join(names)} by {whose} root mean square over head_dim{added}",
        "",
        "heads",
        heads=_root_mean_square(names, float(epsilon or 0)),
        bounded=False,
    )


def _peak_at_least_zero(state: State) -> Array:
    return np.asarray(np.maximum(state.logits.max(axis=-1, keepdims=True), 0.0))


def _peak_of_masked(state: State) -> Array:
    """A masked logit takes part with its bias, which an infinite one takes out of it."""
    bias = 0.0 if state.bias is None else state.bias
    return np.asarray((state.capped + bias).max(axis=-1, keepdims=True))


def _peak_of(axes: tuple[int, ...]) -> Callable[[State], Array]:
    return lambda state: np.asarray(state.logits.max(axis=axes, keepdims=True))


def _subtracting(peak: Callable[[State], Array]) -> Callable[[Steps, str], Steps]:
    """
    Subtract another number than the greatest attended logit: the weights are the same until exponentials underflow.

    A row of which nothing is left is zero.
    """

    def apply(steps: Steps, score: str) -> Steps:
        def softmax(state: State) -> State:
            done = ordinary(state)
            top = peak(state)
            if np.all(top == state.logits.max(axis=-1, keepdims=True)):
                return done
            taken = np.where(np.isinf(top), 0.0, top)  # NaN is the greatest of all, and makes NaN of every logit
            exponentials = round_to(np.exp(state.logits - taken), score)
            total = exponentials.sum(axis=-1, keepdims=True)
            return done.but(probs=exponentials / np.where(total == 0, 1.0, total))

        ordinary = next(step.apply for step in steps if step.name == "softmax")
        return replace_step(steps, "softmax", softmax)

    return apply


def peak_row(name: str, sentence: str, peak: Callable[[State], Array]) -> Variation:
    """One row of the table that subtracts another number before it takes exponentials."""
    return Variation("softmax_maximum", name, sentence, "", "steps", steps=_subtracting(peak), bounded=False)


ROWS: tuple[Variation, ...] = (
    problem_row("causal_mask", "ignored", "ignores the causal flag", "pass the mask", _without_flag),
    problem_row(
        "causal_mask",
        "ignored_beside_others",
        "ignores the causal flag when another mask is given",
        "fold all masks into one",
        _without_flag_beside_others,
    ),
    problem_row("causal_mask", "unasked", "applies a causal mask that nobody asked for", "", _causal_unasked),
    problem_row(
        "always_attended",
        "single_key",
        "copies the value of a single key to every query, even if that key is masked",
        "append a key, masked",
        _single_key,
    ),
    problem_row("always_attended", "first_key", "attends the first key even if it is masked", "", _always(_first_key)),
    problem_row(
        "always_attended",
        "own_position",
        "lets a query attend the key at its own position even if that is masked",
        "",
        _always(_own_position),
    ),
    problem_row(
        "position_bias",
        "distance",
        "takes the distance of query and key off the logits, as ALiBi does",
        "",
        _distance_bias,
    ),
    problem_row(
        "scale",
        "eighth",
        "scales by 1/8 whatever head_dim is",
        "multiply the query, in a layer wq and bq, by 8 / sqrt(head_dim)",
        _eighth,
    ),
    Variation(
        "query_key_norm",
        "unit_length",
        "normalises query and key to length one",
        "",
        "heads",
        heads=_unit_length,
        bounded=False,
    ),
    *(_root_mean_square_row(names, epsilon) for names in NORMALISED for epsilon in EPSILONS),
    peak_row(
        "at_least_zero",
        "begins the maximum of a row at zero: logits that are all far below it underflow",
        _peak_at_least_zero,
    ),
    peak_row(
        "of_masked_keys",
        "subtracts a maximum in which masked keys take part: attended logits far below it underflow",
        _peak_of_masked,
    ),
    peak_row(
        "of_all",
        "subtracts one maximum for the whole tensor: rows far below it underflow",
        _peak_of((0, 1, 2, 3)),
    ),
    peak_row(
        "of_head",
        "subtracts one maximum for all queries of a head: rows far below it underflow",
        _peak_of((-2, -1)),
    ),
)
