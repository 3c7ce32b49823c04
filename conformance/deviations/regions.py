"""Deviations of which positions are attended: wrongly combined masks, dropped or exposed keys, misread padding."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce

import numpy as np

from conformance.deviations.deviation import Deviation, ProblemMap, each_operand
from conformance.deviations.edges import CAUSAL, causal
from conformance.deviations.tiles import TAIL_BLOCKS, of_each_block
from conformance.spec.masks import as_bool, is_boolean
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import largest

# Slot and kind of a mask that the caller did not pass.
UNGIVEN = "ungiven"


def _also(problem: Problem, attended: Array) -> Problem:
    """Add a mask, broadcastable to the logits."""
    return problem.but(mask_operands=(*problem.mask_operands, MaskOperand(UNGIVEN, (UNGIVEN,), "bool", attended)))


def _last_wins(problem: Problem) -> Problem:
    return problem.but(mask_operands=problem.mask_operands[-1:]) if len(problem.mask_operands) > 1 else problem


def _any_allows(problem: Problem, *, flags: bool) -> Problem:
    """Combine all boolean masks with OR; causal and window arguments are included if `flags` is true."""
    booleans = [each for each in problem.mask_operands if is_boolean(each) and (flags or each.element != "flag")]
    if not booleans[1:]:  # one mask is not combined with anything
        return problem
    values = np.logical_or.reduce(np.broadcast_arrays(*(as_bool(operand).values for operand in booleans)))
    kinds = tuple(dict.fromkeys(kind for operand in booleans for kind in operand.kinds))
    rest = [operand for operand in problem.mask_operands if all(operand is not each for each in booleans)]
    return problem.but(mask_operands=(MaskOperand(booleans[0].slot, kinds, "bool", values), *rest))


def _without_causal(problem: Problem) -> Problem:
    """Remove every causal argument."""
    return each_operand(lambda _, operand: None if _is_causal(operand) else operand)(problem)


def _is_causal(operand: MaskOperand) -> bool:
    return operand.offset is not None or operand.moved == CAUSAL


def _causal_unasked(problem: Problem, *, last: bool) -> Problem:
    """Add a causal mask, aligned to the last key if `last` is true, unless the call has a causal argument."""
    if any(_is_causal(operand) for operand in problem.mask_operands):
        return problem
    shift = problem.seq_len_k - problem.seq_len_q if last else 0
    return _also(problem, causal(problem.seq_len_q, problem.seq_len_k, shift))


def _always(positions: Callable[[Problem], Array]) -> ProblemMap:
    """Attend the given positions, broadcastable to (seq_len_q, seq_len_k), whatever the masks; finite biases stay."""

    def shown(problem: Problem, operand: MaskOperand) -> MaskOperand:
        seen = positions(problem)
        if operand.element == "float":
            return replace(operand, values=np.where(seen & (operand.values == -np.inf), 0.0, operand.values))
        return replace(operand, element="bool", values=(operand.values != 0) | seen, offset=None, window=None)

    return each_operand(shown)


def _lowest_masks(problem: Problem, operand: MaskOperand) -> MaskOperand:
    """Read the most negative number of the dtype in a float mask as -inf; models often pass it instead."""
    lowest = operand.values == -largest(problem.dtype)
    if operand.element != "float" or not lowest.any():
        return operand
    return replace(operand, values=np.where(lowest, -np.inf, operand.values))


def _without_key(position: int, problem: Problem) -> Problem:
    """Mask one key for all queries; if it is the only key, all rows are fully masked."""
    kept = np.ones((1, 1, 1, problem.seq_len_k), dtype=bool)
    kept[..., position] = False
    return _also(problem, kept)


def _first_keys(problem: Problem, count: int) -> Problem:
    return _also(problem, (np.arange(problem.seq_len_k) < count)[None, None, None])


def _tail_dropped(block: int) -> ProblemMap:
    """Mask the keys after the last full block; without a full block, all rows are fully masked."""

    def apply(problem: Problem) -> Problem:
        whole = problem.seq_len_k // block * block
        return problem if whole == problem.seq_len_k else _first_keys(problem, whole)

    return apply


def _whole_dropped(block: int) -> ProblemMap:
    """Mask the last block if it is full, because the number of its keys is computed as a remainder of 0."""

    def apply(problem: Problem) -> Problem:
        keys = problem.seq_len_k
        return _first_keys(problem, keys - block) if keys % block == 0 else problem

    return apply


def padded(problem: Problem) -> Array | None:
    """Return True where a key is padded, (batch or 1, 1, 1, seq_len_k); None if no mask is pure key padding."""
    attended = [operand.values != 0 for operand in _paddings(problem)]
    return np.asarray(~reduce(np.logical_and, attended)) if attended else None


def _paddings(problem: Problem) -> list[MaskOperand]:
    """Return the key padding of one argument: a second padding is passed as an ordinary mask, and is used like one."""
    found = [operand for operand in problem.mask_operands if _is_padding(operand)]
    return [operand for operand in found if operand.slot == found[0].slot]


def _is_padding(operand: MaskOperand) -> bool:
    """Whether the mask is pure key padding: equal for all queries and heads of a batch element."""
    return operand.kinds == ("key_padding",) and operand.element != "float" and operand.values.shape[1:3] == (1, 1)


def _zeroed(names: tuple[str, ...], problem: Problem) -> Problem:
    """Multiply inputs (batch, ..., seq_len_k, width) by the key padding instead of masking with it."""
    hidden, paddings = padded(problem), _paddings(problem)
    if hidden is None:
        return problem
    kept = ~hidden.swapaxes(-1, -2)
    mask_operands = tuple(operand for operand in problem.mask_operands if operand not in paddings)
    return problem.but(mask_operands=mask_operands, **{name: _times(getattr(problem, name), kept) for name in names})


def _times(array: Array, kept: Array) -> Array:
    """Multiply an array by `kept`, (batch or 1, 1, seq_len_k, 1); arrays of mha have no head axis."""
    with np.errstate(invalid="ignore"):  # an infinite number times 0 is NaN there too
        return np.asarray(array * (kept if array.ndim == kept.ndim else kept[:, 0]))


def _row(decision: str, name: str, problem: ProblemMap) -> Deviation:
    return Deviation(decision, name, problem=problem)


ROWS: tuple[Deviation, ...] = (
    _row("mask_combination", "last_wins", _last_wins),
    _row("mask_combination", "or_of_arrays", partial(_any_allows, flags=False)),
    _row("mask_combination", "or", partial(_any_allows, flags=True)),
    _row("lowest_bias", "masks", each_operand(_lowest_masks)),
    _row("causal_mask", "ignored", _without_causal),
    _row("causal_mask", "ignored_beside_others", lambda p: _without_causal(p) if len(p.mask_operands) > 1 else p),
    _row("causal_mask", "unasked", partial(_causal_unasked, last=False)),
    _row("causal_mask", "unasked_bottom_right", partial(_causal_unasked, last=True)),
    _row("always_attended", "first_key", _always(lambda p: np.arange(p.seq_len_k)[None, :] == 0)),
    _row("always_attended", "own_position", _always(lambda p: np.eye(p.seq_len_q, p.seq_len_k, dtype=bool))),
    _row("key_tail", "last_dropped", partial(_without_key, -1)),
    _row("key_tail", "first_dropped", partial(_without_key, 0)),
    *of_each_block("key_tail", "dropped", _tail_dropped, TAIL_BLOCKS),
    *of_each_block("key_tail", "whole_dropped", _whole_dropped),
    _row("padded_keys", "zeroed", partial(_zeroed, ("key",))),
    _row("padded_keys", "zeroed_with_values", partial(_zeroed, ("key", "value"))),
)
