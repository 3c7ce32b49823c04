"""--declare DECISION=NAME: what is accepted, and what is refused."""

import re

import pytest

from conformance.checking.declarations import Declared, is_declarable, parse_pairs, read_declared
from conformance.checking.function_check import load_cases
from conformance.checking.target import CheckError
from conformance.spec.materialise import materialise


def declared(*words: str) -> Declared:
    return read_declared(parse_pairs(words), ("mask",), materialise(load_cases("sdpa")[0]))


def test_a_decision_is_part_of_the_dialect() -> None:
    assert declared("fully_masked_row=nan") == Declared({"fully_masked_row": "nan"})


@pytest.mark.parametrize("word", ["fully_masked_row=zero", "fully_masked_row=canonical", "polarity[mask]=attend"])
def test_canonical_is_pinned_down(word: str) -> None:
    found = declared(word)
    assert (found.dialect, found.polarity) == ({}, {})
    assert found.pins(word.partition("=")[0])


def test_what_true_means_is_for_the_caller() -> None:
    assert declared("polarity[mask]=ignore").polarity == {"mask": "ignore"}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("fully_masked_row", "--declare fully_masked_row: expected DECISION=NAME"),
        ("fully_masked_row=nul", "--declare fully_masked_row=nul: expected one of zero, nan, uniform, unmasked"),
        ("polarity[mask]=ignor", "--declare polarity[mask]=ignor: expected attend or ignore"),
        ("dead_row=canonical", "there is no decision 'dead_row'"),
        ("polarity[maks]=attend", "the function has no mask argument maks; its mask arguments are mask"),
        ("polarity=canonical", "name the mask argument, as in polarity[mask]=canonical"),
        ("dead_row=nan", "there is no decision 'dead_row'"),
        ("polarity[maks]=ignore", "the function has no mask argument maks; its mask arguments are mask"),
        ("softmax_axis=queries", "it can name this as a cause, but you cannot declare it"),
    ],
)
def test_what_is_refused_says_why(word: str, said: str) -> None:
    with pytest.raises(CheckError, match=re.escape(said)):
        declared(word)


def test_a_decision_cannot_be_declared_twice() -> None:
    with pytest.raises(CheckError, match="--declare scale is given twice"):
        parse_pairs(["scale=none", "scale=ignored"])


@pytest.mark.parametrize(
    ("decision", "name", "can_be"),
    [
        ("polarity[mask]", "ignore", True),
        ("fully_masked_row", "nan", True),
        ("softmax_axis", "queries", False),
        ("fully_masked_row", "canonical", False),
        ("nonsense", "nan", False),
    ],
)
def test_what_can_be_declared_is_known(decision: str, name: str, *, can_be: bool) -> None:
    assert is_declarable(decision, name, materialise(load_cases("sdpa")[0])) is can_be


def test_an_old_name_is_declared_as_the_new_one() -> None:
    assert declared("mask_axes[mask]=first_item").dialect == {"mask_axes[mask]": "first_batch"}
