"""Pairs of deviations are tried on the cells with the fewest masks first, and only where they can explain more."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf, prod

import numpy as np
import pytest

from conformance.deviations.catalogue import evaluate
from conformance.deviations.measured import Measured
from conformance.diagnosis import candidates, diagnosis
from conformance.diagnosis.candidates import Candidate, Cause, pairs, shows_with_fewer
from conformance.diagnosis.conditions import Condition
from conformance.diagnosis.evidence import Change, Evidence
from conformance.diagnosis.search import Search
from conformance.diagnosis.suspect import Suspect

from ..problems import random_mha
from .judged_cells import SIZES, bent, cell, flagged, padded, plain, reply

BY = 0.1
BOTH = {"value_path": "reversed", "scale": "none"}


def poisoned(evidence: Evidence) -> Evidence:
    """The same cell with NaN in a key."""
    key = evidence.problem.key.copy()
    key[0, 0, 0, 0] = np.nan
    return replace(evidence, problem=evidence.problem.but(key=key))


def fully_masked(evidence: Evidence) -> Evidence:
    """The same cell with a fully masked row."""
    (operand,) = evidence.problem.mask_operands
    allowed = np.broadcast_to(operand.values, (*operand.values.shape[:2], 5, 7)).copy()
    allowed[:, :, 1] = False
    return replace(evidence, problem=evidence.problem.but(mask_operands=(replace(operand, values=allowed),)))


PLAIN, PADDED, CAUSAL = bent(plain(2, 5, 7), BY), bent(padded(2, 5, 7), BY), bent(flagged(2, 5, 7), BY)
HALF = bent(plain(2, 5, 7, "float16"), BY)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (PADDED, PLAIN, True),
        (PADDED, PADDED, True),
        (HALF, PLAIN, True),
        (PLAIN, PADDED, False),
        (PADDED, CAUSAL, False),
        (PADDED, HALF, False),
        (PADDED, poisoned(PLAIN), False),
        (PADDED, fully_masked(PADDED), False),
    ],
    ids=["more masks", "the same", "coarser", "fewer masks", "another mask", "finer", "NaN", "fully masked row"],
)
def test_a_mistake_that_shows_without_a_mask_shows_with_one(one: Evidence, other: Evidence, *, expected: bool) -> None:
    assert shows_with_fewer(one, [other]) == expected


def test_a_large_call_without_a_mask_is_among_the_few_that_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MAX_PAIRED_CELLS", 1)
    found = pairs([bent(padded(1, 5, 7), BY), cell(plain(2, 17, 19), BOTH)], [])
    assert BOTH in [dict(each.change) for each in found]


def test_on_a_large_call_only_the_cheapest_pairs_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    large = cell(plain(2, 17, 19), BOTH)
    assert BOTH in [dict(each.change) for each in pairs([large], [])]
    monkeypatch.setattr(candidates, "MAX_PAIRED_LOGITS", prod(large.problem.logits_shape))  # one pair
    assert BOTH not in [dict(each.change) for each in pairs([large], [])]


def cause(decision: str, name: str) -> Cause:
    """A cause without a condition."""
    return Cause(Candidate(((decision, name),)), (Condition(),), ())


def tried(cells: list[Evidence], monkeypatch: pytest.MonkeyPatch) -> tuple[list[Change], set[str]]:
    """The pairs that are found, and the cases on which they are tried."""
    explained_by, seen = Evidence.explained_by, set()

    def watched(self: Evidence, change: Change) -> bool:
        seen.add(self.case)
        return explained_by(self, change)

    monkeypatch.setattr(Evidence, "explained_by", watched)
    return [each.change for each in pairs(cells, [])], seen


def test_pairs_are_not_tried_where_the_failure_shows_with_fewer_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    found, seen = tried([PADDED, PLAIN, HALF], monkeypatch)
    assert found == []
    assert seen == {PLAIN.case}


def test_the_search_ends_with_a_pair_that_explains_all_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [cell(each, BOTH) for each in (padded(2, 5, 7), plain(2, 5, 7), flagged(2, 5, 7))]
    cells = [replace(each, found=()) for each in cells]
    found, _ = tried(cells, monkeypatch)
    assert frozenset(BOTH.items()) in {frozenset(change) for change in found}
    asked = {change for change in found if len(change) == 2}
    assert len(asked) == len(found) <= 8


@pytest.mark.parametrize(("guard", "found"), [(Condition(), False), (Condition(dtype=["float16"]), True)])
def test_a_pair_without_an_earlier_cause_is_sought_where_its_condition_does_not_hold(
    guard: Condition, *, found: bool
) -> None:
    cells = [replace(cell(plain(*size), BOTH), found=()) for size in SIZES]
    earlier = Cause(Candidate((("causal_mask", "ignored"),)), (guard,), ())
    assert bool(list(pairs(cells, [earlier]))) is found


def test_a_pair_that_shows_with_a_mask_only_is_found() -> None:
    both = {"use[padding]": "ignored", "value_path": "reversed"}
    cells = [replace(cell(padded(*size), both), found=()) for size in ((2, 5, 7), (2, 7, 7))]
    assert frozenset(both.items()) in {frozenset(each.change) for each in pairs(cells, [])}


def test_two_mistakes_that_were_found_are_combined_before_others_are_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    """A causal loop over tiles of 128 keys would explain the calls that show both mistakes, and those that show one."""
    ignored, dropped = {"causal_mask": "ignored"}, {"key_tail": "last_dropped"}
    calls = [flagged(*size) for size in SIZES]
    cells = [cell(call, ignored) for call in calls[:2]]
    cells += [cell(plain(*size), dropped) for size in SIZES]
    cells += [cell(call, ignored | dropped) for call in calls[2:]]
    sought: list[Evidence] = []

    def none(open_cells: list[Evidence], _: object) -> Iterator[Candidate]:
        sought.extend(open_cells)
        yield from ()

    monkeypatch.setattr(diagnosis, "fitted", none)
    monkeypatch.setattr(diagnosis, "pairs", none)
    found = diagnosis.diagnose(cells)
    assert {way for cause in found.causes for way in cause.candidate.change} == {*ignored.items(), *dropped.items()}
    assert sought == []


def test_of_pairs_that_explain_as_much_the_cheapest_comes_first() -> None:
    """The calls have 7 keys, so unmasked tiles of 8 or more keys do the same as an ignored causal mask."""
    both = {"key_tail": "last_dropped", "causal_mask": "ignored"}
    cells = [cell(flagged(*size), both) for size in SIZES[:3]]
    found = [dict(each.change) for each in pairs(cells, [cause("key_tail", "last_dropped")])]
    assert found[0] == both
    assert {"key_tail": "last_dropped", "causal_key_tile": "shown_8"} in found


def test_everyday_mistakes_that_only_show_together_are_found_at_first_sight() -> None:
    both = {"arguments": "key_value", "result_dtype": "float64"}
    cells = [cell(plain(*size), both) for size in SIZES]
    assert [dict(cause.candidate.change) for cause in diagnosis.first_look(cells)] == [both]


def test_a_rare_mistake_is_found_at_first_sight_though_a_usual_one_explains_a_few_calls() -> None:
    """With one query and one key, key and value may be swapped as well."""
    rare, usual = {"arguments": "key_as_value"}, (("arguments", "key_value"),)
    sizes = [(batch, 1, 1) for batch in (1, 2, 3, 5)] + [(batch, 5, 7) for batch in (1, 2, 3, 5, 7)]
    widths = (11, 11, 11)
    cells = [
        cell(random_mha(seed, batch=batch, seq_len_q=q, seq_len_k=k, widths=widths, outputs=("output",)), rare)
        for seed, (batch, q, k) in enumerate(sizes)
    ]
    assert [each.loosely_conforms_under(usual) for each in cells] == [True] * 4 + [False] * 5
    assert [dict(cause.candidate.change) for cause in diagnosis.first_look(cells)] == [rare]


@pytest.mark.parametrize("mistake", [("scale", "none"), ("value_path", "reversed"), ("softmax_axis", "queries")])
def test_a_number_is_measured_beside_a_mistake_that_shows_in_every_call(mistake: tuple[str, str]) -> None:
    """Neither mistake explains a call alone, and a number has too many values to be tried in pairs."""
    both = {mistake[0]: mistake[1], "softmax_denominator": "plus_0.037"}
    found = diagnosis.diagnose([cell(plain(*size), both) for size in SIZES])
    assert [dict(cause.candidate.change) for cause in found.causes] == [both]
    assert found.unexplained == ()


def test_a_second_deviation_that_only_widens_the_bound_is_no_part_of_a_pair() -> None:
    """If values are summed without weights, the scale does not change the output, but a larger one widens its bound."""
    summed = ("value_path", "summed")
    asked = plain(2, 5, 7)
    asked = asked.but(query=64.0 * asked.query, scale=0.01)
    sums = evaluate(asked, dict([summed]), score="float32").reply["output"].values
    inexact = replace(reply(asked, sums * (1.0 + 1e-4)), found=())
    assert not inexact.explained_by((summed,))
    assert inexact.explained_by((("scale", "none"), summed))
    assert list(pairs([inexact] * 4, [cause(*summed)])) == []


def test_a_rare_deviation_without_a_condition_explains_a_single_call_if_nothing_else_is_left() -> None:
    """It costs more than a call without a cause."""
    ignored, repeated = ("use[padding]", "ignored"), ("key_tail", "repeated_32")
    masked = [replace(cell(padded(*size), dict([ignored])), found=()) for size in SIZES]
    long = replace(cell(plain(1, 5, 37), dict([repeated])), found=())

    def changes(*cells: Evidence) -> list[Change]:
        search = Search([*masked, long, *cells])
        search.take([Candidate((ignored,)), Candidate((repeated,))])
        return search.changes()

    assert changes() == [(ignored,), (repeated,)]
    assert changes(bent(plain(1, 5, 11), BY)) == [(ignored,)], "another call is left without a cause"
    assert changes(cell(plain(1, 7, 37), {})) == [(ignored,)], "a call contradicts it, so it needs a condition"


def test_a_cheaper_deviation_that_other_calls_contradict_is_not_the_cause() -> None:
    """With a single key, an added number equals an ignored mask; other calls show that the mask is not ignored."""
    fills = ("mask_fill", "adds_-100")
    every = padded(1, 5, 1)
    cells = [replace(cell(every, dict([fills])), found=()), *(cell(padded(*size), {}) for size in SIZES)]
    search = Search(cells)
    search.take([Candidate((("use[padding]", "ignored"),)), Candidate((fills,))])
    assert [(cause.candidate.change, cause.guards[0].words) for cause in search.causes] == [((fills,), "")]


def test_a_number_of_which_few_calls_show_all_digits_explains_all() -> None:
    exact = {"softmax_denominator": "plus_0.6931471805599453"}
    coarse = [cell(plain(*size), exact) for size in SIZES]
    found = diagnosis.diagnose([*coarse, cell(plain(2, 5, 7, "float64"), exact)])
    assert found.unexplained == ()
    assert [round(float(cause.candidate.change[0][1].removeprefix("plus_")), 12) for cause in found.causes] == [
        0.693147180560
    ]


def test_to_a_call_with_a_known_explanation_only_cheap_numbers_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the kinds of numbers for this call, the cheapest costs 7 bits; a missing scale costs 3."""
    fitted: set[str] = set()

    def solve(kind: Measured, _suspect: Suspect, _beside: Change) -> list[float]:
        fitted.add(kind.decision)
        return []

    monkeypatch.setattr(candidates, "solve", solve)
    unscaled = cell(flagged(2, 5, 7), {"scale": "none"})
    assert list(candidates.numbers([unscaled], known=lambda _: Candidate((("scale", "none"),)).bits)) == []
    assert fitted == set()
    assert list(candidates.numbers([unscaled])) == []
    assert fitted >= {"scale", "softmax_denominator", "mask_fill"}


def test_the_cheapest_explanation_is_one_that_no_conforming_call_contradicts() -> None:
    ignored, unscaled = (Candidate((way,)) for way in (("causal_mask", "ignored"), ("scale", "none")))
    failing = [cell(flagged(*size), {"causal_mask": "ignored"}) for size in SIZES]
    without, with_flag = (Search([*failing, cell(asked(1, 5, 7), {})]) for asked in (plain, flagged))
    assert without.cheapest([unscaled, ignored], failing[0]) == ignored.bits
    assert without.cheapest([unscaled], failing[0]) == inf
    assert with_flag.cheapest([ignored], failing[0]) == inf
