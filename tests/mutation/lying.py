"""
The replies of a lying adapter: the oracle, rounded once, with the deviations of each lie whose condition holds.

The worker that loads this module has only the bridge, so the oracle is imported from the checkout of this file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import conformance
from conformance.bridge import Call, Profile
from conformance.bridge.tensor import Tensor

conformance.__path__.append(str(Path(__file__).parents[2] / "conformance"))
from conformance.deviations.catalogue import evaluate  # noqa: E402 - found once the checkout is on the path
from conformance.deviations.edges import causal, window  # noqa: E402
from conformance.diagnosis.conditions import Condition  # noqa: E402 - found once the checkout is on the path
from conformance.spec.problem import MaskOperand, Problem  # noqa: E402
from conformance.spec.rounding import round_to, to_tensor  # noqa: E402

# The causal flag that is aligned to the last key (bottom right).
AT_END = "is_causal_at_the_end"


@dataclass(frozen=True)
class Lie:
    """Deviations from the declared dialect, in calls for which `when` holds."""

    dialect: Mapping[str, str]
    when: Condition

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Lie":
        """Read the literal in a generated adapter."""
        return cls(record["dialect"], Condition(**record["when"]))


def answer(call: Call, lies: Sequence[Lie]) -> dict[str, Any]:
    """Return every requested output."""
    asked = problem_of(call)
    dialect = {
        decision: name for lie in lies if lie.when.holds(call.facts, asked) for decision, name in lie.dialect.items()
    }
    reply = evaluate(asked, dialect, Profile.ordinary(call.facts.dtype).score).reply
    return {name: to_tensor(round_to(each.values, each.dtype), each.dtype) for name, each in reply.items()}


def problem_of(call: Call) -> Problem:
    """Return the call as a problem for the oracle."""
    facts = call.facts
    arrays = {id(each): each.float64() for each in (call.query, call.key, call.value)}
    key, value = arrays[id(call.key)], arrays[id(call.value)]
    if call.past_key is not None and call.past_value is not None:
        key = np.concatenate([call.past_key.float64(), key], axis=-2)
        value = np.concatenate([call.past_value.float64(), value], axis=-2)
    return Problem(
        operator=facts.operator,
        dtype=facts.dtype,
        num_heads=facts.sizes["num_heads"],
        num_kv_heads=facts.sizes["num_kv_heads"],
        head_dim=facts.sizes["head_dim"],
        value_dim=facts.sizes["value_dim"],
        query=arrays[id(call.query)],
        key=key,
        value=value,
        params={name: tensor.float64() for name, tensor in call.params.items()},
        mask_operands=tuple(_groups(call)),
        scale=call.scale,
        outputs=facts.outputs,
        alias=facts.alias,
        softcap=call.softcap,
        dropout_p=call.dropout_p,
        layout=facts.layout,
        zero_key="zero_key" in facts.requirements,
        activation="relu" if "relu" in facts.requirements else None,
        residual="residual" in facts.requirements,
        past=facts.sizes.get("past", 0),
        grad_output=None if call.grad_output is None else call.grad_output.float64(),
        requirements=facts.requirements,
    )


def _groups(call: Call) -> list[MaskOperand]:
    queries, keys = (call.facts.sizes[name] for name in ("seq_len_q", "seq_len_k"))
    past = call.facts.sizes.get("past", 0)
    groups = []
    for mask in call.facts.masks:
        given = call.arguments[mask.slot]
        if mask.slot == "window":
            left, right = given
            edges = (None if left is None else left - past, None if right is None else right + past)
            groups.append(MaskOperand(mask.slot, mask.kinds, "flag", window(queries, keys, *edges), window=edges))
        elif mask.element == "flag":
            offset = keys - queries if mask.slot == AT_END else past
            groups.append(MaskOperand(mask.slot, mask.kinds, "flag", causal(queries, keys, offset), offset=offset))
        else:
            values = _values(given, mask.element)
            if mask.slot == "key_padding_mask":
                values = values[:, None, None, :]
            groups.append(MaskOperand(mask.slot, mask.kinds, mask.element, values, verbatim=mask.verbatim))
    return groups


def _values(given: Tensor, element: str) -> np.ndarray[Any, Any]:
    return given.float64() if element == "float" else given.bits
