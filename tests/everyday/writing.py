"""
Attention functions as text: a signature for `conformance check`, and correct lines, some replaced by a mistake.

A function consists of named parts of a few lines each. The function contains a part only if the signature has the
argument of the part. A mistake replaces parts.
"""

from collections.abc import Iterator, Mapping, Sequence

# Keyword arguments that a function may have in addition to its mask, in the order of the signature.
ARGUMENTS = (
    "is_causal",
    "causal_alignment",
    "key_padding_mask",
    "bias",
    "window",
    "scale",
    "num_kv_heads",
    "need_weights",
    "average_weights",
    "softcap",
)

# The defaults that are not None.
DEFAULTS = {
    "is_causal": "False",
    "causal_alignment": '"top_left"',
    "need_weights": "False",
    "average_weights": "False",
}

SPLIT = """\
batch, length, _ = query.shape
query = query @ params["wq"] + (0 if params["bq"] is None else params["bq"])
key = key @ params["wk"] + (0 if params["bk"] is None else params["bk"])
value = value @ params["wv"] + (0 if params["bv"] is None else params["bv"])
{kv_heads}
query = query.reshape(batch, length, num_heads, -1).swapaxes(1, 2)
key = key.reshape(batch, key.shape[1], kv_heads, -1).swapaxes(1, 2)
value = value.reshape(batch, value.shape[1], kv_heads, -1).swapaxes(1, 2)"""

MERGE = """\
output = output.swapaxes(1, 2).reshape(batch, length, -1)
output = output @ params["wo"] + (0 if params["bo"] is None else params["bo"])"""

# Part -> the argument that it requires ("" if none), and its lines.
PARTS: Mapping[str, tuple[str, str]] = {
    "sizes": ("", "length, keys, dim = query.shape[2], key.shape[2], query.shape[3]"),
    "repeat": (
        "num_kv_heads",
        """\
groups = 1 if num_kv_heads is None else query.shape[1] // num_kv_heads
key, value = np.repeat(key, groups, axis=1), np.repeat(value, groups, axis=1)""",
    ),
    "factor": ("", "factor = 1 / math.sqrt(dim)"),
    "given": ("scale", "factor = factor if scale is None else scale"),
    "logits": ("", "logits = query @ key.swapaxes(-1, -2)"),
    "scaled": ("", "logits = logits * factor"),
    "softcap": ("softcap", "if softcap is not None:\n    logits = softcap * np.tanh(logits / softcap)"),
    "bias": ("bias", "if bias is not None:\n    logits = logits + bias"),
    "allowed": ("", "allowed = np.ones((1, 1, length, keys), dtype=bool)"),
    "mask": ("", "if mask is not None:\n    allowed = allowed & mask"),
    "padding": (
        "key_padding_mask",
        "if key_padding_mask is not None:\n    allowed = allowed & key_padding_mask[:, None, None, :]",
    ),
    "shift": ("is_causal", "shift = 0"),
    "aligned": ("causal_alignment", 'if causal_alignment == "bottom_right":\n    shift = keys - length'),
    "causal": (
        "is_causal",
        "if is_causal:\n    allowed = allowed & (np.arange(keys) <= np.arange(length)[:, None] + shift)",
    ),
    "window": (
        "window",
        """\
if window is not None:
    left, right = window
    apart = np.arange(keys) - np.arange(length)[:, None]
    allowed = allowed & (apart >= -(length + keys if left is None else left))
    allowed = allowed & (apart <= (length + keys if right is None else right))""",
    ),
    "fill": ("", "logits = np.where(allowed, logits, -np.inf).astype(query.dtype)"),
    "maximum": ("", "top = logits.max(axis=-1, keepdims=True)\ntop = np.where(np.isfinite(top), top, 0)"),
    "weights": ("", "weights = np.exp(logits - top)"),
    "total": ("", "total = weights.sum(axis=-1, keepdims=True)"),
    "divide": ("", "weights = weights / np.where(total == 0, 1, total)"),
    "output": ("", "output = weights @ value"),
}

# Whether the signature has need_weights and average_weights -> the return statement.
RETURNED = {
    (False, False): "return output",
    (True, False): "return (output, weights) if need_weights else output",
    (True, True): "average = weights.mean(axis=1) if average_weights else weights\n"
    "return (output, average) if need_weights else output",
}

# What a function makes of a fully masked row -> the lines for that. All of them are accepted, and most code that people
# write does not return zeros.
ROWS: Mapping[str, Mapping[str, str]] = {
    "zero": {},
    "nan": {"maximum": "top = logits.max(axis=-1, keepdims=True)", "divide": "weights = weights / total"},
    "mean": {"fill": "logits = np.where(allowed, logits, np.finfo(query.dtype).min).astype(query.dtype)"},
    # The mean of V, but NaN in float16, in which -1e9 is -inf.
    "by_dtype": {
        "fill": "logits = np.where(allowed, logits, -1e9).astype(query.dtype)",
        "maximum": "top = logits.max(axis=-1, keepdims=True)",
        "divide": "weights = weights / total",
    },
}

SIZES = PARTS["sizes"][1]

