"""A sample of what `nox -s mutation` measures, and tests that the measurement itself can fail."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conformance.cli.main import main as conformance
from conformance.deviations.catalogue import TABLE, find
from conformance.diagnosis.coarser_arithmetic import ARITHMETIC
from conformance.diagnosis.conditions import Condition, always
from conformance.report import load_run

from .bugs.pieces import Array, attend
from .bugs_list import bugs
from .effects import Effects, every_case
from .leaking import function_leaks, leaks
from .mutants import Choice, Lied, Mutant, asked_of
from .mutation_session import judged_bug, judged_mutant, row_of, run_mutant
from .scoring import Named, Option, Said, outcome, said_of, score

ARITHMETIC_NAMES = {each.name for each in ARITHMETIC}
HALF = Condition(dtype=["float16"])
CASES = (
    "shapes/cross_attention/three_tensors[operator=sdpa]",
    "shapes/self_attention/one_tensor[operator=mha]",
    "masks/key_padding/trailing[operator=sdpa]",
    "masks/attention_2d/holes[operator=mha]",
    "causal/square/one_tensor[operator=sdpa]",
    "numerics/half/distribution[operator=sdpa,dtype=float16,inputs.distribution=uniform]",
)


def option(key: str, when: Condition | None = None) -> Option:
    return Option(frozenset({key}), when or always())


def said(*named: Named, conforms: bool = False, others: tuple[str, ...] = ()) -> Said:
    return Said(conforms, named, others)


NONE, SQUARED = option("scale=none"), option("scale=squared")


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (said(conforms=True), "survived"),
        (said(others=("precision",)), "unexplained"),
        (said(Named((NONE,), 3)), "right"),
        (said(Named((SQUARED, NONE), 3)), "tie"),
        (said(Named((SQUARED,), 3)), "wrong"),
        (said(Named((option("scale=none", HALF),), 3)), "wrong"),
        (said(Named((NONE,), 3), Named((SQUARED,), 1)), "wrong"),
    ],
)
def test_what_is_said_is_held_against_what_is_right(told: Said, expected: str) -> None:
    assert outcome(told, [NONE]) == expected


def test_a_rejection_can_be_right_without_a_cause() -> None:
    assert outcome(said(others=("nondeterministic",)), (), ("nondeterministic",)) == "right"
    assert outcome(said(others=("precision",)), (), ("nondeterministic",)) == "unexplained"


def test_the_bar_is_met_or_says_what_is_below_it() -> None:
    assert score(["right"] * 88 + ["tie"] * 2 + ["unexplained"] * 8 + ["wrong"] * 2).faults() == []
    assert score(["right"] * 9 + ["survived"]).faults() == ["1 of 10 survived; none may"]
    low = score(["right"] * 8 + ["unexplained"] * 2).faults()
    assert low == ["8 of 10 named right or in a tie: 80%; at least 90 % must be"]
    assert score(["right"] * 97 + ["wrong"] * 3).faults() == ["3 of 100 named wrong; at most 2 % may be"]


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Effects]:
    """Return a function from cases to the effects of causes on their calls, made with an adapter that does not lie."""

    @cache
    def made(cases: tuple[str, ...]) -> Effects:
        folder = tmp_path_factory.mktemp("effects")
        honest = Mutant("identity_1", "identity", (), cases)
        return Effects(run_mutant(folder, honest), honest.path(folder))

    return made


EffectsOf = Callable[[tuple[str, ...]], Effects]
CAUSAL = ("causal/square/one_tensor[operator=sdpa]", "shapes/cross_attention/three_tensors[operator=sdpa]")
# A case that passes its causal mask in another argument.
AT_THE_END = "causal/rectangular/more_keys[operator=sdpa,masks.0.offset=end]"
FLAG, CAUSAL_MASK = option("use[is_causal]=ignored"), option("causal_mask=ignored")


def test_two_names_with_one_effect_on_every_call_are_alike(effects: EffectsOf) -> None:
    alike = effects(CAUSAL).alike
    assert alike(CAUSAL_MASK, FLAG, dense=False)
    assert alike(option("causal_mask=ignored", Condition(slots=["is_causal"])), FLAG, dense=False)


def test_a_name_that_differs_in_one_call_is_not_alike(effects: EffectsOf) -> None:
    alike = effects((*CAUSAL, AT_THE_END)).alike
    assert not alike(CAUSAL_MASK, FLAG, dense=False)
    assert alike(option("causal_mask=ignored", Condition(slots=["is_causal"])), FLAG, dense=False)
    assert not alike(FLAG, CAUSAL_MASK, dense=False)


def test_a_name_that_no_call_shows_is_not_alike(effects: EffectsOf) -> None:
    alike = effects(CAUSAL).alike
    assert not alike(option("use[window]=ignored"), option("use[bias]=ignored"), dense=False)
    assert not alike(option("use[window]=ignored"), FLAG, dense=False)


def test_a_number_that_the_rounding_of_the_calls_hides_is_alike_and_another_is_not(effects: EffectsOf) -> None:
    alike = effects(CAUSAL).alike
    assert {call.facts.dtype for call in effects(CAUSAL).calls[False]} == {"float32"}
    assert alike(option("scale=times_1.100000001"), option("scale=times_1.1"), dense=False)
    assert not alike(option("scale=times_1.101"), option("scale=times_1.1"), dense=False)
    exact = "numerics/float64/distribution[operator=sdpa,inputs.distribution=bell]"
    assert not effects((*CAUSAL, exact)).alike(
        option("scale=times_1.100000001"), option("scale=times_1.1"), dense=False
    )


def test_coarser_arithmetic_is_only_like_itself(effects: EffectsOf) -> None:
    alike = effects(CASES).alike
    coarse, other = (option(each.name) for each in ARITHMETIC[:2])
    assert alike(coarse, coarse, dense=False)
    assert not alike(other, coarse, dense=False)
    assert not alike(NONE, coarse, dense=False)
    assert not alike(Option(coarse.keys, HALF), coarse, dense=False)


def test_a_condition_is_right_if_it_holds_wherever_the_lie_shows(effects: EffectsOf) -> None:
    alike = effects(CASES).alike
    half = option("scale=none", HALF)
    assert alike(half, half, dense=False)
    assert alike(
        option("scale=none", Condition(sizes={"seq_len_q": 5}, dtype=["float16", "bfloat16"])), half, dense=False
    )
    assert not alike(NONE, half, dense=False)
    assert not alike(option("scale=squared", HALF), half, dense=False)


def test_a_condition_that_always_holds_for_a_subject_need_not_be_told_of_it(effects: EffectsOf) -> None:
    """If all masks are in one argument, every judged call has a mask."""
    assert all(effects(CASES).calls.values())
    alike = effects(CASES).alike
    masked = option("scale=none", Condition(masks=True))
    assert alike(NONE, masked, dense=True)
    assert not alike(NONE, masked, dense=False)


@pytest.mark.parametrize(
    "lie", ["scale=none", "use[mask]=ignored", "head_split=untransposed", "polarity[key_padding_mask]=ignore"]
)
def test_a_lie_is_killed_and_named(lie: str) -> None:
    row = judged_mutant(Mutant("single_1", "single", (Lied(lie, always()),), CASES))
    assert row.outcome in ("right", "tie"), row.said


def test_a_lie_that_is_told_in_half_precision_alone_is_killed() -> None:
    row = judged_mutant(Mutant("guarded_1", "guarded", (Lied("scale=none", HALF),), CASES))
    assert row.outcome in ("right", "tie"), row.said


def test_who_does_not_lie_survives_every_case_in_every_dtype(tmp_path: Path) -> None:
    honest = Mutant("identity_1", "identity", (), ())
    run = run_mutant(tmp_path, honest)
    assert said_of(run) == Said(conforms=True, named=(), others=())
    assert row_of(honest, run).outcome == "right"
    assert len(run.cells) > 400


def test_a_lie_that_nothing_reaches_is_reported_as_one_that_survived() -> None:
    mutant = Mutant("single_2", "single", (Lied("use[window]=ignored", always()),), CASES)
    assert judged_mutant(mutant).outcome == "survived"


def test_honest_numpy_gets_no_finding(tmp_path: Path) -> None:
    chosen = ("-a", "numpy.*", "-k", "shapes/cross*", "-k", "masks/attention_2d/*", "-k", "masks/key_padding/*")
    code = conformance(["run", "-j", "1", *chosen, "--out", str(tmp_path / "out")])
    run = load_run(tmp_path / "out")
    assert code == 0
    assert said_of(run) == Said(conforms=True, named=(), others=())
    log = (tmp_path / "out" / "run.jsonl").read_text(encoding="utf-8").splitlines()
    assert not [record for line in log if (record := json.loads(line))["type"] == "diagnosis"]


def test_mutants_are_one_for_every_deviation_and_the_same_each_time(tmp_path: Path) -> None:
    asked = asked_of([every_case()[case] for case in CASES], tmp_path)
    one, other = (Choice(asked) for _ in range(2))
    singles = list(one.singles())
    assert {row.key for row in TABLE} - {lie.key for mutant in singles for lie in mutant.lies} == set()
    assert singles == list(other.singles())
    assert list(one.pairs(5)) == list(other.pairs(5))


def test_bugs_are_many_and_say_what_is_right() -> None:
    found = bugs()
    assert len(found) >= 90
    assert len({bug.name for bug in found}) == len(found)
    for bug in found:
        assert bug.expected or bug.kinds, bug.name
        for expected in bug.expected:
            for key in expected.keys:
                decision, _, name = key.rpartition("=")
                assert key in ARITHMETIC_NAMES or find(decision, name)


def test_a_bug_is_killed_and_named() -> None:
    (bug,) = (each for each in bugs() if each.name == "sdpa:scale_missing")
    assert judged_bug(bug).outcome == "right"


def test_a_bug_that_check_refuses_is_unexplained_and_ends_nothing() -> None:
    (bug,) = (each for each in bugs() if each.name == "sdpa:output_not_transposed")
    row = judged_bug(bug)
    assert row.outcome == "unexplained"
    assert "that is (batch, seq_len_q, num_heads, value_dim)" in row.said


def test_what_leaks_is_looked_at() -> None:
    def isolated(query: Array, key: Array, value: Array, mask: Array | None = None) -> Array:
        seen = True if mask is None else mask.swapaxes(-1, -2)
        return attend(query, key, np.where(seen, value, 0), mask)

    assert function_leaks(attend)
    assert not function_leaks(isolated)
    assert not function_leaks(lambda query, _key, _value, mask=None: query if mask is None else query * np.nan)
    by_name = {bug.name: bug for bug in bugs()}
    assert leaks(by_name["sdpa:scale_missing"])
    assert leaks(by_name["mha:heads_reshaped"])
