"""A sample of the measurements of `nox -s everyday`, and evidence that its scoring can fail."""

from dataclasses import replace

import pytest

from conformance.diagnosis.conditions import Condition, always
from tests.mutation.scoring import Named, Option, Said

from .everyday_mistakes import MHA, MISTAKES, SDPA, Mistake
from .everyday_session import (
    PairTrial,
    Trial,
    main,
    outcome_of,
    pair_outcome,
    pair_trials,
    right_trials,
    styled,
    trials,
    tried,
)
from .writing import ARGUMENTS, ROWS, STYLES, written

IGNORED = next(each for each in MISTAKES if each.name == "causal ignored")

# Mistakes that were diagnosed as something exotic before numbers were measured from replies, each in one signature;
# `nox -s everyday` has them in all.
SAMPLE = (
    ("causal only when square", ("is_causal", "causal_alignment", "key_padding_mask")),
    ("epsilon of 1e-3", ("bias",)),
    ("scale off by 1e-4", ("need_weights",)),
    ("finite part of the bias dropped", ("bias", "is_causal")),
    ("filled with -10", ("key_padding_mask",)),  # here an infinity leaks instead of NaN
    ("mask applied after the softmax, the rest before", ("is_causal", "key_padding_mask")),
    ("NaN for fully masked rows", ("bias",)),  # other decisions are observed in addition to the declared one
)


def option(key: str, when: Condition | None = None) -> Option:
    return Option(frozenset({key}), when or always())


def said(*options: Option, others: tuple[str, ...] = (), conforms: bool = False) -> Said:
    return Said(conforms, (Named(options, 7),) if options else (), others)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (said(conforms=True), "survived"),
        (said(others=("precision",)), "unexplained"),
        (said(option("causal_mask=ignored")), "right"),
        (said(option("causal_mask=ignored"), option("causal_alignment=bottom_right")), "right"),
        (said(option("causal_mask=ignored"), option("causal_query_tile=last_128")), "tie"),
        (said(option("causal_query_tile=last_128"), option("causal_mask=ignored")), "wrong"),
        (said(option("causal_mask=ignored"), others=("precision",)), "more"),
    ],
    ids=["survived", "unexplained", "right", "as likely", "rarer", "second", "more"],
)
def test_what_is_said_is_held_against_the_mistake(told: Said, expected: str) -> None:
    assert outcome_of(IGNORED, told) == expected


def test_an_exception_is_something_else_unless_the_mistake_raises_it() -> None:
    told = said(option("causal_mask=ignored"), others=("error",))
    assert outcome_of(IGNORED, told) == "more"
    assert outcome_of(replace(IGNORED, raises=True), told) == "right"


@pytest.mark.parametrize(("name", "arguments"), SAMPLE, ids=[name for name, _ in SAMPLE])
def test_an_everyday_mistake_is_named_first_and_alone(name: str, arguments: tuple[str, ...]) -> None:
    mistake = next(each for each in MISTAKES if each.name == name)
    found = tried(Trial(mistake, SDPA, arguments))
    assert found.outcome == "right", found.said


@pytest.mark.parametrize(
    ("name", "operator", "arguments", "globs"),
    [
        ("rows with NaN set to zero", SDPA, ("bias", "key_padding_mask"), ("numerics/nonfinite/*",)),
        # Its float16 arithmetic shows only in calls with a causal mask, so calibration has to know the mistake.
        (
            "causal ignored",
            MHA,
            ("is_causal", "key_padding_mask", "num_kv_heads", "need_weights"),
            ("causal/*", "combined/arguments/*"),
        ),
        # The swap turns NaN in a key into NaN in a value.
        ("key and value swapped", MHA, ("is_causal",), ("numerics/nonfinite/*", "causal/*")),
        # Only calls with a scale show how it computes in float16.
        ("result in float64 without a scale", SDPA, ("scale",), ("combined/pairs/scale*", "parameters/scale/*")),
        # NaN that an ignored causal mask lets through looks like NaN that leaks from any masked key.
        (
            "causal only when square",
            SDPA,
            ("is_causal", "causal_alignment", "bias"),
            ("numerics/nonfinite/*", "causal/rectangular/*"),
        ),
        # Few calls in float16 show how it is rounded, and these are causal.
        (
            "causal always at the last key",
            MHA,
            ("is_causal", "causal_alignment", "key_padding_mask", "bias", "window", "num_kv_heads", "need_weights"),
            ("combined/arguments/*", "degenerate/arguments/*"),
        ),
        # The factor is a constant divided by head_dim, not by its square root.
        ("scale 1/(2d)", SDPA, (), ("shapes/*",)),
        # One number that is added for each mask, or one for all masks and one more for the padding.
        ("each mask adds -1e4", SDPA, ("key_padding_mask",), ("combined/padding/*", "masks/key_padding/*")),
        # One call in float16 looks as if padding decided what a fully masked row returns.
        ("each mask adds -1e4", MHA, ("key_padding_mask",), ("degenerate/*", "combined/*")),
        # NaN leaks where a bias adds -inf, which is accepted; other calls do not show this, because the mask is wrong.
        (
            "causal shifted to the wrong side",
            MHA,
            ("is_causal", "causal_alignment", "bias"),
            ("numerics/nonfinite/*", "causal/rectangular/*"),
        ),
        # Causal calls that conform show that the causal mask is applied before.
        (
            "mask applied after the softmax, the rest before",
            MHA,
            ("is_causal",),
            ("numerics/nonfinite/*", "combined/attention/*"),
        ),
    ],
    ids=["NaN", "causal", "swapped", "dtype", "leak", "half", "scale", "each", "row", "added", "after"],
)
def test_a_mistake_is_named_from_a_few_cases_too(
    name: str, operator: str, arguments: tuple[str, ...], globs: tuple[str, ...]
) -> None:
    mistake = next(each for each in MISTAKES if each.name == name)
    found = tried(Trial(mistake, operator, arguments), globs)
    assert found.outcome == "right", found.said