# A loop over tiles of 3 keys. What it has summed is rescaled where a row gets a larger maximum.
TILES = """\
logits = logits.astype(np.promote_types(query.dtype, np.float32))
peak = np.full((*logits.shape[:-1], 1), -np.inf, logits.dtype)
total, output = np.zeros_like(peak), np.zeros((*logits.shape[:-1], value.shape[-1]), logits.dtype)
for start in range(0, keys, 3):
    tile = slice(start, start + 3)
    top = np.maximum(peak, logits[..., tile].max(axis=-1, keepdims=True))
    safe = np.where(np.isneginf(top), 0, top)
    weights, old = np.exp(logits[..., tile] - safe), np.exp(peak - safe)
    total = total * old + weights.sum(axis=-1, keepdims=True)
    output = output * old + weights @ value[:, :, tile]
    peak = top
output = (output / np.where(total == 0, 1, total)).astype(dtype)"""

IN_TYPE = """\
dtype = query.dtype
query, key, value = query.astype({0}), key.astype({0}), value.astype({0})"""
CAST = "output, weights = ({}).astype(dtype), weights.astype(dtype)"

# What can be written in several ways that are all right -> name of each way -> its lines.
STYLES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "computes in": {
        "its dtype": {"sizes": f"{SIZES}\ndtype = query.dtype"},
        "float32": {"sizes": f"{SIZES}\n{IN_TYPE.format('np.float32')}"},
        "float64": {"sizes": f"{SIZES}\n{IN_TYPE.format('np.float64')}"},
    },
    "logits": {
        "scaled": {},
        "of a scaled query": {
            "logits": "logits = query * query.dtype.type(factor) @ key.swapaxes(-1, -2)",
            "scaled": "",
        },
        "of both scaled": {
            "logits": """\
root = query.dtype.type(math.sqrt(abs(factor)))
logits = query * np.copysign(root, query.dtype.type(factor)) @ (key * root).swapaxes(-1, -2)""",
            "scaled": "",
        },
        "scaled in float64": {"scaled": "logits = logits * np.float64(factor)"},
        "from einsum": {"logits": 'logits = np.einsum("bhqd,bhkd->bhqk", query, key, optimize=True)'},
        "head by head": {
            "logits": """\
heads = [[query[b, h] @ key[b, h].T for h in range(query.shape[1])] for b in range(query.shape[0])]
logits = np.array(heads, dtype=query.dtype)"""
        },
    },
    "masks": {
        "fill": {},
        "add": {"fill": "logits = (logits + np.where(allowed, 0, -np.inf)).astype(query.dtype)"},
        "assign": {
            "fill": """\
logits = logits.astype(query.dtype)
logits[~np.broadcast_to(allowed, logits.shape)] = -np.inf"""
        },
        "fill with -1e9": {"fill": "logits = np.where(allowed, logits, -1e9).astype(query.dtype)"},
        "fill with the lowest number": ROWS["mean"],
    },
    "softmax": {
        "before V": {"output": CAST.format("weights @ value")},
        "before V, NaN for fully masked rows": {**ROWS["nan"], "output": CAST.format("weights @ value")},
        "base 2": {
            "weights": "weights = np.exp2((logits - top) * query.dtype.type(math.log2(math.e)))",
            "output": CAST.format("weights @ value"),
        },
        "divided after V": {"divide": "", "output": CAST.format("weights @ value / np.where(total == 0, 1, total)")},
        "in tiles": {"maximum": "", "weights": "", "total": "", "divide": "", "output": TILES},
    },
}
# The parts that a way to write the softmax may replace.
OF_SOFTMAX = ("maximum", "weights", "total", "divide")
# The ways to write the softmax of a function that returns its weights, too.
WITH_WEIGHTS = ("before V", "before V, NaN for fully masked rows", "base 2")


def written(operator: str, arguments: Sequence[str], replaced: Mapping[str, str]) -> str:
    """
    The text of a module with one function, `attention`.

    arguments: its keyword arguments. replaced: part -> other lines; all other parts are correct.

    Raises:
        KeyError: there is no such part.
    """
    if unknown := replaced.keys() - {*PARTS, "split", "merge", "returned"}:
        raise KeyError(f"no part {', '.join(sorted(unknown))}")
    positional = ["query", "key", "value", *(["params", "num_heads"] if operator == "mha" else []), "mask=None"]
    keywords = [f"{name}={DEFAULTS.get(name, 'None')}" for name in ARGUMENTS if name in arguments]
    head = f"import math\n\nimport numpy as np\n\n\ndef attention({', '.join([*positional, *keywords])}):"
    lines = [line for part in _parts(operator, arguments, replaced) for line in part.splitlines()]
    return "\n".join([head, *(f"    {line}" for line in lines)]) + "\n"


def _parts(operator: str, arguments: Sequence[str], replaced: Mapping[str, str]) -> Iterator[str]:
    if operator == "mha":
        heads = "num_kv_heads or num_heads" if "num_kv_heads" in arguments else "num_heads"
        yield replaced.get("split", SPLIT).format(kv_heads=f"kv_heads = {heads}")
    for name, (needed, lines) in PARTS.items():
        if not needed or needed in arguments:
            yield replaced.get(name, lines)
    if operator == "mha":
        yield replaced.get("merge", MERGE)
    yield replaced.get("returned", RETURNED["need_weights" in arguments, "average_weights" in arguments])
