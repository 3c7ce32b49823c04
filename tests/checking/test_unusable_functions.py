"""Functions that cannot be called are reported once, with the reason, before any case is judged."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.checking import preflight, signature
from conformance.checking.function_check import Checked
from conformance.checking.target import CheckError, parse_target
from conformance.gate import decision

from ..running import records
from .door_tables import table

Check = Callable[..., Checked]


def test_half_of_the_functions_of_the_tables_are_right() -> None:
    assert len(list(table("RIGHT"))) == len(list(table("WRONG"))) == 25


UNUSABLE = {
    "has_another_rank": (
        "import numpy as np\ndef attend(q, k, v, mask=None):\n    return np.transpose(q, (1, 0, 2, 3, 4))\n",
        "attend was called with NumPy arrays .*axes don't match array.*line 3: return np.transpose",
    ),
    "returns_nothing": (
        "def attend(q, k, v, mask=None):\n    q @ k.swapaxes(-1, -2)\n",
        "it returned nothing; return the output",
    ),
    "returns_the_weights": (
        "def attend(q, k, v, mask=None):\n    return q @ k.swapaxes(-1, -2)\n",
        r"it returned an array of shape \[2, 3, 5, 7\], expected \[2, 3, 5, 4\]",
    ),
    "returns_its_axes_in_another_order": (
        "def attend(q, k, v, mask=None):\n    return v[:, :, :5].swapaxes(1, 2)\n",
        r"of shape \[2, 5, 3, 4\], that is \(batch, seq_len_q, num_heads, value_dim\), expected \[2, 3, 5, 4\]",
    ),
    "wants_a_number": (
        "import numpy as np\ndef attend(q, k, v, mask=None, *, window):\n    return np.abs(q) * window\n",
        "TypeError: unsupported operand",
    ),
    "wants_what_nobody_passes": (
        "def attend(q, k, v, mask, block):\n    return v\n",
        "needs an argument 'block' that check does not know: give it a default.*--map block=ROLE",
    ),
    "cannot_be_imported": (
        "import nowhere_to_be_found\ndef attend(q, k, v): ...\n",
        "cannot be imported: ModuleNotFoundError: No module named 'nowhere_to_be_found'",
    ),
    "takes_two_arrays": (
        "def attend(q, kv):\n    return q\n",
        r"attend\(q, kv\) takes 2 arguments by position; sdpa is",
    ),
    "takes_one_array": ("def attend(q):\n    return q\n", r"attend\(q\) takes 1 argument by position; sdpa is"),
    "raises_without_a_message": (
        "def attend(q, k, v):\n    raise AssertionError\n",
        r"and it raised AssertionError \(mine.py, line 2: raise AssertionError\)",
    ),
    "returns_a_dict": (
        "def attend(q, k, v, mask=None):\n    return {'output': q}\n",
        "it did not return an array",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_called_is_told_once(checked: Check, tmp_path: Path, name: str) -> None:
    text, said = UNUSABLE[name]
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    with pytest.raises(CheckError) as caught:
        checked(f"{tmp_path / 'mine.py'}:attend")
    assert re.search(said, str(caught.value), re.DOTALL), str(caught.value)


ENDINGS = {
    "crashes": ("ctypes.string_at(0)", r"was killed by SIGSEGV before it was ready, in line 4 of mine\.py$"),
    "exits": ("os._exit(5)", r"exited with code 5 before it was ready$"),
    "hangs": ("time.sleep(100)", r"was not ready after 3 s, in line 4 of mine\.py$"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_plain_call_that_ends_or_blocks_the_process_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(preflight, "PATIENCE", 2.0)
    body, said = ENDINGS[name]
    (tmp_path / "mine.py").write_text(f"import ctypes, os, time\n\ndef attend(q, k, v):\n    {body}\n", "utf-8")
    target = parse_target(f"{tmp_path / 'mine.py'}:attend")
    with pytest.raises(CheckError, match=f"^attend cannot be called: its process {said}"):
        preflight.preflight(target, preflight.Calling(), 1.0)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "from torch import nn\nattend = nn.MultiheadAttention(8, 2)\n",
            "attend is an instance of MultiheadAttention with weights of fixed sizes: give the class",
        ),
        (
            "from torch import nn\nclass attend(nn.Module):\n    def __init__(self, rank, d_model): ...\n",
            r"attend\(...\) needs an argument 'rank' that check does not know: name its role with --map rank=ROLE",
        ),
        (
            (
                "from torch import nn\nclass attend(nn.Module):\n    def __init__(self, d_model):\n"
                "        super().__init__()\n        self.first = nn.Linear(d_model, d_model)\n"
            ),
            "LayerError: the layer has no query projection with a known name; its parameters are first",
        ),
        (
            (
                "import flax.linen as nn\nclass attend(nn.Module):\n    d_model: int\n    @nn.compact\n"
                "    def __call__(self, x):\n        return nn.Dense(self.d_model, name='first')(x)\n"
            ),
            "LayerError: the layer has no query projection with a known name; its parameters are first",
        ),
        (
            "from flax import nnx\nattend = nnx.MultiHeadAttention(2, 8, rngs=nnx.Rngs(0))\n",
            "attend is an instance of MultiHeadAttention with weights of fixed sizes: give the class",
        ),
        (
            "import equinox, jax\nattend = equinox.nn.Linear(8, 8, key=jax.random.PRNGKey(0))\n",
            "attend is an instance of Linear with weights of fixed sizes: give the class",
        ),
    ],
)
def test_a_layer_that_cannot_be_built_says_why(checked: Check, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    with pytest.raises(CheckError, match=said):
        checked(f"{tmp_path / 'mine.py'}:attend")


LAZY = """
from torch import nn

