"""Pairs of deviations are tried on the cells with the fewest masks first, and not where they cannot explain more."""

from dataclasses import replace

import numpy as np
import pytest

from conformance.diagnosis.candidates import pairs, shows_with_fewer
from conformance.diagnosis.evidence import Change, Evidence

from .judged_cells import bent, cell, flagged, padded, plain

BY = 0.1
BOTH = {"value_path": "reversed", "scale": "none"}


def poisoned(evidence: Evidence) -> Evidence:
    """The same cell with NaN in a key."""
    key = evidence.problem.key.copy()
    key[0, 0, 0, 0] = np.nan
    return replace(evidence, problem=evidence.problem.but(key=key))


def fully_masked(evidence: Evidence) -> Evidence:
    """The same cell with a row that attends to no key."""
    (operand,) = evidence.problem.mask_operands
    allowed = np.broadcast_to(operand.values, (*operand.values.shape[:2], 5, 7)).copy()
    allowed[:, :, 1] = False
    return replace(evidence, problem=evidence.problem.but(mask_operands=(replace(operand, values=allowed),)))


PLAIN, PADDED, CAUSAL = bent(plain(2, 5, 7), BY), bent(padded(2, 5, 7), BY), bent(flagged(2, 5, 7), BY)
HALF = bent(plain(2, 5, 7, "float16"), BY)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (PADDED, PLAIN, True),
        (PADDED, PADDED, True),
        (HALF, PLAIN, True),
        (PLAIN, PADDED, False),
        (PADDED, CAUSAL, False),
        (PADDED, HALF, False),
        (PADDED, poisoned(PLAIN), False),
        (PADDED, fully_masked(PADDED), False),
    ],
    ids=["more masks", "the same", "coarser", "fewer masks", "another mask", "finer", "NaN", "fully masked row"],
)
def test_a_mistake_that_shows_without_a_mask_shows_with_one(one: Evidence, other: Evidence, *, expected: bool) -> None:
    assert shows_with_fewer(one, [other]) == expected


def tried(cells: list[Evidence], monkeypatch: pytest.MonkeyPatch) -> tuple[list[Change], set[str]]:
    """The pairs that are found, and the cases on which pairs are tried."""
    explained_by, seen = Evidence.explained_by, set()

    def watched(self: Evidence, change: Change) -> bool:
        seen.add(self.case)
        return explained_by(self, change)

    monkeypatch.setattr(Evidence, "explained_by", watched)
    return [each.change for each in pairs(cells, [])], seen


def test_pairs_are_not_tried_where_the_failure_shows_with_fewer_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    found, seen = tried([PADDED, PLAIN, HALF], monkeypatch)
    assert found == []
    assert seen == {PLAIN.case}


def test_the_search_ends_with_a_pair_that_explains_all_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell(each, BOTH) for each in (padded(2, 5, 7), plain(2, 5, 7), flagged(2, 5, 7))]
    cells = [replace(each, found=()) for each in cells]
    found, _ = tried(cells, monkeypatch)
    assert frozenset(BOTH.items()) in {frozenset(change) for change in found}
    asked = {change for change in found if len(change) == 2}
    assert len(asked) == len(found) <= 8


def test_a_pair_that_shows_with_a_mask_only_is_found() -> None:
    both = {"use[padding]": "ignored", "value_path": "reversed"}
    cells = [replace(cell(padded(*size), both), found=()) for size in ((2, 5, 7), (2, 7, 7))]
    assert frozenset(both.items()) in {frozenset(each.change) for each in pairs(cells, [])}
