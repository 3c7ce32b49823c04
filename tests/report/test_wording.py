"""The advice for a call site depends on where the call moves to."""

from pathlib import Path

import pytest

from conformance.diagnosis.explanation import CANONICAL, Way
from conformance.engine.adapter_facts import Slot, parse_slots
from conformance.report.call_site_advice import NOTHING, Destination, argument_changes, change
from conformance.report.port_text import conventions

TO_SDPA, TO_MHA = Destination("sdpa"), Destination("mha")


def slot(name: str, **fields: object) -> Slot:
    return parse_slots({name: {"role": "mask", "axes": [["q", "k"]], **fields}})[name]


def dead(name: str) -> Way:
    return "fully_masked_row", name


@pytest.mark.parametrize(
    ("here", "there", "to", "said"),
    [
        (CANONICAL, "uniform", TO_SDPA, "overwrite the output rows of fully masked queries with 0"),
        (CANONICAL, "nan", TO_MHA, "with the bias of the output projection (0 without one)"),
        ("nan", CANONICAL, TO_MHA, NOTHING),
        ("nan", "uniform", TO_MHA, NOTHING),
        ("uniform", CANONICAL, TO_SDPA, "were the mean of V and are now zero"),
    ],
)
def test_fully_masked_rows_are_overwritten_with_what_they_were(
    here: str, there: str, to: Destination, said: str
) -> None:
    assert said in change(dead(here), dead(there), to)


@pytest.mark.parametrize(
    ("here", "there", "meaning", "said"),
    [
        (CANONICAL, "cast_to_bool", "attend", "if old holds only 0 and -inf, pass old == 0 as new; "),
        (CANONICAL, "cast_to_bool", "ignore", "if old holds only 0 and -inf, pass old != 0 as new; "),
        (CANONICAL, "one_minus", "attend", "if old holds only 0 and -inf, pass old == 0 as new; "),
        ("cast_to_bool", CANONICAL, "attend", "pass old != 0 as a boolean new"),
        ("one_minus", CANONICAL, "ignore", "pass old == 0 as a boolean new"),
        (CANONICAL, "subtracted", "attend", "pass -old as new"),
    ],
)
def test_a_float_mask_becomes_the_boolean_that_the_new_argument_reads(
    here: str, there: str, meaning: str, said: str
) -> None:
    to = Destination("sdpa", slot("new", bool=meaning))
    assert change(("float_mask[old]", here), ("float_mask[new]", there), to).startswith(said)


def test_other_numbers_go_where_numbers_are_added() -> None:
    ways = ("float_mask[attn_mask]", CANONICAL), ("float_mask[mask]", "cast_to_bool")
    mask, bias = slot("mask", bool="attend"), slot("bias", float="add")
    assert change(*ways, Destination("sdpa", mask, bias)).endswith("; pass other numbers as bias")
    assert change(*ways, Destination("sdpa", mask)).endswith("; no argument accepts other numbers")


def test_what_helped_before_is_no_longer_needed() -> None:
    ways = ("scale", "square_root"), ("scale", CANONICAL)
    assert (
        change(*ways, TO_SDPA)
        == "no longer needed: if the scale is negative, pass -scale and negate the query (in a layer: wq and bq)"
    )


def test_padding_is_cleaned_only_for_those_who_let_it_through() -> None:
    isolated, leaks = ("nonfinite_value", CANONICAL), ("nonfinite_value", "leaks")
    assert change(isolated, leaks, TO_MHA).startswith("overwrite values at masked positions with finite numbers")
    assert change(leaks, isolated, TO_MHA) == NOTHING


def test_a_causal_flag_that_is_only_a_hint_needs_its_mask() -> None:
    flags = parse_slots(
        {
            "attn_mask": {"role": "mask", "axes": [["q", "k"]], "bool": "ignore"},
            "is_causal": {"role": "causal", "hint": True, "requires": ["attn_mask"]},
            "use_causal_mask": {"role": "causal"},
        }
    )
    hinted, plain = flags["is_causal"], flags["use_causal_mask"]

    def told(here: Slot | None, there: Slot | None) -> tuple[str, ...]:
        return argument_changes("causal", {"causal": (here, there)})

    (said,) = told(plain, hinted)
    assert said.startswith("pass the causal mask itself as attn_mask; is_causal=True is only a hint")
    assert told(hinted, plain) == ("pass use_causal_mask=True alone: the attn_mask that repeats it is not needed",)
    assert told(plain, flags["attn_mask"]) == (
        "pass the causal mask explicitly as attn_mask: True where the key is after the query",
    )
    assert told(plain, plain) == told(None, plain) == ()


def test_a_window_is_written_out_where_the_new_side_takes_only_a_mask() -> None:
    slots = parse_slots(
        {
            "local_window_size": {"role": "window"},
            "attn_mask": {"role": "mask", "axes": [["q", "k"]], "bool": "ignore"},
            "mask": {"role": "mask", "axes": [["q", "k"]], "bool": "attend"},
        }
    )
    window = slots["local_window_size"]

    def told(there: Slot) -> tuple[str, ...]:
        return argument_changes("window", {"window": (window, there)})

    assert told(slots["attn_mask"]) == (
        "pass the window mask explicitly as attn_mask: True where the key is outside the window",
    )
    assert told(slots["mask"]) == ("pass the window mask explicitly as mask: True where the key is inside the window",)
    assert told(window) == ()


