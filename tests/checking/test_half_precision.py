"""Functions that accept only half precision, like fused kernels, are judged on the same cases in those dtypes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.checking import settled_function
from conformance.checking.arithmetic import evident_cause
from conformance.checking.function_check import Checked
from conformance.checking.preflight import Calling, preflight
from conformance.checking.target import CheckError, parse_target

pytestmark = pytest.mark.frameworks

Check = Callable[..., Checked]

KERNEL = """\
import torch

def attention(query, key, value, mask=None, scale=None):
    if query.dtype not in ({dtypes}):
        raise ValueError(f"FlashAttention only supports fp16 and bf16, not {{query.dtype}}")
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    logits = query.float() @ key.float().transpose(-1, -2) * scale
    if mask is not None:
        logits = logits.masked_fill({hidden}, -torch.inf)
    return (torch.softmax(logits, -1).nan_to_num(0.0).to(value.dtype) @ value).to(query.dtype)
"""
HALF = "torch.float16, torch.bfloat16"


def written(folder: Path, dtypes: str, hidden: str = "~mask") -> str:
    (folder / "kernel.py").write_text(KERNEL.format(dtypes=dtypes, hidden=hidden), encoding="utf-8")
    return f"{folder / 'kernel.py'}:attention"


@pytest.mark.parametrize(
    ("dtypes", "taken"), [(HALF, ("float16", "bfloat16")), ("torch.bfloat16,", ("bfloat16",))], ids=["half", "bfloat16"]
)
def test_the_dtypes_that_it_takes_are_found(tmp_path: Path, dtypes: str, taken: tuple[str, ...]) -> None:
    found = preflight(parse_target(written(tmp_path, dtypes)), Calling(), 30)
    assert found.dtypes == taken
    assert found.refusal.startswith(
        "it raised ValueError: FlashAttention only supports fp16 and bf16, not torch.float32"
    )
    assert (found.framework, found.layout, found.form.axes) == ("torch", "bhsd", ("b", "h", "q", "k"))


def test_a_function_that_takes_no_dtype_is_told_what_float32_raised(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"it raised ValueError: FlashAttention .* not torch\.float32 \(kernel\.py, "):
        preflight(parse_target(written(tmp_path, "torch.int8,")), Calling(), 30)


@pytest.mark.parametrize(
    ("hidden", "causes"), [("~mask", []), ("mask", ["reads True in mask as: ignore this key"])], ids=["right", "wrong"]
)
def test_cases_in_float32_are_judged_in_float16(tmp_path: Path, checked: Check, hidden: str, causes: list[str]) -> None:
    found = checked(written(tmp_path, HALF, hidden), "masks/attention_4d/*", "numerics/half/*", "shapes/kernel_sized/*")
    assert [cause.sentence for cause in found.causes] == causes
    judged = {case for (case, _), cell in found.run.cells.items() if cell.verdict != "unsupported"}
    dtypes = {case: found.run.header.cases[case].dtype for case in judged}
    assert dtypes["masks/attention_4d/blind_spot_per_head[operator=sdpa]"] == "float16"
    assert set(dtypes.values()) == {"float16", "bfloat16"}
    assert any(
        note.startswith("called with torch tensors ") and "float16 and bfloat16 in place of float32 and float64" in note
        for note in found.notes
    )


@pytest.mark.parametrize("dtypes", [HALF, "torch.bfloat16,"], ids=["half", "bfloat16"])
def test_an_evident_mistake_is_found_in_the_dtype_of_most_cases(
    tmp_path: Path, checked: Check, monkeypatch: pytest.MonkeyPatch, dtypes: str
) -> None:
    """It shortens the search: what is observed of other decisions takes it into account."""
    evident: list[dict[str, str] | None] = []

    def kept(*asked: Any, **named: Any) -> dict[str, str] | None:
        evident.append(evident_cause(*asked, **named))
        return evident[-1]

    monkeypatch.setattr(settled_function, "evident_cause", kept)
    found = checked(written(tmp_path, dtypes, "mask"), "masks/attention_4d/*")
    assert [cause.sentence for cause in found.causes] == ["reads True in mask as: ignore this key"]
    assert evident == [{"polarity[mask]": "ignore"}]
