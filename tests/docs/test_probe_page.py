"""docs/probe-against-semantics.md: rows name existing subjects and decisions, counts match rows, `probe` agrees."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.deviations.catalogue import TABLE
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.names import slot_of
from conformance.engine.adapters import Subject, read_adapters, subjects_of

from ..running import conformance

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "probe-against-semantics.md"
VERDICTS = ("agrees", "agrees, more exact", "agrees in part", "not seen", "differs")
# Subjects that `probe` finishes in seconds.
REPROBED = ("torch.sdpa[math]", "torch.sdpa[flash]", "onnx.attention[reference]")


@dataclass(frozen=True)
class Row:
    subject: str
    decision: str
    measured: str
    probed: str
    verdict: str
    why: str


def rows(text: str) -> list[Row]:
    """Return the rows of the table, in order."""
    found = []
    for line in text.splitlines():
        if line.startswith("| `"):
            subject, decision, measured, probed, last = (cell.strip() for cell in line.strip("|").split("|"))
            verdict, _, why = last.partition(": ")
            found.append(Row(subject.strip("`"), decision.strip("`"), measured, probed, verdict, why))
    return found


def faults(found: Sequence[Row], subjects: dict[str, Subject]) -> Iterator[str]:
    """The errors in the rows, each with its subject and decision."""
    families = {deviation.decision for deviation in TABLE}
    for row in found:
        at = f"{row.subject} {row.decision}"
        family, slot = slot_of(row.decision)
        if row.subject not in subjects:
            yield f"{at}: no such subject"
        elif slot is None and family not in families:
            yield f"{at}: no such decision"
        elif slot is not None and slot not in subjects[row.subject].slots:
            yield f"{at}: no such argument"
        elif slot is not None and row.decision not in {each.decision for each in slot_deviations(slot)}:
            yield f"{at}: no such decision"
        if row.verdict not in VERDICTS:
            yield f"{at}: no such verdict: {row.verdict}"
        if (row.verdict == "not seen") != (row.probed == "-"):
            yield f"{at}: what is not seen has no observation, what is seen has one"
        if row.verdict != "agrees" and not row.why:
            yield f"{at}: says no reason"
    twice = Counter((row.subject, row.decision) for row in found)
    yield from (f"{' '.join(key)}: stands twice" for key, count in twice.items() if count > 1)


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def subjects() -> dict[str, Subject]:
    return {subject.name: subject for subject in subjects_of(read_adapters([ROOT / "adapters"]))}


def test_every_row_names_a_subject_and_a_decision_that_there_are(text: str, subjects: dict[str, Subject]) -> None:
    found = rows(text)
    assert len(found) > 100
    assert list(faults(found, subjects)) == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Row("torch.nothing", "mask_fill", "-", "-inf", "agrees", ""), "no such subject"),
        (Row("torch.sdpa[math]", "mask_fills", "-", "-inf", "agrees", ""), "no such decision"),
        (Row("torch.sdpa[math]", "polarity[mask]", "-", "attend", "agrees", ""), "no such argument"),
        (Row("torch.sdpa[math]", "polarities[attn_mask]", "-", "attend", "agrees", ""), "no such decision"),
        (Row("torch.sdpa[math]", "mask_fill", "-", "-inf", "perhaps", "why"), "no such verdict: perhaps"),
        (Row("torch.sdpa[math]", "mask_fill", "-", "-", "agrees", ""), "what is not seen has no observation"),
        (Row("torch.sdpa[math]", "mask_fill", "-", "-inf", "differs", ""), "says no reason"),
    ],
)
def test_a_wrong_row_is_found(row: Row, said: str, subjects: dict[str, Subject]) -> None:
    (fault,) = faults([row], subjects)
    assert fault.startswith(f"{row.subject} {row.decision}: {said}")


def test_the_figures_are_those_of_the_rows(text: str) -> None:
    counted = Counter(row.verdict for row in rows(text))
    told = dict(re.findall(r"^\| ([a-z, ]+) \| (\d+) \|$", text, re.MULTILINE))
    assert {verdict: int(count) for verdict, count in told.items()} == {each: counted[each] for each in VERDICTS}


@pytest.mark.frameworks
def test_probe_says_today_what_the_page_says(text: str, tmp_path: Path) -> None:
    file, chosen = tmp_path / "probe.json", [word for name in REPROBED for word in ("-a", name)]
    done = conformance("probe", *chosen, "--json", str(file), "--out", str(tmp_path / "run"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = {
        (subject["subject"], line[0]): line[2]
        for subject in json.loads(file.read_text(encoding="utf-8"))["subjects"]
        for line in subject["table"]
    }
    asked = {subject for subject, _ in seen}
    shown = {
        (row.subject, row.decision): row.probed for row in rows(text) if row.subject in asked and row.probed != "-"
    }
    assert len({subject for subject, _ in shown}) == len(asked) > 1
    assert {key: seen[key] for key in shown} == shown