MOVED = parse_slots(
    {
        "attn_mask": {"role": "mask", "axes": [["q", "k"]], "bool": "attend"},
        "nonpad": {"role": "lengths", "takes": ["key_padding"], "axes": [["b", "k"]]},
        "plain_causal": {"role": "causal"},
        "end_causal": {"role": "causal", "alignment": "bottom_right"},
        "past_causal": {"role": "causal", "alignment": "past"},
        "moved_causal": {"role": "causal", "moved_by": ["nonpad"]},
        "alone_causal": {"role": "causal", "excludes": ["attn_mask"]},
        "plain_window": {"role": "window"},
        "moved_window": {"role": "window", "arguments": ["left", "right"], "moved_by": ["nonpad"]},
    }
)


def told(kind: str, here: str, there: str, array: str | None = "attn_mask") -> tuple[str, ...]:
    return argument_changes(kind, {kind: (MOVED[here], MOVED[there])}, MOVED.get(array or ""))


def test_a_causal_argument_or_window_that_lengths_shift_is_passed_as_a_mask() -> None:
    by = "by nonpad - seq_len_q in each batch element"
    shifted = f"pass the causal mask in attn_mask if nonpad is given: it shifts the causal mask of moved_causal {by}"
    assert told("causal", "plain_causal", "moved_causal") == (shifted,)
    assert told("causal", "moved_causal", "moved_causal") == ()
    assert told("causal", "moved_causal", "plain_causal") == (
        (
            f"pass the causal mask in attn_mask, shifted {by}, if nonpad was given: "
            "it shifts the causal mask of moved_causal"
        ),
    )
    assert told("causal", "plain_causal", "moved_causal", None)[0].startswith(
        "no argument takes the causal mask if nonpad is given: "
    )
    assert told("window", "plain_window", "moved_window") == (
        f"pass the window mask in attn_mask if nonpad is given: it shifts the window mask of left and right {by}",
    )
    assert told("window", "attn_mask", "moved_window")[0] == "pass left and right instead of a window mask in attn_mask"


def test_a_causal_argument_that_excludes_a_mask_is_passed_in_the_mask() -> None:
    excluded = ("pass the causal mask in attn_mask if attn_mask is given: alone_causal excludes attn_mask",)
    assert told("causal", "plain_causal", "alone_causal") == excluded
    assert told("causal", "alone_causal", "alone_causal") == told("causal", "alone_causal", "plain_causal") == ()


def test_a_causal_argument_that_is_aligned_at_the_other_corner_is_passed_as_a_mask() -> None:
    assert told("causal", "plain_causal", "end_causal") == (
        (
            "pass the causal mask in attn_mask unless there are as many keys as queries: "
            "plain_causal aligns it top left, and end_causal aligns it bottom right"
        ),
    )
    assert told("causal", "plain_causal", "past_causal") == ()


def test_padding_that_is_not_at_the_end_is_a_mask() -> None:
    assert told("key_padding", "attn_mask", "nonpad") == (
        (
            "pass the number of keys that are not padding as nonpad; "
            "pass padding that is not at the end as a mask in attn_mask"
        ),
    )
    assert told("key_padding", "attn_mask", "nonpad", None) == (
        "pass the number of keys that are not padding as nonpad; it must be at the end",
    )
    assert told("key_padding", "nonpad", "attn_mask") == (
        "pass the padding mask explicitly as attn_mask: True where the key is among the first nonpad",
    )
    assert told("key_padding", "nonpad", "nonpad") == ()


def test_a_mask_is_combined_with_what_became_a_mask() -> None:
    pairs = {"key_padding": (MOVED["nonpad"], MOVED["attn_mask"]), "attention": (MOVED["attn_mask"],) * 2}
    assert argument_changes("attention", pairs) == ("combine it with the padding mask: booleans by &",)


def test_an_argument_takes_over_what_the_old_side_passes_in_a_mask() -> None:
    slots = parse_slots(
        {
            "attn_mask": {"role": "mask", "axes": [["q", "k"]], "bool": "attend"},
            "mask": {"role": "mask", "axes": [["q", "k"]], "bool": "attend"},
            "ignored": {"role": "mask", "axes": [["q", "k"]], "bool": "ignore"},
            "sliding_window": {"role": "window", "symmetric": True},
            "look_back": {"role": "window", "left_only": True},
            "window_size": {"role": "window"},
            "is_causal": {"role": "causal", "hint": True, "requires": ["mask"]},
        }
    )

    def told(kind: str, there: str) -> tuple[str, ...]:
        return argument_changes(kind, {kind: (slots["attn_mask"], slots[there])})

    instead = "instead of a window mask in attn_mask"
    wide = f"pass sliding_window {instead}, if the window is equally wide on both sides"
    assert told("window", "sliding_window") == (wide,)
    back = f"pass look_back {instead}, if the window has no limit on the right"
    assert told("window", "look_back") == (back,)
    assert told("window", "window_size") == (f"pass window_size {instead}",)
    assert told("causal", "is_causal") == ()  # a hint replaces no mask
    assert told("attention", "mask") == ("pass it as mask",)
    assert told("attention", "ignored") == ("pass ~attn_mask as ignored, if it is boolean",)
    assert told("attention", "attn_mask") == ()


