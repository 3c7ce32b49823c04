"""
Adapters on their real frameworks, judged against the oracle on a few cases written for this test.

Of variants that share their code, such as the backends of a Keras layer, some are here; `nox -s conformance` has all.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ..running import conformance, records

pytestmark = pytest.mark.frameworks

CASES = Path(__file__).parent / "cases"
SUBJECTS = (
    "jax.sdpa[jit]",
    "keras.mha[axes]",
    "keras.sdpa[tensorflow]",
    "keras.sdpa[torch]",
    "numpy.mha",
    "numpy.sdpa",
    "onnx.attention[reference-3d]",
    "onnx.torch_sdpa[torchscript]",
    "tf_keras.mha[eager]",
    "ort.attention[3d]",
    "torch.mha[eval]",
    "torch.sdpa[flash]",
)
# Their further variants, entry points that share their code, and those that compile longest: `nox -s measurements`.
FURTHER = (
    "flax.mha[linen]",
    "flax.mha[nnx]",
    "jax.sdpa[eager]",
    "jax.sdpa[lengths]",
    "keras.grouped_mha[torch]",
    "keras.mha[jax]",
    "keras.mha[tensorflow]",
    "keras.mha[torch]",
    "keras.sdpa[jax]",
    "onnx.attention[reference]",
    "onnx.keras_mha[torch]",
    "onnx.torch_sdpa[dynamo]",
    "onnx.torch_mha[dynamo]",
    "tf_keras.mha[robust]",
    "ort.attention[opset23-optimised]",
    "ort.attention[opset23]",
    "torch.flex_sdpa",
    "torch.mha[aot_eager]",
    "torch.mha[unbatched]",
    "torch.sdpa[causal_bias]",
    "torch.sdpa[default]",
    "torch.sdpa[math]",
)
EVERY = (*SUBJECTS, *(pytest.param(name, marks=pytest.mark.measurement) for name in FURTHER))
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
Logs = Callable[[tuple[str, ...]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """Subjects -> the records of the run that judges them with their dense forms. Each run is made once."""

    @cache
    def log(subjects: tuple[str, ...]) -> list[dict[str, Any]]:
        folder = tmp_path_factory.mktemp("run") / "run"
        chosen = [word for name in subjects for word in ("-a", f"{name.removesuffix(']')}*")]
        words = [str(CASES), *chosen, "--thorough", "--out", str(folder), "--exit-zero"]
        ended = conformance("run", *words, patience=None)
        assert ended.returncode == 0, ended.stderr
        return records(folder)

    return log


def judged(log: Iterable[Mapping[str, Any]]) -> Cells:
    """Subject -> case -> the record of the cell."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for record in log:
        if record["type"] == "cell":
            found.setdefault(record["subject"], {})[record["case"]] = dict(record)
    return found


@pytest.fixture(scope="module")
def cells(logs: Logs) -> Cells:
    """What the subjects that are always judged did."""
    return judged(logs(SUBJECTS))


def cells_of(logs: Logs, subject: str) -> tuple[Mapping[str, dict[str, Any]], Mapping[str, dict[str, Any]]]:
    """What a subject and its dense form did, by case."""
    found = judged(logs(SUBJECTS if subject in SUBJECTS else FURTHER))
    return found[subject], found.get(subject.replace("]", ",dense]") if "[" in subject else f"{subject}[dense]", {})


def dialect(cell: Mapping[str, Any]) -> dict[str, str]:
    return {each["decision"]: each["source"] for each in cell.get("declared", {"dialect": []})["dialect"]}


@pytest.mark.parametrize("subject", EVERY)
def test_it_does_what_it_declares_but_for_known_deviations(logs: Logs, subject: str) -> None:
    own, _ = cells_of(logs, subject)
    failed = {
        case: explained_by(cell)
        for case, cell in own.items()
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


@pytest.mark.parametrize("subject", EVERY)
def test_folding_all_masks_into_one_argument_changes_nothing_else(logs: Logs, subject: str) -> None:
    _, dense = cells_of(logs, subject)
    for case, cell in dense.items():
        assert cell["verdict"] in ("pass", "dialect", "unsupported") or "/fully_masked_" in case, (case, cell["reason"])


@pytest.mark.parametrize("subject", EVERY)
def test_it_judges_most_of_its_cases(logs: Logs, subject: str) -> None:
    own, _ = cells_of(logs, subject)
    with_reply = [cell for cell in own.values() if cell["verdict"] != "unsupported"]
    assert len(with_reply) >= 0.6 * len(own)


def test_float64_comes_back_as_float32_from_keras_off_tensorflow(cells: Cells) -> None:
    for backend, verdict in (("torch", "dialect"), ("tensorflow", "pass")):
        cell = cells[f"keras.sdpa[{backend}]"]["sdpa/plain[dtype=float64]"]
        assert cell["verdict"] == verdict
        assert ("result_dtype" in dialect(cell)) == (verdict == "dialect")


def test_every_declared_deviation_has_a_link(cells: Cells) -> None:
    sources = [source for found in cells.values() for cell in found.values() for source in dialect(cell).values()]
    assert sources
    assert all(source.startswith("https://") for source in sources)


def test_the_workers_say_what_ran(logs: Logs) -> None:
    ready = {record["worker"]: record for record in logs(SUBJECTS) if record["type"] == "worker"}
    assert {record["status"] for record in ready.values()} == {"ready"}
    for record in ready.values():
        assert record["evidence"]["versions"]["numpy"]
        assert record["evidence"]["device"]
