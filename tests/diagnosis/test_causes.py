"""Few causes for many cells."""

from conformance.diagnosis.explanation import fewest


def test_the_cause_that_explains_most_cells_is_taken_first() -> None:
    cells = {1: ["ignored", "bottom_right"], 2: ["bottom_right"], 3: ["bottom_right", "transposed"]}
    assert fewest(cells) == {1: "bottom_right", 2: "bottom_right", 3: "bottom_right"}


def test_what_is_left_gets_causes_of_its_own() -> None:
    cells = {1: ["a"], 2: ["a", "b"], 3: ["c"], 4: []}
    assert fewest(cells) == {1: "a", 2: "a", 3: "c"}


def test_of_causes_that_explain_equally_many_the_preferred_one_is_taken() -> None:
    assert fewest({1: ["uniform", "filled"], 2: ["uniform", "filled"]}) == {1: "uniform", 2: "uniform"}
    assert fewest({1: ["filled", "uniform"], 2: ["filled", "uniform"]}) == {1: "filled", 2: "filled"}
