"""
The everyday mistakes: the lines that replace correct ones, and the names that are right for each mistake.

The names were written before the tool was run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SDPA, MHA = "sdpa", "mha"


@dataclass(frozen=True)
class Mistake:
    """
    One mistake in attention.

    right: names; each of them is a right answer; none if the function has no mistake. lines: part (see
    `writing.PARTS`) -> the lines that replace it. needs: the arguments that the mistake requires. excludes: the
    arguments that make it impossible. declare: what the check declares. raises: whether calls with some sizes also
    raise an exception.
    """

    name: str
    right: tuple[str, ...]
    lines: Mapping[str, str]
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    operators: tuple[str, ...] = (SDPA, MHA)
    declare: Mapping[str, str] = field(default_factory=dict)
    raises: bool = False


ALLOW_CAUSAL = "allowed = allowed & (np.arange(keys) <= np.arange(length)[:, None] + shift"
PAD = "allowed = allowed & key_padding_mask[:, None, None, :]"


def _causal(condition: str) -> dict[str, str]:
    return {"causal": f"if is_causal and {condition}:\n    {ALLOW_CAUSAL})"}


FILL = "logits = np.where(allowed, logits, -np.inf).astype(query.dtype)"


def _fill(number: str) -> dict[str, str]:
    return {"fill": f"logits = np.where(allowed, logits, {number}).astype(query.dtype)"}


def _added_by_each(number: str) -> dict[str, str]:
    """Each mask adds a number to the logits, as in layers that get additive masks from several sources."""
    add = f"    logits = (logits + np.where({{}}, 0, {number})).astype(query.dtype)"
    window = "    left, right = (length + keys if each is None else each for each in window)"
    return {
        "mask": f"if mask is not None:\n{add.format('mask')}",
        "padding": f"if key_padding_mask is not None:\n{add.format('key_padding_mask[:, None, None, :]')}",
        "causal": f"if is_causal:\n{add.format('np.arange(keys) <= np.arange(length)[:, None] + shift')}",
        "window": (
            f"if window is not None:\n{window}\n    apart = np.arange(keys) - np.arange(length)[:, None]\n"
            f"{add.format('(apart >= -left) & (apart <= right)')}"
        ),
        "fill": "logits = logits.astype(query.dtype)",
    }


def _projected(old: str, new: str) -> dict[str, str]:
    from .writing import SPLIT  # noqa: PLC0415

    assert old in SPLIT
    return {"split": SPLIT.replace(old, new)}


def _merged(old: str, new: str) -> dict[str, str]:
    from .writing import MERGE  # noqa: PLC0415

    assert old in MERGE
    return {"merge": MERGE.replace(old, new)}


MISTAKES: tuple[Mistake, ...] = (
    # ---- masks
    Mistake(
        "mask inverted", ("polarity[mask]=ignore",), {"mask": "if mask is not None:\n    allowed = allowed & ~mask"}
    ),
    Mistake("mask ignored", ("use[mask]=ignored",), {"mask": "pass"}),
    Mistake(
        "padding inverted",
        ("polarity[key_padding_mask]=ignore",),
        {"padding": f"if key_padding_mask is not None:\n    {PAD.replace('key_p', '~key_p')}"},
        needs=("key_padding_mask",),
    ),
    Mistake("padding ignored", ("use[key_padding_mask]=ignored",), {"padding": "pass"}, needs=("key_padding_mask",)),
    Mistake(
        "mask of the first item",
        ("mask_axes[mask]=first_batch",),
        {"mask": "if mask is not None:\n    allowed = allowed & mask[:1]"},
    ),
    Mistake(
        "mask of the first head",
        ("mask_axes[mask]=first_head",),
        {"mask": "if mask is not None:\n    allowed = allowed & mask[:, :1]"},
    ),
    Mistake(
        "masks combined with or",
        ("mask_combination=or", "mask_combination=or_of_arrays"),
        {
            "mask": "pass",
            "padding": "if mask is not None or key_padding_mask is not None:\n"
            "    padding = False if key_padding_mask is None else key_padding_mask[:, None, None, :]\n"
            "    allowed = allowed & ((False if mask is None else mask) | padding)",
        },
        needs=("key_padding_mask",),
    ),
    Mistake(
        "padding only without a mask",
        ("use[key_padding_mask]=ignored", "use[key_padding_mask]=ignored_beside_others"),
        {"padding": f"if key_padding_mask is not None and mask is None:\n    {PAD}"},
        needs=("key_padding_mask",),
    ),
    # ---- the causal flag
    Mistake("causal ignored", ("causal_mask=ignored",), {"causal": "pass"}, needs=("is_causal",)),
    Mistake(
        "causal ignored beside a mask",
        ("causal_mask=ignored", "causal_mask=ignored_beside_others"),
        _causal("mask is None"),
        needs=("is_causal",),
    ),
    Mistake(
        "causal ignored beside padding",
        ("causal_mask=ignored", "causal_mask=ignored_beside_others"),
        _causal("key_padding_mask is None"),
        needs=("is_causal", "key_padding_mask"),
    ),
    Mistake("causal only when square", ("causal_mask=ignored",), _causal("length == keys"), needs=("is_causal",)),
    Mistake(
        "causal hides the diagonal",
        ("causal_alignment=strict",),
        {"causal": f"if is_causal:\n    {ALLOW_CAUSAL} - 1)"},
        needs=("is_causal",),
    ),
    Mistake(
        "causal shows one key more",
        ("causal_alignment=one_ahead",),
        {"causal": f"if is_causal:\n    {ALLOW_CAUSAL} + 1)"},
        needs=("is_causal",),
    ),
    Mistake(
        "causal shows three keys more",
        ("causal_alignment=shifted_3",),
        {"causal": f"if is_causal:\n    {ALLOW_CAUSAL} + 3)"},
        needs=("is_causal",),
    ),
    Mistake(
        "causal shifted to the wrong side",
        ("causal_alignment=bottom_right_reversed",),
        {"shift": "shift = length - keys"},
        needs=("is_causal",),
    ),
    Mistake(
        "causal turned over",
        ("causal_alignment=reversed", "causal_alignment=future"),
        {"causal": "if is_causal:\n    allowed = allowed & (np.arange(keys) >= np.arange(length)[:, None] + shift)"},
        needs=("is_causal",),
    ),
    Mistake(
        "causal always at the last key",
        ("causal_alignment=bottom_right",),
        {"aligned": "shift = keys - length"},
        needs=("is_causal", "causal_alignment"),
    ),
    Mistake(
        "causal always at the first key",
        ("causal_alignment=always_top_left",),
        {"aligned": "pass"},
        needs=("is_causal", "causal_alignment"),
    ),
    # ---- windows
    Mistake("window ignored", ("use[window]=ignored",), {"window": "pass"}, needs=("window",)),
    # ---- fills
    Mistake("filled with -10", ("mask_fill=puts_-10",), _fill("-10.0")),
    Mistake("filled with -50.5", ("mask_fill=puts_-50.5",), _fill("-50.5")),
    Mistake("filled with -1e4", ("mask_fill=puts_-10000",), _fill("-1e4")),
    Mistake("filled with 0", ("mask_fill=puts_0", "mask_fill=zero"), _fill("0.0")),
    Mistake("filled with 1e-9", ("mask_fill=puts_1e-9", "mask_fill=plus_1e-9", "mask_fill=zero"), _fill("1e-9")),
    Mistake("filled with 5", ("mask_fill=puts_5",), _fill("5.0")),
    Mistake(
        "added -1e4",
        ("mask_fill=adds_-10000", "mask_fill=minus_1e4"),
        {"fill": "logits = (logits + np.where(allowed, 0.0, -1e4)).astype(query.dtype)"},
    ),
    Mistake(
        "added -7",
        ("mask_fill=adds_-7",),
        {"fill": "logits = (logits + np.where(allowed, 0.0, -7.0)).astype(query.dtype)"},
    ),
    Mistake(
        "each mask adds -1e4",
        ("mask_fill=adds_-10000_for_each",),
        _added_by_each("-1e4"),
        needs=("key_padding_mask",),
    ),
    Mistake(
        "each mask adds the lowest number",
        ("mask_fill=finite_minimum_for_each",),
        _added_by_each("np.finfo(query.dtype).min"),
        needs=("key_padding_mask",),
    ),
    Mistake(
        "mask filled with -10, the rest with -inf",
        ("argument_fill[mask]=puts_-10_last",),
        {
            "mask": "",
            "fill": f"{FILL}\nif mask is not None:\n    logits = np.where(mask, logits, -10.0).astype(query.dtype)",
        },
        needs=("is_causal",),
    ),
    Mistake(
        "padding filled with -1e9, the rest with -inf",
        ("argument_fill[key_padding_mask]=puts_-1e9",),
        {
            "padding": "",
            "fill": f"""\
