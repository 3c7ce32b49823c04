"""Every condition in docs/path-conditions.md names a case, and the case meets the condition."""

import operator
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem

PROJECT = Path(__file__).parents[2]
PAGE = (PROJECT / "docs" / "path-conditions.md").read_text(encoding="utf-8")
CASES = {case.id: case for case in load([PROJECT / "cases"], PROJECT / "cases")}
ROW = re.compile(r"^\| (?P<condition>[^:|]+): [^|]+ \| `(?P<case>[^`]+)` \| (?P<source>.+) \|$", re.MULTILINE)
ROWS = [(row["condition"], row["case"]) for row in ROW.finditer(PAGE)]
LINKS = re.findall(r"^\[(\w+)\]: (https://\S+)$", PAGE, re.MULTILINE)
OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": lambda one, other: int(str(one)) < int(str(other)),
    ">": lambda one, other: int(str(one)) > int(str(other)),
    ">=": lambda one, other: int(str(one)) >= int(str(other)),
}
AXES = "bhqk"


def holds(condition: str, case: Case) -> bool:
    """Whether a case meets a condition; if the condition has parts joined by `and`, whether it meets all of them."""
    problem = materialise(case)
    return all(_holds(each.split(), case, problem) for each in condition.split(" and "))


def _holds(words: list[str], case: Case, problem: Problem) -> bool:
    if words[0] == "requires":
        return words[1] in case.requirements()
    if words[:2] == ["outputs", "with"]:
        return words[2] in problem.outputs
    if words[0] == "mask":
        spans = {axis for group in problem.mask_operands for axis in _spanned(group.values.shape)}
        lacks = {axis for group in problem.mask_operands for axis in set(AXES) - _spanned(group.values.shape)}
        return words[2] in {"spans": spans, "lacks": lacks}[words[1]]
    kinds = sorted({kind for group in problem.mask_operands for kind in group.kinds})
    masks = "+".join(kinds) or "none"
    known: dict[str, object] = {
        **problem.sizes(),
        "alias": problem.alias,
        "layout": problem.layout,
        "dtype": problem.dtype,
        "masks": masks,
    }
    left = known[words[0]]
    if words[1] == "%":
        left, words = int(str(left)) % int(words[2]), [words[0], *words[3:]]
    right = known.get(words[2], int(words[2]) if words[2].isdigit() else words[2])
    return OPERATORS[words[1]](left, right)


def _spanned(shape: tuple[int, ...]) -> set[str]:
    return {axis for axis, size in zip(AXES, shape, strict=True) if size > 1}


def test_the_tables_are_read() -> None:
    assert len(ROWS) >= 50
    assert len(ROWS) == PAGE.count("\n| ") - PAGE.count("\n| condition ")


@pytest.mark.parametrize(("condition", "case"), ROWS)
def test_a_condition_has_a_case_that_meets_it(condition: str, case: str) -> None:
    assert holds(condition, CASES[case])


def test_every_source_is_linked() -> None:
    used = set(re.findall(r"\]\[(\w+)\]", PAGE))
    assert used == {name for name, _ in LINKS}
    pinned = [url for _, url in LINKS if "/blob/" in url]
    assert all(re.search(r"/blob/[0-9a-f]{40}/", url) for url in pinned)


def test_a_condition_that_is_not_met_is_seen() -> None:
    case = CASES["shapes/lengths/one_query[operator=sdpa]"]
    for condition in (
        "seq_len_q >= 192",
        "seq_len_k > 512",
        "layout = offset",
        "requires dropout",
        "dtype = float16",
        "masks = causal",
        "mask spans h",
        "mask lacks h",
        "outputs with weights",
        "masks = none and seq_len_q >= 192",
    ):
        assert not holds(condition, case), condition
    padded = CASES["masks/key_padding/trailing[operator=sdpa]"]
    assert holds("mask lacks q and mask spans b", padded)
    assert not holds("mask spans q", padded)
