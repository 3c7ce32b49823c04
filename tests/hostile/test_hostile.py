"""A sample of the behaviours and attacks of `nox -s hostile`, and tests that the session can fail."""

from pathlib import Path

import pytest

from tests.hostile.attacks import ATTACKS, Attack
from tests.hostile.behaviours import BEHAVIOURS, Behaviour, adapter_text

from . import hostile
from .hostile import attacked, main

SAMPLE = (
    *("exits", "prints_on_the_protocol", "raises_half_a_character", "returns_masked", "declares_numbers"),
    *("evidence_has_half_a_character", "leaves_an_orphan_without_environment", "import_exits"),
    *("missing_output", "no_declaration", "seconds_of_nan", "floods_for_ever", "hello_of_odd_evidence"),
)


@pytest.mark.parametrize("name", SAMPLE)
def test_it_costs_its_one_call(name: str, tmp_path: Path) -> None:
    assert attacked(name, tmp_path).wrong == ()


def test_there_are_as_many_as_promised_and_each_is_a_program() -> None:
    assert len(BEHAVIOURS) >= 80
    assert len(ATTACKS) >= 50
    assert not set(BEHAVIOURS) & set(ATTACKS)
    for name in BEHAVIOURS:
        compile(adapter_text(name), name, "exec")
    for name, attack in ATTACKS.items():
        compile(attack.code, name, "exec")


def test_a_cost_that_is_too_high_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(BEHAVIOURS, "exits", Behaviour("call", "os._exit(3)", "pass"))
    assert main(["--only", "exits"]) == 1
    said = capsys.readouterr().out
    assert "exits: the attacked call is 'crash'; it may be 'pass': the worker exited with code 3" in said
    assert "1 hostile adapters, 0 protocol attacks; exit codes {1: 1}" in said
    assert "1 cost more than their call: exits" in said


def test_a_process_that_is_left_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "_left", lambda _: iter(["sleep 3600"]))
    monkeypatch.setitem(ATTACKS, "honest", Attack("bye", "send('bye', fields, {})", "pass"))
    assert attacked("honest", tmp_path).wrong == ("processes are left: ['sleep 3600']",)
