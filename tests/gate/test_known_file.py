"""The file of known deviations: six mistakes, six places; what is right keeps its line."""

from pathlib import Path

import pytest

from conformance.gate.known_file import PACKAGED, read_known
from conformance.spec.mistakes import CaseFileErrors

GOOD = """\
format: 1
deviations:
  - subject: torch.mha*
    when: {dead_row: true}
    delta: {decisions: {fully_masked_row: nan}}
    reason: A fully masked row is NaN.
    link: https://github.com/pytorch/pytorch/issues/41508
  - subject: keras.mha[jax]
    cases: shapes/*
    versions: {keras: ">=3.7"}
    accept: {verdict: error, message: cannot reshape}
    reason: value_dim needs equal head sizes.
    link: https://github.com/keras-team/keras/pull/20448
    expires: 2027-06-01
"""

BAD = """\
format: 1
deviations:
  - subject: a
    wen: {}
    delta: {decisions: {fully_masked_row: nann}}
    reason: A reason that is long enough.
    link: https://example.org
  - subject: b
    when: {dead_rows: true}
    delta: {profile: {accumulator: float32}}
    reason: too short
    link: http://example.org
"""


def read(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "known.yaml"
    path.write_text(text, encoding="utf-8")
    return [origin.removeprefix(f"{tmp_path}/") for _, origin in read_known([path])]


def test_entries_know_where_they_stand(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD) == ["known.yaml:3", "known.yaml:8"]


def test_six_mistakes_are_reported_at_once_with_their_places(tmp_path: Path) -> None:
    with pytest.raises(CaseFileErrors) as caught:
        read(tmp_path, BAD)
    lines = [(mistake.line, mistake.message) for mistake in caught.value.mistakes]
    assert [line for line, _ in lines] == [4, 5, 9, 10, 11, 12]
    assert "did you mean 'when'" in lines[0][1]
    assert "it is one of nan, uniform, unmasked" in lines[1][1]
    assert "did you mean 'dead_row'" in lines[2][1]


def test_an_entry_has_a_delta_or_accept_and_not_both(tmp_path: Path) -> None:
    both = GOOD.replace("    accept:", "    delta: {decisions: {scale: none}}\n    accept:")
    with pytest.raises(CaseFileErrors, match="either a delta or accept"):
        read(tmp_path, both)


def test_the_packaged_list_is_readable_and_every_entry_has_a_reason_and_a_link() -> None:
    for entry, _ in read_known([PACKAGED]):
        assert entry.reason
        assert entry.link.startswith("https://")
