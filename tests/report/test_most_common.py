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
        ([("a",), ()], ("", 0)),  # the other call was read, too, and does not share it
        ([("a",), ("a",), ("b",)], ("a", 2)),
        ([("times the scale (0.5)",), ("times the scale (0.378)",)], ("times the scale (0.5 or 0.378)", 2)),
        ([("the last 3 of 7 features",), ("the last 1 of 5 features",)], ("the last 3 of 7 or 1 of 5 features", 2)),
        ([("blocks of 4",), ("blocks of 8",)], ("", 0)),
    ],
)  # fmt: skip
def test_most_said(read: list[tuple[str, ...]], told: tuple[str, int]) -> None:
    assert most_common(read) == told
