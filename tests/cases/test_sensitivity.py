"""
Every planted mistake changes the result of a named case by at least ten bounds.

The mistakes are deviations of the oracle. Each mask argument is named after the kind of mask that it carries.
"""

from functools import cache
from pathlib import Path

import pytest

from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Dialect
from conformance.deviations.names import INVISIBLE
from conformance.diagnosis.detectability import FACTOR, Detectability, bounds_apart, by_kind, detectability
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem
from conformance.spec.rounding import round_to, to_tensor
from conformance.verdicts.compare import compare

ROOT = Path(__file__).parents[2] / "cases"
CASES = {case.id: case for case in load([ROOT], ROOT)}


def both(entry: str, more: str = "") -> tuple[str, ...]:
    """Return the two case ids of an entry that has a case for each operator."""
    return tuple(f"{entry}[operator={operator}{more}]" for operator in ("sdpa", "mha"))


def mha(entry: str, more: str = "") -> tuple[str, ...]:
    return (f"{entry}[operator=mha{more}]",)


PLAIN = both("shapes/cross_attention/three_tensors")
SELF = both("shapes/self_attention/one_tensor")
DEAD = both("degenerate/fully_masked_row/boolean") + both("degenerate/fully_masked_batch/boolean")
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
        {"mask_axes[attention]": "first_batch"},
        both("masks/attention_3d/per_batch") + both("masks/attention_4d/holes"),
    ),
    "mask ignored where weights are asked for": (
        {"use[key_padding]": "ignored_with_weights"},
        (
            "masks/key_padding/with_weights",
            "combined/padding/with_attention_and_weights",
        ),
    ),
    "window ignored where weights are asked for": (
        {"use[window]": "ignored_with_weights"},
        both("causal/window/with_weights", ",dtype=float32"),
    ),
    "bias ignored where weights are asked for": (
        {"use[additive]": "ignored_with_weights"},
        both("masks/additive/with_weights"),
    ),
    "mask rows of the first chunk of queries": ({"mask_rows": "again_32"}, ("shapes/kernel_sized/aligned_causal",)),
    "one mask for all keys, applied to the first": (
        {"mask_columns": "first_1"},
        both("degenerate/hidden_queries/per_batch"),
    ),
    "mask of the first head": ({"mask_axes[attention]": "first_head"}, both("masks/attention_4d/holes")),
    "items taken for heads": (
        {"mask_axes[attention]": "batch_as_heads"},
        both("masks/attention_3d/per_batch") + both("masks/attention_3d/per_head"),
    ),
    "padding of items taken for heads": (
        {"mask_axes[key_padding]": "batch_as_heads"},
        ("masks/key_padding/batch_equals_heads",),
    ),
    "float mask subtracted from one": (
        {"float_mask[attention]": "one_minus"},
        both("verbatim/attention/float", ",masks.0.true_means=attend"),
    ),
    "window one key short": ({"window_edges": "exclusive"}, both("causal/window/symmetric")),
    "window one key short on the left": ({"window_edges": "left_shorter"}, both("causal/window/left_only")),
    "window one key long on the left": ({"window_edges": "left_longer"}, both("causal/window/left_only")),
    "window one key short on the right": (
        {"window_edges": "right_shorter"},
        both("causal/window/unbounded_on_one_side"),
    ),
    "window one key long on the right": (
        {"window_edges": "right_longer"},
        both("causal/window/unbounded_on_one_side"),
    ),
    "last mask wins": ({"mask_combination": "last_wins"}, both("combined/attention/boolean_and_causal")),
    "masks united": ({"mask_combination": "or"}, both("combined/padding/with_causal")),
    "scaled bias": ({"bias_scale": "scaled"}, both("masks/additive/bias_2d")),
    "query and key exchanged": ({"arguments": "query_key"}, both("shapes/self_attention/three_tensors")),
    "key and value exchanged": ({"arguments": "key_value"}, PLAIN),
    "batch and sequence exchanged": (
        {"input_axes": "batch_and_sequence"},
        mha("shapes/self_attention/one_tensor") + mha("shapes/self_attention/batch_equals_heads"),
    ),
    "heads and sequence exchanged": (
        {"input_axes": "heads_and_sequence"},
        ("shapes/self_attention/one_tensor[operator=sdpa]",),
    ),
    "heads split without transposition": (
        {"head_split": "untransposed"},
        mha("shapes/cross_attention/three_tensors"),
    ),
    "values of another head": ({"value_path": "next_head"}, PLAIN),
    "activated projections": ({"projection_activation": "relu"}, mha("shapes/cross_attention/three_tensors")),
    "one more in the denominator": ({"softmax_denominator": "plus_one"}, PLAIN),
    "an epsilon in the denominator": (
        {"softmax_denominator": "plus_1e-9"},
        both("numerics/float64/distribution", ",inputs.distribution=bell"),
    ),
    "uniform over what is not padded": (
        {"fully_masked_row": "uniform_unpadded"},
        both("degenerate/by_combination/leading_padding_and_causal", ",inputs.clean=true"),
    ),
    "a masked value that is no number": (
        {"nonfinite_value": "leaks"},
        both("numerics/nonfinite/padding", ",inputs.poison=nan_values")
        + both("numerics/nonfinite/padding", ",inputs.poison=inf_values")
        + both("numerics/nonfinite/causal", ",inputs.poison=nan_values"),
    ),
    "a masked key that is no number": (
        {"nonfinite_key": "leaks"},
        both("numerics/nonfinite/padding", ",inputs.poison=nan_keys")
        + both("numerics/nonfinite/padding", ",inputs.poison=inf_keys")
        + both("numerics/nonfinite/causal", ",inputs.poison=nan_keys"),
    ),
    "zero where a masked key is no number": (
        {"nonfinite_key": "zeroes"},
        both("numerics/nonfinite/padding", ",inputs.poison=nan_keys"),
    ),
    "an attended value that is no number, cleaned": (
        {"attended_nonfinite": "value_zeroed"},
        both("numerics/nonfinite/attended", ",inputs.poison=nan_attended_value")
        + both("numerics/nonfinite/attended_beside_padding", ",inputs.poison=nan_attended_value")
        + ("numerics/nonfinite/attended_infinity",),
    ),
    "an attended key that is no number, cleaned": (
        {"attended_nonfinite": "key_zeroed"},
        both("numerics/nonfinite/attended", ",inputs.poison=nan_attended_key"),
    ),
    "infinity, clipped": ({"attended_nonfinite": "output_clipped"}, ("numerics/nonfinite/attended_infinity",)),
    "a row of NaN taken for a fully masked one": (
        {"attended_nonfinite": "nan_row_zeroed"},
        both("numerics/nonfinite/attended_under_causal", ",inputs.poison=nan_attended_key"),
    ),
    "a scale of 0 read as none": ({"scale": "default_if_zero"}, ("parameters/scale/number[scale=0]",)),
    "a row with a NaN weight set to zero": (
        {"attended_nonfinite": "nan_weights_zeroed"},
        both("numerics/nonfinite/attended", ",inputs.poison=nan_attended_key")
        + both("numerics/nonfinite/attended_under_causal", ",inputs.poison=nan_attended_key"),
    ),
    "summed weights": (
        {"returned_weights": "summed"},
        (
            *both("shapes/cross_attention/with_weights"),
            "shapes/self_attention/one_tensor_with_mean_weights",
        ),
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
    "uniform dead row": (
        {"fully_masked_row": "uniform"},
        DEAD + both("degenerate/fully_masked_batch/large_values_padded"),
    ),
    "nan in a dead row": ({"fully_masked_row": "nan"}, DEAD),
    "unmasked dead row": ({"fully_masked_row": "unmasked"}, DEAD),
    "keys as values": ({"value_path": "key"}, PLAIN),
    "values in reversed order": ({"value_path": "reversed"}, PLAIN + SELF),
    "tiled heads": ({"grouped_heads": "tile"}, both("parameters/grouped_heads/two_groups")),
    "dropped biases": ({"projection_bias": "ignored"}, mha("shapes/cross_attention/three_tensors")),
    **{
        f"dropped {bias}": ({"projection_bias": f"without_{bias}"}, mha("shapes/cross_attention/three_tensors"))
        for bias in ("bq", "bv", "bo")
    },
    **{
        f"transposed {weight}": (
            {"weight_orientation": f"{weight}_transposed"},
            mha("shapes/cross_attention/three_tensors"),
        )
        for weight in ("wq", "wk", "wv", "wo")
    },
    **{
        f"projections packed as {order}": ({"projection_order": order}, mha("shapes/cross_attention/three_tensors"))
        for order in ("qvk", "kqv", "kvq", "vqk", "vkq")
    },
    "transposed weights": ({"weight_orientation": "transposed"}, mha("shapes/cross_attention/three_tensors")),
    "ignored softcap": ({"softcap": "ignored"}, both("parameters/softcap/number", ",softcap=2")),
    "softcap after the mask": ({"softcap": "after_mask"}, both("parameters/softcap/trailing_padding")),
    "capped product for the one before the softcap": (
        {"returned_scores": "capped_as_scaled"},
        ("numerics/scores/scaled_before_a_cap",),
    ),
    "softcap after the bias": ({"softcap": "after_bias"}, both("parameters/softcap/with_bias")),
    "softcap before the scale": ({"softcap": "before_scale"}, both("parameters/softcap/number", ",softcap=2")),
    "softcap not multiplied": ({"softcap": "unmultiplied"}, both("parameters/softcap/number", ",softcap=0.5")),
    "left out learned key": ({"bias_kv": "ignored"}, ("parameters/appended_keys/learned",)),
    "learned key projected": ({"bias_kv": "projected"}, ("parameters/appended_keys/learned",)),
    "left out key of zeros": ({"zero_key": "ignored"}, ("parameters/appended_keys/zero",)),
    "masked appended keys": (
        {"appended_keys": "masked"},
        ("parameters/appended_keys/both_under_padding[dtype=float32]",),
    ),
    "appended keys behind a causal mask": (
        {"appended_keys": "under_causal"},
        ("parameters/appended_keys/learned_causal", "parameters/appended_keys/zero_causal"),
    ),
    "appended keys before the others": (
        {"appended_keys": "first"},
        ("parameters/appended_keys/both_under_padding[dtype=float32]",),
    ),
    "left out activation": ({"projection_activation": "ignored"}, ("parameters/projections/relu",)),
    "left out residual": ({"residual": "ignored"}, ("parameters/projections/residual",)),
    "dropped bk beside an appended key": (
        {"projection_bias": "without_bk"},
        ("parameters/appended_keys/learned", "parameters/appended_keys/zero"),
    ),
    "dropped bk under a softcap": (
        {"projection_bias": "without_bk"},
        mha("parameters/softcap/number", ",softcap=0.5") + mha("parameters/softcap/number", ",softcap=2"),
    ),
    "dropout that scales at inference": (
        {"inactive_dropout": "scales_weights"},
        ("parameters/dropout/inactive", "parameters/dropout/inactive_with_weights"),
    ),
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

# The declared dialect, the actual dialect, and the cases in which the difference must show.
DECLARED: dict[str, tuple[Dialect, Dialect, tuple[str, ...]]] = {
    "zero where uniform is declared": ({"fully_masked_row": "uniform"}, {}, DEAD),
    "nan where uniform is declared": ({"fully_masked_row": "uniform"}, {"fully_masked_row": "nan"}, DEAD),
}


@cache
def problem_of(case_id: str) -> Problem:
    return by_kind(materialise(CASES[case_id]))


def gap(case_id: str, declared: Dialect, done: Dialect) -> float:
    """Return how many bounds the actual answer is from the declared one; infinite if shape, dtype or kinds differ."""
    problem = problem_of(case_id)
    profile = Profile.ordinary(problem.dtype)
    right = evaluate(problem, declared, profile.score)
    return bounds_apart(right, evaluate(problem, done, profile.score).reply, bound_reply(right, profile))


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
    # both cases have padding; only the hidden values of the second make the mistake visible
    assert gap("masks/key_padding/trailing_clean[operator=sdpa]", {}, {"mask_fill": "minus_1e4"}) < 1.0
    assert gap("masks/key_padding/trailing[operator=sdpa]", {}, {"mask_fill": "minus_1e4"}) >= FACTOR


@cache
def audited() -> Detectability:
    """Return which cases detect which deviations; it stops at one case per operator, `conformance audit` counts all."""
    return detectability(((case_id, materialise(case)) for case_id, case in CASES.items()), enough=1)


def test_the_suites_pin_down_every_deviation() -> None:
    assert audited().unpinned == ()


@pytest.mark.parametrize("operator", ["sdpa", "mha"])
def test_no_deviation_goes_unseen_by_an_operator_that_it_concerns(operator: str) -> None:
    found = audited()
    unseen = [key for key in found.detections if key not in INVISIBLE and not key.startswith(OF_THE_OTHER[operator])]
    seen = {key for key in unseen if any(sight.operator == operator for sight in found.sharp(key))}
    assert set(unseen) == seen


@pytest.mark.parametrize("operator", ["sdpa", "mha"])
def test_what_concerns_the_other_operator_alone_is_not_seen(operator: str) -> None:
    found = audited()
    others = [key for key in found.detections if key.startswith(OF_THE_OTHER[operator])]
    assert {sight.operator for key in others for sight in found.sharp(key)} == {"mha" if operator == "sdpa" else "sdpa"}


def test_every_case_has_power() -> None:
    assert audited().powerless == ()


@pytest.mark.parametrize("operator", ["sdpa", "mha"])
def test_an_epsilon_of_a_millionth_shows_in_float32_too(operator: str) -> None:
    # all elements have the same error: no single element is ten bounds away, but all together are
    case_id = f"degenerate/one_visible_key/padding_leaves[operator={operator},masks.0.pattern=first_key]"
    problem = problem_of(case_id)
    profile = Profile.ordinary(problem.dtype)
    right = evaluate(problem, {}, profile.score)
    lie = evaluate(problem, {"softmax_denominator": "plus_1e-6"}, profile.score).reply["output"]
    returned = to_tensor(round_to(lie.values, lie.dtype), lie.dtype)
    found = compare("output", right.reply["output"], returned, bound_reply(right, profile)["output"], rms_gate=True)
    assert found.verdict == "fail"


# Deviations that cannot affect an operator, because it has no projections or no scale argument. Only sdpa cases have a
# causal mask whose edge moves with the padding (`argument_fill[causal]`); `causal_fill` concerns the other ones.
OF_THE_OTHER = {
    "sdpa": (
        *("head_split=interleaved", "head_merge", "weight_orientation", "projection_", "inactive_dropout"),
        "padded_queries",
        *("output_projection", "residual", "bias_kv", "zero_key", "appended_keys"),
        *("input_axes=batch_and_sequence", "attention_axis", "scale=query_dim"),
    ),
    "mha": (
        *("output_axes=transposed", "scale=ignored", "scale=square_root"),
        *("scale=given_times_default", "scale=default_if_zero"),
        *("input_axes=heads_and_sequence", "returned_scores", "argument_fill[causal]"),
    ),
}
