"""What an observation takes from a cell record, and how subjects of two environments are matched."""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.engine.logged_cell import LoggedCell
from conformance.engine.run_folder import load_run
from conformance.gate.observations import AmbiguousRunError, ComparedRun, observed, side_of

ASKED = {"suite": "a", "operator": "sdpa", "dtype": "float32"}
HEADER = {
    "type": "header",
    "run": "r",
    "started": "now",
    "cases": {"a": {**ASKED, "digest": "sha256:0123456789abcdef0", "source": "cases/a.yaml:3"}},
    "platform": {"system": "Linux", "machine": "x86_64", "cpu_features": ["avx2", "fma"]},
    "judge": "sha256:j",
}
SCALE = {"decision": "scale", "name": "none", "sentence": "does not scale the logits"}
CAUSE = {"sentence": "does not scale the logits", "cells": ["a"]}
FOOTER = {"type": "footer", "exit_code": 0, "complete": True, "gate": {"conforms": True}}
SUBJECT = {"environment": "base", "device": "cpu", "digest": "sha256:a"}


def log(*names: str, **about: Any) -> tuple[dict[str, Any], ...]:
    subjects = {
        name: {**SUBJECT, "environment": name.rpartition(":")[2] if ":" in name else "default"} for name in names
    }
    worker = {
        "type": "worker",
        "worker": "x",
        "status": "ready",
        "subjects": list(names),
        "python": "3.12.1",
        "versions": {"torch": "2.13.0"},
        "evidence": {"versions": {"numpy": "2.4.6"}, "threads": 1, "device": "cpu"},
    }
    cells = [{"type": "cell", "case": "a", "subject": name, "verdict": "pass"} for name in names]
    return ({**HEADER, "subjects": subjects}, worker, *cells, FOOTER | about)


def read(record: dict[str, Any]) -> Any:
    cell = LoggedCell.model_validate({"case": "a", "subject": "x", "verdict": "fail", **record})
    return observed(cell, Path("run"), "sha256:j")


def side(folder: Path, records: tuple[dict[str, Any], ...], *, plain: bool = True) -> ComparedRun:
    folder.mkdir()
    lines = (json.dumps({"schema": 1, **record}) + "\n" for record in records)
    (folder / "run.jsonl").write_text("".join(lines), encoding="utf-8")
    return side_of(load_run(folder), plain=plain)


def test_a_call_that_was_not_refused_has_the_sentence_of_its_mistake() -> None:
    found = read({"class": "not_refused", "mistake": "two_masks"})
    assert found.not_refused == "accepts two arguments that are documented to exclude each other"
    assert read({"verdict": "pass", "mistake": "two_masks"}).not_refused == ""


def test_an_explanation_comes_before_its_ties() -> None:
    found = read({"explanation": SCALE, "ties": ["scale=squared"], "class": "semantic"})
    assert found.ways == ("scale=none", "scale=squared")
    assert (found.looked, found.klass) == (False, "semantic")


def test_a_broken_relation_stands_for_what_would_explain_the_changed_call() -> None:
    relations = [{"name": "key_order", "found": "holds"}, {"name": "poisoned_value", "found": "broken"}]
    explained = {"explanation": SCALE, "ties": ["x=y"], "class": "invariant"}
    found = read({**explained, "invariants": relations})
    assert (found.ways, found.looked) == (("invariant=poisoned_value",), True)


def test_what_the_joint_diagnosis_rules_out_explains_no_cell(tmp_path: Path) -> None:
    *records, _, footer = log("x")
    failing = {
        "type": "cell",
        "case": "a",
        "subject": "x",
        "verdict": "fail",
        "class": "semantic",
        "explanation": SCALE,
    }
    diagnosis = {"type": "diagnosis", "subject": "x", "causes": [], "unexplained": ["a"]}
    alone = side(tmp_path / "alone", (*records, failing, footer)).cells["a", "x"]
    together = side(tmp_path / "together", (*records, failing, diagnosis, footer)).cells["a", "x"]
    assert (alone.ways, together.ways) == (("scale=none",), ())
    somewhere = {**diagnosis, "unexplained_where": "only with batch > 1"}
    assert (
        side(tmp_path / "where", (*records, failing, somewhere, footer)).cells["a", "x"].condition
        == "only with batch > 1"
    )
    broken = {**failing, "class": "invariant", "invariants": [{"name": "key_order", "found": "broken"}]}
    related = side(tmp_path / "related", (*records, broken, diagnosis, footer)).cells["a", "x"]
    assert related.ways == ("invariant=key_order",)


