"""Functions and modules on an imitation of a CUDA device: CPU tensors that report a CUDA device."""

import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.checking.array_layouts import PASSED
from conformance.checking.function_check import Checked
from conformance.checking.inspection import _device_of
from conformance.checking.preflight import Calling, preflight
from conformance.checking.signature import DEVICES
from conformance.checking.target import CheckError, parse_target

pytestmark = pytest.mark.frameworks

Check = Callable[..., Checked]

# Imitates CUDA in torch: `.to("cuda")` returns tensors of a class that reports CUDA; so do computations with them.
IMITATION = """\
import torch

class OnCuda(torch.Tensor):
    device = torch.device("cuda", 0)

    def cpu(self):
        return self.as_subclass(torch.Tensor)

plain_to = torch.Tensor.to
torch.Tensor.to = lambda self, *args, **kwargs: (
    self.as_subclass(OnCuda) if args == ("cuda",) else plain_to(self, *args, **kwargs)
)
torch.cuda.is_available = lambda: True
"""

ATTENTION = """
def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask=None):
    every = [query, key, value, *([] if attn_mask is None else [attn_mask])]
    assert all(each.device.type == "cuda" for each in every), [each.device for each in every]
    logits = query @ key.transpose(-1, -2) * {scale}
    if attn_mask is not None:
        logits = logits.masked_fill(~attn_mask, -torch.inf)
    return torch.softmax(logits, -1).nan_to_num(0.0) @ value
"""


def written(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text, encoding="utf-8")
    return f"{folder / 'mine.py'}:attention"


@pytest.mark.parametrize(("scale", "causes"), [("query.shape[-1] ** -0.5", []), ("1.0", ["does not scale the logits"])])
def test_a_function_gets_all_its_tensors_on_the_device(
    checked: Check, tmp_path: Path, scale: str, causes: list[str]
) -> None:
    text = IMITATION + ATTENTION.format(scale=scale)
    found = checked(
        written(tmp_path, text),
        *("shapes/*", "masks/attention_2d/*"),
        calling=Calling(device="cuda"),
        dtypes=("float32",),
    )
    assert [cause.sentence for cause in found.causes] == causes, found.lines()
    assert found.decision.conforms == (not causes)
    assert {subject for _, subject in found.run.cells} == {"mine.attention@cuda"}
    assert found.run.header.device == "cuda"
    assert all("--device cuda" in found.request.rerun(case) for case, _ in found.run.cells)


def test_a_reply_that_is_elsewhere_is_refused(tmp_path: Path) -> None:
    text = (
        IMITATION
        + "def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor):\n    return value.cpu()\n"
    )
    with pytest.raises(CheckError, match="returned a tensor on cpu, but check passes tensors on the CUDA device"):
        preflight(parse_target(written(tmp_path, text)), Calling(device="cuda"), 30)


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    return iter(())


@pytest.mark.usefixtures("without_cuda")
@pytest.mark.parametrize(
    ("imported", "said"),
    [
        ("import torch", "PyTorch sees no CUDA device here"),
        ("import jax", "JAX sees no CUDA device here"),
        ("import numpy as np", "NumPy arrays are always on the CPU"),
    ],
)
def test_a_device_that_is_not_there_is_named(tmp_path: Path, imported: str, said: str) -> None:
    framework = {"torch": "torch", "jax": "jax"}.get(imported.split()[1], "numpy")
    text = f"{imported}\ndef attention(query, key, value):\n    return value\n"
    with pytest.raises(CheckError, match=f"^--device cuda: {said}$"):
        preflight(parse_target(written(tmp_path, text)), Calling(framework=framework, device="cuda"), 30)


def test_each_device_is_described() -> None:
    assert tuple(PASSED) == DEVICES


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(CheckError, match="--device mps: expected one of cpu, cuda"):
        Calling(device="mps")


def module_on(*places: str) -> Any:
    """A PyTorch module whose parameters report these devices."""
    import torch  # noqa: PLC0415 - only where frameworks are installed

    module = torch.nn.Module()
    parameters = [(f"w{n}", types.SimpleNamespace(device=torch.device(each))) for n, each in enumerate(places)]
    module.named_parameters = lambda: iter(parameters)
    return module


def test_a_module_says_where_it_is() -> None:
    assert _device_of("it", module_on(), None) == "cpu"
    assert _device_of("it", module_on("cpu", "cpu"), None) == "cpu"
    assert _device_of("it", module_on("cuda:0", "cuda:0"), None) == "cuda"
    assert _device_of("it", module_on(), "cuda") == "cuda"
    with pytest.raises(CheckError, match="it has w1 on cuda:0, but check passes tensors on the CPU"):
        _device_of("it", module_on("cpu", "cuda:0"), None)
    with pytest.raises(CheckError, match=r"it has w0 on cpu, but .* CUDA device: .* move it with .to\('cuda'\)"):
        _device_of("it", module_on("cpu"), "cuda")
