"""Pairs of features that no case combines: counted by hand on a few calls."""

from dataclasses import replace
from pathlib import Path

from conformance.diagnosis.detectability import FACETS, NEVER, missing_pairs
from conformance.spec.loader import load
from conformance.spec.materialise import materialise

TEXT = """\
format: 1
suite: small
summary: A few calls.
defaults: {operator: sdpa, batch: 2, num_heads: 3, head_dim: 5, seq_len_q: 7, seq_len_k: 11}
cases:
  - {name: scaled, scale: 0.5, softcap: 2}
  - {name: one_query, seq_len_q: 1, scale: 2}
  - {name: more, seq_len_q: 13, inputs: {seed: 1}}
"""


def test_a_pair_is_missing_if_each_is_asked_and_never_both(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(TEXT, encoding="utf-8")
    scaled, one_query, more = (materialise(case) for case in load([tmp_path], tmp_path))
    assert missing_pairs([scaled]) == {"sdpa": ()}
    assert missing_pairs([scaled, one_query]) == {"sdpa": (("a softcap", "one query"),)}
    # A call with one query cannot have more queries than keys, so that pair is not missing.
    apart = (("a softcap", "one query"), ("a softcap", "more queries than keys"), ("a scale", "more queries than keys"))
    assert missing_pairs([scaled, one_query, more]) == {"sdpa": apart}
    assert missing_pairs([scaled, one_query, replace(more, scale=3.0, softcap=1.0)])["sdpa"] == apart[:1]


def test_what_never_goes_together_are_names_of_what_there_is() -> None:
    assert {name for pair in NEVER for name in pair} <= set(FACETS)
