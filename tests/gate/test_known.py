"""Known deviations: only failures within bound and delta are accepted, and a dead or too wide entry is a problem."""

import datetime as dt
from typing import Any

import numpy as np
import pytest

from conformance.bridge.contract import Facts, MaskFacts
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Dialect
from conformance.engine.environments import Machine
from conformance.engine.judging import Judged
from conformance.engine.logged_cell import LoggedCell, LoggedKnown, Reviewed
from conformance.gate.known import Known
from conformance.gate.known_file import KnownEntry
from conformance.spec.problem import MaskOperand, Problem
from conformance.spec.rounding import round_to, to_tensor

from ..problems import DIM, KEYS, QUERIES, judge, random_sdpa

FLOAT32 = Profile.uniform("float32")
TODAY = dt.date(2026, 11, 20)
NAN = {"fully_masked_row": "nan"}


def problem(*, dead: bool) -> Problem:
    allowed = np.ones((1, 1, QUERIES, KEYS), dtype=bool)
    allowed[0, 0, 1, 2:] = False
    allowed[0, 0, 2] = not dead
    group = MaskOperand("attn_mask", ("attention",), "bool", allowed)
    return random_sdpa(7, group, value_dim=DIM)


def cell(behaviour: Dialect, *, dead: bool = True, **fields: Any) -> Judged:
    """Return the judged cell of an implementation with this behaviour that declares nothing."""
    asked = problem(dead=dead)
    answer = evaluate(asked, behaviour, "float32").reply["output"]
    actual = {"output": to_tensor(round_to(answer.values, "float32"), "float32")}
    found = judge(asked, {}, FLOAT32, actual)
    masks = (MaskFacts("attn_mask", ("attention",), "bool"),)
    facts = Facts("sdpa", "float32", "cpu", "", ("output",), masks=masks, sizes=asked.sizes())
    settings: dict[str, Any] = {"case": "a/b", "subject": "torch.mha[eval]", "versions": {"torch": "2.13.0+cpu"}}
    settings |= {"message": found.reason, "verdict": found.verdict, "actual": actual, **fields}
    return Judged(facts=facts, problem=asked, declared=found.expectation, profile=FLOAT32, judgement=found, **settings)


def entry(**fields: Any) -> KnownEntry:
    settings: dict[str, Any] = {
        "subject": "torch.mha*",
        "delta": {"decisions": NAN},
        "reason": "documented nowhere, seen today",
        "link": "https://example.org/1",
    }
    return KnownEntry.model_validate(settings | fields)


def known(*entries: KnownEntry) -> Known:
    return Known([(each, f"known.yaml:{line}") for line, each in enumerate(entries, 3)], TODAY)


def accepts(listed: Known, judged: Judged) -> bool:
    """Return whether an entry accepts the cell."""
    return listed.review(judged).known is not None


def test_a_failure_within_bound_and_delta_is_accepted_with_its_reason() -> None:
    listed = known(entry())
    assert listed.review(cell(NAN)).known == LoggedKnown(
        reason="documented nowhere, seen today",
        link="https://example.org/1",
        entry="known.yaml:3",
        decisions=("fully_masked_row=nan",),
    )
    assert listed.problems(whole=True) == []
    assert listed.record(whole=True)["live"] == 1


def test_another_failure_of_the_same_call_is_not_accepted() -> None:
    listed = known(entry())
    assert not accepts(listed, cell({"fully_masked_row": "uniform"}))
    assert listed.problems(whole=True) == [
        "known.yaml:3: dead: it covers 1 cell, and none fails in this way: remove the entry"
    ]


def test_a_cell_in_which_the_delta_changes_nothing_is_not_covered() -> None:
    listed = known(entry())
    assert listed.review(cell({}, dead=False)) == Reviewed()
    assert listed.problems(whole=True) == []
    assert len(listed.record(whole=True)["not_reached"]) == 1


def test_a_delta_under_which_no_bound_is_derived_covers_nothing() -> None:
    listed = known(entry(delta={"decisions": {"softmax_axis": "queries"}}))
    assert listed.review(cell({"softmax_axis": "queries"})) == Reviewed()