class Projection(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.LazyLinear(size)

    def forward(self, x):
        return self.linear(x)

class Attention(nn.Module):
    def __init__(self, size, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.out = (Projection(size) for _ in range(4))

    def forward(self, *, query, key, value, mask=None):
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                   for x in (self.query(query), self.key(key), self.value(value)))
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -float("inf"))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""


@pytest.mark.frameworks
def test_a_layer_is_built_with_mapped_arguments_lazy_weights_and_nested_projections(
    checked: Check, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(LAZY, encoding="utf-8")
    given, calling = f"{tmp_path / 'mine.py'}:Attention", preflight.Calling(mapping={"size": "width"})
    done = checked(given, "shapes/cross*", dtypes=("float32",), calling=calling)
    assert done.decision.conforms, done.lines()
    with pytest.raises(CheckError, match="'size' that check does not know: name its role with --map size=ROLE, where"):
        checked(given, "shapes/cross*", into="again")


@pytest.mark.frameworks
def test_of_a_method_of_an_instance_with_weights_the_class_is_asked_for(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nclass Attention(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.q_proj = nn.Linear(8, 8)\n    def forward(self, x, mask=None):\n        return x\n"
        "trained = Attention()\n",
        encoding="utf-8",
    )
    with pytest.raises(CheckError) as caught:
        checked(f"{tmp_path / 'mine.py'}:trained.forward")
    assert str(caught.value).startswith(
        "trained.forward is a method of an instance of Attention with weights of fixed sizes: give the class or its "
        "method instead, such as Attention or Attention.forward"
    )


ON_META = {
    "a_layer": (
        (
            "from torch import nn\nclass attend(nn.Module):\n    def __init__(self, d_model):\n"
            "        super().__init__()\n        self.q_proj = nn.Linear(d_model, d_model, device='meta')\n"
        ),
        r"attend has q_proj.weight and 1 more on meta, but .* on the CPU: build the module without a device",
    ),
    "an_instance": (
        (
            "import torch\nclass Scaled(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.register_buffer('scale', torch.ones((), device='meta'))\n"
            "    def forward(self, q, k, v): ...\nattend = Scaled()\n"
        ),
        "attend has scale on meta, but check passes tensors on the CPU",
    ),
    "a_constant": (
        (
            "import torch\nONE = torch.ones((), device='meta')\n"
            "def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):\n    return v * ONE\n"
        ),
        r"device meta.*line 4: return v \* ONE\)\n  check passes tensors on the CPU, so everything",
    ),
    "a_reply": (
        (
            "import torch\ndef attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor):\n"
            "    return torch.empty_like(q, device='meta')\n"
        ),
        "returned a tensor on meta, but check passes tensors on the CPU and expects its reply there",
    ),
}


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ON_META)
def test_what_lies_on_another_device_is_told(checked: Check, tmp_path: Path, name: str) -> None:
    text, said = ON_META[name]
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    with pytest.raises(CheckError) as caught:
        checked(f"{tmp_path / 'mine.py'}:attend")
    assert re.search(said, str(caught.value), re.DOTALL), str(caught.value)


# Layout -> the statements that convert it to arrays with positions on the second-to-last axis.
LAYOUTS = {
    "bsd": "assert q.ndim == 3 and q.shape[0] == k.shape[0]",
    "thd": "assert q.ndim == 3; q, k, v = (x.swapaxes(0, 1) for x in (q, k, v)); assert q.shape[0] == k.shape[0]",
    "bshd": "assert q.ndim == 4; q, k, v = (x.swapaxes(1, 2) for x in (q, k, v)); assert q.shape[:2] == k.shape[:2]",
    "sbhd": "q, k, v = (x.transpose(1, 2, 0, 3) for x in (q, k, v)); assert q.shape[:2] == k.shape[:2]",
    "sd": "assert q.ndim == 2 and mask is None or mask.ndim == 2",
}
# Layout -> the lengths of key and value in a form that broadcasts to the logits.
LENGTHS = {
    "bsd": "n[:, None, None]",
    "thd": "n",
    "bshd": "n[:, None, None, None]",
    "sbhd": "n[:, None, None, None]",
    "sd": "n",
}
BACK = {"bsd": "o", "sd": "o", "thd": "o.swapaxes(0, 1)", "bshd": "o.swapaxes(1, 2)", "sbhd": "o.transpose(2, 0, 1, 3)"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_order_of_axes_is_found_out(checked: Check, tmp_path: Path, layout: str) -> None:
    (tmp_path / "mine.py").write_text(
        f"import numpy as np\n\ndef attend(q, k, v, mask=None, n=None):\n    {LAYOUTS[layout]}\n"
        "    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5\n"
        "    s = s if mask is None else np.where(mask, s, np.finfo(s.dtype).min)\n"
        "    if n is not None:\n"
        f"        s = np.where(np.arange(s.shape[-1]) < {LENGTHS[layout]}, s, np.finfo(s.dtype).min)\n"
        "    e = np.exp(s - s.max(-1, keepdims=True))\n    o = e / e.sum(-1, keepdims=True) @ v\n"
        f"    return {BACK[layout]}\n",
        encoding="utf-8",
    )
    calling = preflight.Calling(mapping={"n": "lengths"})
    done = checked(f"{tmp_path / 'mine.py'}:attend", "shapes/*", "masks/*", "causal/rectangular/*", calling=calling)
    assert done.decision.conforms, done.lines()
    slots = {mask["slot"] for record in records(done.run.folder) for mask in record.get("route", ())}
    assert slots == {"mask", "n"}
    assert f"called with NumPy arrays {signature.LAYOUTS[layout]}" in done.notes[0]
    assert sum(cell.verdict == "pass" for cell in done.run.cells.values()) > 30


ADDED = (
    "import numpy as np\n\ndef attend(q, k, v, attn_mask=None):\n"
    "    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5\n"
    "    s = s if attn_mask is None else s + attn_mask\n"
    "    e = np.exp(s - s.max(-1, keepdims=True))\n    return (e / e.sum(-1, keepdims=True) @ v).astype(q.dtype)\n"
)
NO_BOOLEANS = ", floats (added to the logits; booleans raise no error, but hide no key)"


def test_a_boolean_mask_that_is_added_is_told(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ADDED, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attend", "shapes/cross*", "masks/additive/*")
    assert done.decision.conforms, done.lines()
    assert done.notes[0].endswith(NO_BOOLEANS)


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("s + attn_mask", NO_BOOLEANS),
        (
            "np.where(attn_mask, s, -np.inf) if attn_mask.dtype == bool else s + attn_mask",
            ", boolean (True = attend) or floats (added to the logits)",
        ),
        ("np.where(attn_mask != 0, s, -np.inf)", ", boolean (True = attend)"),
    ],
)
def test_a_mask_is_recognised_though_a_mistake_hides_what_it_hides(
    checked: Check, tmp_path: Path, added: str, said: str
) -> None:
    """With a softmax over the queries, a key that is hidden from all of them makes the output NaN."""
    text = ADDED.replace("s + attn_mask", added).replace("(-1, keepdims", "(-2, keepdims")
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attend", "shapes/cross*", "masks/a*", dtypes=("float32",))
    assert [str(cause) for cause in done.causes if "takes the softmax over the queries" in str(cause)]
    assert done.notes[0].endswith(said)


REQUIRED = """
import numpy as np

def attention(q, k, v, mask, kept):
    s = np.where(mask, q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, -np.inf)
    s = s if kept is None else np.where(np.arange(k.shape[2]) < kept[:, None, None, None], s, -np.inf)
    peak = s.max(-1, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(peak), peak, 0))
    total = e.sum(-1, keepdims=True)
    return (e / np.where(total == 0, 1, total) @ v).astype(q.dtype)

def right(q, k, v, mask):
    return attention(q, k, v, mask, None)

def of_padding(q, k, v, key_mask, is_causal=False):
    future = np.tri(q.shape[2], k.shape[2], dtype=bool) if is_causal else True
    return attention(q, k, v, key_mask[:, None, None] & future, None)

def of_lengths(q, k, v, kv_lengths, mask=None):
    return attention(q, k, v, True if mask is None else mask, kv_lengths[:])

def inverted(q, k, v, mask):
    return attention(q, k, v, ~mask, None)

def without_none(q, k, v, mask=None):
    return attention(q, k, v, mask[...], None)
"""

FULL = "in every call, because None fails or changes the answer: a call without a mask gets one that masks nothing"


@pytest.mark.parametrize(
    ("name", "argument"),
    [("right", "mask"), ("of_padding", "key_mask"), ("of_lengths", "kv_lengths")],
)
def test_a_mask_that_is_required_is_given_in_every_call(
    checked: Check, tmp_path: Path, name: str, argument: str
) -> None:
    """None raises no error in `right`: all weights are zero."""
    (tmp_path / "mine.py").write_text(REQUIRED, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:{name}", "shapes/cross*", "masks/key_padding/*", "causal/square/*")
    assert done.decision.conforms, done.lines()
    assert f"{argument} {FULL}" in done.notes[0]
    assert sum(cell.verdict == "pass" for cell in done.run.cells.values()) > 10


def test_the_mistake_of_a_required_mask_is_named(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(REQUIRED, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:inverted", "shapes/cross*", "masks/key_padding/*")
    (cause,) = done.causes
    assert str(cause).startswith("it reads True in mask as: ignore this key")


def test_a_mask_with_a_default_may_be_left_out(checked: Check, tmp_path: Path) -> None:
    """Its default is None, so a caller may rely on it."""
    (tmp_path / "mine.py").write_text(REQUIRED, encoding="utf-8")
    with pytest.raises(CheckError, match="it raised TypeError: 'NoneType' object is not subscriptable"):
        checked(f"{tmp_path / 'mine.py'}:without_none", "shapes/*")


def test_a_convention_is_observed_beside_a_rare_mistake(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\ndef attend(q, k, v, mask=None):\n"
        "    s = q @ k.reshape(*k.shape[:2], -1, k.shape[2]) * q.shape[-1] ** -0.5\n"
        "    s = s if mask is None else np.where(mask, s, -np.inf)\n"
        "    with np.errstate(invalid='ignore'):\n"
        "        e = np.exp(s - s.max(-1, keepdims=True))\n        return (e / e.sum(-1, keepdims=True)) @ v\n",
        encoding="utf-8",
    )
    done = checked(f"{tmp_path / 'mine.py'}:attend", "shapes/cross*", "degenerate/fully_masked_row/*")
    (cause,) = done.causes
    assert str(cause).startswith("it reshapes the key to (head_dim, seq_len_k) instead of transposing it")
    assert any("NaN for a fully masked row (accepted" in note for note in done.notes)


def test_beside_a_finite_fill_only_an_additive_mask_masks_a_row_fully(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\ndef attend(q, k, v, mask=None, bias=None):\n"
        "    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5\n"
        "    s = s if bias is None else s + bias\n"
        "    s = s if mask is None else np.where(mask, s, np.finfo(s.dtype).min)\n"
        "    with np.errstate(invalid='ignore'):\n"
        "        e = np.exp(s - s.max(-1, keepdims=True))\n        return e / e.sum(-1, keepdims=True) @ v\n",
        encoding="utf-8",
    )
    done = checked(f"{tmp_path / 'mine.py'}:attend", "shapes/cross*", "degenerate/*")
    assert done.decision.conforms, done.lines()
    (told,) = (note for note in done.notes if "NaN for a fully masked row" in note)
    assert told.startswith(
        "observed: it returns NaN for a fully masked row, where an additive mask adds -inf (accepted"
    )


def test_a_method_of_a_plain_class_is_called_on_an_instance(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\nclass Attention:\n    def __init__(self, head_dim, dropout=0.1):\n"
        "        self.scale = head_dim**-0.5\n\n    def attend(self, q, k, v, mask=None):\n"
        "        s = q @ k.swapaxes(-1, -2) * self.scale\n"
        "        s = s if mask is None else np.where(mask, s, np.finfo(s.dtype).min)\n"
        "        e = np.exp(s - s.max(-1, keepdims=True))\n        return e / e.sum(-1, keepdims=True) @ v\n",
        encoding="utf-8",
    )
    assert checked(f"{tmp_path / 'mine.py'}:Attention.attend", "shapes/*", "masks/*").decision.conforms


@pytest.mark.parametrize(("use", "said"), [("dropout(e)", True), ("e * (1 - dropout)", False)])
def test_a_dropout_without_default_is_a_number_or_a_module(
    checked: Check, tmp_path: Path, use: str, *, said: bool
) -> None:
    (tmp_path / "mine.py").write_text(
        "import numpy as np\n\ndef attend(q, k, v, mask, dropout):\n    "
        "s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5\n"
        "    s = s if mask is None else np.where(mask, s, np.finfo(s.dtype).min)\n"
        f"    e = np.exp(s - s.max(-1, keepdims=True))\n    e = e if dropout is None else {use}\n"
        "    return e / e.sum(-1, keepdims=True) @ v\n",
        encoding="utf-8",
    )
    done = checked(f"{tmp_path / 'mine.py'}:attend", "shapes/cross*", "masks/attention_2d/*", dtypes=("float32",))
    assert done.decision.conforms, done.lines()
    assert any("dropout always None" in line for line in done.lines()) == said


WITHOUT_MASK = (
    "import numpy as np\n\ndef attend(q, k, v):\n    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5\n"
    "    e = np.exp(s - s.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True) @ v\n"
)


def test_few_calls_are_no_bare_green(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WITHOUT_MASK, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attend")
    assert done.decision.exit_code == decision.INCOMPLETE
    assert re.search(
        r"was judged on too few cases: \d+ calls judged, all of which conform; [12]\d % of the cases", done.lines()[0]
    )
    (little,) = done.decision.incomplete
    few = r"only [12]\d % of the cases were judged, less than --min-judged 50 % "
    assert re.match(few + r"\(if the function is not meant for more: --min-judged [12]\d\); left out: ", little)
    assert little.count("no argument can express this mask (key_padding)") == 1


def test_the_least_part_can_be_said(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(WITHOUT_MASK, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attend", min_judged=0.1)
    assert done.decision.conforms
    left = r"\d+ calls left out because the function does not support them"
    assert re.search(
        rf"conforms: \d+ calls judged; {left}; [12]\d % of the cases were judged \(cases that", done.lines()[0]
    )


VALID_LENS = """
import numpy as np


def attend(queries, keys, values, valid_lens=None):
    scores = queries @ keys.swapaxes(-1, -2) / np.sqrt(queries.shape[-1]).astype(queries.dtype)
    if valid_lens is not None:  # three axes, as in Dive into Deep Learning
        batch, length, _ = scores.shape
        hidden = np.arange(scores.shape[-1]) >= valid_lens[:, None, None]
        scores = np.where(hidden, -1e6, scores).astype(queries.dtype)
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True) @ values
"""


def test_the_layout_is_one_in_which_lengths_work(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(VALID_LENS, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attend", "masks/key_padding/*", "shapes/cross*")
    assert done.decision.conforms, done.lines()
    assert done.notes[0].startswith("called with NumPy arrays (batch * num_heads, seq_len, head_dim); queries as query")


CONFIGURED = """
from torch import nn


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.heads = config.number_of_heads

    def forward(self, x):
        return x
"""


@pytest.mark.frameworks
def test_a_configuration_without_a_known_name_is_told(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CONFIGURED, encoding="utf-8")
    with pytest.raises(CheckError) as caught:
        checked(f"{tmp_path / 'mine.py'}:Attention")
    assert str(caught.value) == (
        "Attention cannot be built: AttributeError: check gives the configuration no 'number_of_heads': it knows the "
        "names of constructor arguments, such as n_embd, n_head, dropout and block_size (mine.py, line 9: self.heads = "
        "config.number_of_heads)"
    )


REQUIRED_MASK = """
import flax.linen as nn
import jax.numpy as jnp


class Attention(nn.Module):
    num_heads: int

    @nn.compact
    def __call__(self, x, mask, deterministic):
        batch, length, width = x.shape
        qkv = nn.Dense(3 * width, name="c_attn", use_bias=False)(x).reshape(batch, length, 3, self.num_heads, -1)
        q, k, v = qkv.transpose(2, 0, 3, 1, 4)
        scores = jnp.where(mask, q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5, -1e9)
        heads = nn.Dropout(0.1)(nn.softmax(scores), deterministic=deterministic) @ v
        return nn.Dense(width, name="c_proj", use_bias=False)(heads.transpose(0, 2, 1, 3).reshape(x.shape))
"""


@pytest.mark.frameworks
def test_a_layer_creates_its_weights_in_a_call_with_what_it_requires(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(REQUIRED_MASK, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:Attention", "shapes/self_attention/one*", dtypes=("float32",))
    assert done.decision.conforms, done.lines()
    assert "mask in every call, because None fails or changes the answer" in done.notes[0]
