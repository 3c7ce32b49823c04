"""Exit codes and their precedence; an unknown verdict is not green."""

from typing import Any

import pytest

from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.gate.decision import decide
from conformance.verdicts.verdict import GRAVITY, GREEN, is_green


def judged(verdict: str, **fields: Any) -> JudgedCell:
    return JudgedCell.of(LoggedCell.model_validate({"case": "a/b", "subject": "s", "verdict": verdict, **fields}))


def code(*cells: JudgedCell, incomplete: tuple[str, ...] = (), problems: tuple[str, ...] = (), **how: Any) -> int:
    return decide(cells, incomplete, problems, {}, **how).exit_code


def test_green_is_listed_and_everything_else_is_red() -> None:
    assert [verdict for verdict in GRAVITY if judged(verdict).green] == list(GREEN)
    assert not is_green("perhaps", known=False, uncalibrated=False)


def test_an_uncalibrated_cell_is_green_and_another_inconclusive_one_is_not() -> None:
    assert judged("inconclusive", uncalibrated=True).green
    assert not judged("inconclusive").green
    assert not judged("fail", uncalibrated=True).green


def test_a_known_deviation_is_green_and_keeps_its_verdict() -> None:
    decision = decide([judged("fail", known={"reason": "r"})], (), (), {})
    assert decision.conforms
    assert decision.counts == {"fail": 1}


@pytest.mark.parametrize(
    ("cells", "how", "expected"),
    [
        (["pass", "dialect", "unsupported"], {}, 0),
        (["pass", "fail"], {}, 1),
        (["pass", "error"], {}, 1),
        (["pass"], {"problems": ("an entry is dead",)}, 1),
        (["unsupported"], {}, 5),
        ([], {}, 5),
        (["pass"], {"incomplete": ("keras did not start",)}, 7),
        (["fail"], {"incomplete": ("keras did not start",)}, 7),
        ([], {"incomplete": ("keras did not start",)}, 7),
        (["fail"], {"incomplete": ("keras did not start",), "interrupted": True}, 2),
        (["unsupported"], {"problems": ("an entry is dead",)}, 1),
        (["fail"], {"incomplete": ("cells were not run",), "stopped": True}, 1),
    ],
)
def test_precedence(cells: list[str], how: dict[str, Any], expected: int) -> None:
    assert code(*(judged(verdict) for verdict in cells), **how) == expected


def test_what_is_rejected_is_counted_in_a_sentence() -> None:
    decision = decide([judged("fail"), judged("pass"), judged("crash")], (), ("known.yaml:3: dead",), {})
    assert decision.rejected == (("a/b", "s"), ("a/b", "s"))
    assert decision.problems == ("2 verdicts are rejected", "known.yaml:3: dead")