@pytest.mark.parametrize(
    ("rows", "name", "arguments", "globs"),
    [
        # No reply has the expected dtype, but its values show what is returned for a fully masked row.
        ("nan", "result in float64 without a scale", ("scale",), ("degenerate/fully_masked_batch/*",)),
        # Only NaN is compared there: every other number is rounded.
        ("nan", "softmax in float16", (), ("degenerate/fully_masked_row/*",)),
        # Many rows have no key then, so the mistake is evident only if it is known what such a row returns.
        ("nan", "padding inverted", ARGUMENTS, ("numerics/nonfinite/*",)),
        # Any large number explains what is filled.
        ("mean", "padding inverted", ARGUMENTS, ("degenerate/fully_masked_batch/*",)),
        # A bias that is ignored masks no row, so rows that it masks look as if they were treated in another way.
        ("nan", "bias ignored", ("bias",), ("degenerate/*",)),
        # A bias that adds -inf masks a row even from a finite fill.
        ("mean", "bias before the scale", ("bias",), ("degenerate/*",)),
        # The fill is -inf in float16 alone.
        ("by_dtype", "given scale ignored", ("scale", "bias"), ("degenerate/*", "parameters/scale/*")),
    ],
    ids=["dtype", "half", "padding", "fill", "ignored", "bias", "float16"],
)
def test_what_is_accepted_is_not_reported_beside_a_mistake(
    rows: str, name: str, arguments: tuple[str, ...], globs: tuple[str, ...]
) -> None:
    mistake = next(each for each in MISTAKES if each.name == name)
    found = tried(Trial(mistake, SDPA, arguments, rows), globs)
    assert found.outcome == "right", found.said


@pytest.mark.parametrize(
    ("name", "arguments", "styles", "globs"),
    [
        # No bound is derived for the mistake, and it computes float64 in float32.
        (
            "softmax over all axes but the batch",
            (),
            {"computes in": "float32", "softmax": "before V"},
            ("shapes/cross_attention/*", "numerics/float64/*"),
        ),
        # Few replies show that the fill is -inf in float16, because the scaled bias hides what it masks.
        ("bias before the scale", ("bias",), {"masks": "fill with -1e9"}, ("degenerate/*", "combined/*")),
        # The finite fill of the other masks is accepted, and the mask is applied beside it.
        (
            "mask applied after the softmax, the rest before",
            ARGUMENTS,
            {"masks": "fill with the lowest number"},
            ("degenerate/*", "numerics/nonfinite/*"),
        ),
    ],
    ids=["underived", "float16", "after"],
)
def test_a_mistake_is_named_however_the_rest_is_written(
    name: str, arguments: tuple[str, ...], styles: dict[str, str], globs: tuple[str, ...]
) -> None:
    mistake = next(each for each in MISTAKES if each.name == name)
    found = tried(Trial(mistake, SDPA, arguments, styles=styles), globs)
    assert found.outcome == "right", found.said


# Two mistakes in one function; the first changes the calls in which the second shows.
PAIRS = (
    ("no maximum", "result in float64", ()),
    ("mask ignored", "a scale of zero is none", ("scale",)),
    # To observe how NaN is treated, the check has to assume the second mistake too.
    ("mask inverted", "result in float64 without a scale", ("is_causal", "scale")),
)


