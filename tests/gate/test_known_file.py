"""The file of known deviations: every mistake is reported with its place, and every entry knows its line."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from conformance.bounds.bound import Bound
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Expected
from conformance.gate.known_file import PACKAGED, read_known
from conformance.spec.mistakes import MAX_MISTAKES, CaseFileErrors
from conformance.spec.refusals import REFUSALS
from conformance.verdicts.compare import compare

GOOD = """\
format: 1
deviations:
  - subject: torch.mha*
    when: {fully_masked_row: true}
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
    when: {fully_masked_rows: true}
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
    assert "expected one of nan, uniform, unmasked" in lines[1][1]
    assert "did you mean 'fully_masked_row'" in lines[2][1]


def test_an_entry_has_a_delta_or_accept_and_not_both(tmp_path: Path) -> None:
    both = GOOD.replace("    accept:", "    delta: {decisions: {scale: none}}\n    accept:")
    with pytest.raises(CaseFileErrors, match="exactly one of delta and accept"):
        read(tmp_path, both)


def test_an_entry_may_be_about_several_subjects_and_cases(tmp_path: Path) -> None:
    path = tmp_path / "known.yaml"
    several = GOOD.replace("torch.mha*", '["torch.mha[*", jax.sdpa]').replace("shapes/*", "[shapes/*, masks/one]")
    path.write_text(several, encoding="utf-8")
    (first, _), (second, _) = read_known([path])
    assert [first.concerns(name, "any") for name in ("torch.mha[eval]", "jax.sdpa", "jax.sdpa[jit]")] == [1, 1, 0]
    assert [second.concerns("keras.mha[jax]", case) for case in ("shapes/a", "masks/one", "masks/two")] == [1, 1, 0]


def test_an_entry_holds_in_every_environment_but_not_on_every_device(tmp_path: Path) -> None:
    path = tmp_path / "known.yaml"
    path.write_text(
        GOOD.replace("torch.mha*", '["torch.mha[eval]", "flax.mha@cuda", "ort.mha@cpu:old"]'), encoding="utf-8"
    )
    (entry, _), *_ = read_known([path])
    about = ("torch.mha[eval]", "torch.mha[eval]@cpu:new", "flax.mha@cuda", "flax.mha@cuda:new", "ort.mha@cpu:old")
    assert all(entry.names(subject) for subject in about)
    others = ("torch.mha[eval]@cuda", "torch.mha[eval]@cuda:new", "flax.mha@cpu:new", "ort.mha", "ort.mha@cpu:new")
    assert not any(entry.names(subject) for subject in others)


def test_an_entry_about_no_subject_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CaseFileErrors):
        read(tmp_path, GOOD.replace("subject: torch.mha*", "subject: []"))


def unconditional(path: Path) -> list[str]:
    """Return the entries that apply to every call of a subject without a comment above them that says why."""
    rows = path.read_text(encoding="utf-8").splitlines()
    found = []
    for entry, origin in read_known([path]):
        row = int(origin.rpartition(":")[2]) - 1
        told = rows[row - 1].strip().startswith("# No condition:")
        if not ({"when", "cases", "versions"} & entry.model_fields_set or told):
            found.append(origin)
    return found


def test_every_packaged_entry_has_a_condition_or_says_why_it_has_none(tmp_path: Path) -> None:
    assert unconditional(PACKAGED) == []
    bare = tmp_path / "known.yaml"
    bare.write_text(GOOD.replace("    when: {fully_masked_row: true}\n", ""), encoding="utf-8")
    assert unconditional(bare) == [f"{bare}:3"]


def test_the_packaged_list_is_readable_and_every_entry_has_a_reason_and_a_link() -> None:
    for entry, _ in read_known([PACKAGED]):
        assert entry.reason
        assert entry.link.startswith("https://")


@pytest.mark.parametrize(
    ("content", "mistake"),
    [
        (
            GOOD.encode().replace(b"A fully", b"caf\xe9"),
            "6:16: cannot be read: invalid UTF-8 byte 0xe9; save the file as UTF-8",
        ),
        (b"#" * (2**20 + 1), "1:1: the file has 1048577 bytes; at most 1048576 are allowed"),
        (b"", "1:1: the file is empty; expected format and deviations"),
        (
            GOOD.encode().replace(b"fully_masked_row: true", b"sizes_differ: [[head_dim]]"),
            "4:27: item 1 is missing",
        ),
        (GOOD.encode().replace(b"fully_masked_row: true", b"sizes_differ: [[]]"), "4:27: item 0 is missing"),
        (
            GOOD.encode().replace(b"fully_masked_row: true", b"sizes_equal: [[a, b, c]]"),
            "expected at most 2 items, got ['a', 'b', 'c']",
        ),
        (
            GOOD.encode().replace(b"fully_masked_row: true", b"sizes_multiple: {head_dim: 0}"),
            "4:39: head_dim: expected at least 1, got 0",
        ),
        (
            GOOD.encode().replace(b"cannot reshape", b"'a{99999999999}'"),
            "11:39: message: not a valid regular expression: ",
        ),
    ],
)
def test_what_no_list_can_be_is_a_mistake_with_its_place(tmp_path: Path, content: bytes, mistake: str) -> None:
    path = tmp_path / "known.yaml"
    path.write_bytes(content)
    with pytest.raises(CaseFileErrors) as caught:
        read_known([path])
    assert mistake in str(caught.value)


def test_of_very_many_mistakes_the_first_are_told_and_how_many_there_are(tmp_path: Path) -> None:
    many = GOOD + "".join(f"    k{number}: 1\n" for number in range(30_000))
    started = time.process_time()
    with pytest.raises(CaseFileErrors) as caught:
        read(tmp_path, many)
    assert len(caught.value.mistakes) == MAX_MISTAKES + 1
    assert caught.value.mistakes[-1].message == "only 100 of 30000 mistakes are listed"
    assert time.process_time() - started < 10


# Messages of frameworks that are quoted by entries with our own verdicts: the reason why a refusal does not count.
OF_FRAMEWORKS = {"inconsistent q_sequence_length"}


def test_a_message_of_ours_that_the_packaged_list_quotes_is_still_said() -> None:
    hard, none, worst, spread = (np.full(7, each) for each in (500.0, 0.0, 4.0, 1000.0))
    wide = Bound(hard, none, worst, np.ones(7, dtype=bool), spread, none)
    zeros = np.zeros(7)
    unjudged = compare("grad_key", Expected(zeros, "float64"), Tensor.of(zeros), wide, rms_gate=False)
    assert unjudged.verdict == "inconclusive"
    said = [unjudged.message, *(f"{each.sentence}: it returned output" for each in REFUSALS.values())]
    quoted = {
        entry.accept.message
        for entry, _ in read_known([PACKAGED])
        if entry.accept is not None and entry.accept.verdict in ("fail", "inconclusive")
    }
    stale = {message for message in quoted if not any(re.search(message, each) for each in said)}
    assert "meaningful tolerance" in quoted
    assert stale == OF_FRAMEWORKS
