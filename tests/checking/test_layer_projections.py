"""Layers without an output projection, of one head, with linear layers for each head, of one width, with a context."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conformance import places
from conformance.checking.case_sizes import in_sizes
from conformance.checking.function_check import Checked, load_cases
from conformance.checking.layer import part_of, projections
from conformance.checking.signature import Sizes
from conformance.checking.target import CheckError
from conformance.spec.loader import load

from .door_tables import FEW, ONE_DTYPE, assert_it_conforms, assert_it_is_named

Check = Callable[..., Checked]

# As tutorials introduce self-attention: one head, and nothing after it.
ONE_HEAD = """\
import numpy as np


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def attend(q, k, v, mask, scale):
    scores = (q @ np.swapaxes(k, -1, -2) * scale).astype(q.dtype)
    if mask is not None:
        scores = np.where(mask, scores, np.finfo(scores.dtype).min)
    return softmax(scores) @ v


def right(x, W_q, W_k, W_v, mask=None):
    return attend(x @ W_q, x @ W_k, x @ W_v, mask, W_k.shape[-1] ** -0.5)


def unscaled(x, W_q, W_k, W_v, mask=None):
    return attend(x @ W_q, x @ W_k, x @ W_v, mask, 1.0)


def cross(x, context, W_q, W_k, W_v, mask=None):
    return attend(x @ W_q, context @ W_k, context @ W_v, mask, W_k.shape[-1] ** -0.5)


def swapped(x, memory, W_q, W_k, W_v, mask=None):
    return attend(x @ W_q, memory @ W_v, memory @ W_k, mask, W_k.shape[-1] ** -0.5)


class SelfAttention:
    def __init__(self, d_in, d_out):
        self.W_query, self.W_key, self.W_value = (np.zeros((d_in, d_out)) for _ in range(3))

    def forward(self, x, mask=None):
        return right(x, self.W_query, self.W_key, self.W_value, mask)


class Unscaled(SelfAttention):
    def forward(self, x, mask=None):
        return unscaled(x, self.W_query, self.W_key, self.W_value, mask)
"""

# Several heads, each with linear layers of its own. The second class has a width of its own, as if it were a constant.
HEADS = """\
import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width, head_size, scale=None):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, head_size, bias=False) for _ in range(3))
        self.scale = head_size ** -0.5 if scale is None else scale

    def forward(self, x):
        return torch.softmax(self.query(x) @ self.key(x).mT * self.scale, dim=-1) @ self.value(x)


class Wrapper(nn.Module):
    def __init__(self, d_in, d_out, num_heads):
        super().__init__()
        self.heads = nn.ModuleList([Head(d_in, d_out) for _ in range(num_heads)])

    def forward(self, x):
        return torch.cat([head(x) for head in self.heads], dim=-1)


class OfOneWidth(nn.Module):
    width = 30

    def __init__(self, num_heads, head_size):
        super().__init__()
        scale = self.width ** -0.5
        self.heads = nn.ModuleList([Head(self.width, head_size, scale) for _ in range(num_heads)])
        self.proj = nn.Linear(self.width, self.width)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))


class OneForAllHeads(nn.Module):
    def __init__(self, embed_size, heads):
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(embed_size // heads, embed_size // heads) for _ in range(3))
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, values, keys, query):
        return query
