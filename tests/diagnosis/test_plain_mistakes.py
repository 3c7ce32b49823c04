"""
Mistakes in plain NumPy: the wrong reply is computed here, without the oracle, and the diagnosis names it.

There is at least one mistake for each decision that has deviations.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from conformance.deviations.catalogue import FITTED, TABLE
from conformance.deviations.deviation import with_params
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.measured import MEASURED, of_argument
from conformance.diagnosis.candidates import Candidate
from conformance.diagnosis.conditions import Condition, always
from conformance.diagnosis.diagnosis import diagnose, record_of
from conformance.diagnosis.evidence import Evidence
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor

from ..problems import DIM, HEADS, VALUE_DIM, one_query, random_mha, random_sdpa
from .judged_cells import judged

# (batch, seq_len_q, seq_len_k).
SIZES = ((2, 5, 7), (5, 7, 17), (2, 7, 5), (2, 19, 29))
SQUARE = ((2, 5, 5), (5, 7, 7), (2, 17, 17))

LOWEST = -float(np.finfo(np.float32).max)

# Makes a mask for the sizes of a problem.
MaskOf = Callable[[Problem], MaskOperand]


# ---- correct attention -----------------------------------------------------------------------------------------


def scores(p: Problem) -> Array:
    return scaled(p.query, p.key)


def scaled(query: Array, key: Array) -> Array:
    return np.asarray(query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]))


def hidden(logits: Array, allowed: Any) -> Array:
    return np.where(allowed, logits, -np.inf)


def softmax(logits: Array, axis: int = -1) -> Array:
    """The softmax; a fully masked row is zero."""
    top = logits.max(axis=axis, keepdims=True)
    exponentials = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
    total = exponentials.sum(axis=axis, keepdims=True)
    return np.asarray(exponentials / np.where(total == 0.0, 1.0, total))


def split(rows: Array, heads: int) -> Array:
    batch, length, width = rows.shape
    return rows.reshape(batch, length, heads, width // heads).swapaxes(1, 2)


def merge(heads: Array) -> Array:
    batch, _, length, _ = heads.shape
    return heads.swapaxes(1, 2).reshape(batch, length, -1)


def attend(query: Array, key: Array, value: Array) -> Array:
    return softmax(scaled(query, key)) @ value


def layer(
    p: Problem,
    attention: Callable[[Array, Array, Array], Array] = attend,
    *,
    inputs: Sequence[Array] | None = None,
    splits: Callable[[Array, int], Array] = split,
    merges: Callable[[Array], Array] = merge,
    activation: Callable[[Array], Array] = lambda rows: rows,
    **other: Array,
) -> Array:
    """The output of a layer with biases; other: parameters that replace its own."""
    w = {**p.params, **other}
    rows = inputs or (p.query, p.key, p.value)
    query, key, value = (
        splits(activation(array @ w["w" + name] + w["b" + name]), p.num_heads)
        for name, array in zip("qkv", rows, strict=True)
    )
    return np.asarray(merges(attention(query, key, value)) @ w["wo"] + w["bo"])


# ---- calls -----------------------------------------------------------------------------------------------------


def calls(*masks: MaskOf, sizes: Sequence[tuple[int, int, int]] = SIZES, **fields: Any) -> list[Problem]:
    made = [
        random_sdpa(7 * batch + queries, batch=batch, seq_len_q=queries, seq_len_k=keys, **fields)
        for batch, queries, keys in sizes
    ]
    return [each.but(mask_operands=tuple(mask(each) for mask in masks)) for each in made]


def apart(times: float) -> list[Problem]:
    """Calls whose logits are this many times further apart; at 600, most weights are zero once the maximum rises."""
    return [each.but(query=each.query * times) for each in calls()]


def layers(*masks: MaskOf, sizes: Sequence[tuple[int, int, int]] = SIZES, **fields: Any) -> list[Problem]:
    made = [
        random_mha(7 * batch + queries, batch=batch, seq_len_q=queries, seq_len_k=keys, **fields)
        for batch, queries, keys in sizes
    ]
    return [each.but(mask_operands=tuple(mask(each) for mask in masks)) for each in made]


def drawn(p: Problem, heads: int = 1) -> Array:
    """About seven of ten positions, and at least one key for each query."""
    allowed = np.random.default_rng(p.seq_len_k).random((1, heads, p.seq_len_q, p.seq_len_k)) < 0.7
    queries = np.arange(p.seq_len_q)
    allowed[:, :, queries, (queries + 1) % p.seq_len_k] = True
    return allowed


def holes(p: Problem) -> MaskOperand:
    return MaskOperand("mask", ("attention",), "bool", drawn(p))


def inverted_holes(p: Problem) -> MaskOperand:
    return replace(holes(p), inverted=True)


def holes_of_each_head(p: Problem) -> MaskOperand:
    return MaskOperand("mask", ("attention",), "bool", drawn(p, p.num_heads))


def fully_masked_row(p: Problem) -> MaskOperand:
    """A mask in which the second query is fully masked."""
    allowed = drawn(p)
    allowed[:, :, 1] = False
    return MaskOperand("mask", ("attention",), "bool", allowed)


def numbers(p: Problem) -> MaskOperand:
    return MaskOperand("mask", ("attention",), "int", drawn(p).astype(np.float64), verbatim=True)


def infinities(p: Problem) -> MaskOperand:
    return MaskOperand("mask", ("attention",), "float", np.where(drawn(p), 0.0, -np.inf), verbatim=True)


def row(p: Problem) -> MaskOperand:
    """A mask with one row for all queries."""
    return MaskOperand("mask", ("attention",), "bool", drawn(p)[:, :, :1])


def column(p: Problem) -> MaskOperand:
    """A mask with one column for all keys."""
    return MaskOperand("mask", ("attention",), "bool", (np.arange(p.seq_len_q) % 3 > 0)[None, None, :, None])


def late_keys(p: Problem) -> MaskOperand:
    """A mask in which the first query attends exactly the keys after the first four."""
    allowed = drawn(p)
    allowed[:, :, 0] = np.arange(p.seq_len_k) >= 4
    return MaskOperand("mask", ("attention",), "bool", allowed)


def a_block_hidden(p: Problem) -> MaskOperand:
    """A mask in which the first query attends exactly the keys outside the second block of four."""
    allowed = drawn(p)
    allowed[:, :, 0] = np.arange(p.seq_len_k) // 4 != 1
    return MaskOperand("mask", ("attention",), "bool", allowed)


def a_tile_hidden(p: Problem) -> MaskOperand:
    """A mask in which the first four queries do not attend the second four keys."""
    allowed = drawn(p)
    allowed[:, :, :4, 4:8] = False
    return MaskOperand("mask", ("attention",), "bool", allowed)


def padding(p: Problem) -> MaskOperand:
    """A mask in which the last two keys of the first batch element are padding."""
    allowed = np.ones((p.batch, 1, 1, p.seq_len_k), dtype=bool)
    allowed[0, ..., -2:] = False
    return MaskOperand("padding", ("key_padding",), "bool", allowed)


def lengths(p: Problem) -> MaskOperand:
    """An argument of lengths: two keys less than there are in the first batch element, all of them in the others."""
    return MaskOperand("mask", ("key_padding",), "flag", padding(p).values)


def short_lengths(p: Problem) -> MaskOperand:
    """An argument of lengths: one key less than there are, and three less in the first batch element."""
    allowed = np.ones((p.batch, 1, 1, p.seq_len_k), dtype=bool)
    allowed[..., -1:] = False
    allowed[0, ..., -3:] = False
    return MaskOperand("mask", ("key_padding",), "flag", allowed)


def one_key_more(p: Problem) -> Array:
    return np.asarray(np.arange(p.seq_len_k) <= given(p, "mask").sum(axis=-1, keepdims=True))


def bias(p: Problem) -> MaskOperand:
    numbers = np.random.default_rng(p.seq_len_q).standard_normal((1, p.num_heads, p.seq_len_q, p.seq_len_k))
    return MaskOperand("bias", ("additive",), "float", round_to(numbers, "float32"))


def lowest(p: Problem) -> MaskOperand:
    """As `bias`, with the lowest number of float32 in the whole row of the second query."""
    operand = bias(p).values.copy()
    operand[:, :, 1] = LOWEST
    return MaskOperand("bias", ("additive",), "float", operand)


def causal(p: Problem) -> MaskOperand:
    return MaskOperand("is_causal", ("causal",), "flag", (ahead(p) <= p.past)[None, None], offset=p.past)


def window(p: Problem) -> MaskOperand:
    """A window of two keys to the left and one to the right, counted from the position after the past."""
    left, right = 2 - p.past, 1 + p.past
    allowed = (ahead(p) >= -left) & (ahead(p) <= right)
    return MaskOperand("window", ("window",), "flag", allowed[None, None], window=(left, right))


def ahead(p: Problem) -> Array:
    """By how much the position of a key is greater than that of a query, counted without the past."""
    return np.arange(p.seq_len_k) - np.arange(p.seq_len_q)[:, None]


def query(p: Problem) -> Array:
    return np.arange(p.seq_len_q)[:, None]


def key(p: Problem) -> Array:
    return np.arange(p.seq_len_k)


def given(p: Problem, slot: str) -> Array:
    (operand,) = (each for each in p.mask_operands if each.slot == slot)
    return operand.values


def with_nan(problems: Iterable[Problem], name: str) -> list[Problem]:
    """The problems with NaN in the last key or value of the first batch element, which is padding."""
    changed = []
    for each in problems:
        array = getattr(each, name).copy()
        array[0, :, -1] = np.nan
        changed.append(each.but(**{name: array}))
    return changed


def with_infinity(problems: Iterable[Problem]) -> list[Problem]:
    """The problems with one infinite number in the second value, which all queries attend."""
    changed = []
    for each in problems:
        value = each.value.copy()
        value[0, 0, 1, 3] = np.inf
        changed.append(each.but(value=value))
    return changed


def learned(problems: Iterable[Problem]) -> list[Problem]:
    """The problems with an appended learned key and value."""
    drawn = np.random.default_rng(5)
    sizes = {"bias_k": HEADS * DIM, "bias_v": HEADS * VALUE_DIM}
    rows = {name: round_to(drawn.standard_normal(size), "float32") for name, size in sizes.items()}
    return [with_params(each, **rows) for each in problems]


# ---- mistakes that take more than a line -----------------------------------------------------------------------


def through(weights_of: Callable[[Problem], Array]) -> Callable[[Problem], Array]:
    """A function that returns the output of these weights."""
    return lambda p: np.asarray(weights_of(p) @ p.value)


def seeing(allowed: Callable[[Problem], Any]) -> Callable[[Problem], Array]:
    """A function that returns the output under this mask."""
    return through(lambda p: softmax(hidden(scores(p), allowed(p))))


def online(length: int, kept: Callable[[Array], tuple[Array, Array]]) -> Callable[[Problem], Array]:
    """
    A loop over blocks of keys that sums exponentials and weighted values.

    kept: the factors by which these two sums are rescaled, given the rise of the maximum.
    """

    def attention(p: Problem) -> Array:
        logits = scores(p)
        top = np.full((*logits.shape[:-1], 1), -np.inf)
        total, output = np.zeros_like(top), np.zeros((*logits.shape[:-1], p.value_dim))
        for start in range(0, p.seq_len_k, length):
            block = logits[..., start : start + length]
            risen = np.maximum(top, block.max(axis=-1, keepdims=True))
            exponentials = np.exp(block - risen)
            of_total, of_output = kept(risen - top)
            total = total * of_total + exponentials.sum(axis=-1, keepdims=True)
            output = output * of_output + exponentials @ p.value[..., start : start + length, :]
            top = risen
        return np.asarray(output / total)

    return attention


def rescaled_above(limit: float, length: int) -> Callable[[Problem], Array]:
    """Rescales both sums only if the maximum rises by more than a limit."""
    return online(length, lambda rise: (np.where(rise > limit, np.exp(-rise), 1.0),) * 2)


def values_not_rescaled(length: int) -> Callable[[Problem], Array]:
    """Rescales the sum of exponentials, but not the weighted values."""
    return online(length, lambda rise: (np.exp(-rise), np.ones_like(rise)))


def unguarded_loop(p: Problem) -> Array:
    """A loop over blocks of four keys in which -inf - -inf gives NaN."""
    logits = hidden(scores(p), given(p, "mask"))
    top = np.full((*logits.shape[:-1], 1), -np.inf)
    total, output = np.zeros_like(top), np.zeros((*logits.shape[:-1], p.value_dim))
    with np.errstate(invalid="ignore"):
        for start in range(0, p.seq_len_k, 4):
            block = logits[..., start : start + 4]
            risen = np.maximum(top, block.max(axis=-1, keepdims=True))
            exponentials, shrunk = np.exp(block - risen), np.where(top == risen, 1.0, np.exp(top - risen))
            total = total * shrunk + exponentials.sum(axis=-1, keepdims=True)
            output = output * shrunk + exponentials @ p.value[..., start : start + 4, :]
            top = risen
    return np.asarray(output / total)


def parts_unguarded(p: Problem) -> Array:
    """Blocks of four keys are computed separately and combined at the end; a fully masked block gives -inf - -inf."""
    logits = hidden(scores(p), given(p, "mask"))
    starts = range(0, p.seq_len_k, 4)
    tops = [logits[..., n : n + 4].max(axis=-1, keepdims=True) for n in starts]
    with np.errstate(invalid="ignore"):
        parts = [np.exp(logits[..., n : n + 4] - top) for n, top in zip(starts, tops, strict=True)]
        factors = [np.exp(top - np.max(tops, axis=0)) for top in tops]
    total = sum(part.sum(axis=-1, keepdims=True) * factor for part, factor in zip(parts, factors, strict=True))
    values = [part @ p.value[..., n : n + 4, :] for n, part in zip(starts, parts, strict=True)]
    return np.asarray(sum(value * factor for value, factor in zip(values, factors, strict=True)) / total)


def mask_by_columns(p: Problem) -> Array:
    """The mask whose memory is read as that of its transpose."""
    return given(p, "mask").reshape(1, 1, p.seq_len_k, p.seq_len_q).swapaxes(-1, -2)


def padded_with_zeros(p: Problem) -> Array:
    more = ((0, 0), (0, 0), (0, -p.seq_len_k % 4), (0, 0))
    return attend(p.query, np.pad(p.key, more), np.pad(p.value, more))


def last_block_moved_back(p: Problem) -> Array:
    """The weights of keys that are in two blocks of four, because the last one is moved back, count twice."""
    whole = p.seq_len_k // 4 * 4
    twice = (key(p) >= p.seq_len_k - 4) & (key(p) < whole) & (p.seq_len_k > whole > 0)
    weights = softmax(scores(p)) * np.where(twice, 2.0, 1.0)
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def until_a_masked_tile(p: Problem) -> Array:
    """A loop over keys for each four queries that ends at the first four keys of which none is attended."""
    allowed = np.broadcast_to(given(p, "mask"), p.logits_shape).copy()
    for start in range(0, p.seq_len_q, 4):
        rows = allowed[:, :, start : start + 4]
        ended = np.zeros(rows.shape[:2], dtype=bool)
        for first in range(0, p.seq_len_k, 4):
            ended |= ~rows[..., first : first + 4].any(axis=(-2, -1))
            rows[..., first : first + 4] &= ~ended[..., None, None]
    return softmax(hidden(scores(p), allowed))


def over_all_axes(p: Problem) -> Array:
    return np.asarray(np.exp(scores(p)) / np.exp(scores(p)).sum())


def over_all_axes_but_batch(p: Problem) -> Array:
    return np.asarray(np.exp(scores(p)) / np.exp(scores(p)).sum(axis=(1, 2, 3), keepdims=True))


def with_one_large_logit() -> list[Problem]:
    """Calls in which one logit is so large that, in float32, exp(logit - it) is zero for all rows but its own."""

    def enlarged(p: Problem) -> Problem:
        larger = p.query.copy()
        larger[0, 0, 0] = 400.0 * p.key[0, 0, 0]
        return p.but(query=larger)

    return [enlarged(each) for each in calls()]


def one_maximum(p: Problem) -> Array:
    with np.errstate(invalid="ignore"):
        exponentials = np.exp((scores(p) - scores(p).max()).astype(np.float32))
        return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True) @ p.value)


def no_maximum(p: Problem) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        exponentials = np.exp(scores(p).astype(np.float32))
        return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True) @ p.value)


def denominator_plus(number: float) -> Callable[[Problem], Array]:
    def wrong(p: Problem) -> Array:
        exponentials = np.exp(scores(p) - scores(p).max(axis=-1, keepdims=True))
        return np.asarray(exponentials / (exponentials.sum(axis=-1, keepdims=True) + number) @ p.value)

    return wrong


def whole_tiles_alone(p: Problem) -> Array:
    """A loop over tiles of eight keys for tiles of four queries; it omits the key tile in which the last query ends."""
    limit = (query(p) // 4 + 1) * 4 // 8 * 8
    return seeing(lambda p: (ahead(p) <= 0) & (key(p) < limit))(p)


def capped_before_the_scale(p: Problem) -> Array:
    cap = float(p.softcap or 0.0)
    return softmax(cap * np.tanh(p.query @ p.key.swapaxes(-1, -2) / cap) / np.sqrt(p.head_dim)) @ p.value


def capped_scores(p: Problem) -> dict[str, Array]:
    cap = float(p.softcap or 0.0)
    logits = cap * np.tanh(scores(p) / cap)
    return {"output": softmax(logits) @ p.value, "scaled": logits}


def mean_weights(p: Problem) -> dict[str, Array]:
    weights = softmax(scores(p))
    return {"output": weights @ p.value, "weights": weights.mean(axis=1)}


def penalised(p: Problem) -> Array:
    logits = scores(p) + np.where(given(p, "mask"), 0.0, -1e4)
    return softmax(hidden(logits, given(p, "padding"))) @ p.value


def last_query_zero(p: Problem) -> Array:
    output = attend(p.query, p.key, p.value)
    output[:, :, -1] = 0.0
    return output


def heads_tiled(p: Problem) -> Array:
    repeats = (1, p.num_heads // p.num_kv_heads, 1, 1)
    return attend(p.query, np.tile(p.key, repeats), np.tile(p.value, repeats))


def lowest_taken_for_infinity(p: Problem) -> Array:
    added = given(p, "bias")
    is_lowest = added == LOWEST
    return softmax(hidden(scores(p) + np.where(is_lowest, 0.0, added), ~is_lowest)) @ p.value


def fully_masked_mean(p: Problem) -> Array:
    weights = softmax(hidden(scores(p), given(p, "mask")))
    weights[:, :, 1] = 1.0 / p.seq_len_k
    return np.asarray(weights @ p.value)


def batch_for_sequence(p: Problem) -> Array:
    turned = [array.swapaxes(0, 1) for array in (p.query, p.key, p.value)]
    return layer(p, inputs=turned).swapaxes(0, 1)


def heads_for_positions(q: Array, k: Array, v: Array) -> Array:
    return attend(q.swapaxes(1, 2), k.swapaxes(1, 2), v.swapaxes(1, 2)).swapaxes(1, 2)


def appended_first(p: Problem) -> Array:
    """The learned key comes first, but the mask gets its additional column at the end."""
    learned_key, learned_value = (p.params[name].reshape(1, HEADS, 1, -1) for name in ("bias_k", "bias_v"))

    def attention(q: Array, k: Array, v: Array) -> Array:
        ahead_of = [np.broadcast_to(each, (p.batch, *each.shape[1:])) for each in (learned_key, learned_value)]
        keys, values = (np.concatenate(pair, axis=2) for pair in zip(ahead_of, (k, v), strict=True))
        allowed = np.pad(given(p, "mask"), ((0, 0), (0, 0), (0, 0), (0, 1)), constant_values=True)
        return np.asarray(softmax(hidden(scaled(q, keys), allowed)) @ values)

    return layer(p, attention)


def masked_layer(p: Problem, slot: str) -> Array:
    return layer(p, lambda q, k, v: softmax(hidden(scaled(q, k), given(p, slot))) @ v)


def padded_queries_zeroed(p: Problem) -> Array:
    return np.where(given(p, "padding")[:, 0, 0, :, None], masked_layer(p, "padding"), 0.0)


def packed_as_qvk(p: Problem) -> Array:
    """The second third of the packed weights is used for the value, and the last third for the key."""
    key, value = ({"w": p.params["w" + name], "b": p.params["b" + name]} for name in "kv")
    return layer(p, wk=value["w"], bk=value["b"], wv=key["w"], bv=key["b"])


def unnormalised_on_the_way_back(_: Problem) -> dict[str, Array]:
    """
    The lowest number is added to each of three logits 2, 3 and 5, so all weights are 1/3.

    Values 0, 3 and 9 give the output 4. The gradient of each weight is 0, 3, 9; of each logit -4/3, -1/3, 5/3; of the
    query (-8 - 3 + 25) / 3. A backward pass that takes the weights to be 1 returns three times as much.
    """
    return {
        "output": np.full((1, 1, 1, 1), 4.0),
        "grad_query": np.full((1, 1, 1, 1), 14.0),
        "grad_key": np.array([-4.0, -1.0, 5.0]).reshape(1, 1, 3, 1),
        "grad_value": np.ones((1, 1, 3, 1)),
    }


def differentiated() -> list[Problem]:
    mask = MaskOperand("mask", ("additive",), "float", np.full((1, 1, 1, 3), LOWEST))
    outputs = ("output", "grad_query", "grad_key", "grad_value")
    fields = {"dtype": "float32", "outputs": outputs, "grad_output": np.ones((1, 1, 1, 1))}
    return [one_query([2.0, 3.0, 5.0], [0.0, 3.0, 9.0], mask, **fields)]


# ---- every mistake ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """
    A mistake and the name that the diagnosis must report.

    name: `decision=name`, or the name of an arithmetic. calls: the calls that are made; the mistake shows in some.
    wrong: call -> output, or outputs by name. ties: other names under which the replies to these calls are the same.
    dtype: of the reply.
    """

    name: str
    calls: Sequence[Problem]
    wrong: Callable[[Problem], Array | Mapping[str, Array]]
    ties: tuple[str, ...] = ()
    dtype: str = "float32"


# A finite number in place of -inf gives the mean of all values, too.
OF_A_MEAN = ("mask_fill=minus_1e9", "mask_fill=finite_minimum")
# The weights of the query projection and of the output projection are square.
WIDE: dict[str, Any] = {"widths": (HEADS * DIM, 19, 23), "output_dim": HEADS * VALUE_DIM}
# The weights of query, key and value have the same shape.
ALIKE: dict[str, Any] = {"value_dim": DIM, "widths": (17, 17, 17)}
PAST: dict[str, Any] = {"past": 3}

EDGES = (
    Mistake("causal_alignment=bottom_right", calls(causal), seeing(lambda p: ahead(p) <= p.seq_len_k - p.seq_len_q)),
    Mistake(
        "causal_alignment=bottom_right_reversed",
        calls(causal),
        seeing(lambda p: ahead(p) <= p.seq_len_q - p.seq_len_k),
    ),
    Mistake("causal_alignment=shifted_3", calls(causal), seeing(lambda p: ahead(p) <= 3)),
    Mistake("causal_with_past=not_shifted", calls(causal, **PAST), seeing(lambda p: ahead(p) <= 0)),
    Mistake(
        "window_with_past=not_shifted", calls(window, **PAST), seeing(lambda p: (ahead(p) >= -2) & (ahead(p) <= 1))
    ),
    Mistake(
        "window_alignment=bottom_right",
        calls(window),
        seeing(lambda p: abs(ahead(p) - (p.seq_len_k - p.seq_len_q) + 0.5) <= 1.5),
    ),
    Mistake("window_edges=left_longer", calls(window), seeing(lambda p: (ahead(p) >= -3) & (ahead(p) <= 1))),
)
TILES = (
    Mistake("causal_query_tile=first_4", calls(causal), seeing(lambda p: key(p) <= query(p) // 4 * 4)),
    Mistake("causal_key_tile=shown_4", calls(causal), seeing(lambda p: key(p) // 4 * 4 <= query(p))),
    Mistake("causal_loop=4x8_whole_down_masked", calls(causal, sizes=(*SIZES, (2, 23, 31))), whole_tiles_alone),
    Mistake("mask_rows=first_4", calls(row), seeing(lambda p: given(p, "mask") | (query(p) >= 4))),
    Mistake("mask_columns=first_1", calls(column), seeing(lambda p: given(p, "mask") | (key(p) >= 1))),
)
KEY_BLOCKS = (
    Mistake("online_softmax=not_rescaled_4", calls(), values_not_rescaled(4)),
    Mistake("online_softmax=not_rescaled_1", [*calls(), *apart(600.0)], values_not_rescaled(1)),
    Mistake("online_softmax=lazily_rescaled_up_to_4_4", [*calls(), *apart(4.0)], rescaled_above(4.0, 4)),
    Mistake("leading_masked_keys=nan_4", calls(late_keys), unguarded_loop),
    Mistake("masked_block=nan_4", calls(a_block_hidden), parts_unguarded),
    Mistake("key_tail=dropped_4", calls(sizes=(*SIZES, (2, 5, 3))), seeing(lambda p: key(p) < p.seq_len_k // 4 * 4)),
    Mistake("key_tail=zeros_4", calls(), padded_with_zeros),
    Mistake("key_tail=repeated_4", calls(sizes=(*SIZES, (2, 5, 3))), through(last_block_moved_back)),
    Mistake("masked_block=ends_4", calls(a_tile_hidden), through(until_a_masked_tile)),
)
REGIONS = (
    Mistake("mask_combination=or", calls(holes, causal), seeing(lambda p: given(p, "mask") | given(p, "is_causal"))),
    Mistake("lowest_bias=masks", calls(lowest), lowest_taken_for_infinity),
    Mistake("causal_mask=ignored", calls(causal), seeing(lambda _: True)),
    Mistake("causal_mask=unasked", calls(), seeing(lambda p: ahead(p) <= 0)),
    Mistake("causal_mask=unasked_bottom_right", calls(), seeing(lambda p: ahead(p) <= p.seq_len_k - p.seq_len_q)),
    Mistake("always_attended=own_position", calls(holes), seeing(lambda p: given(p, "mask") | (ahead(p) == 0))),
    Mistake("key_tail=last_dropped", calls(), seeing(lambda p: key(p) < p.seq_len_k - 1)),
    Mistake(
        "padded_keys=zeroed",
        calls(padding, bias),
        through(lambda p: softmax(scaled(p.query, p.key * given(p, "padding").swapaxes(-1, -2)) + given(p, "bias"))),
    ),
)
LOGITS = (
    Mistake("scale=none", calls(), through(lambda p: softmax(p.query @ p.key.swapaxes(-1, -2)))),
    Mistake("scale=times_0.7", [*calls(), *calls(head_dim=7)], through(lambda p: softmax(0.7 * scores(p)))),
    Mistake(
        "scale=over_head_dim_0.5",
        [*calls(), *calls(head_dim=7)],
        through(lambda p: softmax(p.query @ p.key.swapaxes(-1, -2) / (2 * p.head_dim))),
    ),
    Mistake("softcap=default_1.7", calls(), through(lambda p: softmax(1.7 * np.tanh(scores(p) / 1.7)))),
    Mistake("bias_scale=times_0.3", calls(bias), through(lambda p: softmax(scores(p) + 0.3 * given(p, "bias")))),
    Mistake("softcap=before_scale", calls(softcap=1.5), capped_before_the_scale),
    Mistake("logit_limit=0.6", calls(), through(lambda p: softmax(np.clip(scores(p), -0.6, 0.6)))),
    Mistake("mask_fill=puts_-7", calls(holes), through(lambda p: softmax(np.where(given(p, "mask"), scores(p), -7.0)))),
    Mistake(
        "mask_fill=adds_-5",
        calls(holes),
        through(lambda p: softmax(scores(p) + np.where(given(p, "mask"), 0.0, -5.0))),
    ),
    Mistake(
        "argument_fill[mask]=puts_-7_last",
        calls(causal, holes),
        through(lambda p: softmax(np.where(given(p, "mask"), hidden(scores(p), given(p, "is_causal")), -7.0))),
    ),
    Mistake(
        "argument_fill[mask]=zero_after_softmax",
        calls(causal, holes),
        through(lambda p: softmax(hidden(scores(p), given(p, "is_causal"))) * given(p, "mask")),
    ),
    Mistake(
        "causal_fill=puts_-7",
        calls(causal, holes),
        through(lambda p: softmax(hidden(np.where(given(p, "is_causal"), scores(p), -7.0), given(p, "mask")))),
    ),
)
SOFTMAX = (
    Mistake("softmax_base=two", calls(), through(lambda p: softmax(scores(p) * np.log(2.0)))),
    Mistake("fully_masked_row=uniform", calls(fully_masked_row), fully_masked_mean, ties=OF_A_MEAN),
    Mistake("softmax_axis=heads", calls(), through(lambda p: softmax(scores(p), axis=1))),
    Mistake("softmax_axis=queries", calls(), through(lambda p: softmax(scores(p), axis=2))),
    Mistake("softmax_count=twice", calls(), through(lambda p: softmax(softmax(scores(p))))),
    Mistake("softmax_denominator=plus_0.05", calls(), denominator_plus(0.05)),
    Mistake("weight_factor=times_0.75", calls(), through(lambda p: 0.75 * softmax(scores(p)))),
    Mistake("inactive_dropout=scales_weights", calls(dropout_p=0.25), through(lambda p: 0.75 * softmax(scores(p)))),
    Mistake("softmax_axis=all", calls(), through(over_all_axes)),
    Mistake("softmax_axis=heads_queries_and_keys", calls(), through(over_all_axes_but_batch)),
    Mistake("softmax_maximum=of_all_unguarded", with_one_large_logit(), one_maximum),
    Mistake("softmax_maximum=missing", [each.but(query=each.query * 60.0) for each in calls()], no_maximum),
    Mistake("recomputed_weights=unnormalised", differentiated(), unnormalised_on_the_way_back),
)
RETURNED = (
    Mistake("returned_weights=averaged", calls(outputs=("output", "weights")), mean_weights),
    Mistake("returned_scores=capped_as_scaled", calls(softcap=1.5, outputs=("output", "scaled")), capped_scores),
    Mistake("output_axes=transposed", calls(), lambda p: attend(p.query, p.key, p.value).swapaxes(1, 2)),
    Mistake("result_dtype=float16", calls(), lambda p: attend(p.query, p.key, p.value), dtype="float16"),
    Mistake("query_tail=zero", calls(), last_query_zero),
    Mistake(
        "head_result=first",
        calls(),
        lambda p: np.repeat(attend(p.query, p.key, p.value)[:, :1], p.num_heads, axis=1),
    ),
    Mistake("padded_queries=zeroed", layers(padding, sizes=SQUARE), padded_queries_zeroed),
)
NONFINITE = (
    Mistake("nonfinite_value=leaks", with_nan(calls(padding), "value"), seeing(lambda p: given(p, "padding"))),
    Mistake(
        "nonfinite_key=leaks",
        with_nan(calls(padding), "key"),
        through(lambda p: softmax(scores(p) + np.where(given(p, "padding"), 0.0, -np.inf))),
    ),
    Mistake(
        "attended_nonfinite=value_zeroed",
        with_infinity(calls()),
        lambda p: attend(p.query, p.key, np.where(np.isfinite(p.value), p.value, 0.0)),
    ),
)
LAYOUT = (
    Mistake("arguments=key_value", calls(value_dim=DIM), lambda p: attend(p.query, p.value, p.key)),
    Mistake("input_axes=batch_and_sequence", layers(sizes=SQUARE), batch_for_sequence),
    Mistake("attention_axis=heads", layers(sizes=SQUARE), lambda p: layer(p, heads_for_positions)),
    Mistake("value_path=reversed", calls(), lambda p: attend(p.query, p.key, p.value[:, :, ::-1])),
    Mistake("value_path=next_head", calls(), lambda p: attend(p.query, p.key, np.roll(p.value, -1, axis=1))),
    Mistake("grouped_heads=tile", calls(num_heads=6, num_kv_heads=3), heads_tiled),
    Mistake(
        "head_split=untransposed",
        layers(),
        lambda p: layer(p, splits=lambda rows, heads: rows.reshape(len(rows), heads, rows.shape[1], -1)),
    ),
    Mistake(
        "head_merge=untransposed",
        layers(),
        lambda p: layer(p, merges=lambda heads: heads.reshape(len(heads), heads.shape[2], -1)),
    ),
)
PROJECTIONS = (
    Mistake(
        "head_split=interleaved",
        layers(),
        lambda p: layer(p, splits=lambda rows, h: rows.reshape(*rows.shape[:2], -1, h).transpose(0, 3, 1, 2)),
    ),
    Mistake("weight_orientation=wo_transposed", layers(**WIDE), lambda p: layer(p, wo=p.params["wo"].T)),
    Mistake("projection_activation=relu", layers(), lambda p: layer(p, activation=lambda rows: np.maximum(rows, 0.0))),
    Mistake("residual=unasked", layers(widths=(29, 19, 23)), lambda p: layer(p) + p.query),
    Mistake("projection_bias=without_bv", layers(), lambda p: layer(p, bv=np.zeros(1))),
    Mistake("projection_bias=bo_twice", layers(), lambda p: layer(p, bo=2.0 * p.params["bo"])),
    Mistake("projection_order=qvk", layers(**ALIKE), packed_as_qvk),
    Mistake(
        "output_projection=missing", layers(**WIDE), lambda p: layer(p, wo=np.eye(HEADS * VALUE_DIM), bo=np.zeros(1))
    ),
    Mistake("bias_kv=ignored", learned(layers()), layer),
    Mistake("zero_key=ignored", layers(zero_key=True), layer),
    Mistake("appended_keys=first", learned(layers(holes)), appended_first),
)
MASK_ARGUMENTS = (
    Mistake("polarity[mask]=ignore", calls(holes), seeing(lambda p: ~given(p, "mask"))),
    Mistake("polarity[mask]=attend", calls(inverted_holes), seeing(lambda p: ~given(p, "mask"))),
    Mistake("float_mask[mask]=cast_to_bool", calls(infinities), seeing(lambda p: given(p, "mask") != 0.0)),
    Mistake("number_mask[mask]=added", calls(numbers), through(lambda p: softmax(scores(p) + given(p, "mask")))),
    Mistake("penalty[mask]=minus_1e4", calls(fully_masked_row, padding), penalised),
    Mistake("use[mask]=ignored", calls(holes), seeing(lambda _: True)),
    Mistake("mask_axes[mask]=strides_swapped", calls(holes), seeing(mask_by_columns)),
    Mistake("lengths[mask]=one_more", calls(lengths), seeing(one_key_more)),
    Mistake(
        "lengths[mask]=longest", calls(short_lengths), seeing(lambda p: given(p, "mask").any(axis=0, keepdims=True))
    ),
    Mistake("mask_axes[mask]=first_head", calls(holes_of_each_head), seeing(lambda p: given(p, "mask")[:, :1])),
)
ARITHMETIC = (
    Mistake("weights_in_bfloat16", calls(), through(lambda p: round_to(softmax(scores(p)), "bfloat16"))),
    Mistake("results_in_float16", calls(), lambda p: round_to(attend(p.query, p.key, p.value), "float16")),
)
MISTAKES = (
    *(*EDGES, *TILES, *KEY_BLOCKS, *REGIONS, *LOGITS, *SOFTMAX),
    *(*RETURNED, *NONFINITE, *LAYOUT, *PROJECTIONS, *MASK_ARGUMENTS, *ARITHMETIC),
)


def named(candidate: Candidate) -> str:
    return candidate.arithmetic.name if candidate.arithmetic else "+".join("=".join(way) for way in candidate.change)


def answered(p: Problem, made: Array | Mapping[str, Array], dtype: str = "float32") -> Evidence:
    """The cell of a reply, rounded once."""
    outputs = made if isinstance(made, Mapping) else {"output": made}
    return judged(p, {name: to_tensor(round_to(each, dtype), dtype) for name, each in outputs.items()})


def causes_of(cells: Sequence[Evidence]) -> list[tuple[list[str], Condition]]:
    """For each cause, its name, those of its ties, and its first condition; checks that no cell is unexplained."""
    found = diagnose(cells)
    assert found.unexplained == ()
    return [([named(each.candidate) for each in (cause, *cause.ties)], cause.guards[0]) for cause in found.causes]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[each.name for each in MISTAKES])
def test_a_mistake_has_its_name_in_every_call(mistake: Mistake) -> None:
    cells = [answered(call, mistake.wrong(call), mistake.dtype) for call in mistake.calls]
    assert causes_of(cells) == [([mistake.name, *mistake.ties], always())]


def right(p: Problem) -> Array:
    """The correct output under all masks of the problem."""
    added = [each.values for each in p.mask_operands if each.element == "float"]
    logits = sum(added, start=scores(p))
    for each in p.mask_operands:
        logits = logits if each.element == "float" else hidden(logits, each.values != 0)
    return np.asarray(softmax(logits) @ p.value)


@pytest.mark.parametrize(
    "masks",
    [
        (),
        (holes,),
        (fully_masked_row,),
        (numbers,),
        (infinities,),
        (row,),
        (column,),
        (padding, bias),
        (causal,),
        (window,),
    ],
    ids=lambda masks: "+".join(each.__name__ for each in masks) or "no mask",
)
def test_what_has_no_mistake_conforms(masks: tuple[MaskOf, ...]) -> None:
    assert [answered(each, right(each)).actual for each in calls(*masks)] == [None] * len(SIZES)


def test_a_layer_that_has_no_mistake_conforms() -> None:
    assert [answered(p, layer(p)).actual for p in layers()] == [None] * len(SIZES)
    assert [answered(p, masked_layer(p, "mask")).actual for p in layers(holes)] == [None] * len(SIZES)


@pytest.mark.parametrize(
    ("when", "condition"),
    [
        (lambda p: p.batch == 1, Condition(sizes={"batch": 1})),
        (lambda p: p.seq_len_k != p.seq_len_q, Condition(sizes_differ=[("seq_len_q", "seq_len_k")])),
        (lambda p: p.seq_len_q < p.seq_len_k, Condition(sizes_less=[("seq_len_q", "seq_len_k")])),
        (lambda p: p.seq_len_k < p.seq_len_q, Condition(sizes_less=[("seq_len_k", "seq_len_q")])),
        (lambda p: bool(p.mask_operands), Condition(masks=True)),
    ],
    ids=["batch", "not square", "more keys", "more queries", "mask"],
)
def test_the_condition_of_a_mistake_is_told(when: Callable[[Problem], bool], condition: Condition) -> None:
    sizes = [(batch, *lengths) for batch in (1, 2) for lengths in ((5, 7), (7, 7), (7, 17), (11, 5))]
    both = [*calls(sizes=sizes), *calls(padding, sizes=sizes)]
    cells = [answered(p, right(p.but(value=p.value[:, :, ::-1]) if when(p) else p)) for p in both]
    assert causes_of(cells) == [(["value_path=reversed"], condition)]


def test_two_mistakes_at_once_are_one_cause() -> None:
    """The mask is inverted, and the values are those of the next head."""
    wrong = [(p, softmax(hidden(scores(p), ~given(p, "mask"))) @ np.roll(p.value, -1, axis=1)) for p in calls(holes)]
    ((names, condition),) = causes_of([answered(*each) for each in wrong])
    assert set(names[0].split("+")) == {"polarity[mask]=ignore", "value_path=next_head"}
    assert condition == always()


def test_a_finite_fill_that_lets_nan_through_is_two_known_deviations_and_no_fitted_number() -> None:
    """A fill of -100 would explain every cell too: NaN leaks by a weight of 4e-44; a fully masked row is the mean."""

    def filled(p: Problem) -> Array:
        allowed = np.logical_and.reduce(np.broadcast_arrays(*(each.values for each in p.mask_operands)))
        return np.asarray(softmax(np.where(allowed, scores(p), LOWEST)) @ p.value)

    every = [
        *calls(fully_masked_row),
        *with_nan(calls(padding), "value"),
        *with_nan(calls(padding, fully_masked_row), "value"),
    ]
    ((names, condition),) = causes_of([answered(p, filled(p)) for p in every])
    assert set(names[0].split("+")) == {"fully_masked_row=uniform", "nonfinite_value=leaks"}
    assert condition == always()


def test_three_deviations_that_one_call_shows_are_three_causes() -> None:
    """The scale is wrong in every call. With NaN and a fully masked row, one call shows three deviations."""

    def filled(p: Problem) -> Array:
        allowed = np.logical_and.reduce(np.broadcast_arrays(*(each.values for each in p.mask_operands)))
        return np.asarray(softmax(np.where(allowed, 1.25 * scores(p), LOWEST)) @ p.value)

    every = [*calls(holes), *calls(fully_masked_row), *with_nan(calls(padding), "value")]
    found = diagnose([answered(p, filled(p)) for p in [*every, *with_nan(calls(padding, fully_masked_row), "value")]])
    assert found.unexplained == ()
    first, *others = [(each["decisions"], each.get("condition")) for each in record_of(found)["separated"]]
    assert first == ({"scale": "times_1.25"}, None)
    assert len(others) == len(("fully_masked_row", "nonfinite_value"))
    assert ({"fully_masked_row": "uniform"}, None) in others
    assert ({"nonfinite_value": "leaks"}, None) in others


def test_of_causes_that_cost_the_same_the_one_that_explains_every_call_is_told() -> None:
    """The keys after the last full block of 4 are dropped: the last key in three calls, the last three keys in one."""
    sizes = ((2, 5, 17), (5, 7, 5), (2, 7, 29), (2, 19, 7))
    wrong = seeing(lambda p: key(p) < p.seq_len_k // 4 * 4)
    cells = [answered(p, wrong(p)) for p in calls(sizes=sizes)]
    assert causes_of(cells) == [(["key_tail=dropped_4"], always())]


def test_zeros_have_no_name() -> None:
    """All calls except the longest have no full block of 128 keys; any source of zeros gives the same reply."""
    zeros = [(p, np.zeros((*p.query.shape[:-1], p.value_dim))) for p in calls(sizes=(*SIZES, (2, 5, 131)))]
    found = diagnose([answered(*each) for each in zeros])
    assert found.causes == ()
    assert len(found.unexplained) == len(zeros)


def test_two_mistakes_in_different_calls_are_two_causes() -> None:
    """In calls with padding, the padding is ignored; in calls without a mask, the last query is zero."""
    cells = [answered(p, right(p.but(mask_operands=()))) for p in calls(padding)]
    cells += [answered(p, last_query_zero(p)) for p in calls()]
    found = {names[0]: condition for names, condition in causes_of(cells)}
    assert found == {"use[padding]=ignored": always(), "query_tail=zero": Condition(masks=False)}


def test_there_is_a_mistake_for_every_decision() -> None:
    rows = {each.decision for each in (*TABLE, *slot_deviations("mask"))}
    decisions = rows | {each.decision for each in MEASURED} | FITTED
    arithmetic = {each.name for each in ARITHMETIC}
    decisions |= {each.decision for each in of_argument("mask")}
    assert {each.name.partition("=")[0] for each in MISTAKES} - arithmetic == decisions
