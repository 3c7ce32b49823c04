"""`--as SUBJECT` uses the adapter of the subject with another function as its target."""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import places
from conformance.checking.adapter_text import ADAPTER
from conformance.checking.drop_in import find_drop_in
from conformance.checking.function_check import Checked
from conformance.checking.preflight import Calling

Check = Callable[..., Checked]
SOME = (
    "shapes/cross*",
    "shapes/self*",
    "masks/attention_2d*",
    "causal/*",
    "parameters/scale*",
    "degenerate/fully_masked_row*",
)


@pytest.mark.parametrize("name", ["torch_sdpa", "jax_sdpa", "keras_sdpa"])
def test_an_adapter_names_its_target_once_and_calls_it(name: str) -> None:
    tree = ast.parse((places.adapters() / f"{name}.py").read_text(encoding="utf-8"))
    targets = [node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "TARGET"]
    assert len(targets) == 1
    framework = ast.unparse(targets[0].value)
    assert framework.endswith("dot_product_attention")
    assert ast.unparse(tree).count(framework + "(") == 0


@pytest.mark.frameworks
def test_a_right_function_of_torch_conforms(checked: Check) -> None:
    done = checked("torch_sdpa_like:right", *SOME, like="torch.sdpa")
    assert done.decision.conforms, done.lines()
    assert done.notes == ("judged as torch.sdpa[math], with its documented arguments, dialect and arithmetic",)
    source = (done.run.folder / ADAPTER).read_text(encoding="utf-8")
    assert "NAME = 'torch_sdpa_like.right'" in source
    assert "TARGET = torch" not in source


@pytest.mark.frameworks
def test_a_wrong_function_of_torch_is_named(checked: Check) -> None:
    done = checked("torch_sdpa_like:inverted", *SOME, like="torch.sdpa[flash]")
    assert str(done.causes[0]) == "it reads True in attn_mask as: ignore this key"
    assert "--as 'torch.sdpa[flash]'" in done.lines()[3]
    assert {name for _, name in done.run.cells} == {
        "torch_sdpa_like.inverted[flash]",
        "torch_sdpa_like.inverted[flash,dense]",
    }


@pytest.mark.frameworks
def test_what_is_declared_goes_before_what_the_subject_declares(checked: Check) -> None:
    done = checked(
        "torch_sdpa_like:right",
        "degenerate/fully_masked_row*",
        like="torch.sdpa",
        declare={"fully_masked_row": "nan"},
        profile="tf32",
    )
    assert done.causes[0].sentence.startswith(
        "returns zeros for a fully masked row, although it is judged under fully_masked_row=nan"
    )


@pytest.mark.frameworks
@pytest.mark.parametrize("subject", ["torch.sdpa", "jax.sdpa", "keras.sdpa"])
def test_each_has_a_subject_to_stand_in_for(subject: str) -> None:
    assert find_drop_in(subject).operator == "sdpa"


@pytest.mark.frameworks
def test_a_function_of_jax_is_called_as_its_own(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import jax\n\ndef f(query, key, value, bias=None, mask=None, **options):\n"
        "    return jax.nn.dot_product_attention(query, key, value, bias, mask, **options)\n",
        encoding="utf-8",
    )
    assert checked(
        f"{tmp_path / 'mine.py'}:f", "shapes/cross_attention/*e*_*e*s[*", "masks/attention_2d/h*", like="jax.sdpa"
    ).decision.conforms


@pytest.mark.frameworks
def test_a_function_of_keras_is_called_as_its_own(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import keras\n\ndef f(query, key, value, bias=None, mask=None, scale=None, is_causal=False):\n"
        "    return keras.ops.dot_product_attention(query, key, value, bias, mask, scale, is_causal)\n",
        encoding="utf-8",
    )
    assert checked(
        f"{tmp_path / 'mine.py'}:f", "shapes/cross*", "masks/attention_2d/h*", like="keras.sdpa[jax]"
    ).decision.conforms


NARROW = """\
import torch

def attention(query, key, value, attn_mask=None, *, is_causal=False, scale=None):
    if query.dtype == torch.float16:
        raise ValueError("bfloat16 or float32 only")
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, scale=scale)
"""


@pytest.mark.frameworks
def test_a_drop_in_may_be_documented_to_refuse_calls(tmp_path: Path, checked: Check) -> None:
    (tmp_path / "narrow.py").write_text(NARROW, encoding="utf-8")
    given, asked = f"{tmp_path / 'narrow.py'}:attention", ("causal/square/other*", "shapes/cross*")
    first = checked(given, *asked, like="torch.sdpa")
    assert "   if it is documented to refuse such calls: --declines 'bfloat16 or float32 only'" in first.lines()
    stated = Calling(declines=("bfloat16 or float32 only",))
    again = checked(given, *asked, into="again", like="torch.sdpa", calling=stated)
    assert again.decision.conforms, again.lines()
    assert "accepted: it raises 'bfloat16 or float32 only' (" in "\n".join(again.lines())
