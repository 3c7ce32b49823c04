"""The script that calls adapters in old releases detects a claimed release that does not work."""

import runpy
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from conformance import places
from conformance.engine.adapters import read_adapters, subjects_of
from conformance.engine.provision import Provisioned
from conformance.spec.loader import load
from conformance.spec.mistakes import matches

SCRIPT = Path(__file__).parents[1] / "versions" / "versions.py"
versions = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
SUBJECTS = {subject.name: subject for subject in subjects_of(read_adapters([places.adapters()]))}
LISTED = "raises as it was published"
ROWS = {row["package"]: row for row in versions.rows([])}


def outcome(monkeypatch: pytest.MonkeyPatch, cells: Mapping[str, tuple[str, str]]) -> Any:
    """Return the outcome of a subject with these cells: case -> verdict and text; LISTED is a known deviation."""
    subject = SUBJECTS["ort.contrib_gqa"]
    told = {
        (case, subject.name): SimpleNamespace(verdict=verdict, text=text, known=text if text == LISTED else "")
        for case, (verdict, text) in cells.items()
    }
    monkeypatch.setitem(versions.outcomes.__globals__, "read_side", lambda _: SimpleNamespace(cells=told))
    (found,) = versions.outcomes(Path(), [subject])
    return found


@pytest.mark.parametrize(
    ("cells", "wrong"),
    [
        ({"a": ("pass", ""), "b": ("unsupported", "no mask")}, ""),
        ({"a": ("fail", "wrong numbers")}, ""),
        ({"a": ("pass", ""), "b": ("error", "Fail: head_size must be a multiple of 8")}, ""),
        ({"a": ("error", "Fail: head_size must be a multiple of 8")}, "no call succeeded: Fail: head_size"),
        ({"a": ("unsupported", "no mask")}, "no call succeeded: nothing was asked"),
        ({"a": ("error", LISTED)}, ""),
        ({}, "no call succeeded"),
        ({"a": ("pass", ""), "b": ("error", "Fail: Unrecognized attribute: causal for operator")}, "Unrecognized"),
        ({"a": ("pass", ""), "b": ("error", "TypeError: f() got an unexpected keyword argument 'bias'")}, "unexpected"),
    ],
)
def test_a_release_that_is_claimed_has_to_work(
    monkeypatch: pytest.MonkeyPatch, cells: Mapping[str, tuple[str, str]], wrong: str
) -> None:
    found = outcome(monkeypatch, cells)
    assert wrong in found.wrong
    assert bool(found.wrong) == bool(wrong)
    assert ("WRONG" in found.line) == bool(wrong)


def test_a_subject_claims_the_releases_of_its_range() -> None:
    subject = SUBJECTS["ort.attention[opset24]"]
    claimed = [each for each in ROWS["onnxruntime"]["releases"] if versions.claims(subject, "onnxruntime", each)]
    assert claimed
    assert min(map(Version, claimed)) >= Version("1.24")
    assert not versions.claims(subject, "keras", "3.15.1")


def test_what_a_package_forbids_itself_is_left_out() -> None:
    subject = SUBJECTS["ort.contrib_gqa"]
    says = "onnxruntime 1.19.2 requires numpy<2, but you have numpy 2.4.6 which is incompatible."
    other = "flax 0.12.8 requires jax>=0.7, but you have jax 0.4.35 which is incompatible."
    assert versions.forbidden(subject, Provisioned("python", (other, says))) == says
    assert versions.forbidden(subject, Provisioned("python", (other,))) is None


@pytest.mark.parametrize("package", ROWS)
def test_a_row_names_a_package_that_adapters_require_and_releases_in_order(package: str) -> None:
    releases = [Version(str(release)) for release in ROWS[package]["releases"]]
    assert releases == sorted(releases)
    names = {Requirement(text).name for each in SUBJECTS.values() for choice in each.requires for text in choice}
    assert package in names


@pytest.mark.parametrize("glob", versions.CASES)
def test_cases_that_are_asked_exist(glob: str) -> None:
    assert any(matches(glob, case.id) for case in load([places.cases()], places.cases()))
