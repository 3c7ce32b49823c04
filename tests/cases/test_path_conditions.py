"""docs/path-conditions.md: every condition has a case, which meets it."""

import operator
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.materialise import materialise

PROJECT = Path(__file__).parents[2]
CASES = {case.id: case for case in load([PROJECT / "cases"], PROJECT / "cases")}
ROW = re.compile(r"^\| (?P<condition>[^:|]+): [^|]+ \| `(?P<case>[^`]+)` \| .+ \|$", re.MULTILINE)
ROWS = ROW.findall((PROJECT / "docs" / "path-conditions.md").read_text(encoding="utf-8"))
OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": lambda one, other: int(str(one)) < int(str(other)),
    ">=": lambda one, other: int(str(one)) >= int(str(other)),
}


def holds(condition: str, case: Case) -> bool:
    words = condition.split()
    if words[0] == "requires":
        return words[1] in case.requirements()
    problem = materialise(case)
    known: dict[str, object] = {**problem.sizes(), "alias": problem.alias, "layout": problem.layout}
    left = known[words[0]]
    if words[1] == "%":
        left, words = int(str(left)) % int(words[2]), [words[0], *words[3:]]
    right = known.get(words[2], int(words[2]) if words[2].isdigit() else words[2])
    return OPERATORS[words[1]](left, right)


def test_the_table_is_read() -> None:
    assert len(ROWS) >= 16


@pytest.mark.parametrize(("condition", "case"), ROWS)
def test_a_condition_has_a_case_that_meets_it(condition: str, case: str) -> None:
    assert holds(condition, CASES[case])


def test_a_condition_that_is_not_met_is_seen() -> None:
    case = CASES["shapes/lengths/one_query[operator=sdpa]"]
    assert not holds("seq_len_q >= 192", case)
    assert not holds("layout = offset", case)
    assert not holds("requires dropout", case)
