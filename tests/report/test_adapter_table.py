"""The table of adapters comes from literal facts and from the source text of declared deviations and refusals."""

from pathlib import Path

import pytest

from conformance.engine.adapters import read_adapter
from conformance.report.adapter_table import table, written

ADAPTER = """
NAME = "fake.one"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = ["scale"]
DECLINES = {"float64": "there is no kernel | for it"}
SLOTS = {
    "mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "ignore"},
    "causal": {"role": "causal", "alignment": "bottom_right"},
}
VARIANTS = {"fast": {"summary": "quickly", "CAPABILITIES": ["scale", "softcap"]}, "slow": {}}

from ._helper import dialect


def declare(facts):
    return Declaration(None, (Deviation("fully_masked_row", "nan", "https://x"), *dialect(facts)))


def sdpa(call):
    raise Unsupported(f"not {call.facts.dtype}")
"""
CONSTANTS = 'LINK = "https://x.y"\nMODES = ("scaled", "logits")\n'
HELPER = """
def dialect(facts):
    return shared()


def shared():
    return (Deviation(f"penalty[{slot}]", "minus_1e4", "https://x"),)


def unused():
    return Deviation("scale", "none", "https://x")
"""


def adapter(tmp_path: Path) -> Path:
    (tmp_path / "_helper.py").write_text(HELPER, encoding="utf-8")
    path = tmp_path / "one.py"
    path.write_text(ADAPTER, encoding="utf-8")
    return path


def test_a_row_says_what_the_file_says(tmp_path: Path) -> None:
    head, rule, row = table([read_adapter(adapter(tmp_path))])
    assert head.count("|") == rule.count("|") == 11
    assert row == (
        "| `fake.one` | sdpa | `fast`: quickly; `slow` | float32 | cpu | output "
        "| `mask`: bool = ignore; over b k; `causal`: causal, bottom_right "
        "| scale, softcap | fully_masked_row = nan, penalty[*slot*] = minus_1e4 "
        "| float64 (there is no kernel \\| for it); float16 (not taken); bfloat16 (not taken); weights (not returned); "
        "weights_mean (not returned); gradients (not returned); "
        "present (not returned); scaled (not returned); capped (not returned); logits (not returned); "
        "grouped_heads (no argument for it); "
        "value_dim (no argument for it); bias_kv (no argument for it); zero_key (no argument for it); "
        "relu (no argument for it); residual (no argument for it); no_output_projection (no argument for it); "
        "layout (no argument for it); past (no argument for it); "
        "mistakes (no argument for it); mistaken_heads (no argument for it); "
        "attention masks (only merged into another mask); "
        "window masks (only merged into another mask); additive masks (no argument takes them); "
        "attached masks (no tensor carries one); not *dtype* |"
    )


def test_without_a_mask_argument_nothing_is_folded(tmp_path: Path) -> None:
    path = adapter(tmp_path)
    text = path.read_text(encoding="utf-8")
    slots = text[text.index("SLOTS") : text.index("VARIANTS")]
    path.write_text(text.replace(slots, "SLOTS = {}\n"), encoding="utf-8")
    *_, row = table([read_adapter(path)])
    assert "key_padding masks (no argument takes them); " in row
    assert "merged" not in row


def test_only_helpers_that_are_used_count(tmp_path: Path) -> None:
    assert written(adapter(tmp_path)).deviations == ("fully_masked_row = nan", "penalty[*slot*] = minus_1e4")


@pytest.mark.parametrize(
    ("written_as", "shown"),
    [
        ('f"{release} has no {arguments}: a later release has"', "*release* has no *arguments*: a later release has"),
        ("f\"one of {', '.join(MODES)}, not {' and '.join(sorted(asked))}\"", "one of scaled, logits, not *asked*"),
        ("f\"{node.op_type} of {here}, {name.replace('_', ' ')}\"", "*op type* of *here*, *name*"),
        ('f"onnx {onnx.__version__}"', "onnx *version*"),
        ('f"one head_size: {LINK}"', "one head_size: https://x.y"),
        ('f"at most {2 * most}"', "at most …"),
    ],
)
def test_what_is_filled_in_later_is_told_in_a_word(tmp_path: Path, written_as: str, shown: str) -> None:
    path = adapter(tmp_path)
    text = ADAPTER.replace('f"not {call.facts.dtype}"', written_as).replace("NAME =", f"{CONSTANTS}NAME =")
    path.write_text(text, encoding="utf-8")
    assert written(path).refusals == (shown,)


def test_a_parameter_stands_for_what_its_calls_give(tmp_path: Path) -> None:
    path = adapter(tmp_path)
    helper = HELPER.replace("def shared():", "def shared(slot):").replace("shared()", 'shared("one") + shared("two")')
    (tmp_path / "_helper.py").write_text(helper, encoding="utf-8")
    found = ("fully_masked_row = nan", "penalty[one] = minus_1e4", "penalty[two] = minus_1e4")
    assert written(path).deviations == found
