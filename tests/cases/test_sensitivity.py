"""
Every planted mistake shows in a named case, by at least ten bounds.

The mistakes are variations of the oracle; an argument is called like the kind of mask that it carries.
"""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conformance.bridge.profile import Profile
from conformance.oracle.bounds import bound_reply
from conformance.oracle.evaluate import Answer, evaluate
from conformance.oracle.variation import Dialect, Expected
from conformance.oracle.variations import candidates
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.problem import Array, Problem

ROOT = Path(__file__).parents[2] / "cases"
FACTOR = 10.0
KERNEL_LENGTH = 128
CASES = {case.id: case for case in load([ROOT], ROOT)}


def both(entry: str, more: str = "") -> tuple[str, ...]:
    """Ids of an entry that asks both operators."""
    return tuple(f"{entry}[operator={operator}{more}]" for operator in ("sdpa", "mha"))


def mha(entry: str, more: str = "") -> tuple[str, ...]:
    return (f"{entry}[operator=mha{more}]",)


PLAIN = both("shapes/cross_attention/three_tensors")
SELF = both("shapes/self_attention/one_tensor")
DEAD = both("degenerate/dead_row/boolean") + both("degenerate/dead_item/boolean")
PADDED = both("masks/key_padding/trailing")

MISTAKES: dict[str, tuple[Dialect, tuple[str, ...]]] = {
    "inverted padding": (
        {"polarity[key_padding]": "ignore"},
        PADDED + both("verbatim/key_padding/boolean_trailing", ",masks.0.true_means=attend"),
    ),
    "inverted attention mask": (
        {"polarity[attention]": "ignore"},
        both("masks/attention_2d/holes") + both("verbatim/attention/boolean", ",masks.0.true_means=ignore"),
    ),
    "inverted integers": (
        {"polarity[attention]": "ignore"},
        both("verbatim/attention/integer", ",masks.0.true_means=attend"),
    ),
    "ignored padding": (
        {"use[key_padding]": "ignored"},
        PADDED + both("masks/key_padding_self/trailing") + both("masks/key_padding/trailing_clean"),
    ),
    "padding ignored beside another mask": (
        {"use[key_padding]": "ignored_beside_others"},
        both("combined/padding/with_causal") + both("combined/padding/with_attention"),
    ),
    "ignored attention mask": (
        {"use[attention]": "ignored"},
        both("masks/attention_2d/holes") + both("masks/attention_4d/holes"),
    ),
    "ignored bias": ({"use[additive]": "ignored"}, both("masks/additive/bias_2d")),
    "ignored causal flag": ({"use[causal]": "ignored"}, both("causal/square/one_tensor")),
    "ignored causal flag beside another mask": (
        {"use[causal]": "ignored_beside_others"},
        both("combined/attention/boolean_and_causal"),
    ),
    "ignored window": ({"use[window]": "ignored"}, both("causal/window/symmetric")),
    "transposed mask": (
        {"mask_axes[attention]": "transposed"},
        both("masks/attention_2d/square_holes") + both("masks/attention_2d/square_prefix"),
    ),
    "transposed bias": ({"mask_axes[additive]": "transposed"}, both("masks/additive/square_bias")),
    "mask of the first item": (
        {"mask_axes[attention]": "first_item"},
        both("masks/attention_3d/per_item") + both("masks/attention_4d/holes"),
    ),
    "float mask cast to bool": (
        {"float_mask[attention]": "cast_to_bool"},
        both("verbatim/attention/float", ",masks.0.true_means=attend"),
    ),
    "numbers added": (
        {"number_mask[attention]": "added"},
        both("verbatim/attention/integer", ",masks.0.true_means=ignore"),
    ),
    "causal from the last key": (
        {"causal_alignment": "bottom_right"},
        both("causal/rectangular/more_keys", ",masks.0.offset=start")
        + both("causal/rectangular/more_queries")
        + both("causal/rectangular/one_query", ",masks.0.offset=start")
        + both("combined/padding/with_causal_more_keys", ",masks.1.offset=start"),
    ),
    "causal without the diagonal": ({"causal_alignment": "strict"}, both("causal/square/one_tensor")),
    "causal with one key ahead": ({"causal_alignment": "one_ahead"}, both("causal/square/three_tensors")),
    "missing scale": ({"scale": "none"}, PLAIN + SELF),
    "scale of all heads": ({"scale": "all_heads"}, PLAIN + SELF),
    "scale of the keys' number": ({"scale": "seq_len"}, PLAIN + SELF),
    "scale of the values": ({"scale": "value_dim"}, both("shapes/widths/wider_values")),
    "scale applied twice": ({"scale": "squared"}, PLAIN),
    "ignored scale": (
        {"scale": "ignored"},
        tuple(f"parameters/scale/number[scale={scale}]" for scale in ("1", "0.0625", "2.5", "0", "-0.3")),
    ),
    "softmax over queries": ({"softmax_axis": "queries"}, PLAIN + SELF),
    "softmax over heads": ({"softmax_axis": "heads"}, PLAIN + SELF),
    "interleaved heads": (
        {"head_split": "interleaved"},
        mha("shapes/self_attention/one_tensor") + mha("shapes/heads/thirteen"),
    ),
    "heads interleaved when merged": ({"head_merge": "interleaved"}, mha("shapes/cross_attention/three_tensors")),
    "heads merged without transposition": (
        {"head_merge": "untransposed"},
        mha("shapes/cross_attention/three_tensors"),
    ),
    "fill of -1e4": (
        {"mask_fill": "minus_1e4"},
        PADDED + both("masks/attention_2d/hidden_column") + both("numerics/logits/large_trailing_padding"),
    ),
    "fill of +1e10": ({"mask_fill": "plus_1e10"}, both("masks/attention_2d/holes")),
    "weights zeroed after the softmax": (
        {"mask_fill": "zero_after_softmax"},
        both("masks/attention_2d/holes") + both("causal/square/one_tensor"),
    ),
    "uniform dead row": ({"fully_masked_row": "uniform"}, DEAD + both("degenerate/dead_item/large_values_padded")),
    "nan in a dead row": ({"fully_masked_row": "nan"}, DEAD),
    "unmasked dead row": ({"fully_masked_row": "unmasked"}, DEAD),
    "keys as values": ({"value_path": "key"}, PLAIN),
    "values in reversed order": ({"value_path": "reversed"}, PLAIN + SELF),
    "tiled heads": ({"grouped_heads": "tile"}, both("parameters/grouped_heads/two_groups")),
    "dropped biases": ({"projection_bias": "ignored"}, mha("shapes/cross_attention/three_tensors")),
    "transposed weights": ({"weight_orientation": "transposed"}, mha("shapes/cross_attention/three_tensors")),
    "averaged weights": ({"returned_weights": "averaged"}, both("shapes/cross_attention/with_weights")),
    "logits as weights": ({"returned_weights": "before_softmax"}, both("shapes/cross_attention/with_weights")),
    "transposed output": ({"output_axes": "transposed"}, PLAIN[:1]),
    "float32 for float64": (
        {"result_dtype": "float32"},
        both("numerics/float64/distribution", ",inputs.distribution=bell"),
    ),
    "float32 for half": (
        {"result_dtype": "float32"},
        both("numerics/half/distribution", ",dtype=float16,inputs.distribution=uniform"),
    ),
}

