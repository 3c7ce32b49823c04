"""
The table of variations: every non-canonical way of attention that the harness has words for.

Order matters: within a stage, a dialect is composed in the order of this table.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from conformance.oracle.steps import (
    State,
    Step,
    Steps,
    insert_after,
    replace_step,
)
from conformance.oracle.variation import Dialect, Expected, Reply, Variation, slot_of
from conformance.spec.problem import Array, Group, Problem
from conformance.spec.rounding import largest, round_to

# ---- problem: what a mask argument means -------------------------------------------------------------------


def _on_slot(slot: str, change: Callable[[Problem, Group], Group | None]) -> Callable[[Problem], Problem]:
    """Change the group in `slot` (None removes it); the identity where the call does not use that argument."""

    def apply(problem: Problem) -> Problem:
        groups = []
        for group in problem.groups:
            changed = change(problem, group) if group.slot == slot else group
            if changed is not None:
                groups.append(changed)
        same = len(groups) == len(problem.groups) and all(a is b for a, b in zip(groups, problem.groups, strict=True))
        return problem if same else problem.but(groups=tuple(groups))

    return apply


def _inverted(_: Problem, group: Group) -> Group:
    if group.element in ("float", "flag"):
        return group
    return replace(group, element="bool", values=group.values == 0)


def _float_as_bool(_: Problem, group: Group) -> Group:
    if group.element != "float":
        return group
    return replace(group, element="bool", values=group.values != 0)


def _number_added(_: Problem, group: Group) -> Group:
    if group.element not in ("int", "bool") or not group.verbatim:
        return group
    return replace(group, element="float", values=group.values.astype(np.float64))


def _ignored(_: Problem, __: Group) -> None:
    return None


def _ignored_beside_others(problem: Problem, group: Group) -> Group | None:
    return None if len(problem.groups) > 1 else group


def _transposed(problem: Problem, group: Group) -> Group:
    if problem.seq_len_q != problem.seq_len_k or group.values.shape[-2] == 1:
        return group
    return replace(group, values=group.values.swapaxes(-1, -2))


def _first_item(_: Problem, group: Group) -> Group:
    return replace(group, values=group.values[:1]) if group.values.shape[0] > 1 else group


def slot_variations(slot: str) -> tuple[Variation, ...]:
    """Every way in which the argument `slot` of a call can be misread."""

    def row(family: str, name: str, sentence: str, remedy: str, change: Callable[..., Group | None]) -> Variation:
        return Variation(f"{family}[{slot}]", name, sentence, remedy, "problem", problem=_on_slot(slot, change))

    return (
        row("polarity", "ignore", f"reads True in {slot} as: ignore this key", f"pass ~{slot}", _inverted),
        row(
            "float_mask",
            "cast_to_bool",
            f"casts a float {slot} to bool, so that 0 ignores and anything else attends",
            f"pass a boolean {slot}",
            _float_as_bool,
        ),
        row(
            "number_mask",
            "added",
            f"adds the numbers of an integer or boolean {slot} to the logits",
            f"pass {slot} as 0 and -inf",
            _number_added,
        ),
        row("use", "ignored", f"ignores {slot}", f"do not rely on {slot}", _ignored),
        row(
            "use",
            "ignored_beside_others",
            f"ignores {slot} when another mask is given",
            "fold all masks into one",
            _ignored_beside_others,
        ),
        row(
            "mask_axes",
            "transposed",
            f"transposes {slot} when it is square",
            f"transpose {slot}",
            _transposed,
        ),
        row(
            "mask_axes",
            "first_item",
            f"applies {slot} of the first item of the batch to every item",
            "call once per item",
            _first_item,
        ),
    )


# ---- problem: where a causal flag is anchored, scale, heads -------------------------------------------------


def _causal(shift: Callable[[Problem], int]) -> Callable[[Problem], Problem]:
    """Move the diagonal of a causal flag by `shift`."""

    def moved(problem: Problem, group: Group) -> Group:
        if group.offset is None or (by := shift(problem)) == 0:
            return group
        return replace(group, values=causal(problem.seq_len_q, problem.seq_len_k, group.offset + by))

    def apply(problem: Problem) -> Problem:
        groups = tuple(moved(problem, group) for group in problem.groups)
        same = all(a is b for a, b in zip(groups, problem.groups, strict=True))
        return problem if same else problem.but(groups=groups)

    return apply


def causal(seq_len_q: int, seq_len_k: int, offset: int) -> Array:
    """True where key <= query + offset, shape (1, 1, seq_len_q, seq_len_k)."""
    return (np.arange(seq_len_k)[None, :] <= np.arange(seq_len_q)[:, None] + offset)[None, None]


def _scaled_by(factor: Callable[[Problem], float]) -> Callable[[Problem], Problem]:
    def apply(problem: Problem) -> Problem:
        ordinary = problem.head_dim**-0.5 if problem.scale is None else problem.scale
        scale = factor(problem)
        return problem if scale == ordinary else problem.but(scale=scale)

    return apply


def _interleaved_columns(heads: int, dim: int) -> Array:
    """Head h owns columns h, h + heads, h + 2 * heads, ... instead of a run of them."""
    return np.arange(heads * dim).reshape(dim, heads).T.reshape(-1)


def _interleaved_split(problem: Problem) -> Problem:
    if problem.operator != "mha" or problem.num_heads == 1:
        return problem
    params = dict(problem.params)
    for letter, heads, dim in (
        ("q", problem.num_heads, problem.head_dim),
        ("k", problem.num_kv_heads, problem.head_dim),
        ("v", problem.num_kv_heads, problem.value_dim),
    ):
        order = _interleaved_columns(heads, dim)
        for name in ("w" + letter, "b" + letter):
            if name in params:
                params[name] = params[name][..., order]
    return problem.but(params=params)


def _interleaved_merge(state: State) -> State:
    batch, heads, length, dim = state.context.shape
    return state.but(output=state.context.transpose(0, 2, 3, 1).reshape(batch, length, heads * dim))


def _merge_without_transpose(state: State) -> State:
    batch, heads, length, dim = state.context.shape
    return state.but(output=state.context.reshape(batch, length, heads * dim))


def _weights_transposed(problem: Problem) -> Problem:
    square = {
        name: np.ascontiguousarray(w.T)
        for name, w in problem.params.items()
        if name.startswith("w") and w.shape[0] == w.shape[1] and w.shape[0] > 1
    }
    return problem.but(params={**problem.params, **square}) if square else problem


def _no_biases(problem: Problem) -> Problem:
    kept = {name: array for name, array in problem.params.items() if not name.startswith("b")}
    return problem if len(kept) == len(problem.params) else problem.but(params=kept)


# ---- heads ------------------------------------------------------------------------------------------------


def _key_as_value(state: State) -> State:
    return state.but(value=state.key) if state.key.shape == state.value.shape else state


def _reversed_values(state: State) -> State:
    return state.but(value=state.value[:, :, ::-1]) if state.value.shape[2] > 1 else state


# ---- steps ------------------------------------------------------------------------------------------------


def _tile_heads(steps: Steps, _: str) -> Steps:
    def tile(state: State) -> State:
        repeats = state.problem.num_heads // state.problem.num_kv_heads
        if repeats == 1:
            return state
        return state.but(key=np.tile(state.key, (1, repeats, 1, 1)), value=np.tile(state.value, (1, repeats, 1, 1)))

    return replace_step(steps, "group", tile)


def _fill(amount: Callable[[str], float], *, replaces: bool = False) -> Callable[[Steps, str], Steps]:
    """Masked logits get a finite number, added or put in place, and are rounded to the score dtype."""

    def apply(steps: Steps, score: str) -> Steps:
        def mask(state: State) -> State:
            fill = float(round_to(np.asarray(amount(score)), score))
            with np.errstate(invalid="ignore"):
                under = fill if replaces else state.logits + fill
            filled = round_to(np.where(state.allowed, state.logits, under), score)
            if state.bias is not None:
                filled = np.where(state.bias == -np.inf, -np.inf, filled)
            return state.but(logits=filled, absorbed=_absorbed(state, filled))

        return replace_step(steps, "mask", mask)

    return apply


def _absorbed(state: State, filled: Array) -> Array:
    """Rows without an attended key whose logits the fill made equal."""
    none = ~state.allowed.any(axis=-1)
    return np.asarray(none & (filled.max(axis=-1) == filled.min(axis=-1)) & np.isfinite(filled).all(axis=-1))


def _dead_rows_nan(steps: Steps, _: str) -> Steps:
    return replace_step(steps, "dead_rows", lambda state: state)


def _dead_rows_uniform(steps: Steps, _: str) -> Steps:
    def uniform(state: State) -> State:
        probs = np.where(state.dead[..., None], 1.0 / state.logits.shape[-1], state.probs)
        return state.but(probs=probs, absorbed=state.dead)

    return replace_step(steps, "dead_rows", uniform)


def _dead_rows_unmasked(steps: Steps, _: str) -> Steps:
    def mask(state: State) -> State:
        attended = state.allowed if state.bias is None else state.allowed & (state.bias != -np.inf)
        dead = ~attended.any(axis=-1, keepdims=True)
        logits = np.where(attended | dead, state.scaled if state.bias is None else state.logits, -np.inf)
        return state.but(logits=np.where(dead, state.scaled, logits))

    return replace_step(steps, "mask", mask)


def _zero_after_softmax(steps: Steps, _: str) -> Steps:
    def zero(state: State) -> State:
        return state.but(probs=np.where(state.allowed, state.probs, 0.0))

    unmasked = replace_step(steps, "mask", lambda state: state)
    return insert_after(unmasked, "softmax", Step("zero", zero))


def _softmax_over(axis: int) -> Callable[[Steps, str], Steps]:
    def apply(steps: Steps, _: str) -> Steps:
        def softmax(state: State) -> State:
            dead = np.all(state.logits == -np.inf, axis=-1)
            top = state.logits.max(axis=axis, keepdims=True)
            exponentials = np.exp(state.logits - np.where(np.isfinite(top), top, 0.0))
            with np.errstate(invalid="ignore"):
                probs = exponentials / exponentials.sum(axis=axis, keepdims=True)
            return state.but(probs=np.nan_to_num(probs), dead=dead)

        return replace_step(steps, "softmax", softmax)

    return apply


def _values_leak(steps: Steps, _: str) -> Steps:
    def weigh(state: State) -> State:
        with np.errstate(invalid="ignore"):
            return state.but(context=state.probs @ state.value)

    return replace_step(steps, "weigh", weigh)


def _weights_before_softmax(steps: Steps, _: str) -> Steps:
    return replace_step(steps, "weights", lambda state: state.but(weights=state.scaled))


# ---- reply ------------------------------------------------------------------------------------------------


def _averaged(reply: Reply) -> Reply:
    if "weights" not in reply:
        return reply
    weights = reply["weights"]
    return {**reply, "weights": Expected(weights.values.mean(axis=1), weights.dtype)}


def _returned_as(dtype: str) -> Callable[[Reply], Reply]:
    def apply(reply: Reply) -> Reply:
        if all(expected.dtype == dtype for expected in reply.values()):
            return reply
        return {name: Expected(expected.values, dtype) for name, expected in reply.items()}

    return apply


def _output_transposed(reply: Reply) -> Reply:
    if "output" not in reply or reply["output"].values.ndim != 4:  # noqa: PLR2004 - only (b, h, q, d) has heads
        return reply
    output = reply["output"]
    return {**reply, "output": Expected(output.values.swapaxes(1, 2), output.dtype)}


# ---- the table ---------------------------------------------------------------------------------------------

_NUMBERS: dict[str, Callable[[str], float]] = {
    "minus_1e4": lambda _: -1e4,
    "minus_1e9": lambda score: max(-1e9, -largest(score)),
    "finite_minimum": lambda score: -largest(score),
    "plus_1e10": lambda score: min(1e10, largest(score)),
}

TABLE: tuple[Variation, ...] = (
    Variation(
        "causal_alignment",
        "bottom_right",
        "aligns the causal flag to the last key",
        "pass the mask",
        "problem",
        problem=_causal(lambda p: p.seq_len_k - p.seq_len_q),
    ),
    Variation(
        "causal_alignment",
        "strict",
        "hides the diagonal of a causal mask",
        "pass the mask",
        "problem",
        problem=_causal(lambda _: -1),
    ),
    Variation(
        "causal_alignment",
        "one_ahead",
        "shows one future key to each query",
        "pass the mask",
        "problem",
        problem=_causal(lambda _: 1),
    ),
    Variation(
        "scale",
        "none",
        "does not scale the logits",
        "multiply the query by 1/sqrt(head_dim)",
        "problem",
        problem=_scaled_by(lambda _: 1.0),
    ),
    Variation(
        "scale",
        "ignored",
        "ignores the scale argument",
        "multiply the query instead",
        "problem",
        problem=_scaled_by(lambda p: p.head_dim**-0.5),
    ),
    Variation(
        "scale",
        "all_heads",
        "scales by the width of all heads together",
        "multiply the query by sqrt(num_heads)",
        "problem",
        problem=_scaled_by(lambda p: (p.num_heads * p.head_dim) ** -0.5),
    ),
    Variation(
        "scale",
        "value_dim",
        "scales by the width of the values",
        "multiply the query by sqrt(value_dim / head_dim)",
        "problem",
        problem=_scaled_by(lambda p: p.value_dim**-0.5),
    ),
    Variation(
        "scale",
        "seq_len",
        "scales by the number of keys",
        "",
        "problem",
        problem=_scaled_by(lambda p: p.seq_len_k**-0.5),
    ),
    Variation(
        "scale",
        "squared",
        "applies the scale twice",
        "multiply the query by sqrt(head_dim)",
        "problem",
        problem=_scaled_by(lambda p: (p.head_dim**-0.5 if p.scale is None else p.scale) ** 2),
    ),
    Variation(
        "head_split",
        "interleaved",
        "gives head h every num_heads-th column of the projections",
        "permute the columns of wq, wk, wv",
        "problem",
        problem=_interleaved_split,
    ),
    Variation(
        "weight_orientation",
        "transposed",
        "multiplies by the transposed weights",
        "pass w.T",
        "problem",
        problem=_weights_transposed,
    ),
    Variation("projection_bias", "ignored", "drops the biases of the projections", "", "problem", problem=_no_biases),
    Variation("value_path", "key", "weighs the keys instead of the values", "", "heads", heads=_key_as_value),
    Variation(
        "value_path",
        "reversed",
        "weighs the values in reversed order of the keys",
        "",
        "heads",
        heads=_reversed_values,
    ),
    Variation(
        "grouped_heads",
        "tile",
        "shares key and value heads in turn (tile) instead of consecutively (repeat)",
        "permute the query heads",
        "steps",
        steps=_tile_heads,
    ),
    Variation(
        "fully_masked_row",
        "nan",
        "returns NaN for a fully masked row",
        "replace those rows yourself",
        "steps",
        steps=_dead_rows_nan,
    ),
    Variation(
        "fully_masked_row",
        "uniform",
        "returns the mean of all values for a fully masked row",
        "zero those rows yourself",
        "steps",
        steps=_dead_rows_uniform,
    ),
    Variation(
        "fully_masked_row",
        "unmasked",
        "ignores the mask in a fully masked row",
        "zero those rows yourself",
        "steps",
        steps=_dead_rows_unmasked,
    ),
    Variation(
        "mask_fill",
        "minus_1e4",
        "adds -1e4 where masked: a large logit still wins",
        "keep logits small",
        "steps",
        steps=_fill(_NUMBERS["minus_1e4"]),
    ),
    Variation(
        "mask_fill",
        "minus_1e9",
        "adds -1e9 where masked",
        "keep logits small",
        "steps",
        steps=_fill(_NUMBERS["minus_1e9"]),
    ),
    Variation(
        "mask_fill",
        "finite_minimum",
        "puts the most negative finite number where masked",
        "avoid fully masked rows",
        "steps",
        steps=_fill(_NUMBERS["finite_minimum"], replaces=True),
    ),
    Variation(
        "mask_fill",
        "plus_1e10",
        "puts +1e10 where masked: masked keys win",
        "",
        "steps",
        steps=_fill(_NUMBERS["plus_1e10"], replaces=True),
    ),
    Variation(
        "mask_fill",
        "zero_after_softmax",
        "zeroes masked weights after the softmax, so that rows do not sum to one",
        "",
        "steps",
        steps=_zero_after_softmax,
    ),
    Variation("softmax_axis", "queries", "normalises over the queries", "", "steps", steps=_softmax_over(-2)),
    Variation("softmax_axis", "heads", "normalises over the heads", "", "steps", steps=_softmax_over(1)),
    Variation(
        "nonfinite_value",
        "leaks",
        "lets a non-finite value at a masked position reach the output",
        "clean the padding",
        "steps",
        steps=_values_leak,
    ),
    Variation(
        "head_merge",
        "interleaved",
        "interleaves the columns of the heads before the output projection",
        "permute the rows of wo",
        "steps",
        steps=lambda steps, _: _merged_by(steps, _interleaved_merge),
    ),
    Variation(
        "head_merge",
        "untransposed",
        "reshapes heads and positions without a transposition",
        "",
        "steps",
        steps=lambda steps, _: _merged_by(steps, _merge_without_transpose),
    ),
    Variation(
        "returned_weights",
        "before_softmax",
        "returns logits as weights",
        "apply the softmax yourself",
        "steps",
        steps=_weights_before_softmax,
    ),
    Variation(
        "returned_weights",
        "averaged",
        "averages the returned weights over the heads",
        "ask for weights per head",
        "reply",
        reply=_averaged,
    ),
    Variation(
        "output_axes",
        "transposed",
        "returns (batch, seq_len, num_heads, head_dim)",
        "swap axes 1 and 2",
        "reply",
        reply=_output_transposed,
    ),
    *(
        Variation("result_dtype", dtype, f"returns {dtype}", "cast the result", "reply", reply=_returned_as(dtype))
        for dtype in ("float64", "float32", "float16", "bfloat16")
    ),
)


def _merged_by(steps: Steps, merge: Callable[[State], State]) -> Steps:
    return replace_step(steps, "merge", merge) if any(s.name == "merge" for s in steps) else steps


CANONICAL_NAMES: dict[str, str] = {
    "causal_alignment": "top_left",
    "scale": "1/sqrt(head_dim) or as given",
    "head_split": "consecutive",
    "head_merge": "consecutive",
    "grouped_heads": "repeat",
    "mask_fill": "-inf",
    "fully_masked_row": "zero",
    "softmax_axis": "keys",
    "nonfinite_value": "isolated",
    "returned_weights": "per head, after the softmax",
    "result_dtype": "the input's",
}
"""What canonical is called, for sentences; decisions that are absent are called canonical."""

_RANK = {variation.key: rank for rank, variation in enumerate(TABLE)}


def find(decision: str, name: str) -> Variation:
    """
    The variation of one decision by name.

    Raises:
        KeyError: the table has no such row; the message lists the names of that decision.
    """
    family, slot = slot_of(decision)
    rows = TABLE if slot is None else slot_variations(slot)
    for variation in rows:
        if variation.decision == decision and variation.name == name:
            return variation
    names = [row.name for row in rows if row.decision == decision]
    hint = f"it is one of {', '.join(names)}" if names else f"there is no decision {family!r}"
    raise KeyError(f"no variation {decision}={name}: {hint}")


def compose(dialect: Dialect) -> tuple[Variation, ...]:
    """The variations of a dialect in their fixed order: by stage as applied, then as the table lists them."""
    found = [find(decision, name) for decision, name in dialect.items()]
    return tuple(sorted(found, key=lambda v: (v.stage != "problem", _RANK.get(v.key, -1), v.key)))


def candidates(problem: Problem) -> tuple[Variation, ...]:
    """Every variation that this problem could show: those of the arguments it uses, then the table."""
    slots = dict.fromkeys(group.slot for group in problem.groups)
    return (*(v for slot in slots for v in slot_variations(slot)), *TABLE)


__all__ = ["CANONICAL_NAMES", "TABLE", "candidates", "causal", "compose", "find", "slot_variations"]
