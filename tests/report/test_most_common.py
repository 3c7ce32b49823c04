"""The phrase reported for several calls is the one that most of them share, the plainest first."""

import pytest

from conformance.report.findings import most_common


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ([], ("", 0)),
        ([()], ("", 0)),
        ([("right",)], ("right", 1)),
        ([("for the last key", "for keys behind the first 8"), ("for keys behind the first 8",)],
         ("for keys behind the first 8", 2)),
        ([("a", "b"), ("b", "a"), ("a",)], ("a", 3)),
        ([("a",), ("b",)], ("", 0)),  # they contradict each other
        ([("a", "b"), ("a",), ("b",)], ("b", 2)),  # the largest call has the last word
        ([("a",), ()], ("", 0)),  # the other call was read, too, and does not share it
        ([("a",), ("a",), ("b",)], ("a", 2)),
        ([("times the scale (0.5)",), ("times the scale (0.378)",)], ("times the scale (0.5 or 0.378)", 2)),
        ([("the last 3 of 7 features",), ("the last 1 of 5 features",)], ("the last 3 of 7 or 1 of 5 features", 2)),
        ([("blocks of 4",), ("blocks of 8",)], ("", 0)),
        # Without a phrase that most share, the places are left out.
        ([("are wrongly zero for the last key",), ("are wrongly zero at 3 of 7 positions",)],
         ("are wrongly zero at some positions", 2)),
        ([("are wrongly zero for every second key, starting with the first, and are wrongly nonzero for the last key",),
          ("are wrongly zero at 1 of 5 positions, and are wrongly nonzero at 2 of 7 positions",)],
         ("are wrongly zero at some positions, and are wrongly nonzero at some positions", 2)),
        ([("sum to 0.905 in exactly the rows of every second head, starting with the first, in the right proportions",),
          ("sum to less than 1 in 3 of 7 rows, in the right proportions",)],
         ("sum to less than 1 in some rows, in the right proportions", 2)),
        ([("sum to 0.905, as if 3 more keys had logit 0 and value 0",),
          ("sum to less than 1, in the right proportions",)],
         ("sum to less than 1 in some rows, in the right proportions", 2)),
        ([("do not sum to 1 in 2 of 9 rows, in the right proportions",),
          ("do not sum to 1, in the right proportions",)],
         ("do not sum to 1 in some rows, in the right proportions", 2)),
        ([("are NaN in exactly the rows of the last head",), ("are NaN in 3 of 7 rows",)], ("are NaN in some rows", 2)),
    ],
)  # fmt: skip
def test_most_said(read: list[tuple[str, ...]], told: tuple[str, int]) -> None:
    assert most_common(read) == told
