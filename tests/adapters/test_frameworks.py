"""
Adapters on their real frameworks, judged against the oracle on a few cases written for this test.

Of variants that share their code, such as the backends of a Keras layer, some are here; `nox -s conformance` has all.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ..running import conformance, records

pytestmark = pytest.mark.frameworks

CASES = Path(__file__).parent / "cases"
SUBJECTS = (
    "flax.mha[linen]",
    "flax.mha[nnx]",
    "jax.sdpa[eager]",
    "jax.sdpa[jit]",
    "jax.sdpa[lengths]",
    "keras.grouped_mha[torch]",
    "keras.mha[axes]",
    "keras.mha[jax]",
    "keras.mha[tensorflow]",
    "keras.mha[torch]",
    "keras.sdpa[jax]",
    "keras.sdpa[tensorflow]",
    "keras.sdpa[torch]",
    "numpy.mha",
    "numpy.sdpa",
    "onnx.attention[reference]",
    "onnx.attention[reference-3d]",
    "onnx.keras_mha[torch]",
    "onnx.torch_mha[dynamo]",
    "onnx.torch_sdpa[dynamo]",
    "onnx.torch_sdpa[torchscript]",
    "tf_keras.mha[eager]",
    "tf_keras.mha[robust]",
    "ort.attention[3d]",
    "ort.attention[opset23-optimised]",
    "ort.attention[opset23]",
    "torch.flex_sdpa",
    "torch.mha[aot_eager]",
    "torch.mha[eval]",
    "torch.mha[unbatched]",
    "torch.sdpa[causal_bias]",
    "torch.sdpa[default]",
    "torch.sdpa[flash]",
    "torch.sdpa[math]",
)
UNIFORM, NAN = "fully_masked_row=uniform", "fully_masked_row=nan"
# For a failure that the packaged list accepts, the log names the deviation of its entry that explains the cell.
FINITE_MINIMUM, MINUS_1E9 = "mask_fill=finite_minimum", "mask_fill=minus_1e9"
FINITE_FILL = {"sdpa/fully_masked_row": FINITE_MINIMUM, "sdpa/fully_masked_row_minus_infinity": NAN}
WITHOUT_SCORES = {
    "mha/fully_masked_batch[outputs=output]": FINITE_MINIMUM,
    "mha/fully_masked_batch_one_tensor": FINITE_MINIMUM,
}
WITH_WEIGHTS = {"mha/fully_masked_batch[outputs=output+weights]": NAN}
DEAD_ITEM = {**WITHOUT_SCORES, "mha/fully_masked_batch[outputs=output+weights]": FINITE_MINIMUM}
DEAD_ITEM_1E9 = dict.fromkeys(DEAD_ITEM, MINUS_1E9)
NO_CAUSAL = "causal_mask=ignored"
AXES = {f"mha/{case}": NO_CAUSAL for case in ("causal[seq_len_q=5]", "causal[seq_len_q=7]", "causal_and_padding")}
FIRST_ROW = {"sdpa/causal_and_padding": "causal_alignment=first_row"}
NO_FLOAT16 = "F16_F16_F32' is not supported by dot_general on CPU"
COMPILED = {**FINITE_FILL, "sdpa/plain[dtype=float16]": NO_FLOAT16, "sdpa/additive[dtype=float16]": NO_FLOAT16}
NO_BFLOAT16 = {"sdpa/plain[dtype=bfloat16]": "NOT_IMPLEMENTED"}
# Undocumented deviations of today's frameworks, and words of their errors: nothing else may fail here.
DEVIATIONS: dict[str, dict[str, str]] = {
    "flax.mha[linen]": DEAD_ITEM,
    "flax.mha[nnx]": {
        **DEAD_ITEM,
        "mha/plain[dtype=float16]": NO_FLOAT16,
        "mha/weights[dtype=float16,outputs=output+weights_mean]": NO_FLOAT16,
    },
    "jax.sdpa[eager]": FINITE_FILL,
    "jax.sdpa[jit]": COMPILED,
    "jax.sdpa[lengths]": COMPILED,
    **{f"ort.attention[{which}]": NO_BFLOAT16 for which in ("opset23", "opset23-optimised", "3d")},
    "torch.sdpa[flash]": {"sdpa/wider_values": "No available kernel"},
    "keras.grouped_mha[torch]": WITHOUT_SCORES,
    "keras.mha[axes]": AXES,
    "keras.mha[jax]": WITHOUT_SCORES,
    "keras.mha[tensorflow]": WITHOUT_SCORES,
    "keras.mha[torch]": WITHOUT_SCORES,
    "keras.sdpa[jax]": FINITE_FILL,
    "keras.sdpa[tensorflow]": FINITE_FILL,
    "keras.sdpa[torch]": {"sdpa/fully_masked_row": FINITE_MINIMUM},
    **{f"onnx.attention[reference{which}]": FIRST_ROW for which in ("-3d",)},
    "onnx.keras_mha[torch]": WITHOUT_SCORES,
    "onnx.torch_mha[dynamo]": {
        "mha/fully_masked_batch[outputs=output]": NAN,
        "mha/fully_masked_batch[outputs=output+weights]": NAN,
        "mha/fully_masked_batch_one_tensor": NAN,
    },
    "onnx.torch_sdpa[dynamo]": {"sdpa/fully_masked_row": UNIFORM, "sdpa/fully_masked_row_minus_infinity": NAN},
    "onnx.torch_sdpa[torchscript]": {"sdpa/fully_masked_row_minus_infinity": NAN},
    "tf_keras.mha[eager]": DEAD_ITEM_1E9,
    "tf_keras.mha[robust]": DEAD_ITEM,
    "torch.mha[eval]": {
        "mha/fully_masked_batch[outputs=output+weights]": NAN,
        "mha/fully_masked_batch_one_tensor": NAN,
    },
    "torch.mha[aot_eager]": WITH_WEIGHTS,
    "torch.mha[unbatched]": WITH_WEIGHTS,
}

Cells = Mapping[str, Mapping[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("run") / "run"
    chosen = [word for name in SUBJECTS for word in ("-a", f"{name.removesuffix(']')}*")]  # with the dense forms
    words = [str(CASES), *chosen, "--thorough", "--out", str(folder), "--exit-zero"]
    ended = conformance("run", *words, patience=None)
    assert ended.returncode == 0, ended.stderr
    return records(folder)


@pytest.fixture(scope="module")
def cells(log: list[dict[str, Any]]) -> Cells:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for record in log:
        if record["type"] == "cell":
            found.setdefault(record["subject"], {})[record["case"]] = record
    return found


def dialect(cell: Mapping[str, Any]) -> dict[str, str]:
    return {each["decision"]: each["source"] for each in cell.get("declared", {"dialect": []})["dialect"]}


@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_does_what_it_declares_but_for_known_deviations(cells: Cells, subject: str) -> None:
    failed = {
        case: explained_by(cell)
        for case, cell in cells[subject].items()
        if cell["verdict"] not in ("pass", "dialect", "unsupported")
    }
    expected = DEVIATIONS.get(subject, {})
    assert failed.keys() == expected.keys()
    assert {case: names for case, names in failed.items() if not any(expected[case] in name for name in names)} == {}


def explained_by(cell: Mapping[str, Any]) -> list[str]:
    """Return every cause that alone explains the cell, ties included; without an explanation, the reason."""
    if "explanation" not in cell:
        return [cell["reason"]]
    return [f"{cell['explanation']['decision']}={cell['explanation']['name']}", *cell["ties"]]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_folding_all_masks_into_one_argument_changes_nothing_else(cells: Cells, subject: str) -> None:
    dense = cells.get(subject.replace("]", ",dense]") if "[" in subject else f"{subject}[dense]", {})
    for case, cell in dense.items():
        assert cell["verdict"] in ("pass", "dialect", "unsupported") or "/fully_masked_" in case, (case, cell["reason"])


@pytest.mark.parametrize("subject", SUBJECTS)
def test_it_judges_most_of_its_cases(cells: Cells, subject: str) -> None:
    judged = [cell for cell in cells[subject].values() if cell["verdict"] != "unsupported"]
    assert len(judged) >= 0.6 * len(cells[subject])


def test_float64_comes_back_as_float32_from_keras_off_tensorflow(cells: Cells) -> None:
    for backend, verdict in (("jax", "dialect"), ("torch", "dialect"), ("tensorflow", "pass")):
        cell = cells[f"keras.sdpa[{backend}]"]["sdpa/plain[dtype=float64]"]
        assert cell["verdict"] == verdict
        assert ("result_dtype" in dialect(cell)) == (verdict == "dialect")


def test_every_declared_deviation_has_a_link(cells: Cells) -> None:
    sources = [source for found in cells.values() for cell in found.values() for source in dialect(cell).values()]
    assert sources
    assert all(source.startswith("https://") for source in sources)


def test_the_workers_say_what_ran(log: list[dict[str, Any]]) -> None:
    ready = {record["worker"]: record for record in log if record["type"] == "worker"}
    assert {record["status"] for record in ready.values()} == {"ready"}
    for record in ready.values():
        assert record["evidence"]["versions"]["numpy"]
        assert record["evidence"]["device"]
