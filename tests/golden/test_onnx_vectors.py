"""
Compare the oracle with independent numbers: the Attention node tests in the `onnx` package.

`conformance import onnx` converts them to cases. Every case is compared within the tolerance that onnx publishes or, if
it is larger in half precision, the bound of the arithmetic in which the reference of onnx computed the numbers.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from conformance.spec.case import Case, CausalMask
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.verdicts.expectation import PublishedFinding, published_findings

from ..running import cells as judged
from ..running import conformance

pytestmark = pytest.mark.frameworks

COLLECT = """
from onnx.backend.test.case.node import collect_testcases
nodes = {t.name: t.model.graph.node[0] for t in collect_testcases("Attention") if t.model is not None}
print(*(name.removeprefix("test_attention_") for name, node in nodes.items() if node.op_type == "Attention"))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnx") / "vectors"


@pytest.fixture(scope="module")
def said(folder: Path) -> list[str]:
    done = conformance("import", "onnx", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def cases(said: list[str], folder: Path) -> Mapping[str, Case]:
    assert said
    return {case.name: case for case in load([folder], folder)}


def findings(cases: Mapping[str, Case]) -> Mapping[str, PublishedFinding]:
    return {found.case.partition("/")[2]: found for found in published_findings(cases.values(), materialise)}


def test_every_vector_of_the_package_is_a_case(said: list[str], cases: Mapping[str, Case]) -> None:
    collected = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", COLLECT], capture_output=True, text=True, check=True
    )
    names = collected.stdout.split()
    assert len(names) >= 93
    assert list(cases) == names
    assert [line.partition("  ")[0] for line in said if "agrees" in line][: len(names)] == names
    assert said[-2].endswith(f"{len(names)} vectors, {len(names)} cases; the oracle agrees with {len(names)}")


def test_the_oracle_agrees_with_every_vector(cases: Mapping[str, Case]) -> None:
    assert [found.problem for found in findings(cases).values() if found.problem] == []


def test_it_agrees_closely_in_float32(cases: Mapping[str, Case]) -> None:
    budgets = {name: found.budget for name, found in findings(cases).items() if cases[name].dtype == "float32"}
    assert len(budgets) >= 80
    assert max(budgets.values()) < 0.1


@pytest.mark.parametrize(
    ("output", "least"), [("weights", 6), ("scaled", 3), ("capped", 2), ("logits", 7), ("present", 21)]
)
def test_every_output_of_the_operator_is_judged(cases: Mapping[str, Case], output: str, least: int) -> None:
    having = [case for case in cases.values() if output in case.outputs]
    assert len(having) >= least
    for case in having:
        assert case.published is not None
        assert case.published.arrays().keys() == set(materialise(case).outputs)


def test_a_past_is_one(cases: Mapping[str, Case]) -> None:
    having = [case for case in cases.values() if case.past]
    assert len(having) >= 21
    assert {mask.offset for case in having for mask in case.masks if isinstance(mask, CausalMask)} == {"past"}


def test_what_is_left_out_is_said(said: list[str]) -> None:
    left_out = {line.strip().partition(":")[2].strip() for line in said if line.startswith("  left out")}
    assert left_out == {"softmax_precision: a subject declares its arithmetic"}


def test_a_subject_declines_what_its_opset_does_not_have(folder: Path, cases: Mapping[str, Case]) -> None:
    named = (
        "4d",
        "local_window",
        "4d_diff_heads_mask4d_padded_kv",
        "4d_causal_nonpad_negative_offset_structural_empty",
    )
    assert set(named) <= set(cases)
    out = folder.parent / "opsets"
    words = [word for name in named for word in ("-k", f"attention/{name}")]
    conformance("run", str(folder), "-a", "onnx.attention", *words, "--out", str(out))
    found = {
        (subject.removeprefix("onnx.attention"), case.removeprefix("attention/")): cell["verdict"]
        for (case, subject), cell in judged(out).items()
    }
    native = {"[reference]": named, "[reference-24]": (named[0], *named[2:]), "[reference-23]": named[:1]}
    for subject, has in native.items():
        assert [found[subject, name] for name in named] == ["pass" if name in has else "unsupported" for name in named]


def test_a_past_moves_the_diagonal(cases: Mapping[str, Case]) -> None:
    # three past keys, then four new ones: the first query attends to the past and to itself
    problem = materialise(cases["4d_causal_with_past_and_present"])
    assert problem.allowed()[0, 0].astype(int).tolist() == [
        [1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1, 1, 1],
    ]


def test_valid_keys_move_the_diagonal_item_by_item(cases: Mapping[str, Case]) -> None:
    # four queries and four keys, of which two are valid: the first two queries are before the first key
    problem = materialise(cases["4d_causal_nonpad_negative_offset_structural_empty"])
    assert problem.allowed()[0, 0].astype(int).tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]


def test_a_number_that_is_wrong_is_told_and_ends_a_run_in_red(folder: Path, cases: Mapping[str, Case]) -> None:
    file = folder / "3d_transpose_verification.published.npz"
    assert "3d_transpose_verification" in cases
    with np.load(file) as archive:
        right = archive["output"]
    wrong = right.copy()
    wrong[0, 0, 0, 0] += 1.0
    np.savez(file, output=wrong)
    command = ("run", str(folder), "-a", "numpy.sdpa", "-k", "attention/3d_transpose_verification")
    done = conformance(*command, "--out", str(folder.parent / "red"))
    np.savez(file, output=right)
    assert done.returncode == 1
    assert "attention/3d_transpose_verification: the published numbers (https://" in done.stdout
    assert "disagree with the oracle: output at [0, 0, 0, 0]" in done.stdout
    assert conformance(*command, "--out", str(folder.parent / "green")).returncode == 0


def test_a_folder_that_holds_something_is_refused(folder: Path, said: list[str]) -> None:
    assert said
    done = conformance("import", "onnx", str(folder))
    assert done.returncode == 4
    assert "is not empty; name a new folder" in done.stderr


def test_a_file_is_no_folder_and_an_interpreter_must_exist(tmp_path: Path) -> None:
    file = tmp_path / "vectors.json"
    file.write_text("{}", encoding="utf-8")
    done = conformance("import", "onnx", str(file))
    assert (done.returncode, done.stderr) == (4, f"conformance: {file} is a file; name a new folder\n")
    done = conformance("import", "onnx", str(tmp_path / "new"), "--python", "/nowhere/python")
    assert done.returncode == 4
    assert done.stderr == "conformance: --python: /nowhere/python cannot be run: No such file or directory\n"


def test_an_interpreter_without_onnx_is_named(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n', encoding="utf-8")
    bare.chmod(0o755)
    done = conformance("import", "onnx", str(tmp_path / "new"), "--python", str(bare))
    assert done.returncode == 4
    assert "cannot read the vectors: ModuleNotFoundError" in done.stderr
    assert "give --python an interpreter that has onnx" in done.stderr
