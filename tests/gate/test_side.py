"""What is read off a cell's record, and how subjects of two environments meet."""

from pathlib import Path
from typing import Any

import pytest

from conformance.gate.side import AmbiguousRunError, observed, side_of

HEADER = {
    "type": "header",
    "cases": {"a": {"digest": "sha256:0123456789abcdef0", "source": "cases/a.yaml:3"}},
    "platform": {"system": "Linux", "machine": "x86_64", "cpu_features": ["avx2", "fma"]},
    "judge": "sha256:j",
}
SUBJECT = {"environment": "base", "device": "cpu", "digest": "sha256:a"}


def log(*names: str, **about: Any) -> tuple[dict[str, Any], ...]:
    subjects = {
        name: {**SUBJECT, "environment": name.rpartition(":")[2] if ":" in name else "default"} for name in names
    }
    worker = {
        "type": "worker",
        "status": "ready",
        "subjects": list(names),
        "python": "3.12.1",
        "versions": {"torch": "2.13.0"},
        "evidence": {"versions": {"numpy": "2.4.6"}, "threads": 1, "device": "cpu"},
    }
    cells = [{"type": "cell", "case": "a", "subject": name, "verdict": "pass"} for name in names]
    return ({**HEADER, "subjects": subjects}, worker, *cells, {"type": "footer", "gate": {}} | about)


def read(record: dict[str, Any]) -> Any:
    return observed({"verdict": "fail", **record}, Path("run"), "sha256:j")


def test_an_explanation_comes_before_its_ties() -> None:
    found = read({"explanation": {"decision": "scale", "name": "none"}, "ties": ["scale=squared"], "class": "semantic"})
    assert found.ways == ("scale=none", "scale=squared")
    assert (found.looked, found.klass) == (False, "semantic")


def test_a_broken_relation_stands_for_what_would_explain_the_changed_call() -> None:
    relations = [{"name": "key_order", "found": "holds"}, {"name": "poisoned_value", "found": "broken"}]
    explained = {"explanation": {"decision": "scale", "name": "none"}, "ties": ["x=y"], "class": "invariant"}
    found = read({**explained, "invariants": relations})
    assert (found.ways, found.looked) == (("invariant=poisoned_value",), True)


def test_the_joint_diagnosis_comes_first_with_its_condition() -> None:
    cause = {"decisions": {"scale": "none", "use[mask]": "ignored"}, "condition": "only in float16", "cells": ["a"]}
    records = log("x")
    joined = (*records[:-1], {"type": "diagnosis", "subject": "x", "causes": [cause]}, records[-1])
    cell = side_of("run", joined, Path("run")).cells["a", "x"]
    assert (cell.ways, cell.condition) == (("scale=none & use[mask]=ignored",), "only in float16")
    coarse = {"arithmetic": "tf32", "profile": {"mm": "tf32"}, "cells": ["a"]}
    joined = (*records[:-1], {"type": "diagnosis", "subject": "x", "causes": [coarse]}, records[-1])
    assert side_of("run", joined, Path("run")).cells["a", "x"].ways == ("arithmetic=tf32",)


def test_addresses_in_messages_do_not_differ_from_run_to_run() -> None:
    found = read({"error": {"type": "E", "message": "\n at 0x7f12 it fails\n\n\x1b[1mmore\x1b[0m"}})
    assert (found.error, found.text) == ("E", "at 0x… it fails more")


def test_a_subject_is_named_without_its_environment() -> None:
    base = side_of("base", log("torch.sdpa[math]@cpu:base"), Path("run"))
    now = side_of("now", log("torch.sdpa[math]@cpu:candidate"), Path("run"))
    default = side_of("default", log("torch.sdpa[math]"), Path("run"))
    assert list(base.cells) == list(now.cells) == list(default.cells) == [("a", "torch.sdpa[math]")]
    about = base.asked["torch.sdpa[math]"]
    assert about.versions == {"numpy": "2.4.6", "torch": "2.13.0", "python": "3.12.1"}
    machine = {"platform": "Linux-x86_64", "cpu_features": "avx2 fma", "device": "cpu", "threads": 1}
    assert about.machine == machine
    assert base.cases == {"a": "0123456789abcdef"}
    assert list(side_of("full", log("x@cpu:base"), Path("run"), plain=False).cells) == [("a", "x@cpu:base")]


def test_a_device_stays_in_the_name() -> None:
    assert list(side_of("base", log("x@cuda:base"), Path("run")).asked) == ["x@cuda"]


def test_two_environments_in_one_run_are_ambiguous() -> None:
    with pytest.raises(AmbiguousRunError, match="x was judged in several environments; run each into a folder of its"):
        side_of("both", log("x@cpu:base", "x@cpu:candidate"), Path("run"))


def test_what_the_gate_missed_is_missing() -> None:
    found = side_of("base", log("x", gate={"incomplete": ["torch: did not start"]}), Path("run"))
    assert found.missing == ("base: torch: did not start",)