COUNTED = parse_slots(
    {
        "mask": {"role": "mask", "axes": [["b", "h", "q", "k"]], "bool": "attend"},
        "bias": {"role": "mask", "axes": [["b", "h", "q", "k"]], "float": "add"},
        "added": {"role": "mask", "axes": [["b", "h", "q", "k"]], "float": "add"},
        "window": {"role": "window"},
        "left_plus_one": {"role": "window", "about": "the number of keys on the left plus 1"},
        "lengths": {"role": "lengths", "takes": ["key_padding"], "axes": [["b", "k"]]},
        "less_one": {
            "role": "lengths",
            "takes": ["key_padding"],
            "axes": [["b", "k"]],
            "about": "their number minus 1",
        },
    }
)


@pytest.mark.parametrize(
    ("kind", "here", "there", "said"),
    [
        ("window", "window", "left_plus_one", "left_plus_one takes the number of keys on the left plus 1"),
        ("window", "left_plus_one", "window", "window takes left and right width"),
        ("window", "left_plus_one", "left_plus_one", ""),
        ("window", "mask", "left_plus_one", "left_plus_one (the number of keys on the left plus 1) instead of a"),
        ("key_padding", "lengths", "less_one", "less_one takes their number minus 1"),
        ("key_padding", "less_one", "lengths", "lengths takes the number of leading positions"),
        (
            "key_padding",
            "mask",
            "less_one",
            "instead of a mask, less_one takes their number minus 1; padding that is not",
        ),
    ],
)
def test_what_an_argument_counts_is_told_where_it_is_another_number(
    kind: str, here: str, there: str, said: str
) -> None:
    found = argument_changes(kind, {kind: (COUNTED[here], COUNTED[there])}, COUNTED["bias"])
    assert said in " ".join(found).replace("pass padding", "padding")
    assert bool(said) == bool(found)


def test_where_masks_are_only_added_a_boolean_mask_becomes_floats() -> None:
    pairs = {
        "attention": (COUNTED["mask"], COUNTED["added"]),
        "window": (COUNTED["window"], COUNTED["added"]),
        "additive": (COUNTED["bias"], COUNTED["added"]),
    }
    floats = "with booleans as floats: 0 where they attend, -inf elsewhere"
    assert argument_changes("attention", pairs) == (f"pass it as added, {floats}",)
    assert argument_changes("additive", pairs) == (f"add it to mask, {floats}",)
    either = parse_slots({"m": {"role": "mask", "axes": [["b", "h", "q", "k"]], "bool": "attend", "float": "add"}})["m"]
    assert argument_changes("additive", {"additive": (either, COUNTED["added"])}) == ("pass it as added",)
    assert argument_changes("window", pairs)[0] == (
        "pass the window mask explicitly as added: 0 where the key is inside the window, -inf elsewhere"
    )


def test_two_masks_that_become_one_are_shaped_and_combined() -> None:
    slots = parse_slots(
        {
            "padding": {"role": "mask", "axes": [["b", "k"]], "bool": "ignore"},
            "square": {"role": "mask", "axes": [["q", "k"], ["b*h", "q", "k"]], "bool": "ignore", "float": "add"},
            "items": {"role": "mask", "axes": [["b", "q", "k"]], "broadcast": [], "bool": "attend"},
            "wide": {
                "role": "mask",
                "axes": [["b", "h", "q", "k"]],
                "broadcast": ["b", "h", "q"],
                "bool": "attend",
                "float": "add",
            },
        }
    )

    def pairs(there: str) -> dict[str, tuple[Slot | None, Slot | None]]:
        return {"key_padding": (slots["padding"], slots[there]), "attention": (slots["square"], slots[there])}

    assert argument_changes("key_padding", pairs("wide")) == ("pass it as (batch, 1, 1, seq_len_k)",)
    assert argument_changes("attention", pairs("wide")) == (
        "pass it as (1, 1, seq_len_q, seq_len_k)",
        "combine it with padding: booleans by &, numbers by +",
    )
    assert argument_changes("key_padding", pairs("items")) == ("pass it as (batch, seq_len_q, seq_len_k)",)
    assert argument_changes("attention", pairs("square")) == ("combine it with padding: booleans by |, numbers by +",)


def test_conventions_are_the_points_about_arrays_and_weights(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text('"""\nOne.\n\n* arrays are (batch,\n  seq_len)\n* mask: True\n* weights: (out, in)\n"""\n')
    assert conventions(file) == ("arrays are (batch, seq_len)", "weights: (out, in)")
