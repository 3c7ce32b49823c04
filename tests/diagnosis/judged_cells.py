"""Judged cells of subjects with deviations: the input of the tests of the diagnosis."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from conformance.bridge.contract import Facts, MaskFacts
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Dialect
from conformance.deviations.edges import causal
from conformance.diagnosis.evidence import Evidence
from conformance.spec.problem import MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor

from ..problems import DIM, judge, random_sdpa, reply_under

# (batch, seq_len_q, seq_len_k).
SIZES = ((2, 5, 7), (1, 5, 7), (2, 7, 7), (2, 17, 19), (1, 7, 7))


Lie = Callable[[Problem], Dialect]


def plain(batch: int, queries: int, keys: int, dtype: str = "float32") -> Problem:
    sizes = {"batch": batch, "seq_len_q": queries, "seq_len_k": keys, "value_dim": DIM}
    return random_sdpa(100 * batch + 10 * queries + keys, dtype=dtype, **sizes)


def padded(batch: int, queries: int, keys: int, dtype: str = "float32") -> Problem:
    """A call in which the last two keys of the first batch element are padding."""
    allowed = np.ones((batch, 1, 1, keys), dtype=bool)
    allowed[0, 0, 0, -2:] = False
    asked = plain(batch, queries, keys, dtype)
    return asked.but(mask_operands=(MaskOperand("padding", ("key_padding",), "bool", allowed),))


def cell(asked: Problem, behaviour: Dialect, declared: Dialect | None = None) -> Evidence:
    """The judged cell of a subject that behaves in one way in this call and declares another."""
    return judged(asked, reply_under(behaviour, asked, Profile.ordinary(asked.dtype)), declared)


def judged(asked: Problem, actual: Mapping[str, Tensor], declared: Dialect | None = None) -> Evidence:
    """The cell of this reply; it contains the reply only if the verdict is `fail`."""
    profile = Profile.ordinary(asked.dtype)
    found = judge(asked, declared or {}, profile, actual)
    masks = tuple(MaskFacts(group.slot, group.kinds, group.element) for group in asked.mask_operands)
    facts = Facts(asked.operator, asked.dtype, "cpu", "", asked.outputs, masks=masks, sizes=asked.sizes())
    name = "-".join(str(size) for size in (asked.dtype, "masked" if masks else "plain", *asked.logits_shape))
    ways = (found.explanation, *found.ties) if found.explanation else ()
    seen = tuple(each.way for each in ways if each is not None)
    failing = found.verdict == "fail"
    evidence = Evidence(name, facts, asked, found.expectation, profile)
    return replace(evidence, actual=actual, found=seen) if failing else evidence


def subject(lie: Lie, dtypes: Iterable[str] = ("float32", "float16")) -> list[Evidence]:
    """The cells of all calls of this module, for a subject with this lie."""
    return [cell(each, lie(each)) for dtype in dtypes for size in SIZES for each in asked(*size, dtype)]


def asked(batch: int, queries: int, keys: int, dtype: str) -> tuple[Problem, ...]:
    return plain(batch, queries, keys, dtype), padded(batch, queries, keys, dtype)


REVERSED = {"value_path": "reversed"}


IGNORED = {"use[padding]": "ignored"}


def bent(asked: Problem, by: float) -> Evidence:
    """A failing cell in which each number is changed by a sine of itself, an error without a name."""
    values = evaluate(asked, score="float32").reply["output"].values
    return reply(asked, values + by * np.sin(7 * values))


def reply(asked: Problem, values: np.ndarray) -> Evidence:
    """A failing cell with this output."""
    made = judged(asked, {"output": to_tensor(round_to(values, asked.dtype), asked.dtype)})
    assert made.actual is not None
    return made


def flagged(batch: int, queries: int, keys: int) -> Problem:
    flag = MaskOperand("is_causal", ("causal",), "flag", causal(queries, keys, 0), offset=0)
    return plain(batch, queries, keys).but(mask_operands=(flag,))
