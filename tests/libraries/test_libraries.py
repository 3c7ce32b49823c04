"""Findings are read from what `check` prints, and any that is missing, new or different is reported."""

from typing import Any

import pytest

from .libraries import TABLE, findings, packages, rows, wrong

SAID = """\
mine.py:attend does not conform: 1 cause, and 1 verdict without a known cause, in 104 calls judged.
1. it returns float32 (13 verdicts)
   workaround: cast the result
2. no cause found (more than rounding): output: 512 of 512 elements beyond the bound (1 verdict)
   rerun: conformance check mine.py:attend -k shapes/kernel_sized/one_query
called with JAX arrays
"""
ROW: dict[str, Any] = {
    "judged": 90,
    "says": ["it returns float32", "no cause found .*1 verdict.*shapes/kernel_sized/one_query"],
}


def test_a_finding_has_its_lines() -> None:
    first, second = findings(SAID)
    assert first == "it returns float32 (13 verdicts) workaround: cast the result"
    assert second.endswith("-k shapes/kernel_sized/one_query")


def test_what_is_as_expected_is_not_reported() -> None:
    assert wrong(ROW, SAID) == ""


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"says": []}, "expected []"),
        ({"says": ROW["says"][:1]}, "expected ['it returns float32'], found ['it returns float32 (13"),
        ({"says": ["it returns float64", ROW["says"][1]]}, "expected ['it returns float64'"),
        ({"judged": 105}, "fewer than 105 calls were judged"),
    ],
)
def test_any_difference_is_reported(changed: dict[str, Any], said: str) -> None:
    assert wrong({**ROW, **changed}, SAID).startswith(said)


def test_a_check_that_stopped_is_reported() -> None:
    assert wrong({**ROW, "says": []}, "conformance: attend cannot be imported").startswith("fewer than 90 calls")


def test_every_row_is_complete_and_says_what_to_install() -> None:
    found = rows(())
    assert len({row["id"] for row in found}) == len(found), TABLE
    for row in found:
        compile(row["code"], row["id"], "exec")
        assert row["judged"] > 0
        assert bool(row.get("why")) == bool(row["says"]), row["id"]
    whole, *alone = packages(found)
    assert "ring-attention-pytorch==" in whole
    assert alone == ["--no-deps openai-whisper==20250625"]