"""


def written(folder: Path, text: str, name: str) -> str:
    (folder / "mine.py").write_text(text, encoding="utf-8")
    return f"{folder / 'mine.py'}:{name}"


@pytest.mark.parametrize("name", ["right", "SelfAttention"])
def test_one_head_without_an_output_projection_conforms(checked: Check, tmp_path: Path, name: str) -> None:
    done = checked(written(tmp_path, ONE_HEAD, name), *FEW, dtypes=ONE_DTYPE)
    assert_it_conforms(done)
    (said,) = (line for line in done.lines() if line.startswith("called with"))
    assert "mask as the mask, (batch, seq_len_q, seq_len_k), boolean (True = attend)" in said
    assert (
        "only num_heads 1; cases without an output projection, because it has none; one array as query, key and value"
        in said
    )


@pytest.mark.parametrize("name", ["unscaled", "Unscaled"])
def test_a_mistake_of_one_head_is_named(checked: Check, tmp_path: Path, name: str) -> None:
    done = checked(written(tmp_path, ONE_HEAD, name), *FEW, dtypes=ONE_DTYPE)
    assert_it_is_named(done, "does not scale the logits")


def test_a_context_is_key_and_value(checked: Check, tmp_path: Path) -> None:
    done = checked(written(tmp_path, ONE_HEAD, "cross"), *FEW, dtypes=ONE_DTYPE)
    assert_it_conforms(done)
    assert any("one array as key and value; cases in which they differ are left out" in line for line in done.lines())
    assert any("cross_attention" in case and cell.verdict == "pass" for (case, _), cell in done.run.cells.items())
    done = checked(written(tmp_path, ONE_HEAD, "swapped"), *FEW, dtypes=ONE_DTYPE, into="wrong")
    assert_it_is_named(done, "swaps the projections of key and value, as if")


@pytest.mark.frameworks
def test_each_head_gets_its_part_of_the_weights(checked: Check, tmp_path: Path) -> None:
    done = checked(written(tmp_path, HEADS, "Wrapper"), "shapes/self_attention/*", dtypes=ONE_DTYPE)
    assert_it_conforms(done)
    assert not any("only num_heads" in line for line in done.lines())


@pytest.mark.frameworks
def test_a_layer_of_one_width_is_judged_in_that_width(checked: Check, tmp_path: Path) -> None:
    done = checked(written(tmp_path, HEADS, "OfOneWidth"), "shapes/self_attention/*", dtypes=ONE_DTYPE)
    assert_it_is_named(done, r"scales the logits by 1/sqrt\(num_heads \* head_dim\)")
    assert any("only num_heads 2 and head_dim 15" in line for line in done.lines())


@pytest.mark.frameworks
def test_a_projection_that_all_heads_share_is_told(checked: Check, tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"query projection of OneForAllHeads is \(head_dim, head_dim\), one for"):
        checked(written(tmp_path, HEADS, "OneForAllHeads"))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("to_q", "q"),
        ("heads.2.key", "k"),
        ("W_value.kernel", "v"),
        ("attn.out_proj", "o"),
        ("Wqkv", "qkv"),
        ("to_kv", "kv"),
        ("key_value_proj", "kv"),
        ("norm", None),
    ],
)
def test_a_projection_is_known_by_its_name(name: str, part: str | None) -> None:
    assert part_of(name) == part


def test_packed_projections_are_parts_of_one_matrix() -> None:
    packed = np.arange(24.0).reshape(6, 4)
    found = projections({"to_q": (packed[:3], None), "to_kv": (packed, None)})
    assert {part: [weight[rows].tolist() for weight, _, rows in pieces] for part, pieces in found.items()} == {
        "q": [packed[:3].tolist()],
        "k": [packed[:3].tolist()],
        "v": [packed[3:].tolist()],
    }


def test_only_layers_that_differ_in_a_number_are_heads_of_one_projection() -> None:
    one, other = np.zeros((3, 4)), np.ones((3, 4))
    heads = projections({"heads.0.query": (one, None), "heads.1.query": (other, None)})
    assert [weight is each for each, (weight, _, _) in zip((one, other), heads["q"], strict=True)] == [True, True]
    first = projections({"own.query": (one, None), "cross.query": (other, None)})
    assert [weight is one for weight, _, _ in first["q"]] == [True]


def test_cases_are_made_for_one_head() -> None:
    cases = {case.id: case for case in load([places.cases() / "masks" / "attention_3d.yaml"], places.cases())}
    found = {name: in_sizes(case, Sizes(num_heads=1)) for name, case in cases.items() if case.operator == "mha"}
    assert found
    for name, case in found.items():
        before = cases[name]
        assert (case.num_heads, case.num_kv_heads, case.head_dim) == (1, 1, before.head_dim)
        assert {case.query_dim, case.kdim, case.vdim, case.output_dim} == {before.head_dim}


def test_grouped_heads_stay_grouped() -> None:
    grouped = [case for case in load_cases("mha") if case.num_kv_heads < case.num_heads]
    assert grouped
    assert [in_sizes(case, Sizes(num_heads=1)) for case in grouped] == grouped