@pytest.mark.parametrize(("one", "other", "arguments"), PAIRS, ids=[one for one, _, _ in PAIRS])
def test_two_mistakes_are_two_causes(one: str, other: str, arguments: tuple[str, ...]) -> None:
    first, second = (next(each for each in MISTAKES if each.name == name) for name in (one, other))
    found = tried(PairTrial(first, second, SDPA, arguments))
    assert found.outcome == "right", found.said
    assert found.said.startswith("2 findings; "), found.said


@pytest.mark.parametrize(
    ("told", "others", "expected"),
    [
        ([{"causal_mask=ignored"}, {"mask_fill=zero"}], (), "right"),
        ([{"causal_mask=ignored", "mask_fill=zero"}], (), "right"),
        ([{"causal_mask=ignored"}, {"mask_fill=zero"}, {"scale=none"}], (), "more"),
        ([{"causal_mask=ignored"}, {"mask_fill=zero"}], ("precision",), "more"),
        ([{"causal_mask=ignored"}], (), "one"),
        ([{"scale=none"}], (), "wrong"),
        ([], ("precision",), "unexplained"),
    ],
)
def test_what_is_said_of_two_mistakes_is_held_against_both(
    told: list[set[str]], others: tuple[str, ...], expected: str
) -> None:
    trial = PairTrial(IGNORED, next(each for each in MISTAKES if each.name == "filled with 0"), SDPA, ("is_causal",))
    names = [frozenset(each) for each in told]
    assert pair_outcome(trial, names, said(others=others)) == expected
    assert pair_outcome(trial, names, said(conforms=True)) == "survived"


def test_pairs_replace_different_lines() -> None:
    for trial in pair_trials(20):
        assert not trial.first.lines.keys() & trial.second.lines.keys()
        assert trial.mistake.lines == {**trial.first.lines, **trial.second.lines}


@pytest.mark.parametrize(("operator", "arguments"), [("sdpa", ARGUMENTS), ("mha", ARGUMENTS)])
def test_what_has_no_mistake_conforms(operator: str, arguments: tuple[str, ...]) -> None:
    assert tried(Trial(Mistake("none", (), {}), operator, arguments)).outcome == "right"


@pytest.mark.parametrize("rows", [name for name in ROWS if name != "zero"])
def test_what_is_returned_for_fully_masked_rows_is_accepted(rows: str) -> None:
    """In float64, no call shows beforehand what a function returns if an additive mask hides a whole row."""
    assert tried(Trial(Mistake("none", (), {}), SDPA, ARGUMENTS, rows), ("degenerate/*",)).outcome == "right"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--pairs", "3", "--rows", "nan"], "--pairs cannot be used with --rows"),
        (["--right", "3", "--rows", "nan"], "--right cannot be used with --rows"),
        (["--right", "3", "--pairs", "2"], "--pairs cannot be used with --right"),
        (["--rows", "nan", "--styled"], "--rows cannot be used with --styled"),
    ],
)
def test_options_that_exclude_each_other(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(given)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("number", [2, 5, 11])
def test_of_a_right_function_nothing_is_reported(number: int) -> None:
    found = tried(right_trials(number)[-1])
    assert found.outcome == "right", found.said


def test_whatever_is_reported_of_a_right_function_is_wrong() -> None:
    none = Mistake("none", (), {})
    assert outcome_of(none, said(conforms=True)) == "right"
    assert outcome_of(none, said(option("causal_mask=ignored"))) == "wrong"
    assert outcome_of(none, said(others=("precision",))) == "unexplained"


def test_a_mistake_is_written_in_every_way_that_leaves_it_there() -> None:
    for plain, trial in zip(trials(1), styled(trials(1)), strict=True):
        ways = [STYLES[part][way] for part, way in trial.styles.items()]
        assert all(lines.keys().isdisjoint(trial.mistake.lines) for lines in ways), trial.name
        assert trial.text != plain.text, trial.name


def test_right_functions_are_written_in_every_way() -> None:
    names = [trial.name for trial in right_trials(60)]
    assert all(any(f"{part} {way}" in name for name in names) for part, ways in STYLES.items() for way in ways)


def test_mistakes_in_the_lines_of_fully_masked_rows_are_left_out() -> None:
    every, left = ({trial.mistake.name for trial in trials(0, rows=rows)} for rows in ("zero", "mean"))
    assert "filled with -10" in every - left
    assert "mask inverted" in left


def test_every_mistake_changes_the_text_in_every_signature() -> None:
    for trial in trials(1):
        right = written(trial.operator, trial.arguments, {})
        assert written(trial.operator, trial.arguments, trial.mistake.lines) != right, trial.name


def test_a_part_that_there_is_not_is_refused() -> None:
    with pytest.raises(KeyError, match="no part softmx"):
        written(SDPA, (), {"softmx": ""})
