"""The dialect of a subject with a wrong declaration is read from its replies: decisions, contradictions, ties."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.bridge.contract import Facts, MaskFacts
from conformance.bridge.profile import Profile
from conformance.deviations.deviation import Dialect
from conformance.deviations.edges import causal
from conformance.diagnosis.behaviour_profile import BehaviourProfile, Line, Probe, behaviour_profile
from conformance.diagnosis.explanation import CANONICAL
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor
from conformance.verdicts.expectation import expect

from ..problems import KEYS, QUERIES, random_sdpa, reply_under

SLOT = "attn_mask"


def problem(
    *masks: MaskOperand,
    outputs: tuple[str, ...] = ("output",),
    heads: tuple[int, int] = (3, 3),
    dtype: str = "float32",
    scale: float | None = None,
    square: bool = False,
) -> Problem:
    sizes = {"num_heads": heads[0], "num_kv_heads": heads[1], "seq_len_q": KEYS if square else QUERIES}
    return random_sdpa(7, *masks, dtype=dtype, scale=scale, outputs=outputs, **sizes)


def boolean(*, fully_masked: bool = False, verbatim: bool = False, square: bool = False) -> MaskOperand:
    allowed = np.random.default_rng(5).random((1, 1, KEYS if square else QUERIES, KEYS)) < 0.6
    allowed[..., 0] = np.arange(allowed.shape[-2]) % 2 == 0
    allowed[..., 1] = ~allowed[..., 0]
    if fully_masked:
        allowed[0, 0, 2] = False
    return MaskOperand(SLOT, ("attention",), "bool", allowed, verbatim=verbatim)


def floats(*, fully_masked: bool = False) -> MaskOperand:
    allowed = boolean(fully_masked=fully_masked).values
    return MaskOperand(SLOT, ("attention",), "float", np.where(allowed, 0.0, -np.inf), verbatim=True)


def flag() -> MaskOperand:
    return MaskOperand("is_causal", ("causal",), "flag", causal(QUERIES, KEYS, 0), offset=0)


CALLS: dict[str, Problem] = {
    "plain": problem(),
    "with_weights": problem(outputs=("output", "weights")),
    "verbatim": problem(boolean(verbatim=True)),
    "converted": problem(boolean()),
    "square": problem(boolean(square=True), square=True),
    "float": problem(floats()),
    "dead": problem(boolean(fully_masked=True)),
    "dead_float": problem(floats(fully_masked=True)),
    "dead_with_weights": problem(boolean(fully_masked=True), outputs=("output", "weights")),
    "causal": problem(flag()),
    "both": problem(boolean(), flag()),
    "both_in_another_order": problem(flag(), boolean()),
    "grouped": problem(heads=(6, 3)),
    "scaled": problem(scale=2.5),
    "double": problem(dtype="float64"),
}
DEAD = ("dead", "dead_float", "dead_with_weights")


def facts(asked: Problem) -> Facts:
    masks = tuple(MaskFacts(group.slot, group.kinds, group.element, group.verbatim) for group in asked.mask_operands)
    return Facts("sdpa", asked.dtype, "cpu", "", asked.outputs, masks=masks, sizes=asked.sizes())


def probe(case: str, lie: Dialect, declared: Dialect | None = None, *, accepted: bool = False) -> Probe:
    """A call with the reply under `lie` of a subject that declares `declared`."""
    asked = CALLS[case]
    profile = Profile.uniform(asked.dtype)
    actual = reply_under(lie, asked, profile)
    expected = expect(asked, declared or {}, profile)
    return Probe(case, facts(asked), asked, expected, profile, actual, accepted=accepted)


def behaviour(lie: Dialect, declared: Dialect | None = None, cases: Sequence[str] = tuple(CALLS)) -> BehaviourProfile:
    return behaviour_profile([probe(case, lie, declared) for case in cases])


def line(found: BehaviourProfile, decision: str) -> Line:
    got = found.line(decision)
    assert got is not None
    return got


def observed(found: BehaviourProfile, decision: str) -> dict[str, str]:
    """Circumstance -> the observed way."""
    return {each.circumstance: each.observed[0] for each in line(found, decision).observations}


def test_an_honest_subject_agrees_everywhere() -> None:
    found = behaviour({})
    assert found.contradicted == ()
    assert found.unexplained == ()
    assert {line.status for line in found.lines} == {"agrees", "not reached"}
    assert all(each.observed[0] == CANONICAL for one in found.lines for each in one.observations)


@pytest.mark.parametrize(
    "lie",
    [
        ("polarity[attn_mask]", "ignore"),
        ("float_mask[attn_mask]", "cast_to_bool"),
        ("use[attn_mask]", "ignored"),
        ("use[attn_mask]", "ignored_beside_others"),
        ("mask_axes[attn_mask]", "transposed"),
        ("causal_alignment", "bottom_right"),
        ("causal_alignment", "strict"),
        ("mask_combination", "last_wins"),
        ("scale", "none"),
        ("scale", "ignored"),
        ("fully_masked_row", "nan"),
        ("fully_masked_row", "uniform"),
        ("fully_masked_row", "unmasked"),
        ("grouped_heads", "tile"),
        ("returned_weights", "averaged"),
        ("softmax_axis", "queries"),
        ("value_path", "reversed"),
        ("result_dtype", "float32"),
    ],
    ids="=".join,
)
def test_each_decision_is_read_and_its_contradiction_found(lie: tuple[str, str]) -> None:
    decision, name = lie
    found = behaviour({decision: name})
    assert found.unexplained == ()
    assert [line.decision for line in found.contradicted] == [decision]
    assert name in observed(found, decision).values()
    assert line(found, decision).against


def plain(
    asked: Problem,
    *,
    inverted: bool = False,
    at_the_end: bool = False,
    scaled: bool = True,
    dead: float = 0.0,
    tiled: bool = False,
) -> dict[str, Array]:
    """Output and weights in plain NumPy, without the oracle; each keyword argument makes a mistake."""
    few = asked.num_heads // asked.num_kv_heads
    key, value = (np.tile(a, (1, few, 1, 1)) if tiled else np.repeat(a, few, axis=1) for a in (asked.key, asked.value))
    factor = asked.scale or asked.head_dim**-0.5
    logits = asked.query @ key.swapaxes(-1, -2) * (factor if scaled else 1.0)
    for each in asked.mask_operands:
        allowed = each.values == 0.0 if each.element == "float" else each.values
        if each.element == "flag" and at_the_end:
            allowed = np.tri(asked.seq_len_q, asked.seq_len_k, asked.seq_len_k - asked.seq_len_q, dtype=bool)
        if each.element == "bool" and inverted:
            allowed = ~allowed
        logits = np.where(allowed, logits, -np.inf)
    top = logits.max(axis=-1, keepdims=True)
    exponentials = np.exp(logits - np.where(np.isfinite(top), top, 0.0))
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = np.where(total == 0.0, dead, exponentials / np.where(total == 0.0, 1.0, total))
    return {"output": weights @ value, "weights": weights}


@pytest.mark.parametrize(
    ("mistake", "decision", "name"),
    [
        ({"inverted": True}, "polarity[attn_mask]", "ignore"),
        ({"at_the_end": True}, "causal_alignment", "bottom_right"),
        ({"scaled": False}, "scale", "none"),
        ({"dead": np.nan}, "fully_masked_row", "nan"),
        ({"dead": 1.0 / KEYS}, "fully_masked_row", "uniform"),
        ({"tiled": True}, "grouped_heads", "tile"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_decision_is_read_off_replies_of_plain_numpy(mistake: dict[str, Any], decision: str, name: str) -> None:
    probes = []
    for case, asked in CALLS.items():
        made = plain(asked, **mistake)
        actual = {each: to_tensor(round_to(made[each], asked.dtype), asked.dtype) for each in asked.outputs}
        probes.append(replace(probe(case, {}), actual=actual))
    found = behaviour_profile(probes)
    assert found.unexplained == ()
    assert [line.decision for line in found.contradicted] == [decision]
    assert name in observed(found, decision).values()


def test_what_is_declared_and_done_agrees() -> None:
    found = behaviour({"fully_masked_row": "nan"}, {"fully_masked_row": "nan"})
    assert line(found, "fully_masked_row").status == "agrees"
    assert observed(found, "fully_masked_row") == {"": "nan"}


def test_a_stale_declaration_is_contradicted() -> None:
    found = behaviour({}, {"fully_masked_row": "uniform"})
    (contradicted,) = found.contradicted
    assert contradicted.decision == "fully_masked_row"
    assert contradicted.observations[0].declared == ("uniform",)
    assert observed(found, "fully_masked_row") == {"": CANONICAL}
    assert set(contradicted.against) == set(DEAD)


def test_two_decisions_are_told_apart_where_a_call_shows_both() -> None:
    found = behaviour({"scale": "none", "fully_masked_row": "nan"})
    assert {line.decision for line in found.contradicted} == {"scale", "fully_masked_row"}
    assert observed(found, "fully_masked_row") == {"": "nan"}
    assert found.unexplained == ()


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (("dead_with_weights",), {"with weights": "nan", "without weights": CANONICAL}),
        (("dead_float",), {"float mask": "nan", "bool mask": CANONICAL}),
    ],
)
def test_a_decision_that_depends_on_the_call_is_told_with_its_circumstance(
    where: tuple[str, ...], words: dict[str, str]
) -> None:
    nan = {"fully_masked_row": "nan"}
    found = behaviour_profile([probe(case, nan if case in where else {}) for case in CALLS])
    assert observed(found, "fully_masked_row") == words
    assert line(found, "fully_masked_row").against == where


def test_a_decision_that_no_circumstance_explains_varies() -> None:
    twin = replace(probe("dead", {"fully_masked_row": "nan"}), case="dead_again")
    found = behaviour_profile([probe("dead", {}), twin])
    (seen,) = line(found, "fully_masked_row").observations
    assert seen.varies
    assert set(seen.observed) == {CANONICAL, "nan"}


def test_what_no_call_tells_apart_is_told() -> None:
    found = behaviour({}, cases=("plain", "converted"))
    assert line(found, "scale").observations[0].observed == (CANONICAL, "square_root")
    assert line(found, "grouped_heads").status == "not reached"
    assert line(found, "fully_masked_row").status == "not reached"


def test_a_way_of_another_decision_that_explains_the_same_is_told() -> None:
    found = behaviour({"mask_fill": "finite_minimum"}, cases=("plain", "converted", "dead"))
    (seen,) = line(found, "fully_masked_row").observations
    assert seen.observed[0] == "uniform"
    assert ("mask_fill", "finite_minimum") in seen.alike


def test_two_ways_that_only_another_order_of_masks_tells_apart_are_a_tie_without_it() -> None:
    found = behaviour({"mask_combination": "last_wins"}, cases=("plain", "both"))
    (seen,) = line(found, "use[attn_mask]").observations
    assert "ignored_beside_others" in seen.observed
    assert ("mask_combination", "last_wins") in seen.alike


def test_a_known_deviation_is_accepted_and_still_told() -> None:
    nan = {"fully_masked_row": "nan"}
    found = behaviour_profile([probe(case, nan, accepted=case in DEAD) for case in CALLS])
    assert line(found, "fully_masked_row").status == "accepted"
    assert found.contradicted == ()
    assert observed(found, "fully_masked_row") == {"": "nan"}


def test_a_reply_that_nothing_explains_is_unexplained() -> None:
    wrong = probe("plain", {})
    output = wrong.suspect().actual["output"]
    bent = {"output": replace(output, bits=output.bits + np.sin(np.float32(7) * output.bits))}
    found = behaviour_profile([replace(wrong, actual=bent), probe("dead", {})])
    assert found.unexplained == ("plain",)


def test_what_a_declaration_hides_is_blinded() -> None:
    ignored = {"use[attn_mask]": "ignored"}
    found = behaviour(ignored, ignored, ("plain", "dead"))
    hidden = line(found, "fully_masked_row")
    assert (hidden.status, hidden.blinded_by) == ("blinded", (("use[attn_mask]", "ignored"),))


@pytest.mark.parametrize("reads", ["ignore", CANONICAL])
def test_polarity_is_that_of_the_argument_also_where_the_mask_was_inverted(reads: str) -> None:
    documented = {"polarity[attn_mask]": "ignore"}
    verbatim = probe("verbatim", {} if reads == CANONICAL else documented, documented)
    asked, profile = problem(replace(boolean(), inverted=True)), Profile.uniform("float32")
    actual = reply_under({} if reads == "ignore" else {"polarity[attn_mask]": "attend"}, asked, profile)
    inverted = Probe("inverted", facts(asked), asked, expect(asked, {}, profile), profile, actual)
    found = behaviour_profile([verbatim, inverted])
    assert observed(found, "polarity[attn_mask]") == {"": reads}
    assert line(found, "polarity[attn_mask]").status == ("agrees" if reads == "ignore" else "contradicted")


def test_a_row_that_dies_of_another_decision_says_nothing_about_fully_masked_rows() -> None:
    ignored = {"polarity[attn_mask]": "ignore"}
    everything = MaskOperand(SLOT, ("attention",), "bool", np.ones((1, 1, QUERIES, KEYS), dtype=bool))
    asked = problem(everything)
    profile = Profile.uniform("float32")
    actual = reply_under(ignored, asked, profile)
    inverted = Probe("all", facts(asked), asked, expect(asked, {}, profile), profile, actual)
    found = behaviour_profile([inverted, probe("converted", ignored), probe("dead", ignored)])
    assert [line.decision for line in found.contradicted] == ["polarity[attn_mask]"]
    assert line(found, "fully_masked_row").status == "not reached"
