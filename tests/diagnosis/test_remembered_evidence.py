"""Subjects with the same calls and the same replies are searched once; any difference is searched again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.diagnosis.diagnosis import diagnose
from conformance.diagnosis.evidence import Evidence, Shared
from conformance.diagnosis.suspect import Suspect

from .judged_cells import cell, padded, subject

LIE = {"polarity[padding]": "ignore"}


def counted(function: Callable[..., Any], asked: list[str]) -> Callable[..., Any]:
    """The same function; each call appends its name to `asked`."""

    def called(*given: Any) -> Any:
        asked.append(function.__name__)
        return function(*given)

    return called


def test_a_second_subject_with_the_same_replies_is_worked_out_at_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    for kind, name in ((Evidence, "_reply"), (Suspect, "budget")):
        monkeypatch.setattr(kind, name, counted(getattr(kind, name), asked))
    shared: Shared = {}
    cells = [
        replace(each, found=())
        for each in subject(lambda asked: LIE if asked.mask_operands and asked.logits_shape[0] > 1 else {})
    ]
    first = diagnose([each.sharing(shared) for each in cells])
    assert {*asked} == {"_reply", "budget"}
    asked.clear()
    second = diagnose([each.sharing(shared) for each in cells])
    assert not asked
    assert [each.candidate for each in first.causes] == [each.candidate for each in second.causes]
    assert diagnose(cells).causes
    assert asked  # cells without shared caches are computed again


def keys(one: Evidence, other: Evidence) -> tuple[bool, bool]:
    """Whether two cells share the cache of the call, and the cache of the reply."""
    shared: Shared = {}
    here, there = one.sharing(shared), other.sharing(shared)
    return here.of_call is there.of_call, here.of_reply is there.of_reply


def test_nan_that_a_mistake_brings_to_another_place_is_no_evidence_against_it() -> None:
    """Key and value are swapped, so NaN in a masked key is NaN in a masked value; the reply is NaN in both cases."""
    asked = padded(1, 5, 7)
    key = asked.key.copy()
    key[:, :, -1] = np.nan  # in the padding
    poisoned, swapped = asked.but(key=key), (("arguments", "key_value"),)
    observed = {"nonfinite_key": "leaks"}
    leaking = cell(poisoned, observed, observed)
    assert np.isnan(leaking.declared.reply["output"].values).all()
    assert not leaking.contradicts(swapped)
    assert cell(asked, {}).contradicts(swapped)
    assert cell(poisoned, {}).contradicts(swapped), "no NaN reaches this output"


def test_what_is_shared_is_told_by_every_bit_and_every_argument() -> None:
    one = cell(padded(2, 5, 7), LIE)
    assert one.actual is not None
    assert keys(one, replace(one)) == (True, True)
    (group,) = one.problem.mask_operands
    other_slot = one.problem.but(mask_operands=(replace(group, slot="mask"),))
    other_values = one.problem.but(mask_operands=(replace(group, values=~group.values),))
    for changed in (other_slot, other_values):
        assert keys(one, replace(one, problem=changed)) == (False, False)
    assert keys(one, replace(one, declared=replace(one.declared))) == (False, False)
    output = one.actual["output"]
    bits = output.bits.copy()
    bits.flat[0] = np.nextafter(bits.flat[0], np.float32(9.0))
    assert keys(one, replace(one, actual={"output": replace(output, bits=bits)})) == (True, False)