def test_a_covered_cell_that_conforms_makes_the_entry_too_wide() -> None:
    listed = known(entry())
    listed.review(cell(NAN))
    listed.review(cell({}))
    assert listed.problems(whole=True) == [
        (
            "known.yaml:3: too wide: 1 cell conforms without it, first a/b on torch.mha[eval]: "
            "narrow `when`, `cases` or `versions`"
        )
    ]


def test_a_fixed_entry_prints_its_removal_and_is_dead() -> None:
    listed = known(entry())
    listed.review(cell({}))
    assert listed.problems(whole=True) == [
        (
            "known.yaml:3: fixed here: no cell that it covers fails (1 cell conforms without it, "
            "first a/b on torch.mha[eval]): remove the entry, or state under `machine` or `versions` where it applies"
        )
    ]
    assert [len(listed.record(whole=True)[name]) for name in ("dead", "too_wide")] == [1, 0]
    assert [len(listed.record(whole=False)[name]) for name in ("dead", "too_wide")] == [0, 1]


def test_a_fixed_entry_is_dead_only_in_a_whole_run() -> None:
    listed = known(entry())
    listed.review(cell({"scale": "none"}))
    assert listed.problems(whole=False) == []
    assert "remove the entry" in listed.problems(whole=True)[0]


def test_an_expired_entry_accepts_nothing_and_says_so() -> None:
    listed = known(entry(expires=dt.date(2026, 11, 19)))
    assert not accepts(listed, cell(NAN))
    assert listed.problems(whole=True) == [
        "known.yaml:3: expired on 2026-11-19: fix the deviation, or extend the date and give a reason"
    ]
    assert accepts(known(entry(expires=dt.date(2026, 11, 20))), cell(NAN))


@pytest.mark.parametrize(
    ("fields", "applies"),
    [
        ({"subject": "torch.mha[eval]"}, True),
        ({"subject": "torch.mha[train]"}, False),
        ({"cases": "a/*"}, True),
        ({"cases": "b/*"}, False),
        ({"versions": {"torch": ">=2.13,<2.14"}}, True),
        ({"versions": {"torch": ">=2.14"}}, False),
        ({"versions": {"keras": ">=3"}}, False),
        ({"platform": "Plan9-*"}, False),
        ({"when": {"operator": "sdpa", "dtype": ["float32"], "slots": ["attn_mask"]}}, True),
        ({"when": {"operator": "mha"}}, False),
        ({"when": {"dtype": ["float16"]}}, False),
        ({"when": {"elements": {"attn_mask": "float"}}}, False),
        ({"when": {"elements": {"attn_mask": "bool"}}}, True),
        ({"when": {"kinds": ["causal"]}}, False),
        ({"when": {"fully_masked_row": True}}, True),
        ({"when": {"fully_masked_row": False}}, False),
        ({"when": {"without_outputs": ["weights"]}}, True),
        ({"when": {"outputs": ["weights"]}}, False),
        ({"when": {"without_requirements": ["past"]}}, True),
        ({"when": {"alias": ["qkv"]}}, False),
        ({"when": {"masks": False}}, False),
        ({"when": {"sizes": {"head_dim": 11}, "sizes_differ": [["seq_len_q", "seq_len_k"]]}}, True),
        ({"when": {"sizes_equal": [["seq_len_q", "seq_len_k"]]}}, False),
        ({"when": {"sizes_less": [["seq_len_q", "seq_len_k"]]}}, True),
        ({"when": {"sizes_less": [["seq_len_k", "seq_len_q"]]}}, False),
        ({"when": {"sizes_less": [["seq_len_q", "kdim"]]}}, False),
        ({"when": {"sizes_above": {"head_dim": 10}, "sizes_up_to": {"head_dim": 11}}}, True),
        ({"when": {"sizes_above": {"head_dim": 11}}}, False),
        ({"when": {"sizes_up_to": {"head_dim": 10}}}, False),
        ({"when": {"sizes_up_to": {"kdim": 10}}}, False),
        ({"when": {"sizes_multiple": {"seq_len_k": 7}, "sizes_not_multiple": {"seq_len_q": 8}}}, True),
        ({"when": {"sizes_multiple": {"seq_len_k": 8}}}, False),
        ({"when": {"sizes_not_multiple": {"seq_len_k": 7}}}, False),
        ({"when": {"without_kinds": ["causal"], "scaled": False}}, True),
        ({"when": {"without_kinds": ["attention"]}}, False),
        ({"when": {"scaled": True}}, False),
        ({"when": {"verbatim": True}}, False),
        ({"when": {"without_slots": ["attn_mask"]}}, False),
    ],
)
def test_every_condition_can_hold_and_fail(fields: dict[str, Any], applies: bool) -> None:  # noqa: FBT001 - a column
    assert accepts(known(entry(**fields)), cell(NAN)) is applies