if key_padding_mask is not None:
    lowest = max(-1e9, float(np.finfo(query.dtype).min))
    logits = np.where(key_padding_mask[:, None, None, :], logits, lowest).astype(query.dtype)
{FILL}""",
        },
        needs=("key_padding_mask",),
    ),
    Mistake(
        "causal mask filled with the lowest number, the rest with -inf",
        ("causal_fill=puts_-1e9",),
        {
            "causal": "",
            "fill": f"""\
if is_causal:
    seen = np.arange(keys) <= np.arange(length)[:, None] + shift
    logits = np.where(seen, logits, np.finfo(query.dtype).min)
{FILL}""",
        },
        needs=("is_causal",),
    ),
    Mistake(
        "mask applied after the softmax, the rest before",
        ("argument_fill[mask]=zero_after_softmax",),
        {"mask": "", "output": "if mask is not None:\n    weights = weights * mask\noutput = weights @ value"},
        needs=("is_causal",),
    ),
    Mistake(
        "multiplied by the mask",
        ("mask_fill=times_mask", "mask_fill=zero", "mask_fill=puts_0"),
        {"fill": "logits = (logits * allowed).astype(query.dtype)"},
    ),
    Mistake(
        "masked after the softmax",
        ("mask_fill=zero_after_softmax",),
        {
            "fill": "",
            "divide": "weights = weights / np.where(total == 0, 1, total) * allowed.astype(query.dtype)",
        },
    ),
    # ---- scale
    Mistake("scale missing", ("scale=none",), {"scaled": ""}, excludes=("scale",)),
    Mistake("scale twice", ("scale=squared",), {"scaled": "logits = logits * factor * factor"}),
    Mistake("scale 1/d", ("scale=squared",), {"factor": "factor = 1 / dim"}, excludes=("scale",)),
    Mistake("scale 1/(2d)", ("scale=over_head_dim_0.5",), {"factor": "factor = dim**-1 / 2"}, excludes=("scale",)),
    Mistake(
        "scale sqrt(d)",
        ("scale=inverted", "scale=square_root"),
        {"factor": "factor = math.sqrt(dim)"},
        excludes=("scale",),
    ),
    Mistake("scale by length", ("scale=seq_len",), {"factor": "factor = 1 / math.sqrt(keys)"}, excludes=("scale",)),
    Mistake(
        "scale by number of queries",
        ("scale=seq_len_q",),
        {"factor": "factor = 1 / math.sqrt(query.shape[-2])"},
        excludes=("scale",),
    ),
    Mistake(
        "scale by value_dim",
        ("scale=value_dim",),
        {"factor": "factor = 1 / math.sqrt(value.shape[-1])"},
        excludes=("scale",),
    ),
    Mistake("given scale ignored", ("scale=ignored",), {"given": "pass"}, needs=("scale",), operators=(SDPA,)),
    Mistake(
        "given scale times the default",
        ("scale=given_times_default",),
        {"given": "factor = factor if scale is None else factor * scale"},
        needs=("scale",),
        operators=(SDPA,),
    ),
    Mistake("scale off by 1e-4", ("scale=times_1.0001",), {"scaled": "logits = logits * (factor * 1.0001)"}),
    Mistake("scale off by a tenth", ("scale=times_0.9",), {"scaled": "logits = logits * (factor * 0.9)"}),
    Mistake("scale off by 7", ("scale=times_7",), {"scaled": "logits = logits * (factor * 7)"}),
    Mistake(
        "a scale of zero is none",
        ("scale=default_if_zero",),
        {"given": "factor = scale or factor"},
        needs=("scale",),
        operators=(SDPA,),
    ),
    # ---- softmax
    Mistake(
        "softmax over queries",
        ("softmax_axis=queries",),
        {
            "maximum": "top = logits.max(axis=-2, keepdims=True)\ntop = np.where(np.isfinite(top), top, 0)",
            "total": "total = weights.sum(axis=-2, keepdims=True)",
        },
    ),
    Mistake(
        "softmax over heads",
        ("softmax_axis=heads",),
        {
            "maximum": "top = logits.max(axis=1, keepdims=True)\ntop = np.where(np.isfinite(top), top, 0)",
            "total": "total = weights.sum(axis=1, keepdims=True)",
        },
    ),
    *(
        Mistake(
            f"softmax over {name} without a guard",
            (f"softmax_axis={name}",),
            {
                "maximum": f"top = logits.max(axis={axis}, keepdims=True)",
                "total": f"total = weights.sum(axis={axis}, keepdims=True)",
                "divide": "weights = weights / total",
            },
        )
        for name, axis in (("queries", -2), ("heads", 1))
    ),
    Mistake(
        "softmax over the batch",
        ("softmax_axis=batch",),
        {
            "maximum": "top = logits.max(axis=0, keepdims=True)\ntop = np.where(np.isfinite(top), top, 0)",
            "total": "total = weights.sum(axis=0, keepdims=True)",
        },
    ),
    Mistake(
        "softmax over all axes",
        ("softmax_axis=all",),
        {
            "maximum": "top = logits.max(keepdims=True)\ntop = np.where(np.isfinite(top), top, 0)",
            "total": "total = weights.sum(keepdims=True)",
        },
    ),
    Mistake(
        "softmax over all axes but the batch",
        ("softmax_axis=heads_queries_and_keys",),
        {
            "maximum": "top = logits.max(axis=(1, 2, 3), keepdims=True)\ntop = np.where(np.isfinite(top), top, 0)",
            "total": "total = weights.sum(axis=(1, 2, 3), keepdims=True)",
        },
    ),
    Mistake(
        "one maximum for all rows",
        ("softmax_maximum=of_all", "softmax_maximum=of_all_unguarded"),
        {"maximum": "top = logits.max(keepdims=True)\ntop = np.where(np.isfinite(top), top, 0)"},
    ),
    Mistake("no maximum", ("softmax_maximum=missing", "softmax_maximum=missing_guarded"), {"maximum": "top = 0"}),
    Mistake(
        "epsilon of 1e-3",
        ("softmax_denominator=plus_0.001",),
        {"divide": "weights = weights / (np.where(total == 0, 1, total) + 1e-3)"},
    ),
    Mistake(
        "epsilon of 0.05",
        ("softmax_denominator=plus_0.05",),
        {"divide": "weights = weights / (np.where(total == 0, 1, total) + 0.05)"},
    ),
    Mistake(
        "softmax one",
        ("softmax_denominator=plus_one",),
        {"divide": "weights = weights / (total + np.exp(-top))"},
    ),
    Mistake("not normalised", ("softmax_denominator=missing",), {"divide": ""}),
    Mistake(
        "weights times 0.9",
        ("weight_factor=times_0.9",),
        {"divide": "weights = weights / np.where(total == 0, 1, total) * 0.9"},
    ),
    Mistake(
        "softmax in float16",
        ("scores_and_softmax_in_float16", "softmax_in_float16"),
        {
            "fill": "logits = np.where(allowed, logits, -np.inf).astype(np.float16)",
            "output": "output = weights.astype(query.dtype) @ value",
        },
        excludes=("need_weights",),
    ),
    Mistake(
        "rows with NaN set to zero",
        ("attended_nonfinite=nan_weights_zeroed",),
        {"divide": "weights = np.where(total > 0, weights / np.where(total > 0, total, 1), 0)"},
    ),
    # ---- dtypes
    Mistake(
        "result in float64",
        ("result_dtype=float64",),
        {"output": "output = weights.astype(np.float64) @ value"},
        excludes=("need_weights",),
    ),
    Mistake(
        "result in float64 without a scale",
        ("result_dtype=float64",),
        {
            "factor": "factor = np.float64(1 / math.sqrt(dim))",  # NumPy promotes every later array to float64
            "fill": "logits = np.where(allowed, logits, -np.inf)",
        },
        needs=("scale",),
        operators=(SDPA,),
    ),
    Mistake(
        "result in float32",
        ("result_dtype=float32",),
        {"output": "output = weights.astype(np.float32) @ value.astype(np.float32)"},
        excludes=("need_weights",),
        operators=(SDPA,),
    ),
    # ---- additive masks
    Mistake("bias ignored", ("use[bias]=ignored",), {"bias": "pass"}, needs=("bias",)),
    Mistake(
        "bias before the scale",
        ("bias_scale=scaled",),
        {
            "bias": "",
            "logits": "logits = query @ key.swapaxes(-1, -2)\nif bias is not None:\n    logits = logits + bias",
        },
        needs=("bias",),
        excludes=("softcap",),
    ),
    Mistake(
        "bias doubled",
        ("bias_scale=doubled", "bias_scale=times_2"),
        {"bias": "if bias is not None:\n    logits = logits + 2 * bias"},
        needs=("bias",),
    ),
    Mistake(
        "bias halved",
        ("bias_scale=times_0.5",),
        {"bias": "if bias is not None:\n    logits = logits + bias / 2"},
        needs=("bias",),
    ),
    Mistake(
        "bias subtracted",
        ("float_mask[bias]=subtracted", "bias_scale=times_-1"),
        {"bias": "if bias is not None:\n    logits = logits - bias"},
        needs=("bias",),
    ),
    Mistake(
        "finite part of the bias dropped",
        ("bias_scale=infinities_only", "bias_scale=times_0"),
        {
            "bias": "",
            "fill": "if bias is not None:\n    allowed = allowed & (bias != -np.inf)\n" + _fill("-np.inf")["fill"],
        },
        needs=("bias",),
    ),
    # ---- values, keys and heads
    Mistake("keys as values", ("value_path=key",), {"output": "output = weights @ key"}, operators=(SDPA,)),
    Mistake("values reversed", ("value_path=reversed",), {"output": "output = weights @ value[:, :, ::-1]"}),
    Mistake(
        "last key dropped",
        ("key_tail=last_dropped",),
        {"allowed": "allowed = np.broadcast_to(np.arange(keys) < keys - 1, (1, 1, length, keys))"},
    ),
    Mistake(
        "grouped heads tiled",
        ("grouped_heads=tile",),
        {
            "repeat": "groups = 1 if num_kv_heads is None else query.shape[1] // num_kv_heads\n"
            "key, value = np.tile(key, (1, groups, 1, 1)), np.tile(value, (1, groups, 1, 1))"
        },
        needs=("num_kv_heads",),
    ),
    # ---- the softcap
    Mistake("softcap ignored", ("softcap=ignored",), {"softcap": "pass"}, needs=("softcap",)),
    # ---- returned weights
    Mistake(
        "weights not averaged",
        ("returned_weights=not_averaged",),
        {"returned": "return (output, weights) if need_weights else output"},
        needs=("need_weights", "average_weights"),
    ),
    Mistake(
        "logits returned as weights",
        ("returned_weights=masked_logits", "returned_weights=before_softmax"),
        {"returned": "return (output, logits) if need_weights else output"},
        needs=("need_weights",),
        excludes=("average_weights",),
    ),
    # ---- rows without a key
    Mistake(
        "NaN for fully masked rows",
        ("fully_masked_row=nan",),
        {"divide": "weights = weights / total"},
        declare={"fully_masked_row": "canonical"},
    ),
    # ---- multi-head attention
    Mistake(
        "key and value weights swapped",
        ("projection_order=qvk", "projection_order=wv_for_key"),
        _projected(
            'key = key @ params["wk"] + (0 if params["bk"] is None else params["bk"])\n'
            'value = value @ params["wv"] + (0 if params["bv"] is None else params["bv"])',
            'key = key @ params["wv"] + (0 if params["bv"] is None else params["bv"])\n'
            'value = value @ params["wk"] + (0 if params["bk"] is None else params["bk"])',
        ),
        operators=(MHA,),
        raises=True,  # where key and value have different widths
    ),
    Mistake(
        "key and value swapped",
        ("arguments=key_value",),
        _projected("batch, length, _ = query.shape", "batch, length, _ = query.shape\nkey, value = value, key"),
        operators=(MHA,),
        raises=True,  # where key and value have different widths
    ),
    Mistake(
        "heads not transposed back", ("head_merge=untransposed",), _merged(".swapaxes(1, 2)", ""), operators=(MHA,)
    ),
    Mistake(
        "output bias missing",
        ("projection_bias=without_bo",),
        _merged(' + (0 if params["bo"] is None else params["bo"])', ""),
        operators=(MHA,),
    ),
    Mistake(
        "query bias missing",
        ("projection_bias=without_bq",),
        _projected(' + (0 if params["bq"] is None else params["bq"])', ""),
        operators=(MHA,),
    ),
    Mistake(
        "value bias missing",
        ("projection_bias=without_bv",),
        _projected(' + (0 if params["bv"] is None else params["bv"])', ""),
        operators=(MHA,),
    ),
)
