"""Masks are drawn as text, one character for each key; a mask that is too large is cut, and the last line says so."""

import numpy as np

from conformance.report.case_explanation import MAX_KEYS, MAX_PICTURES, MAX_QUERIES, draw


def test_true_attends_and_only_axes_that_the_mask_spans_are_labelled() -> None:
    kept = np.array([[True, True, False], [True, False, False]])[:, None, None, :]
    assert list(draw(kept)) == ["batch 0  ##.", "batch 1  #.."]
    assert list(draw(np.tri(2, 3, dtype=bool)[None, None])) == ["  #..", "  ##."]
    per_head = np.array([[[True], [False]], [[False], [False]]])[None]
    assert list(draw(per_head)) == ["head 0  #", "        .", "head 1  .", "        ."]


def test_numbers_are_drawn_by_their_sign() -> None:
    assert list(draw(np.array([0.0, -np.inf, 2.5, -2.5]).reshape(1, 1, 1, 4))) == ["  #.+-"]


def test_what_is_too_large_is_cut_and_said_to_be() -> None:
    kept = np.ones((5, 1, MAX_QUERIES + 1, MAX_KEYS + 2), dtype=bool)
    *rows, last = draw(kept)
    assert len(rows) == MAX_PICTURES * MAX_QUERIES
    assert {len(row.split()[-1]) for row in rows} == {MAX_KEYS}
    assert last == "cut: 4 of 5 batch elements and heads, 12 of 13 queries, 64 of 66 keys"