def test_errors_are_accepted_by_case_and_message() -> None:
    listed = known(entry(delta=None, accept={"verdict": "error", "message": "cannot reshape .* size 24"}))
    crashed = cell(NAN, verdict="error", message="TypeError: cannot reshape array of size 24 into shape")
    assert accepts(listed, crashed)
    other = cell(NAN, verdict="error", message="ValueError: something else")
    assert not accepts(listed, other)
    assert not accepts(listed, cell(NAN, verdict="crash", message="cannot reshape of size 24"))


def test_what_a_resumed_run_says_is_counted_again() -> None:
    first = known(entry())
    covered_by = first.review(cell(NAN)).covered_by
    second = known(entry())
    second.restore(LoggedCell(case="a/b", subject="torch.mha[eval]", verdict="fail", covered_by=covered_by))
    assert second.record(whole=True) == first.record(whole=True)


def test_a_profile_delta_accepts_what_a_wider_arithmetic_explains() -> None:
    asked = problem(dead=False)
    exact = evaluate(asked).reply["output"].values
    coarse = {"output": Tensor.of((exact * (1 + 3e-4)).astype(np.float32))}
    found = judge(asked, {}, FLOAT32, coarse)
    base = cell({}, dead=False)
    failing = Judged(
        case="a/b",
        subject="torch.mha[eval]",
        versions={},
        facts=base.facts,
        problem=asked,
        verdict=found.verdict,
        declared=found.expectation,
        profile=FLOAT32,
        actual=coarse,
    )
    assert failing.verdict == "fail"
    assert accepts(known(entry(delta={"profile": {"mm": "tf32"}})), failing)
    assert not accepts(known(entry(delta={"profile": {"scale": "float32"}})), failing)


MACHINE = Machine(("avx2", "fma"), {"tensorflow": "Eigen"}, {"OMP_NUM_THREADS": "1", "TF_ENABLE_ONEDNN_OPTS": None})


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ({}, True),
        ({"cpu": ["avx2"]}, True),
        ({"cpu": ["avx2", "avx512f"]}, False),
        ({"without_cpu": ["avx512f"]}, True),
        ({"without_cpu": ["fma"]}, False),
        ({"libraries": {"tensorflow": "Eigen"}}, True),
        ({"libraries": {"tensorflow": "oneDNN"}}, False),
        ({"libraries": {"torch": "MKL"}}, False),
        ({"environment": {"TF_ENABLE_ONEDNN_OPTS": None}}, True),
        ({"environment": {"TF_ENABLE_ONEDNN_OPTS": "0"}}, False),
        ({"environment": {"XLA_FLAGS": None}}, False),
    ],
)
def test_an_entry_may_depend_on_the_machine(condition: dict[str, Any], *, holds: bool) -> None:
    listed = known(entry(machine=condition))
    assert accepts(listed, cell(NAN, machine=MACHINE)) is holds


def test_where_the_machine_is_another_nothing_is_called_fixed() -> None:
    listed = known(entry(machine={"libraries": {"tensorflow": "oneDNN"}}))
    listed.review(cell({}, machine=MACHINE))
    assert listed.problems(whole=True) == []
    assert listed.record(whole=True)["not_reached"]


def test_of_a_cpu_that_is_not_known_no_condition_holds() -> None:
    for condition in ({"cpu": ["avx2"]}, {"without_cpu": ["avx2"]}):
        listed = known(entry(machine=condition))
        assert not accepts(listed, cell(NAN, machine=Machine()))


def test_an_instruction_set_that_is_not_recorded_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown instruction set 'avx2048'; did you mean"):
        entry(machine={"cpu": ["avx2048"]})