DECLARED: dict[str, tuple[Dialect, Dialect, tuple[str, ...]]] = {
    "zero where uniform is declared": ({"fully_masked_row": "uniform"}, {}, DEAD),
    "nan where uniform is declared": ({"fully_masked_row": "uniform"}, {"fully_masked_row": "nan"}, DEAD),
}
"""What is declared, what is done instead, and where it must show."""

UNSEEN = {"nonfinite_value=leaks"}
"""Variations that no suite is made for: inputs are finite."""


def with_slots(problem: Problem) -> Problem:
    """Give each mask an argument of its own, called like its kind."""
    return problem.but(groups=tuple(replace(group, slot=group.kinds[0]) for group in problem.groups))


@cache
def problem_of(case_id: str) -> Problem:
    return with_slots(materialise(CASES[case_id]))


def gap(case_id: str, declared: Dialect, done: Dialect) -> float:
    """How many bounds of what is declared the answer to a case moves; infinite where it is of another kind."""
    problem = problem_of(case_id)
    profile = Profile.ordinary(problem.dtype)
    right = evaluate(problem, declared, profile.score)
    return _largest(right, evaluate(problem, done, profile.score), profile)


def _largest(right: Answer, wrong: Answer, profile: Profile) -> float:
    bounds = bound_reply(right, profile)
    return max(_bounds_apart(right.reply[n], wrong.reply[n], bounds[n].tolerance) for n in right.reply)


