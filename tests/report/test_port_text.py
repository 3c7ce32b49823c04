"""What `conformance port` says if one side lacks something that another variant of the same adapter has."""

import pytest

from conformance import places
from conformance.diagnosis.behaviour_profile import BehaviourProfile
from conformance.engine.adapters import read_adapters, subjects_of
from conformance.report.port_differences import PortedSubject, port
from conformance.report.port_text import record
from conformance.report.probe_report import Pictured


def notes(here: str, there: str) -> list[str]:
    """Return the notes on what only one of two subjects has, if no behaviour of either was probed."""
    subjects = {each.name: each for each in subjects_of(read_adapters([places.adapters()]))}
    pictured = (Pictured(name, BehaviourProfile((), ()), frozenset(), (), {}, 0) for name in (here, there))
    sides = [PortedSubject(subjects[each.name], each, ()) for each in pictured]
    return list(record(port(*sides), {})["notes"])


@pytest.mark.parametrize("turned", [False, True])
def test_what_another_variant_has_is_not_only_on_one_side(turned: bool) -> None:  # noqa: FBT001 - a parameter of the test
    pair = ("torch.mha[eval]", "keras.mha[jax]")
    said = notes(*(reversed(pair) if turned else pair))
    assert "torch.mha[eval] lacks what keras.mha[jax] and torch.mha[train] have: outputs gradients" in said
    (only,) = [line for line in said if line.startswith("Only keras.mha[jax] has: ")]
    assert "gradients" not in only
    assert "value_dim" in only


def test_what_no_variant_has_is_only_on_one_side() -> None:
    said = notes("torch.mha[train]", "keras.mha[jax]")
    assert not any("gradients" in line for line in said)
    assert any(line.startswith("Only torch.mha[train] has: ") and "weights_mean" in line for line in said)
