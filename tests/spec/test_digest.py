"""Digests of problems: they are stable, and they differ if anything in the problem differs."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from conformance.spec.case import Case
from conformance.spec.materialise import distinct, duplicates, materialise, problem_digest

Make = Callable[..., Case]

GOLDEN: dict[str, dict[str, Any]] = {
    "dbadf603b66cde990eb303596066db8503a2678d7573d87e0b40f7c721ea33e5": {},
    "5722d51c2bb05f45cf7d5a765e04c64acc2bb0b46086192c7fd00a9fc482eb7c": {
        "operator": "mha",
        "dtype": "bfloat16",
        "masks": [{"kind": "key_padding", "lengths": [7, 4]}],
    },
    "71896bd78d5916e218c3b93fa10e311af8521f266832ae899d0ac0a1411d80f8": {
        "dtype": "float16",
        "scale": 0.3,
        "masks": [{"kind": "attention", "pattern": "holes"}],
    },
    "9a024fc286397bfb62f649d1f658ee0aadb92fe08c157aa459b56fe4f87bb2bc": {
        "dtype": "float64",
        "inputs": {"distribution": "wide", "alias": "kv"},
        "masks": [{"kind": "causal"}],
    },
}


@pytest.mark.parametrize("digest", GOLDEN)
def test_problems_never_move(make: Make, digest: str) -> None:
    assert problem_digest(materialise(make(**GOLDEN[digest]))) == f"sha256:{digest}"


DIFFERENT: list[dict[str, Any]] = [
    {},
    {"dtype": "float64"},
    {"dtype": "float16"},
    {"operator": "mha"},
    {"operator": "mha", "biases": False},
    {"scale": 0.5},
    {"scale": 0.25},
    {"softcap": 2.0},
    {"softcap": 0.5},
    {"operator": "mha", "dropout_p": 0.5},
    {"inputs": {"layout": "offset"}},
    {"inputs": {"layout": "transposed"}},
    {"inputs": {"layout": "expanded"}},
    {"inputs": {"seed": 1}},
    {"inputs": {"alias": "kv"}},
    {"outputs": ["weights"]},
    {"outputs": ["output", "weights"]},
    {"masks": [{"kind": "causal"}]},
    {"masks": [{"kind": "window", "right": 0}]},
    {"masks": [{"kind": "causal", "element": "float"}]},
    {"masks": [{"kind": "attention", "pattern": "holes"}]},
    {"masks": [{"kind": "attention", "pattern": "holes", "verbatim": True}]},
    {"masks": [{"kind": "attention", "pattern": "holes", "attached": True}]},
    {"masks": [{"kind": "attention", "pattern": "holes", "seed": 1}]},
    {"masks": [{"kind": "attention", "pattern": "holes"}, {"kind": "causal"}]},
]


def test_whatever_differs_shows(make: Make) -> None:
    digests = [problem_digest(materialise(make(**fields))) for fields in DIFFERENT]
    assert len(set(digests)) == len(DIFFERENT)


def test_memory_layout_and_names_do_not_show(make: Make) -> None:
    case = make(name="one", tags=["smoke"], summary="One.")
    problem = materialise(case)
    assert problem_digest(problem) == problem_digest(materialise(make()))
    turned = problem.but(query=np.asfortranarray(problem.query), key=problem.key.astype(">f8"))
    assert problem_digest(turned) == problem_digest(problem)


def test_equal_arrays_are_duplicates_whatever_is_asked_for(make: Make) -> None:
    masks = [{"kind": "attention", "axes": ["k"], "pattern": "all"}]
    fields: dict[str, dict[str, Any]] = {
        "a": {},
        "b": {"masks": masks},
        "c": {"outputs": ["weights"]},
        "d": {"masks": [{"kind": "attention", "axes": ["k"], "values": [1] * 7}]},
        "e": {"inputs": {"seed": 1}},
    }
    cases = [replace(make(**one), id=name) for name, one in fields.items()]
    assert duplicates(cases) == (("a", "c"), ("b", "d"))
    assert distinct(cases) == 3
