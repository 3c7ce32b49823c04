"""
Programs written only for this test, which round where a profile says, in several orders of summation.

Correct programs raise no false alarm, and small errors are caught (docs/tolerance.md, sections 5 and 6).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest

from conformance.bounds.bound import Bound
from conformance.bounds.outputs import bound_reply
from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import CANONICAL, evaluate
from conformance.deviations.deviation import Dialect
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.spec.rounding import largest, round_to


@dataclass(frozen=True)
class Bug:
    """What a program does wrong; the default of every field is correct."""

    scale: float = 0.0
    denominator: float = 0.0
    fill: float = -np.inf
    products: str | None = None
    softmax: str | None = None
    swapped: bool = False
    cap: float = 0.0


CORRECT = Bug()


def dot(a: Array, b: Array, acc: str, order: Sequence[int] | None = None, onto: Array | None = None) -> Array:
    """Return onto + a @ b, added one term after the other; every product and every sum is rounded."""
    total = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))
    total = total if onto is None else total + onto
    for i in range(a.shape[-1]) if order is None else order:
        total = round_to(total + round_to(a[..., i, None] * b[..., i, None, :], acc), acc)
    return total


def stored(product: Array, dtype: str, profile: Profile) -> Array:
    """Return the result of a matrix product: rounded to nearest, or truncated if the profile says so."""
    rounded = round_to(product, dtype)
    if not profile.truncated:
        return rounded
    away = np.abs(rounded) > np.abs(product)
    _, exponent = np.frexp(rounded)
    spacing = np.ldexp(1.0, exponent - 1 - 7) * np.where(np.abs(np.frexp(rounded)[0]) == 0.5, 0.5, 1.0)
    return np.where(away, rounded - np.copysign(spacing, product), rounded)


def logits_of(q: Array, k: Array, problem: Problem, profile: Profile, bug: Bug) -> Array:
    scale = problem.head_dim**-0.5 * (1.0 + bug.scale)
    if bug.products is not None:
        q, k = round_to(q, bug.products), round_to(k, bug.products)
    if profile.pre is None:
        products = stored(dot(q, k.swapaxes(-1, -2), profile.acc), profile.score, profile)
        logits = round_to(products * round_to(np.asarray(scale), profile.scale), profile.score)
    else:
        root = round_to(np.asarray(scale**0.5), profile.scale)
        q, k = round_to(q * root, profile.pre), round_to(k * root, profile.pre)
        logits = stored(dot(q, k.swapaxes(-1, -2), profile.acc), profile.score, profile)
    logits = capped(logits, problem.softcap and problem.softcap * (1.0 + bug.cap), profile)
    bias = problem.bias()
    logits = logits if bias is None else round_to(logits + bias, profile.score)
    return np.where(problem.allowed(), logits, round_to(logits + bug.fill, profile.score))


def capped(logits: Array, softcap: float | None, profile: Profile) -> Array:
    """Apply the softcap: quotient, tanh and product are each rounded, and tanh also to the dtype of the softmax."""
    if softcap is None:
        return logits
    quotient = round_to(logits / softcap, profile.score)
    tangent = round_to(round_to(np.tanh(quotient), profile.soft), profile.score)
    return round_to(tangent * softcap, profile.score)


def exponentials(logits: Array, top: Array, dtype: str) -> Array:
    return round_to(np.exp(round_to(logits - top, dtype)), dtype)


def naive(logits: Array, v: Array, profile: Profile, bug: Bug) -> tuple[Array, Array | None]:
    """Compute the weights first, then weights @ values."""
    soft = bug.softmax or profile.soft
    e = exponentials(logits, logits.max(axis=-1, keepdims=True), soft)
    total = np.full(e.shape[:-1], bug.denominator)
    for j in range(e.shape[-1]):
        total = round_to(total + e[..., j], profile.sum)
    p = round_to(round_to(e / total[..., None], soft), profile.prob)
    p = p[..., [1, 0, *range(2, p.shape[-1])]] if bug.swapped else p
    return dot(p, v, profile.acc), p


def online(logits: Array, v: Array, profile: Profile, bug: Bug) -> tuple[Array, Array | None]:
    """Process tiles of four keys, rescaled as the maximum grows; round the weights before normalisation."""
    top = np.full((*logits.shape[:-1], 1), -1e30)
    total = np.full((*logits.shape[:-1], 1), bug.denominator)
    context = np.zeros((*logits.shape[:-1], v.shape[-1]))
    for low in range(0, logits.shape[-1], 4):
        block = logits[..., low : low + 4]
        higher = np.maximum(top, block.max(axis=-1, keepdims=True))
        factor = exponentials(top, higher, profile.soft)
        e = exponentials(block, higher, profile.soft)
        total = round_to(total * factor, profile.sum)
        for j in range(e.shape[-1]):
            total = round_to(total + e[..., j, None], profile.sum)
        added = dot(round_to(e, profile.prob), v[..., low : low + 4, :], profile.acc)
        context = round_to(round_to(context * factor, profile.acc) + added, profile.acc)
        top = higher
    return round_to(context / total, profile.acc), None


Attend = Callable[[Array, Array, Profile, Bug], tuple[Array, Array | None]]


def sdpa(problem: Problem, profile: Profile, attend: Attend, bug: Bug) -> dict[str, Array]:
    context, weights = attend(logits_of(problem.query, problem.key, problem, profile, bug), problem.value, profile, bug)
    reply = {"output": stored(context, profile.store, profile)}
    return reply if weights is None else {**reply, "weights": round_to(weights, profile.store)}


def linear(x: Array, weight: Array, bias: Array, profile: Profile) -> Array:
    product = stored(dot(x, weight, profile.acc), profile.store, profile)
    return round_to(product + bias, profile.store)


def merged_heads(problem: Problem, profile: Profile, attend: Attend, bug: Bug) -> tuple[Array, Array | None]:
    """Return the stored contexts, concatenated over the heads, and the weights."""
    params, heads = problem.params, problem.num_heads
    q, k, v = (
        activated(linear(x, params["w" + n], params["b" + n], profile), problem)
        .reshape(*x.shape[:2], heads, -1)
        .swapaxes(1, 2)
        for n, x in (("q", problem.query), ("k", problem.key), ("v", problem.value))
    )
    context, weights = attend(logits_of(q, k, problem, profile, bug), v, profile, bug)
    return stored(context, profile.store, profile).swapaxes(1, 2).reshape(*problem.query.shape[:2], -1), weights


def activated(projected: Array, problem: Problem) -> Array:
    return projected if problem.activation is None else np.maximum(projected, 0.0)


def mha(problem: Problem, profile: Profile, attend: Attend, bug: Bug) -> dict[str, Array]:
    merged, weights = merged_heads(problem, profile, attend, bug)
    reply = {"output": linear(merged, problem.params["wo"], problem.params["bo"], profile)}
    if weights is None:
        return reply
    stored = round_to(weights, profile.store)
    return {**reply, "weights": stored, "weights_mean": round_to(stored.mean(axis=1), profile.store)}


PROGRAMS = {"sdpa": sdpa, "mha": mha}
PROFILES = {
    "float64": Profile.uniform("float64"),
    "float32": Profile.uniform("float32"),
    "float16 fused": Profile.fused("float16"),
    "bfloat16 fused": Profile.fused("bfloat16"),
    "float16 naive": Profile.naive("float16"),
    "bfloat16 naive": Profile.naive("bfloat16"),
    "bfloat16 fused, truncated": Profile.fused("bfloat16").but(score="bfloat16", truncated=True),
    "bfloat16 naive, truncated": Profile.naive("bfloat16").but(truncated=True),
}
FAMILIES = ("plain", "peaked", "large values", "alternating")
MASKS = ("none", "bool", "additive", "poisoned")
BATCH, HEADS, QUERIES, KEYS, DIM, WIDTH = 2, 3, 5, 11, 7, 13


def masks(rng: np.random.Generator, kind: str, dtype: str) -> tuple[MaskOperand, ...]:
    shape = (BATCH, HEADS, QUERIES, KEYS)
    if kind == "bool":
        allowed = rng.random(shape) < 0.6
        allowed[..., 3] = True
        return (MaskOperand("mask", ("attention",), "bool", allowed),)
    if kind == "dead rows":
        allowed = rng.random(shape) < 0.6
        allowed[0, :, 1] = allowed[1, 2, 3:] = False
        return (MaskOperand("mask", ("attention",), "bool", allowed),)
    if kind == "additive":
        bias = round_to(2.0 * rng.standard_normal(shape), dtype)
        bias[..., 5:7] = -np.inf
        return (MaskOperand("bias", ("additive",), "float", bias),)
    if kind == "poisoned":
        return (MaskOperand("mask", ("key_padding",), "bool", np.arange(KEYS)[None, None, None] < 8),)
    return ()


def poison(array: Array, kind: str, dtype: str) -> Array:
    """Make keys and values that no query attends huge, so that a leak would show."""
    if kind == "poisoned":
        array[..., 8:, :] *= 1e5 if dtype in ("float64", "float32") else 100.0
    return round_to(array, dtype)


def make(seed: int, operator: str, dtype: str, family: str = "plain", kind: str = "none") -> Problem:
    rng = np.random.default_rng(seed)
    width = HEADS * DIM if operator == "mha" else DIM
    lead = (BATCH,) if operator == "mha" else (BATCH, HEADS)
    q, k, v = (rng.standard_normal((*lead, length, width)) for length in (QUERIES, KEYS, KEYS))
    q = q * (6.0 if family == "peaked" else 1.0)
    v = 20.0 + 5.0 * v if family == "large values" else np.sign(v) if family == "alternating" else v
    params = {}
    if operator == "mha":
        for name, shape in (("q", (width, width)), ("k", (width, width)), ("v", (width, width)), ("o", (width, WIDTH))):
            params["w" + name] = round_to(rng.standard_normal(shape) * width**-0.5, dtype)
            params["b" + name] = round_to(rng.standard_normal(shape[1]), dtype)
    return Problem(
        operator=operator,
        dtype=dtype,
        num_heads=HEADS,
        num_kv_heads=HEADS,
        head_dim=DIM,
        value_dim=DIM,
        query=round_to(q, dtype),
        key=poison(k, kind, dtype),
        value=poison(v, kind, dtype),
        params=params,
        mask_operands=masks(rng, kind, dtype),
        outputs=("output", "weights") if operator == "sdpa" else ("output", "weights", "weights_mean"),
    )


def over(actual: Array, expected: Array, allowed: Array) -> float:
    """Return the largest error relative to what is allowed; any error where none is allowed gives infinity."""
    error = np.abs(actual - expected)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(error == 0.0, 0.0, error / allowed).max())


def rms(actual: Array, expected: Array, bound: Bound) -> float:
    known = bound.sigma**2 + bound.hard**2 / 3.0
    error = (actual - expected)[known > 0.0]
    return float(np.sqrt(np.mean(error**2 / known[known > 0.0])))


@dataclass(frozen=True)
class Measured:
    """For one output of one run: budget, largest error relative to the worst case, rms, and judged fraction."""

    budget: float
    worst: float
    rms: float
    judged: float


def measure(
    problem: Problem, profile: Profile, attend: Attend, bug: Bug = CORRECT, dialect: Dialect = CANONICAL
) -> dict[str, Measured]:
    answer = evaluate(problem, dialect, profile.score)
    bounds = bound_reply(answer, profile)
    actual = PROGRAMS[problem.operator](problem, profile, attend, bug)
    measured = {}
    for name, values in actual.items():
        expected, bound = answer.reply[name].values, bounds[name]
        seen = np.where(bound.judged, values, expected)
        measured[name] = Measured(
            budget=over(seen, expected, bound.tolerance),
            worst=over(seen, expected, bound.worst),
            rms=rms(seen, expected, bound),
            judged=float(bound.judged.mean()),
        )
    return measured


@pytest.mark.parametrize("attend", [naive, online])
@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("operator", PROGRAMS)
def test_a_correct_program_is_no_false_alarm_and_uses_a_sensible_part_of_its_budget(
    operator: str, name: str, attend: Attend
) -> None:
    profile = PROFILES[name]
    budgets = []
    for seed, family in enumerate(FAMILIES):
        for kind in MASKS:
            problem = make(seed, operator, name.split(maxsplit=1)[0], family, kind)
            for output, result in measure(problem, profile, attend).items():
                # a weight is rounded once, and the error reaches half a unit, its whole hard part
                assert result.budget <= (0.95 if output == "output" else 1.0), (family, kind, output)
                assert result.worst <= 1.0, (family, kind, output)
                assert result.judged == 1.0, (family, kind, output)
                assert result.rms <= 1.1, (family, kind, output)
                budgets.append(result.budget)
    assert max(budgets) > 0.1


def test_truncation_cuts_off_the_last_bits() -> None:
    """Truncation of a float32 number to bfloat16 clears its last 16 bits."""
    values = np.random.default_rng(3).standard_normal(5000).astype(np.float32)
    values[:3] = (1.0, -0.5, np.float32(2.0) - np.float32(2.0**-20))
    bits = (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    profile = PROFILES["bfloat16 naive, truncated"]
    np.testing.assert_array_equal(stored(values.astype(np.float64), "bfloat16", profile), bits)


def test_truncated_products_are_no_correct_rounding() -> None:
    """This is what the declaration is for: a program that truncates, judged as if it rounded, fails in some calls."""
    truncated, rounding = PROFILES["bfloat16 naive, truncated"], PROFILES["bfloat16 naive"]
    seen = []
    for seed in range(20):
        problem = make(seed, "mha", "bfloat16")
        answer = evaluate(problem, CANONICAL, "bfloat16")
        actual = mha(problem, truncated, naive, CORRECT)["output"]
        bound = bound_reply(answer, rounding)["output"]
        expected = answer.reply["output"].values
        seen.append(over(actual, expected, bound.tolerance) > 1.0 or rms(actual, expected, bound) > 1.25)
    assert any(seen)


# Each profile with one of the two algorithms in turn, where every combination would take long.
IN_TURN = list(zip(PROFILES, cycle([naive, online]), strict=False))


@pytest.mark.parametrize(("name", "attend"), IN_TURN)
@pytest.mark.parametrize("operator", PROGRAMS)
def test_a_capped_program_is_no_false_alarm_either(operator: str, name: str, attend: Attend) -> None:
    profile = PROFILES[name]
    budgets = []
    for seed, family in enumerate(FAMILIES):
        for kind in MASKS:
            for softcap in (0.75, 3.0, 50.0):
                problem = make(seed, operator, name.split(maxsplit=1)[0], family, kind).but(softcap=softcap)
                for output, result in measure(problem, profile, attend).items():
                    assert result.budget <= 1.0, (family, kind, softcap, output)
                    assert result.worst <= 1.0, (family, kind, softcap, output)
                    assert result.judged == 1.0, (family, kind, softcap, output)
                    assert result.rms <= 1.25, (family, kind, softcap, output)
                    budgets.append(result.budget)
    assert max(budgets) > 0.1


@pytest.mark.parametrize("gain", [64.0, 512.0])
@pytest.mark.parametrize("name", ["bfloat16 naive", "bfloat16 fused"])
@pytest.mark.parametrize("operator", PROGRAMS)
def test_logits_that_err_by_more_than_one_give_tolerances_that_say_so(operator: str, name: str, gain: float) -> None:
    """In bfloat16 a logit of 1000 is rounded by up to 2: another key may win, which a first-order bound misses."""
    profile = PROFILES[name]
    budgets = []
    for seed in (*range(30), 77, 81):
        problem = make(seed, operator, "bfloat16")
        loud = problem.but(query=problem.query * gain)
        for output, result in measure(loud, profile, naive).items():
            assert result.budget <= 1.0, (seed, output)
            assert result.worst <= 1.0, (seed, output)
            budgets.append(result.budget)
    assert max(budgets) > 0.1


ORDERS: dict[str, Sequence[int]] = {
    "natural": range(HEADS * DIM),
    "reversed": range(HEADS * DIM)[::-1],
    "last head first": [h * DIM + i for h in reversed(range(HEADS)) for i in range(DIM)],
    "heads in turn": [h * DIM + i for i in range(DIM) for h in range(HEADS)],
}


def head_by_head(merged: Array, weight: Array, acc: str) -> Array:
    """Return the sum of the products of each head, added from the last head to the first."""
    total = np.zeros((*merged.shape[:-1], weight.shape[-1]))
    for h in reversed(range(HEADS)):
        columns = slice(h * DIM, (h + 1) * DIM)
        total = round_to(total + dot(merged[..., columns], weight[columns], acc), acc)
    return total


def joined(merged: Array, problem: Problem, profile: Profile) -> Iterator[Array]:
    """Yield the output in every order of summation: projected if there is `wo`, then stored, then plus any residual."""
    sums = [merged]
    if (weight := problem.params.get("wo")) is not None:
        sums = [dot(merged, weight, profile.acc, order) for order in ORDERS.values()]
        sums.append(head_by_head(merged, weight, profile.acc))
    for total in sums:
        output = round_to(total, profile.store)
        output = round_to(output + problem.params.get("bo", 0.0), profile.store)
        yield round_to(output + problem.query, profile.store) if problem.residual else output


REPLACED: dict[str, dict[str, Any]] = {
    "heads": {},
    "relu": {"activation": "relu"},
    "residual": {"residual": True},
    "relu, residual": {"activation": "relu", "residual": True},
    "relu, residual, no output projection": {"activation": "relu", "residual": True},
}


def square(seed: int, dtype: str, family: str, kind: str, loud: float) -> Problem:
    """Return a problem with a query as wide as the output, times `loud`, and a query projection divided by `loud`."""
    problem, rng, width = make(seed, "mha", dtype, family, kind), np.random.default_rng(seed + 1), HEADS * DIM
    params = dict(problem.params) | {"wq": round_to(problem.params["wq"] / loud, dtype)}
    params |= {"wo": round_to(rng.standard_normal((width, width)) * width**-0.5, dtype)}
    params |= {"bo": round_to(rng.standard_normal(width), dtype)}
    return problem.but(query=round_to(problem.query * loud, dtype), params=params, outputs=("output",))


@pytest.mark.parametrize(("name", "attend"), IN_TURN)
@pytest.mark.parametrize("what", REPLACED)
def test_activation_and_residual_are_no_false_alarm_in_any_order_of_heads(what: str, name: str, attend: Attend) -> None:
    profile = PROFILES[name]
    budgets = []
    for (seed, family), kind, loud in product(enumerate(FAMILIES), ("none", "bool"), (1.0, 32.0)):
        problem = square(seed, name.split(maxsplit=1)[0], family, kind, loud).but(**REPLACED[what])
        if "no output projection" in what:
            problem = problem.but(params={n: each for n, each in problem.params.items() if n not in ("wo", "bo")})
        answer = evaluate(problem, {}, profile.score)
        expected, bound = answer.reply["output"].values, bound_reply(answer, profile)["output"]
        for actual in joined(merged_heads(problem, profile, attend, CORRECT)[0], problem, profile):
            budgets.append(over(actual, expected, bound.tolerance))
            assert over(actual, expected, bound.worst) <= 1.0, (family, kind, loud)
            assert rms(actual, expected, bound) <= 1.25, (family, kind, loud)
    assert 0.1 < max(budgets) <= 1.0


def test_a_sum_onto_the_residual_is_another_arithmetic() -> None:
    """Such a sum rounds each term at the size of the query. The declared order, store then add, has a smaller error."""
    profile = PROFILES["float32"]
    problem = square(0, "float32", "plain", "none", 32.0).but(residual=True)
    merged = merged_heads(problem, profile, naive, CORRECT)[0]
    started = round_to(problem.query + problem.params["bo"], "float32")
    actual = dot(merged, problem.params["wo"], "float32", onto=started)
    answer = evaluate(problem)
    bound = bound_reply(answer, profile)["output"]
    assert over(actual, answer.reply["output"].values, bound.tolerance) > 1.0


@pytest.mark.parametrize("fill", [-1e4, -1e9])
@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("operator", PROGRAMS)
def test_a_finite_fill_is_followed_into_fully_masked_rows(operator: str, name: str, fill: float) -> None:
    profile, dtype = PROFILES[name], name.split(maxsplit=1)[0]
    reached = float(round_to(np.asarray(max(fill, -largest(profile.score))), profile.score))
    dialect = {"mask_fill": "minus_1e4" if fill == -1e4 else "minus_1e9"}
    judged = []
    for seed, family in enumerate(FAMILIES):
        problem = make(seed, operator, dtype, family, "dead rows")
        for output, result in measure(problem, profile, naive, Bug(fill=reached), dialect).items():
            assert result.budget <= 1.0, (family, output)
            assert result.worst <= 1.0, (family, output)
            judged.append(result.judged)
    assert np.mean(judged) > 0.9


def caught(operator: str, profile: Profile, bug: Bug, output: str = "output", *, peaked: bool = False) -> float:
    """Return the fraction of 20 problems in which the error from `bug` exceeds the tolerance or an rms of 1.25."""
    family = "peaked" if peaked else "plain"
    seen = 0
    for seed in range(20):
        problem = make(100 + seed, operator, profile.store, family, "bool" if np.isfinite(bug.fill) else "none")
        result = measure(problem, profile, naive, bug)[output]
        seen += result.budget > 1.0 or result.rms > 1.25
    return seen / 20


FLOAT64, FLOAT32 = PROFILES["float64"], PROFILES["float32"]


@pytest.mark.parametrize(
    ("profile", "bug"),
    [
        (FLOAT64, Bug(scale=3e-13)),
        (FLOAT64, Bug(denominator=3e-13)),
        (FLOAT32, Bug(scale=1e-4)),
        (FLOAT32, Bug(denominator=3e-5)),
        (FLOAT32, Bug(products="tf32")),
        (FLOAT32, Bug(softmax="bfloat16")),
        (FLOAT32, Bug(swapped=True)),
        (FLOAT32, Bug(fill=-10.0)),
        (PROFILES["float16 fused"], Bug(scale=3e-2)),
        (PROFILES["float16 fused"], Bug(fill=-5.0)),
        (PROFILES["bfloat16 fused"], Bug(scale=1e-1, denominator=0.5)),
    ],
    ids=str,
)
def test_a_program_that_is_wrong_by_little_is_caught(profile: Profile, bug: Bug) -> None:
    assert caught("sdpa", profile, bug) >= 0.9


@pytest.mark.parametrize("fill", [-10.0, -15.0, -20.0, -50.0])
def test_a_finite_mask_always_shows_on_returned_weights(fill: float) -> None:
    assert caught("sdpa", FLOAT32, Bug(fill=fill), "weights") == 1.0


def test_a_logit_scale_that_is_off_shows_through_the_projections() -> None:
    assert caught("mha", FLOAT32, Bug(scale=3e-4)) >= 0.9


def test_what_is_too_small_to_be_seen_is_not_called_an_error() -> None:
    assert caught("sdpa", FLOAT32, Bug(scale=1e-8)) == 0.0
    assert caught("sdpa", PROFILES["bfloat16 naive"], Bug(scale=1e-4)) == 0.0


def test_a_wrong_declaration_is_caught() -> None:
    problem = make(1, "sdpa", "float16", "peaked")
    answer = evaluate(problem, {}, "float32")
    actual = sdpa(problem, PROFILES["float16 naive"], naive, CORRECT)["output"]
    budgets = [
        over(actual, answer.reply["output"].values, bound_reply(answer, PROFILES[name])["output"].tolerance)
        for name in ("float16 naive", "float16 fused")
    ]
    assert budgets[0] < 1.0 < budgets[1]


@pytest.mark.parametrize(("name", "wrong"), [("float64", 1e-12), ("float32", 3e-4), ("float16 fused", 0.1)])
def test_a_cap_that_is_off_shows(name: str, wrong: float) -> None:
    profile = PROFILES[name]
    seen = 0
    for seed in range(20):
        problem = make(100 + seed, "sdpa", profile.store, "peaked").but(softcap=3.0)
        result = measure(problem, profile, naive, Bug(cap=wrong))["output"]
        seen += result.budget > 1.0 or result.rms > 1.25
    assert seen >= 18


def test_peaked_rows_still_show_a_wrong_denominator() -> None:
    assert caught("sdpa", FLOAT32, Bug(denominator=3e-5), peaked=True) >= 0.9