def test_an_exception_has_the_condition_under_which_it_is_raised(tmp_path: Path) -> None:
    *records, _, footer = log("x")
    raised = {"type": "cell", "case": "a", "subject": "x", "verdict": "error"}
    error = {"error": {"type": "ValueError", "message": "no"}}
    lost = {"cells": ["a"], "condition": "only in float16"}
    diagnosis = {"type": "diagnosis", "subject": "x", "causes": [], "unexplained": [], "errors": [lost]}
    found = side(tmp_path / "run", (*records, raised | error, diagnosis, footer)).cells["a", "x"]
    assert (found.error, found.condition) == ("ValueError", "only in float16")


def test_the_joint_diagnosis_comes_first_with_its_condition(tmp_path: Path) -> None:
    cause = {"decisions": {"scale": "none", "use[mask]": "ignored"}, "condition": "only in float16"}
    records = log("x")
    joined = (*records[:-1], {"type": "diagnosis", "subject": "x", "causes": [CAUSE | cause]}, records[-1])
    cell = side(tmp_path / "run", joined).cells["a", "x"]
    assert (cell.ways, cell.condition) == (("scale=none & use[mask]=ignored",), "only in float16")
    coarse = {"arithmetic": "tf32", "profile": {"mm": "tf32"}}
    joined = (*records[:-1], {"type": "diagnosis", "subject": "x", "causes": [CAUSE | coarse]}, records[-1])
    assert side(tmp_path / "coarse", joined).cells["a", "x"].ways == ("arithmetic=tf32",)


def test_addresses_in_messages_do_not_differ_from_run_to_run() -> None:
    found = read({"error": {"type": "E", "message": "\n at 0x7f12 it fails\n\n\x1b[1mmore\x1b[0m"}})
    assert (found.error, found.text) == ("E", "at 0x… it fails more")


def test_a_subject_is_named_without_its_environment(tmp_path: Path) -> None:
    base = side(tmp_path / "base", log("torch.sdpa[math]@cpu:base"))
    now = side(tmp_path / "now", log("torch.sdpa[math]@cpu:candidate"))
    default = side(tmp_path / "default", log("torch.sdpa[math]"))
    assert list(base.cells) == list(now.cells) == list(default.cells) == [("a", "torch.sdpa[math]")]
    about = base.asked["torch.sdpa[math]"]
    assert about.versions == {"numpy": "2.4.6", "torch": "2.13.0", "python": "3.12.1"}
    machine = {"platform": "Linux-x86_64", "cpu_features": "avx2 fma", "device": "cpu", "threads": 1}
    assert about.machine == machine
    assert base.cases == {"a": "0123456789abcdef"}
    assert list(side(tmp_path / "full", log("x@cpu:base"), plain=False).cells) == [("a", "x@cpu:base")]


def test_a_device_stays_in_the_name(tmp_path: Path) -> None:
    assert list(side(tmp_path / "base", log("x@cuda:base")).asked) == ["x@cuda"]


def test_two_environments_in_one_run_are_ambiguous(tmp_path: Path) -> None:
    with pytest.raises(AmbiguousRunError, match="x was judged in several environments; write each environment"):
        side(tmp_path / "both", log("x@cpu:base", "x@cpu:candidate"))


def test_what_the_gate_missed_is_missing(tmp_path: Path) -> None:
    found = side(tmp_path / "base", log("x", gate={"conforms": False, "incomplete": ["torch: did not start"]}))
    assert found.missing == (f"{tmp_path / 'base'}: torch: did not start",)
