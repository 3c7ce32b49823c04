"""The further calls of a run, with real workers: repeated calls, changed calls, the effective pattern."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ..running import cells, conformance, records

FAKES = Path(__file__).parents[1] / "fakes"
Record = dict[str, Any]

SUITE = """\
format: 1
suite: masks/small
summary: Few cases with few shapes.
defaults: {operator: sdpa, num_heads: 2, head_dim: 3, seq_len_q: 5, seq_len_k: 7}
cases:
  - name: hidden
    batch: 3
    masks: [{kind: key_padding, lengths: [7, 4, 1]}]
  - name: hidden_as_floats
    batch: 3
    masks: [{kind: key_padding, element: float, lengths: [6, 3, 2]}]
  - name: open
    matrix: {batch: [2, 3]}
  - name: of_one
    batch: 1
    masks: [{kind: key_padding, lengths: [5]}]
"""
HIDDEN, FLOATS, OF_ONE = (f"masks/small/{name}" for name in ("hidden", "hidden_as_floats", "of_one"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, dict[tuple[str, str], Record], Record]]:
    folder = tmp_path_factory.mktemp("project") / "cases"
    (folder / "masks").mkdir(parents=True)
    (folder / "masks" / "small.yaml").write_text(SUITE, encoding="utf-8")

    def asked(*chosen: str) -> tuple[Path, dict[tuple[str, str], Record], Record]:
        out = tmp_path_factory.mktemp("run") / "out"
        done = conformance("run", str(folder), "--out", str(out), *chosen)
        last = records(out)[-1]
        assert last["type"] == "footer", done.stderr
        return out, cells(out), last

    return asked


@pytest.fixture(scope="module")
def looked(run: Any) -> tuple[Path, dict[tuple[str, str], Record], Record]:
    found: tuple[Path, dict[tuple[str, str], Record], Record] = run("-a", str(FAKES / "restless.py"))
    return found


def of(looked: Any, lie: str, case: str = HIDDEN) -> Record:
    record: Record = looked[1][case, f"fake.restless[{lie}]"]
    return record


def broken(record: Record) -> list[str]:
    return [each["name"] for each in record.get("invariants", ()) if each["found"] == "broken"]


def test_the_honest_one_passes_and_every_relation_that_is_asked_holds(looked: Any) -> None:
    records = [record for (_, subject), record in looked[1].items() if subject == "fake.restless[honest]"]
    assert {record["verdict"] for record in records} == {"pass"}
    found = {(each["name"], each["found"]) for record in records for each in record["invariants"]}
    assert {how for _, how in found} == {"holds"}
    assert {name for name, _ in found} == {
        "visible_keys",
        "batch_of_one",
        "key_order",
        "head_order",
        "mask_convention",
        "poisoned_key",
        "poisoned_value",
    }


def test_a_reply_that_depends_on_a_counter_is_nondeterministic(looked: Any) -> None:
    for case in (HIDDEN, FLOATS, OF_ONE, "masks/small/open[batch=2]"):
        record = of(looked, "counting", case)
        assert (record["verdict"], record["class"]) == ("fail", "nondeterministic")
        assert record["reason"].startswith("the same call, made twice in a row, returns two different results: output ")
        assert "explanation" not in record
        assert record["repeats"]["found"] == "nondeterministic"
        assert record["repeats"]["again"] == 3


def test_a_reply_that_depends_on_the_call_before_is_order_dependent(looked: Any) -> None:
    smallest = of(looked, "remembering", OF_ONE)
    assert (smallest["verdict"], smallest["class"]) == ("fail", "order_dependent")
    assert (smallest["repeats"]["again"], smallest["repeats"]["alone"]) == (3, 1)
    assert "the same call returns a different result: output " in smallest["reason"]


def test_where_one_failure_is_order_dependent_the_others_are_repeated_in_the_old_worker(run: Any) -> None:
    _, cells, _ = run("-a", f"{FAKES / 'restless.py'}[remembering]")
    first, *others = sorted(cells.values(), key=lambda record: record["case"] != HIDDEN)
    assert first["budget"] <= 1  # the first call of a process is right, and the repeated calls are not
    assert first["class"] == "order_dependent"
    assert ": it " in first["reason"]
    assert {(other["verdict"], other["class"]) for other in others} == {("fail", "order_dependent")}
    assert sorted(other["repeats"]["alone"] for other in others) == [0, 0, 0, 1]


def test_what_differs_now_and_then_is_asked_more_often_where_another_call_differed(run: Any) -> None:
    _, cells, _ = run("-a", f"{FAKES / 'restless.py'}[sparing]")
    assert {record["class"] for record in cells.values()} == {"nondeterministic"}
    assert max(record["repeats"]["again"] for record in cells.values()) == 3 + 4 * 3


def test_a_failure_that_is_always_the_same_keeps_its_class_and_its_explanation(looked: Any) -> None:
    record = of(looked, "inverted", OF_ONE)
    assert (record["class"], record["repeats"]) == ("semantic", {"found": "same", "again": 3, "alone": 1})


@pytest.mark.parametrize(
    ("lie", "name", "cause"),
    [
        ("leaking_keys", "poisoned_key", None),
        ("leaking_values", "poisoned_value", "nonfinite_value=leaks"),
        ("alone", "batch_of_one", None),
    ],
)
def test_a_passing_cell_fails_where_a_changed_call_shows_another_thing(
    looked: Any, lie: str, name: str, cause: str | None
) -> None:
    record = of(looked, lie, HIDDEN)
    assert (record["verdict"], record["class"]) == ("fail", "semantic" if "explanation" in record else "invariant")
    assert broken(record) == [name]
    assert record["reason"].startswith(f"{name}: it ")
    assert " at [" in record["reason"]
    assert record["budget"] <= 1
    if cause:
        assert cause == f"{record['explanation']['decision']}={record['explanation']['name']}"


def test_the_same_mask_as_numbers_has_the_same_reply(looked: Any) -> None:
    assert broken(of(looked, "floats")) == ["mask_convention"]


def test_the_effective_pattern_of_a_failure_stands_beside_the_expected_one(looked: Any) -> None:
    record = of(looked, "inverted", OF_ONE)
    assert record["pattern"]["calls"] == 3
    assert record["pattern"]["beyond"] == 2 * 5 * (7 - 1)  # the two hidden keys are large, and one takes all the weight
    with np.load(looked[0] / record["tensors"]) as arrays:
        expected, actual = arrays["pattern.expected"], arrays["pattern.actual"]
    assert expected.shape == actual.shape == (1, 2, 5, 7)
    assert (expected[..., 5:] == 0).all()
    assert (actual[..., :5] == 0).all()
    np.testing.assert_allclose(actual.sum(axis=-1), 1.0, rtol=1e-6)


def test_the_pattern_of_one_passing_case_is_read_for_a_theme_of_masks(looked: Any) -> None:
    records = [record for (_, subject), record in looked[1].items() if subject == "fake.restless[honest]"]
    read = [record["pattern"] for record in records if "pattern" in record]
    assert read == [{"calls": 3, "beyond": 0, "elements": 2 * 5 * 7}]


def test_the_footer_says_how_many_calls_it_took(looked: Any) -> None:
    assert set(looked[2]["second_look"]) == {"alone", "invariants", "patterns", "repeats"}
