"""
An adapter that lies in one decision: the oracle under a deviation, rounded once, on the real worker path.

Slots: key_padding_mask (batch, seq_len_k); attn_mask (broadcast to the logits), bool True = attend or additive floats;
is_causal is top-left. A variant's name says what it does otherwise than it declares.
"""

from pathlib import Path
from typing import Any

import numpy as np

import conformance
from conformance.bridge import Call, Declaration, Deviation, Facts, Profile, framework_call

# The worker has the bridge alone; this fake also wants the oracle, from the checkout that it lies in.
conformance.__path__.append(str(Path(__file__).parents[2] / "conformance"))
from conformance.deviations.catalogue import evaluate  # noqa: E402 - found once the checkout is on the path
from conformance.diagnosis.conditions import Condition  # noqa: E402
from conformance.spec.problem import MaskOperand, Problem  # noqa: E402
from conformance.spec.rounding import round_to, to_tensor  # noqa: E402

NAME = "fake.varied"
OPERATORS = ["sdpa", "mha"]
REQUIRES = ["numpy"]
OUTPUTS = ["output", "weights", "weights_mean"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = [
    "scale",
    "softcap",
    "dropout",
    "layout",
    "grouped_heads",
    "value_dim",
    "kdim",
    "query_dim",
    "output_dim",
    "no_bias",
]
SLOTS = {
    "key_padding_mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"},
    "attn_mask": {
        "role": "mask",
        "takes": ["attention", "additive", "key_padding", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q", "k"],
        "bool": "attend",
        "int": "attend",
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "top_left"},
}
LIES = {
    "honest": {},
    "inverted_mask": {"polarity[attn_mask]": "ignore"},
    "inverted_padding": {"polarity[key_padding_mask]": "ignore"},
    "ignored_padding": {"use[key_padding_mask]": "ignored"},
    "transposed_mask": {"mask_axes[attn_mask]": "transposed"},
    "bottom_right": {"causal_alignment": "bottom_right"},
    "missing_scale": {"scale": "none"},
    "softmax_over_queries": {"softmax_axis": "queries"},
    "interleaved_heads": {"head_split": "interleaved"},
    "fill_minus_1e4": {"mask_fill": "minus_1e4"},
    "uniform_fully_masked_row": {"fully_masked_row": "uniform"},
    "zero_against_declared_uniform": {},
    "swapped_value": {"value_path": "reversed"},
    "averaged_weights": {"returned_weights": "averaged"},
    "result_in_float64": {"result_dtype": "float64"},
}
# Lies that are told under a condition only, or two at once.
CONDITIONAL = {
    "ignored_padding_unless_square": (
        {"use[key_padding_mask]": "ignored"},
        Condition(sizes_differ=[("seq_len_q", "seq_len_k")]),
    ),
    "missing_scale_for_one_item": ({"scale": "none"}, Condition(sizes={"batch": 1})),
    "reversed_values_with_a_mask": ({"value_path": "reversed"}, Condition(masks=True)),
    "next_head_in_float16": ({"value_path": "next_head"}, Condition(dtype=["float16"])),
    "softmax_over_queries_past_16_keys": ({"softmax_axis": "queries"}, Condition(sizes_above={"seq_len_k": 16})),
    "missing_scale_and_reversed_values": ({"scale": "none", "value_path": "reversed"}, Condition()),
}

VARIANTS: dict[str, dict[str, str]] = {
    "honest": {},
    "inverted_mask": {},
    "inverted_padding": {},
    "ignored_padding": {},
    "transposed_mask": {},
    "bottom_right": {},
    "missing_scale": {},
    "softmax_over_queries": {},
    "interleaved_heads": {},
    "fill_minus_1e4": {},
    "uniform_fully_masked_row": {},
    "zero_against_declared_uniform": {},
    "swapped_value": {},
    "averaged_weights": {},
    "result_in_float64": {},
    "ignored_padding_unless_square": {},
    "missing_scale_for_one_item": {},
    "reversed_values_with_a_mask": {},
    "next_head_in_float16": {},
    "softmax_over_queries_past_16_keys": {},
    "missing_scale_and_reversed_values": {},
    "tf32": {},
    "unheard_of": {},
}


def declare(facts: Facts) -> Declaration:
    uniform = Deviation("fully_masked_row", "uniform", "https://example.org/declared")
    dialect = (uniform,) if facts.variant == "zero_against_declared_uniform" else ()
    return Declaration(Profile.ordinary(facts.dtype), dialect, "the oracle, rounded once")


def groups(call: Call) -> tuple[MaskOperand, ...]:
    found = []
    batch, _, length_q, length_k = (call.facts.sizes[n] for n in ("batch", "num_heads", "seq_len_q", "seq_len_k"))
    for mask in call.facts.masks:
        argument = call.arguments[mask.slot]
        if mask.element == "flag":
            values = np.arange(length_k)[None, :] <= np.arange(length_q)[:, None]
            found.append(MaskOperand(mask.slot, mask.kinds, "flag", values[None, None], offset=0))
            continue
        values = argument.float64() if mask.element == "float" else argument.bits
        shape = (batch, 1, 1, length_k) if mask.slot == "key_padding_mask" else values.shape
        found.append(MaskOperand(mask.slot, mask.kinds, mask.element, values.reshape(shape), verbatim=mask.verbatim))
    return tuple(found)


def problem(call: Call) -> Problem:
    facts = call.facts
    return Problem(
        operator=facts.operator,
        dtype=facts.dtype,
        num_heads=facts.sizes["num_heads"],
        num_kv_heads=facts.sizes["num_kv_heads"],
        head_dim=facts.sizes["head_dim"],
        value_dim=facts.sizes["value_dim"],
        query=call.query.float64(),
        key=call.key.float64(),
        value=call.value.float64(),
        params={name: tensor.float64() for name, tensor in call.params.items()},
        mask_operands=groups(call),
        scale=call.scale,
        softcap=call.softcap,
        dropout_p=call.dropout_p,
        layout=facts.layout,
        outputs=facts.outputs,
        alias=facts.alias,
    )


def dialect(call: Call, asked: Problem) -> dict[str, str]:
    """The lie that is told in this call."""
    lie, when = CONDITIONAL.get(call.facts.variant, (LIES.get(call.facts.variant, {}), Condition()))
    return lie if when.holds(call.facts, asked) else {}


def coarse(asked: Problem, variant: str) -> Problem:
    """Operands that are rounded to tf32 where the variant says so, or queries that are bent for no reason."""
    if variant == "tf32":
        rounded = {name: round_to(getattr(asked, name), "tf32") for name in ("query", "key", "value")}
        return asked.but(**rounded)
    return asked.but(query=asked.query - np.sin(3 * asked.query)) if variant == "unheard_of" else asked


def sdpa(call: Call) -> dict[str, Any]:
    score = Profile.ordinary(call.facts.dtype).score
    with framework_call():
        asked = coarse(problem(call), call.facts.variant)
        reply = evaluate(asked, dialect(call, asked), score).reply
    return {name: to_tensor(round_to(each.values, each.dtype), each.dtype) for name, each in reply.items()}


mha = sdpa
