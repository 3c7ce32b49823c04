"""Old names of cases, patterns, mistakes and deviations are still read; similar names are not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import places
from conformance.deviations.catalogue import find
from conformance.spec.case import ArrayMask, Case
from conformance.spec.loader import load
from conformance.spec.materialise import materialise, problem_digest
from conformance.spec.mistakes import CaseFileErrors, covered, matches, old_name_note
from conformance.spec.old_names import current, current_record, current_value, former, may_be_in

SUITE = """\
format: 1
suite: {suite}
summary: A few.
defaults: {{operator: sdpa, batch: 3, num_heads: 2, seq_len_q: 5, seq_len_k: 7, head_dim: 4}}
cases:
  - name: patterns
    matrix: {{masks.0.pattern: [{row}, {batch}]}}
    masks: [{{kind: attention, axes: [b, q, k], pattern: all}}]
  - name: mistakes
    expect: error
    matrix: {{mistake: [{key}, {mask}]}}
    masks: [{{kind: attention, axes: [b, q, k], pattern: holes}}]
"""
OLD = {"row": "one_dead_row", "batch": "one_dead_item", "key": "key_items", "mask": "mask_items"}
# The digest of a call with the mistake `key_items`, before the mistake was renamed.
DIGEST = "sha256:e4bfb26edaa56d5189435893d774f57364ee6f658989b9df8fbb004762e3d6b8"
NEW = {"row": "one_fully_masked_row", "batch": "one_fully_masked_batch", "key": "key_batch", "mask": "mask_batch"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("degenerate/dead_row/boolean[operator=sdpa]", "degenerate/fully_masked_row/boolean[operator=sdpa]"),
        ("degenerate/dead_item/float[operator=mha]", "degenerate/fully_masked_batch/float[operator=mha]"),
        ("gradients/masks/dead_row[operator=mha]", "gradients/masks/fully_masked_row[operator=mha]"),
        (
            "degenerate/dead_item/every_item[operator=mha]",
            "degenerate/fully_masked_batch/every_batch[operator=mha]",
        ),
        (
            "masks/attention_3d/per_item_and_head_keys_only[operator=sdpa]",
            "masks/attention_3d/per_batch_and_head_keys_only[operator=sdpa]",
        ),
        (
            "shapes/mistakes/inputs[operator=mha,mistake=key_items]",
            "shapes/mistakes/inputs[operator=mha,mistake=key_batch]",
        ),
    ],
)
def test_the_id_of_a_packaged_case_has_a_new_name(old: str, new: str) -> None:
    assert (current(old), former(new)) == (new, old)
    assert may_be_in(old.encode())
    ids = {case.id for case in load([places.cases()], places.cases())}
    assert covered(ids, [old]) == {new}
    assert old not in ids


@pytest.mark.parametrize(
    ("decision", "old", "new"),
    [
        ("mask_axes[mask]", "first_item", "first_batch"),
        ("mask_axes[a_mask]", "items_tiled", "batch_tiled"),
        ("mask_axes[mask]", "items_as_heads", "batch_as_heads"),
        ("mask_axes[mask]", "items_as_queries", "batch_as_queries"),
        ("softmax_axis", "items", "batch"),
        ("softmax_axis", "items_and_heads", "batch_and_heads"),
        ("returned_weights", "uniform_in_dead_rows", "uniform_in_fully_masked_rows"),
        ("returned_weights", "nan_in_dead_rows", "nan_in_fully_masked_rows"),
        ("mask_fill", "puts_-1e-9_but_dead_rows", "puts_-1e-9_but_fully_masked_rows"),
    ],
)
def test_a_deviation_has_a_new_name(decision: str, old: str, new: str) -> None:
    assert current_value(decision, old) == new
    assert find(decision, new).name == new
    assert may_be_in(old.encode())
    with pytest.raises(KeyError):
        find(decision, old)
    before, now = (
        [{decision: name}, f"{decision}={name}", {"decision": decision, "name": name}] for name in (old, new)
    )
    assert current_record(before) == now
    assert current_record(now) == now


@pytest.mark.parametrize(
    "text",
    [
        "mine/dead_row",
        "cases/degenerate/dead_row.yaml:3",
        "mine/degenerate/dead_row/one",
        "degenerate/dead_rows/one",
        "mask_axes[mask]=first_items",
        "softmax_axis=items_of_mine",
        "fully_masked_row=nan",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    record = {"text": [text], "name": "items", text: {"dead_row": 3}, "decision": None}
    assert current_record(record) == record


def test_a_case_file_may_have_old_names(cases: Callable[[str], tuple[Case, ...]]) -> None:
    before, now = (cases(SUITE.format(suite="t", **names)) for names in (OLD, NEW))
    assert [case.id for case in before] == [case.id for case in now]
    assert [case.mistake for case in before] == [None, None, "key_batch", "mask_batch"]
    masks = [case.masks[0] for case in before[:2]]
    assert [mask.pattern for mask in masks if isinstance(mask, ArrayMask)] == [NEW["row"], NEW["batch"]]
    assert [problem_digest(materialise(case)) for case in before] == [problem_digest(materialise(case)) for case in now]


def test_a_renamed_mistake_keeps_its_digest(make: Callable[..., Case]) -> None:
    """Older logs and baselines contain the digest; if it changes, their cells are not compared."""
    case = make(batch=3, expect="error", mistake="key_batch")
    assert problem_digest(materialise(case)) == DIGEST


def test_an_unknown_pattern_or_mistake_is_still_a_mistake(write: Callable[..., Path]) -> None:
    unknown = {"row": "one_dead_rows", "batch": "one_dead_item", "key": "key_item", "mask": "mask_items"}
    root = write({"t.yaml": SUITE.format(suite="t", **unknown)})
    with pytest.raises(CaseFileErrors) as caught:
        load([root], root)
    found = [mistake.message for mistake in caught.value.mistakes]
    assert len(found) == 2
    assert "'one_dead_rows'" in found[0]
    assert "'key_item' is not valid" in found[1]


def test_a_suite_with_an_old_name_has_the_new_ids(write: Callable[..., Path]) -> None:
    listed = "degenerate/dead_row/patterns[masks.0.pattern=one_dead_row]\n"
    root = write({"degenerate/dead_row.yaml": SUITE.format(suite="degenerate/dead_row", **OLD), "thorough.txt": listed})
    found = load([root], root)
    assert {case.suite for case in found} == {"degenerate/fully_masked_row"}
    assert [case.id for case in found if case.thorough] == [
        "degenerate/fully_masked_row/patterns[masks.0.pattern=one_fully_masked_row]"
    ]
    assert found[0].source == "cases/degenerate/dead_row.yaml:6"


def test_a_suite_cannot_have_its_old_and_its_new_name_at_once(write: Callable[..., Path]) -> None:
    names = ("degenerate/dead_row", "degenerate/fully_masked_row")
    root = write({f"{name}.yaml": SUITE.format(suite=name, **OLD) for name in names})
    with pytest.raises(CaseFileErrors, match=r"is already used by cases/degenerate/dead_row\.yaml"):
        load([root], root)


@pytest.mark.parametrize("pattern", ["degenerate/dead_item/*", "degenerate/dead*", "*dead_item*", "*item/a"])
def test_a_glob_may_have_an_old_name(pattern: str) -> None:
    name = "degenerate/fully_masked_batch/a"
    assert matches(pattern, name)
    assert old_name_note(pattern, [name, "masks/a"]) == f"{pattern}: degenerate/dead_item/a is now called {name}"


def test_an_old_id_is_told_its_new_one() -> None:
    name = "degenerate/fully_masked_row/a"
    assert old_name_note("degenerate/dead_row/a", [name]) == f"degenerate/dead_row/a is now called {name}"
    assert old_name_note("degenerate/*", [name]) == ""
    assert old_name_note("degenerate/dead_rows/*", [name]) == ""
    assert not matches("degenerate/dead_rows/*", name)


def test_values_that_are_nested_too_deeply_are_refused() -> None:
    deep: list[object] = ["degenerate/dead_row/a"]
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(ValueError, match="nested too deeply"):
        current_record(deep)
