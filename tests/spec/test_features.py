"""The features of a case, and ordinary cases: those whose every feature also occurs in another case."""

from collections.abc import Callable
from dataclasses import replace

from conformance.spec.case import Case, features, ordinary

Make = Callable[..., Case]


def test_a_case_has_what_it_asks_for(make: Make) -> None:
    case = make(
        operator="mha",
        dtype="float16",
        outputs=["output", "weights"],
        biases=False,
        inputs={"alias": "kv"},
        masks=[{"kind": "attention", "verbatim": True, "element": "int", "pattern": "holes"}, {"kind": "causal"}],
    )
    assert {
        "operator mha",
        "dtype float16",
        "output weights",
        "alias kv",
        "requirement no_bias",
        "mask attention",
        "mask attention verbatim as int",
        "mask causal as bool",
        "query_dim = kdim",
    } <= features(case)


def test_an_attached_mask_is_one_that_a_passed_one_is_not(make: Make) -> None:
    passed, attached = (
        features(make(operator="mha", masks=[{"kind": "key_padding", "lengths": [7, 4], "attached": how}]))
        for how in (False, True)
    )
    assert attached - passed == {"mask key_padding attached"}


def test_sizes_are_compared_in_pairs_and_with_one(make: Make) -> None:
    found = features(make(operator="sdpa", batch=1, num_heads=3, seq_len_q=5, seq_len_k=7, head_dim=7))
    assert {"batch = 1", "seq_len_q < seq_len_k", "seq_len_k = head_dim", "num_heads = num_kv_heads"} <= found
    assert not any("kdim" in feature for feature in found)


def test_a_feature_that_no_other_case_has_makes_a_case_special(make: Make) -> None:
    one, same, other = make(), make(), make(dtype="float64")
    cases = [replace(case, id=name) for name, case in (("one", one), ("same", same), ("other", other))]
    assert [case.id for case in ordinary(cases)] == ["one", "same"]
