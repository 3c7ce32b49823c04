"""Which coarser arithmetic is told: what was rounded, found by simulating it, whatever the size of the errors."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import evaluate
from conformance.diagnosis.coarser_arithmetic import ARITHMETIC, observed_errors, tightest
from conformance.diagnosis.diagnosis import diagnose
from conformance.diagnosis.evidence import Evidence
from conformance.reference.simulated import Rounded, simulated
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor, truncate_to
from conformance.verdicts.expectation import expect

from ..problems import KEYS, QUERIES, random_mha, random_sdpa
from .judged_cells import cell

Round = Callable[[Array], Array]


def keep(values: Array) -> Array:
    return values


def to(dtype: str) -> Round:
    return lambda values: round_to(values, dtype)


def cut(values: Array) -> Array:
    return truncate_to(values, "tf32")


def tiled(case: Problem, operands: Round = keep, weights: Round = keep, logits: Round = keep) -> Array:
    """Compute attention as kernels do: tiles of four keys, weights that are normalised at the end."""
    scores = logits(operands(case.query) @ operands(case.key).swapaxes(-1, -2) * case.applied_scale)
    top, total, context = (np.zeros((*scores.shape[:-1], 1)) for _ in range(3))
    top = top - np.inf
    for low in range(0, scores.shape[-1], 4):
        tile, values = scores[..., low : low + 4], case.value[..., low : low + 4, :]
        higher = np.maximum(top, tile.max(axis=-1, keepdims=True))
        unnormalised = np.exp(tile - higher)
        total = total * np.exp(top - higher) + unnormalised.sum(axis=-1, keepdims=True)
        context = context * np.exp(top - higher) + operands(weights(unnormalised)) @ operands(values)
        top = higher
    return np.asarray(context / total)


def failing(case: Problem, output: Array) -> Evidence:
    reply = {"output": to_tensor(round_to(output, case.dtype), case.dtype)}
    return cell(case, {}).failing(reply, ())


def cases() -> Iterator[Problem]:
    for seed, keys in enumerate((5, 7, 11, 13, 17)):
        yield random_sdpa(seed, dtype="float32", seq_len_k=keys, outputs=("output",))


@pytest.mark.parametrize(
    ("rounding", "name"),
    [
        ({"operands": to("tf32")}, "tf32_operands"),
        ({"operands": cut}, "tf32_truncated_operands"),
        ({"operands": to("float16")}, "tf32_operands"),  # float16 and tf32 have the same precision
        ({"operands": to("bfloat16")}, "bfloat16_operands"),
        ({"weights": to("float16")}, "weights_in_float16"),
        ({"weights": to("bfloat16")}, "weights_in_bfloat16"),
        ({"logits": to("float16")}, "scores_in_float16"),
        ({"logits": to("bfloat16")}, "scores_in_bfloat16"),
    ],
    ids=["tf32", "truncated", "float16", "bfloat16", "weights16", "weights_b16", "logits16", "logits_b16"],
)
def test_what_a_tiled_kernel_rounds_is_told_first(rounding: dict[str, Round], name: str) -> None:
    found = tightest([failing(case, tiled(case, **rounding)) for case in cases()])
    assert found[0].name == name


def test_a_tiled_kernel_that_rounds_nothing_is_within_its_bound() -> None:
    found = [cell(case, {}) for case in cases()]
    replies = [{"output": to_tensor(round_to(tiled(each.problem), "float32"), "float32")} for each in found]
    assert all(each.failing(reply, ()).excess < 1.0 for each, reply in zip(found, replies, strict=True))


@pytest.mark.parametrize("case", [random_sdpa(3), random_mha(5)], ids=["sdpa", "mha"])
def test_a_simulation_that_rounds_nothing_is_the_oracle(case: Problem) -> None:
    for name in ("output", "weights"):
        expected = evaluate(case.but(outputs=(name,))).reply[name].values
        made = simulated(evaluate(case.but(outputs=(name,))).state, Rounded(Profile.uniform("float64")))[name]
        np.testing.assert_allclose(made, expected, rtol=1e-12, atol=1e-14)


def test_a_simulated_product_rounds_its_operands_or_its_sum_by_hand() -> None:
    one, other = np.array([[1.0 + 2.0**-11 + 2.0**-12, 3.0]]), np.array([[1.0], [2.0**-11]])
    plain = Profile.uniform("float32")
    made = {
        field: float(Rounded(plain.but(**fields)).dot(one, other)[0, 0])
        for field, fields in {
            "rounded": {"mm": "tf32"},
            "truncated": {"mm": "tf32_truncated"},
            "accumulated": {"acc": "float16"},
        }.items()
    }
    # 3 2^-11 is 1.5 2^-10. The sum in float16: 1 + 1.5 2^-11 becomes 1 + 2^-10, plus 1.5 2^-10 is 1 + 2.5 2^-10, a tie.
    assert made == {"rounded": 1 + 2.5 * 2.0**-10, "truncated": 1 + 1.5 * 2.0**-10, "accumulated": 1 + 2.0**-9}


def test_arithmetic_of_some_sizes_only_is_one_cause_without_conditions() -> None:
    """A library that uses TF32 for some sizes and not for others, by two rules."""
    calls = [
        random_sdpa(seed, dtype="float32", batch=batch, seq_len_q=queries, seq_len_k=keys, outputs=("output",))
        for seed, (batch, queries, keys) in enumerate(
            [
                (1, 5, 7),
                (2, 5, 5),
                (1, 7, 7),
                (3, 5, 11),
                (2, 1, 7),
                (1, 3, 7),
                (2, 3, 3),
                (3, 3, 11),
                (1, 2, 13),
                (2, 2, 2),
            ]
        )
    ]
    narrow = [each.seq_len_q > 3 or each.seq_len_k in (3, 11) for each in calls]
    cells = [
        failing(each, tiled(each, operands=to("tf32"))) if is_narrow else cell(each, {})
        for each, is_narrow in zip(calls, narrow, strict=True)
    ]
    found = diagnose(cells)
    (cause,) = found.causes
    told = {each.candidate.arithmetic.name for each in (cause, *cause.ties) if each.candidate.arithmetic is not None}
    assert told & {"tf32_operands", "float16_operands"}  # the same for ordinary numbers
    assert (cause.guards[0].words, len(cause.cells), found.unexplained) == ("", sum(narrow), ())


def test_a_reply_of_another_shape_shows_no_arithmetic() -> None:
    """Its shape can be broadcast to the expected one, so it could be subtracted."""
    cells = [failing(case, tiled(case)[:, :, :1]) for case in cases()]
    assert all(observed_errors(each) == {} for each in cells)
    assert tightest(cells) == []
    assert diagnose(cells).causes == ()


def test_every_kind_of_arithmetic_can_be_simulated() -> None:
    case = next(cases())
    state = evaluate(case).state
    for each in ARITHMETIC:
        profile = each.of(Profile.uniform("float64"))
        if profile is not None:
            assert np.isfinite(simulated(state, Rounded(profile))["output"]).all()


def test_an_infinite_bound_explains_nothing() -> None:
    """Products that are summed in float16 may overflow beside a fill of -3.4e38, so any number is within that bound."""
    allowed = np.ones((1, 1, QUERIES, KEYS), dtype=bool)
    allowed[:, :, 1] = False
    asked = random_sdpa(23, MaskOperand("mask", ("attention",), "bool", allowed))
    wrong = cell(asked, {}, {"mask_fill": "finite_minimum"})
    accumulation = next(each for each in ARITHMETIC if each.name == "float16_accumulation")
    profile = accumulation.of(wrong.profile)
    assert profile is not None
    assert np.isinf(expect(asked, {"mask_fill": "finite_minimum"}, profile).bounds["output"].tolerance[:, :, 1]).all()
    assert wrong.actual is not None
    assert not accumulation.explains(wrong)