def _bounds_apart(right: Expected, wrong: Expected, tolerance: Array) -> float:
    if right.dtype != wrong.dtype or right.values.shape != wrong.values.shape:
        return float("inf")
    if bool((np.isnan(right.values) != np.isnan(wrong.values)).any()):
        return float("inf")
    moved = np.abs(np.nan_to_num(right.values) - np.nan_to_num(wrong.values))
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(moved == 0.0, 0.0, moved / tolerance).max())


@pytest.mark.parametrize(
    ("dialect", "case_id"),
    [pytest.param(d, case_id, id=f"{name}-{case_id}") for name, (d, ids) in MISTAKES.items() for case_id in ids],
)
def test_a_planted_mistake_shows_in_its_case(dialect: Dialect, case_id: str) -> None:
    assert gap(case_id, {}, dialect) >= FACTOR


@pytest.mark.parametrize(
    ("declared", "done", "case_id"),
    [
        pytest.param(declared, done, case_id, id=f"{name}-{case_id}")
        for name, (declared, done, ids) in DECLARED.items()
        for case_id in ids
    ],
)
def test_a_broken_declaration_shows_in_its_case(declared: Dialect, done: Dialect, case_id: str) -> None:
    assert gap(case_id, declared, done) >= FACTOR


def test_the_right_answer_shows_no_mistake() -> None:
    assert gap(PLAIN[0], {}, {}) == 0.0


def test_a_finite_fill_shows_only_where_hidden_values_are_large() -> None:
    # both are padded; only the data of the second make the mistake visible
    assert gap("masks/key_padding/trailing_clean[operator=sdpa]", {}, {"mask_fill": "minus_1e4"}) < 1.0
    assert gap("masks/key_padding/trailing[operator=sdpa]", {}, {"mask_fill": "minus_1e4"}) >= FACTOR


@pytest.mark.parametrize("operator", ["sdpa", "mha"])
def test_no_variation_of_the_table_goes_unseen(operator: str) -> None:
    unseen: dict[str, Dialect] = {}
    seen: set[str] = set()
    for case_id, case in CASES.items():
        if case.operator != operator or case.seq_len_k > KERNEL_LENGTH:
            continue
        for variation in candidates(problem_of(case_id)):
            if variation.key in seen or not concerns(variation.key, operator):
                continue
            if gap(case_id, {}, {variation.decision: variation.name}) >= FACTOR:
                seen.add(variation.key)
                unseen.pop(variation.key, None)
            else:
                unseen[variation.key] = {variation.decision: variation.name}
    assert set(unseen) == UNSEEN


MHA_ONLY = ("head_split", "head_merge", "weight_orientation", "projection_bias")
SDPA_ONLY = ("output_axes=transposed", "scale=ignored", "scale=square_root")
EMPTY = (
    # what an argument cannot show: causal and window masks are neither numbers nor per item; padding is never square
    *(f"{family}[{slot}]" for family in ("float_mask", "number_mask") for slot in ("causal", "window")),
    "mask_axes[causal]=first_item",
    "mask_axes[window]=first_item",
    "mask_axes[key_padding]=transposed",
    "number_mask[additive]",
    "polarity[additive]",
)


def concerns(key: str, operator: str) -> bool:
    """Whether a variation can change anything for an operator."""
    other = SDPA_ONLY if operator == "mha" else MHA_ONLY
    return not key.startswith((*other, *EMPTY))
