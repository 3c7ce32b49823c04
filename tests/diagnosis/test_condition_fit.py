"""Of conditions that fit equally well, presence comes before absence, in both searches and before the cut."""

from dataclasses import replace

import pytest

from conformance.bridge.contract import Facts, MaskFacts
from conformance.bridge.profile import Profile
from conformance.diagnosis import condition_fit
from conformance.diagnosis.condition_fit import Guards
from conformance.diagnosis.evidence import Evidence
from conformance.verdicts.expectation import expect

from ..problems import random_sdpa

PADDING = MaskFacts("padding", ("key_padding",), "bool")
ATTENTION = MaskFacts("mask", ("attention",), "bool")
TOP_LEFT = MaskFacts("is_causal", ("causal",), "flag")
BOTTOM_RIGHT = MaskFacts("is_causal_bottom_right", ("causal",), "flag")


def call(
    *masks: MaskFacts,
    outputs: tuple[str, ...] = ("output",),
    layout: str = "contiguous",
    heads: int = 3,
    requirements: tuple[str, ...] = (),
) -> Evidence:
    """A call of which only the facts are used."""
    asked = random_sdpa(3, num_heads=heads)
    facts = Facts(
        "sdpa",
        "float32",
        "cpu",
        "",
        outputs,
        masks=masks,
        sizes=asked.sizes(),
        requirements=requirements,
        layout=layout,
    )
    profile = Profile.ordinary("float32")
    return Evidence("case", facts, asked, expect(asked, {}, profile), profile)


def words(cells: list[Evidence], shows: list[int], others: list[int]) -> list[str]:
    """The words of the conditions that both searches find, in the order in which they find them; many calls fail."""
    fit, (around, left) = Guards(cells).search(shows, others), Guards(cells).around(shows * 20, others)
    assert (around, left) == (fit.guards, 0)
    return [each.words for each in fit.guards]


@pytest.mark.parametrize(
    ("wrong", "right", "neither", "expected"),
    [
        (call(BOTTOM_RIGHT), call(TOP_LEFT), call(), ["with is_causal_bottom_right given", "without is_causal"]),
        (
            call(outputs=("output", "weights_mean")),
            call(outputs=("output", "weights")),
            call(),
            ["with weights_mean requested", "with no weights requested"],
        ),
        (call(), call(ATTENTION), call(PADDING, ATTENTION), ["without a mask"]),
    ],
    ids=["arguments", "outputs", "no mask at all"],
)
def test_what_is_not_there_comes_after_what_is(
    wrong: Evidence, right: Evidence, neither: Evidence, expected: list[str]
) -> None:
    assert words([right, wrong, neither], [1], [0]) == expected


def test_of_two_that_no_cell_tells_apart_the_one_about_what_is_there_is_told() -> None:
    assert words([call(PADDING), call(ATTENTION)], [1], [0]) == ["with an attention mask"]


def test_two_conditions_with_fewer_denials_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """If there are too many conditions, those with more denials are cut off."""
    weights = ("output", "weights")
    wrong, neither = call(TOP_LEFT, outputs=weights), (call(outputs=weights), call())
    cells = [call(PADDING, outputs=weights), call(PADDING), call(TOP_LEFT), wrong, wrong, *neither]
    found = words(cells, [3, 4], [0, 1, 2])
    denials = [each.count("without") for each in found]
    assert denials == sorted(denials)
    assert set(denials) == {0, 1}
    assert found[0] == "with weights requested and with a causal mask"
    monkeypatch.setattr(condition_fit, "MAX_GUARDS", 1)
    assert words(cells, [3, 4], [0, 1, 2]) == found[:1]


def test_several_layouts_are_told_together() -> None:
    cells = [call(layout=layout) for layout in ("contiguous", "transposed", "column_major", "offset")]
    assert words(cells, [1, 2], [0, 3]) == ["with query, key and value in memory layout transposed or column_major"]
    assert words(cells, [1, 2, 3], [0]) == [
        "with query, key and value in memory layout transposed or column_major or offset"
    ]


def test_of_dtypes_only_those_that_show_the_cause_are_told() -> None:
    """Where float32 is expected, a reply in float32 is right: neither for nor against a cause about float64."""
    double, single, half = (
        replace(call(), facts=replace(call().facts, dtype=dtype)) for dtype in ("float64", "float32", "float16")
    )
    assert words([double, single, half], [0], [2]) == ["in float64"]
    assert words([double, single, half], [0, 1], [2])[0] == "in float32 or float64"


def test_heads_may_be_shared_out_between_two_devices() -> None:
    cells = [call(heads=count) for count in (1, 2, 3, 4, 5, 6)]
    assert words(cells, [1, 3, 5], [0, 2, 4]) == ["with an even num_heads"]
    assert words(cells, [0, 2, 4], [1, 3, 5]) == ["with an odd num_heads"]


def test_what_a_call_requires_is_a_condition() -> None:
    capped = call(requirements=("softcap",))
    assert words([call(), capped, call(PADDING)], [1], [0, 2]) == ["with a softcap"]
    cells = [capped, call(), call(ATTENTION, requirements=("softcap",)), call(ATTENTION)]
    assert words(cells, [1, 3], [0, 2]) == ["without a softcap"]


def test_a_scale_that_is_given_is_told_once() -> None:
    """The case requires a scale and the problem has it: this is one condition, not two that no case distinguishes."""
    scaled = call(requirements=("scale",))
    given = replace(scaled, problem=scaled.problem.but(scale=0.3))
    assert words([call(), given], [1], [0]) == ["with a scale given"]


def test_an_exact_size_is_told_if_no_wider_condition_holds_in_as_many_calls() -> None:
    cells = [call(heads=heads) for heads in (3, 13, 13, 19)]
    assert words(cells, [1, 2], [0, 3]) == ["with num_heads = 13"]
    assert words(cells, [3], [0, 1, 2]) == ["with num_heads > 16"]


def test_a_limit_of_a_dimension_does_not_pay_for_one_more_call() -> None:
    """Two causes with plain conditions are better than one cause that needs a limit as well."""
    weights = ("output", "weights")
    shown = [call(outputs=weights, heads=2), call(outputs=weights, heads=4), call(heads=2)]
    odd = [call(heads=heads) for heads in (3, 5, 7, 9, 11, 13, 19)]
    masked = [call(*masks, heads=2) for masks in ((PADDING,), (ATTENTION,), (TOP_LEFT,), (PADDING, BOTTOM_RIGHT))]
    others = [*odd, *masked, *(call(layout=layout, heads=3) for layout in ("transposed", "offset", "column_major"))]
    fit = Guards([*shown, *others]).search([0, 1, 2], range(3, 3 + len(others)))
    assert [each.words for each in fit.guards] == ["with weights requested"]
    assert fit.shows == (0, 1)


def test_some_size_fits_every_single_call_and_is_not_told() -> None:
    cells = [call(heads=heads) for heads in (3, 13, 19)]
    assert Guards(cells).search([1], [0, 2]).guards == ()
    guards, _ = Guards(cells).around([1], [0, 2])
    assert [each.sizes for each in guards] == [{}, {}]
