"""Every argument, pair, output and entry point is used by a case, or there is a stated reason why not."""

import copy
import re
from functools import cache
from typing import Any

import pytest

from . import pages, pairs
from .surface import stored

ENTRY = "torch.sdpa"


@cache
def results() -> pages.Results:
    return pages.results()


def complaints_of(surface: dict[str, Any], said: dict[str, Any], entry: str = ENTRY) -> list[str]:
    (found,) = (each for each in pairs.entries(surface, said) if each.name == entry)
    return list(pairs.complaints(found, pairs.asked(found, pairs.calls()[pairs.adapter_of(entry)])))


def changed(entry: str = ENTRY) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return copies of surface.yaml and arguments.yaml, and the part of each about one entry point."""
    surface, said = copy.deepcopy(stored()), copy.deepcopy(pairs.said_of_arguments())
    return surface, said, surface["entry_points"][entry], said["entry_points"][entry]


def test_nothing_is_silently_absent() -> None:
    assert pages.all_complaints(results()) == []


def test_the_pages_are_current() -> None:
    stale = "run `nox -s coverage`, or `python -m tests.coverage.pages` where no release has changed"
    written = {path.name: path.read_text(encoding="utf-8") for path in pages.PAGES.glob("*.md")}
    assert written == {name: text.rstrip("\n") + "\n" for name, text in pages.pages(results()).items()}, stale


def test_no_page_has_a_template_or_a_path_of_a_machine() -> None:
    for path in pages.PAGES.glob("*.md"):
        assert not re.search(r"\{\w*\}|0x[0-9a-f]{6}|/(home|tmp|root)/", path.read_text(encoding="utf-8")), path.name


def test_every_adapter_has_an_entry_point() -> None:
    assert {pairs.adapter_of(entry.name) for entry, _ in results()} == set(pairs.adapters())


# ---- the check can fail


def test_an_argument_that_a_release_adds_is_missed() -> None:
    surface, said, found, _ = changed()
    found["arguments"]["window"] = {"given": "call", "default": "None"}
    assert complaints_of(surface, said) == [f"{ENTRY}: nothing says what fills `window`, or why it is left out"]


def test_an_argument_that_no_case_fills_is_missed_with_every_pair() -> None:
    surface, said, found, of = changed()
    found["arguments"]["window"] = {"given": "call", "default": "None"}
    of["filled"] = of["filled"] | {"window": "slot window"}
    texts = complaints_of(surface, said)
    assert f"{ENTRY}: no case asks `window`" in texts
    assert f"{ENTRY}: no case asks `scale` and `window` together" in texts
    assert f"{ENTRY}: no case asks for the output `output` with `window`" in texts


def test_a_pair_that_is_asked_in_other_dtypes_alone_is_missed() -> None:
    (entry,) = (each for each in pairs.entries(stored(), pairs.said_of_arguments()) if each.name == ENTRY)
    filled = {entry.filled["is_causal"], entry.filled["scale"]}
    calls = [(case, words) for case, words in pairs.calls()[ENTRY] if not {"dtype float64", *filled} <= words]
    assert list(pairs.complaints(entry, pairs.asked(entry, calls))) == [
        f"{ENTRY}: no case asks `is_causal` and `scale` in float64, as others do"
    ]


def test_an_argument_that_is_gone_is_told() -> None:
    surface, said, found, _ = changed()
    del found["arguments"]["enable_gqa"]
    assert complaints_of(surface, said) == [f"{ENTRY}: `enable_gqa` is no argument or state of it"]


def test_a_reason_for_a_pair_that_cases_ask_is_not_needed() -> None:
    surface, said, _, of = changed()
    of["pairs"].append(["scale", "enable_gqa", "nobody would"])
    assert complaints_of(surface, said) == [
        f"{ENTRY}: cases ask `enable_gqa` and `scale` together: its reason is not needed"
    ]


def test_a_reason_for_no_pair_is_told() -> None:
    surface, said, _, of = changed()
    of["pairs"].append(["scale", "dropout_p", "nobody would"])
    assert complaints_of(surface, said) == [f"{ENTRY}: a reason names `dropout_p` and `scale`, which is no pair of it"]


def test_a_pair_without_its_reason_is_missed() -> None:
    surface, said, _, of = changed("torch.mha")
    del of["pairs"]
    assert complaints_of(surface, said, "torch.mha") == ["torch.mha: no case asks `dropout` and `training` together"]


def test_an_output_that_a_schema_adds_is_missed() -> None:
    surface, said, found, _ = changed("ort.contrib_mha")
    found["outputs"].append("lse")
    texts = complaints_of(surface, said, "ort.contrib_mha")
    assert texts == ["ort.contrib_mha: nothing says whether the output `lse` is asked for"]


def test_an_output_that_is_never_asked_without_an_argument_is_missed() -> None:
    surface, said, _, of = changed("ort.contrib_mha")
    del of["beside"]
    texts = complaints_of(surface, said, "ort.contrib_mha")
    assert texts == ["ort.contrib_mha: no case asks for the output `present_key` without `past_key`"]


def test_a_call_that_an_adapter_declines_asks_nothing() -> None:
    """com.microsoft.Attention takes only a single input tensor, so most cases for layers never reach it."""
    cases = {case for case, _words in pairs.calls()["ort.contrib_attention"]}
    assert "combined/arguments/one_tensor_with_three_masks[biases=true,dtype=float32]" in cases
    assert "combined/padding/with_causal[operator=mha]" not in cases


def test_an_exported_name_without_subject_or_reason_is_told() -> None:
    said = {"subjects": {"torch.nn.Old": "torch.mha", "torch.nn.New": "torch.nothing"}, "left_out": {}}
    exported = {"torch": ["torch.nn.New", "torch.nn.Newer"]}
    assert list(pages.exported_complaints(exported, said)) == [
        "torch.nn.Newer is exported, and no subject asks it and no reason is given",
        "torch.nn.Old is listed, and no package exports it",
        "torch.nn.New: there is no adapter torch.nothing",
    ]


@pytest.mark.parametrize(
    ("expression", "words", "expected"),
    [
        ("slot a", {"slot a"}, True),
        ("not slot a", {"slot a"}, False),
        ("slot a and not output b", {"slot a"}, True),
        ("slot a and slot b or output c", {"output c"}, True),
        ("slot a and slot b or output c", {"slot a"}, False),
    ],
)
def test_expressions(expression: str, words: set[str], expected: bool) -> None:  # noqa: FBT001 - what is expected
    assert pairs.holds(expression, frozenset(words)) is expected
