"""Plain NumPy functions: right ones conform, mistakes are named, decisions without a consensus are observed."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.checking.adapter_text import ADAPTER
from conformance.checking.check_report import VARIES, cause_lines, causes, dtype_notes, headline, varying_notes
from conformance.checking.function_check import Checked
from conformance.checking.preflight import Calling
from conformance.checking.target import CheckError
from conformance.engine.adapters import read_adapter
from conformance.engine.runlog import RunLog
from conformance.gate import decision
from conformance.report.findings import Finding

from ..running import records

HERE = Path(__file__).parent
Check = Callable[..., Checked]


def sentences(checked: Checked) -> list[str]:
    return [str(cause) for cause in checked.causes]


@pytest.mark.parametrize(
    "given",
    [
        "checked_sdpa:right",
        "checked_sdpa:right_with_everything",
        "checked_sdpa:windowed",
        "checked_sdpa:with_lengths",
        "checked_sdpa:float32_inside",
        "checked_mha:right",
    ],
)
def test_a_right_function_conforms_everywhere(checked: Check, given: str) -> None:
    done = checked(given)
    assert done.lines()[0].startswith(f"{done.request.target.given} conforms: ")
    assert done.decision.exit_code == decision.CONFORMS
    assert sum(cell.verdict == "pass" for cell in done.run.cells.values()) > 100
    assert not done.causes


def test_every_argument_that_is_named_is_used(checked: Check) -> None:
    done = checked("checked_sdpa:right_with_everything", "causal/*", "parameters/*", "masks/additive*", "combined/*")
    assert done.decision.conforms, done.lines()
    log = records(done.run.folder)
    slots = {mask["slot"] for record in log for mask in record.get("route", ())}
    assert slots == {"is_causal", "is_causal_bottom_right", "window", "bias", "key_padding_mask", "mask"}
    unsupported = {case for (case, _), cell in done.run.cells.items() if cell.verdict == "unsupported"}
    assert not {case for case in unsupported if case.startswith("parameters/") and "dtype=bfloat16" not in case}


def test_processes_share_the_cases(checked: Check) -> None:
    done = checked("checked_sdpa:inverted_mask", "masks/key_padding*", "shapes/cross*", jobs=3)
    workers = {record["worker"] for record in records(done.run.folder) if record["type"] == "worker"}
    assert workers == {f"checked_sdpa.inverted_mask ({part} of 3)" for part in (1, 2, 3)}
    assert not done.decision.incomplete
    assert {cell.verdict for (case, _), cell in done.run.cells.items() if case.startswith("shapes/")} >= {"pass"}
    (cause,) = done.causes
    assert "reads True in mask as: ignore this key" in str(cause)


NAMED = {
    "checked_sdpa:inverted_mask": "it reads True in mask as: ignore this key",
    "checked_sdpa:no_scale": "it does not scale the logits",
    "checked_sdpa:softmax_over_queries": "it takes the softmax over the queries",
    "checked_sdpa:softmax_over_heads": "it takes the softmax over the heads",
    "checked_sdpa:small_fill": "it adds -1e4 to masked logits: a masked key with a large logit still gets weight",
    "checked_sdpa:mask_ignored": "it ignores mask",
    "checked_sdpa:off_by_one_windowed": "it makes the window one key too narrow on the left",
    "checked_sdpa:one_key_too_many": "it counts one key too many in seq_lens",
    "checked_mha:heads_interleaved": "it assigns columns h, h + num_heads, ... of the projections to head h",
    "checked_mha:inverted_mask": "it reads True in mask as: ignore this key",
}


@pytest.mark.parametrize("given", sorted(NAMED))
def test_a_mistake_is_named(checked: Check, given: str) -> None:
    done = checked(given, "shapes/cross*", "shapes/self*", "masks/*", "numerics/logits*")
    assert done.decision.exit_code == decision.REJECTED
    assert sentences(done)[0] == NAMED[given]
    assert not done.run.conforms


def test_a_number_is_measured_beside_a_mistake_that_makes_the_numbers_large(checked: Check) -> None:
    """The large masked keys of self-attention reach the output, and with them errors larger than what is declared."""
    only = ("masks/key_padding_self/*", "masks/one_tensor/*")
    done = checked("checked_mha:inverted_mask_with_a_finite_fill", *only, dtypes=("float32", "float64"))
    assert sentences(done) == [
        "it reads True in mask as: ignore this key",
        "it fills masked logits with -1e9, not with -inf",
    ]


BY_PLACE = """
import numpy as np

def attend(query, key, value, block_table=None, is_causal=False):
    assert block_table is None
    logits = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1]).astype(query.dtype)
    if is_causal:
        logits = np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
"""


def test_the_argument_after_the_arrays_is_no_mask_if_every_call_with_one_fails(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(BY_PLACE, encoding="utf-8")
    done = checked(f"{tmp_path}/mine.py:attend", "shapes/cross*", "causal/square*")
    assert done.decision.conforms
    why = "because every call with a mask in it fails (to name its role: --map block_table=ROLE)"
    assert f"called with block_table always None, {why}" in done.notes
    assert "it takes no attention mask, so cases that need one are left out" in done.notes


def test_a_flag_that_is_ignored_is_named(checked: Check) -> None:
    assert sentences(checked("checked_sdpa:causal_ignored", "causal/*")) == ["it ignores the causal argument"]


OF_ADDED_MASK = ("masks/attention*", "masks/additive*", "shapes/self*")


def test_a_function_that_adds_its_mask_is_told_how_to_check_it_so(checked: Check) -> None:
    done = checked("checked_sdpa:added", *OF_ADDED_MASK)
    assert sentences(done)[0].startswith("it adds the values of an integer or boolean mask (True as 1) to the logits")
    assert "if the argument mask is meant to be added to the logits, check with --map mask=bias" in done.lines()


REFUSING_BOTH = """

def attend(query, key, value, attn_mask=None, is_causal=False, causal_alignment="top_left"):
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask and is_causal exclude each other")
    return right_with_everything(
        query, key, value, attn_mask, is_causal=is_causal, causal_alignment=causal_alignment
    )
"""
SEVERAL_MASKS = ("causal/offset/*", "causal/rectangular/*", "causal/window/*", "masks/attention*", "shapes/self*")


def test_arguments_that_exclude_each_other_can_be_stated(checked: Check, tmp_path: Path) -> None:
    text = (HERE / "checked_sdpa.py").read_text(encoding="utf-8")
    (tmp_path / "mine.py").write_text(text + REFUSING_BOTH, encoding="utf-8")
    mine = f"{tmp_path}/mine.py:attend"
    done = checked(mine, *SEVERAL_MASKS)
    assert not done.decision.conforms
    option = "--exclusive attn_mask,is_causal"
    assert f"if attn_mask and is_causal are meant to exclude each other, check with {option}" in done.notes
    again = checked(mine, *SEVERAL_MASKS, into="again", calling=Calling(exclusive=("attn_mask", "is_causal")))
    assert again.decision.conforms
    assert again.request.rerun("a").endswith(f"{option} -k a")
    judged = {case for (case, _), cell in again.run.judged.items() if cell.verdict == "pass"}
    assert {case for case, _ in done.run.rejected} <= judged


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("mask", "mask"), "--exclusive mask,mask: expected two or more arguments, such as attn_mask,is_causal"),
        (
            ("mask", "causal"),
            "--exclusive mask,causal: the function has no mask argument causal; its mask arguments are mask",
        ),
    ],
)
def test_arguments_that_do_not_exist_exclude_nothing(checked: Check, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(CheckError, match=re.escape(said)):
        checked("checked_sdpa:right", calling=Calling(exclusive=names))


def test_a_dtype_in_which_every_call_raises_can_be_left_out(checked: Check, tmp_path: Path) -> None:
    text = (HERE / "checked_sdpa.py").read_text(encoding="utf-8")
    text += "\n\ndef narrow(query, key, value, mask=None):\n"
    text += (
        "    {np.dtype('float32'): 1, np.dtype('float16'): 2}[query.dtype]\n    return right(query, key, value, mask)\n"
    )
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:narrow", "shapes/s*", "causal/offset/moved*")
    assert not done.decision.conforms
    (note,) = (line for line in done.lines() if line.startswith("every call"))
    assert note == (
        "every call in float64 raises; if the function is not meant to take float64, "
        "check it with --dtype float32 --dtype float16"
    )


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ([("float32", "pass"), ("float64", "error"), ("float64", "unsupported"), ("float16", "fail")], ["float64"]),
        ([("float32", "pass"), ("float64", "error"), ("float16", "error")], ["float64 or float16"]),
        ([("float32", "pass"), ("float64", "error"), ("float64", "fail")], []),
        ([("float32", "error"), ("float64", "error")], []),
        ([("float32", "unsupported"), ("float64", "error")], []),
    ],
)
def test_only_a_dtype_without_any_reply_is_suggested_to_be_left_out(
    verdicts: list[tuple[str, str]], said: list[str]
) -> None:
    notes = list(dtype_notes(verdicts))
    assert [note.partition(" raises;")[0] for note in notes] == [f"every call in {each}" for each in said]


def test_a_function_that_is_meant_to_add_its_mask_conforms(checked: Check) -> None:
    done = checked("checked_sdpa:added", *OF_ADDED_MASK, calling=Calling(mapping={"mask": "bias"}))
    assert done.decision.conforms, done.lines()
    assert sum(cell.verdict == "pass" for cell in done.run.cells.values()) > 20


def test_a_mistake_is_named_though_the_smallest_case_shows_another_result_in_half_precision(checked: Check) -> None:
    done = checked("checked_sdpa:inverted_and_filled", "causal/offset/*", "degenerate/*", "masks/attention*")
    assert sentences(done) == ["it reads True in mask as: ignore this key"]
    why = "(accepted: what a finite fill does depends on the dtype)"
    assert f"observed: in float16, it returns NaN for a fully masked row {why}" in done.notes


def test_an_accepted_behaviour_beside_a_mistake_is_observed_and_no_cause(checked: Check) -> None:
    done = checked("checked_sdpa:inverted_with_nan_rows", "shapes/*", "masks/*", "degenerate/fully_masked_*")
    assert sentences(done) == ["it reads True in mask as: ignore this key"]
    said = "it returns NaN for a fully masked row (accepted; to require it: --declare fully_masked_row=nan)"
    assert f"observed: {said}" in done.notes


@pytest.mark.parametrize(
    ("given", "mistake", "globs"),
    [
        (
            "checked_sdpa:low_fill_of_the_mask_alone",
            "it fills logits hidden by mask with -10, even those that another mask has set to -inf",
            ("numerics/nonfinite/*", "masks/attention_2d/*", "combined/attention/*", "causal/offset/*"),
        ),
        (
            "checked_sdpa:low_fill_of_the_padding_alone",
            (
                "it fills logits hidden by key_padding_mask with a finite number such as -1e9, "
                "so a row fully masked by key_padding_mask still attends to masked keys"
            ),
            ("numerics/nonfinite/*", "degenerate/*"),
        ),
    ],
)
def test_nan_at_masked_keys_is_no_second_cause_beside_a_fill(
    checked: Check, given: str, mistake: str, globs: tuple[str, ...]
) -> None:
    assert sentences(checked(given, *globs)) == [mistake]


def test_a_mistake_without_a_name_is_found(checked: Check) -> None:
    done = checked("checked_sdpa:sine_of_the_output", "shapes/*")
    assert done.decision.exit_code == decision.REJECTED
    assert sentences(done)[0].startswith("no cause found (")
    assert " verdicts without a known cause in " in done.lines()[0]


ZERO_LOGITS = """
import numpy as np

def attention(query, key, value, is_causal=False):
    logits = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    if is_causal:
        logits = np.tril(logits)
        logits[logits == 0] = -np.inf
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value
"""


def test_a_zero_logit_that_is_taken_for_a_masked_one_is_found(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(ZERO_LOGITS, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "causal/*")
    assert [sentence.startswith("no cause found (") for sentence in sentences(done)] == [True]


TWO_NUMBERS = """
import numpy as np

def attention(query, key, value, mask=None, bias=None):
    logits = query @ key.swapaxes(-1, -2) * np.asarray(1.3 * query.shape[-1] ** -0.5, query.dtype)
    if bias is not None:
        logits = logits + np.asarray(0.7, query.dtype) * bias
    if mask is not None:
        logits = np.where(mask, logits, np.asarray(-10, query.dtype))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value
"""


def test_a_number_is_measured_beside_a_mistake_that_every_call_shows(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TWO_NUMBERS, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "shapes/lengths/*", "masks/*")
    assert sentences(done) == [
        "it scales the logits by 1.3 times the requested scale",
        "it fills masked logits with -10, not with -inf",
        "it multiplies an additive mask by 0.7 before it adds the mask",
    ]


SCALE_IGNORED = """
import numpy as np

def attention(query, key, value, scale=None):
    logits = query @ key.swapaxes(-1, -2) / np.asarray(query.shape[-1] ** 0.5, query.dtype)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value
"""


def test_two_causes_are_told_apart_by_a_case_however_many_smaller_ones_do_not(checked: Check, tmp_path: Path) -> None:
    """In the chosen cases, a scale of 1/sqrt(value_dim) is the same; more than 100 smaller cases do not tell either."""
    (tmp_path / "mine.py").write_text(SCALE_IGNORED, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "parameters/scale/number*")
    (cause,) = done.causes
    assert cause.sentence == "ignores the scale argument"
    (other,) = cause.ambiguous
    told = re.search(r"1/sqrt\(value_dim\), .*; (\S+) would distinguish them$", other)
    assert told, other
    both = checked(f"{tmp_path / 'mine.py'}:attention", "parameters/scale/number*", told[1], into="both")
    assert [(each.sentence, each.ambiguous) for each in both.causes] == [(cause.sentence, ())]


THREE_MISTAKES = """
import numpy as np

def attention(query, key, value, mask=None, is_causal=False):
    logits = query @ key.swapaxes(-1, -2) / np.asarray(query.shape[-1] ** 0.5, query.dtype)
    if mask is not None:
        logits = np.where(mask, logits, np.asarray(-7, query.dtype))
    if is_causal:
        attended = np.tri(*logits.shape[-2:], 2, dtype=bool)
        logits = np.where(attended, logits, np.asarray(-7, query.dtype))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / (weights.sum(axis=-1, keepdims=True) + np.asarray(1e-2, query.dtype)) @ value
"""


def test_three_mistakes_that_every_causal_call_shows_are_three_causes(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(THREE_MISTAKES, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "shapes/lengths/*", "masks/key_padding/*", "causal/*")
    assert sentences(done) == [
        "it adds 0.01 to the sum of exp(logit - row maximum)",
        "it fills masked logits with -7, not with -inf",
        "it lets each query attend to 2 more keys than the causal mask allows",
    ]


LATE_KEYS = """
import numpy as np

def attention(query, key, value, mask=None):
    logits = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    logits[..., 8:] *= 0.7
    logits = np.where(True if mask is None else mask, logits, -1e30)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value
"""


def test_what_nothing_explains_is_read_off_the_weights(checked: Check, tmp_path: Path) -> None:
    """The check measures weights in the smallest call with enough keys, which need not be the case of the finding."""
    (tmp_path / "mine.py").write_text(LATE_KEYS, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "shapes/lengths/*", "shapes/kernel_sized/aligned*")
    (cause,) = done.causes
    weights = "look as if the logits of keys after the first 8 were multiplied by 0.7"
    assert f"its weights (in 2 of 2 measured calls) {weights}" in cause.facts
    assert f"   {cause.facts[0]}" in done.lines()


PADDING_IGNORED_WHERE_TRUE = """
import numpy as np


class Attention:
    def __init__(self, d_model, num_heads):
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = (np.zeros((d_model, d_model)) for _ in range(4))

    def __call__(self, x, mask=None, key_padding_mask=None):
        batch, length, width = x.shape
        rows = (batch, length, self.num_heads, width // self.num_heads)
        q, k, v = ((x @ each).reshape(rows).swapaxes(1, 2) for each in (self.w_q, self.w_k, self.w_v))
        logits = q @ k.swapaxes(-1, -2) / np.asarray(rows[-1] ** 0.5, x.dtype)
        if mask is not None:
            logits = np.where(mask, logits, np.asarray(-1e9, x.dtype))
        if key_padding_mask is not None:
            logits = np.where(key_padding_mask[:, None, None, :], np.asarray(-1e9, x.dtype), logits)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        context = weights / weights.sum(axis=-1, keepdims=True) @ v
        return context.swapaxes(1, 2).reshape(batch, length, width) @ self.w_o
"""


def test_a_fill_that_only_shows_beside_another_mistake_is_told(checked: Check, tmp_path: Path) -> None:
    """An inverted padding mask shows masked keys, some with logits below -1e9; in other rows, all fills look alike."""
    (tmp_path / "mine.py").write_text(PADDING_IGNORED_WHERE_TRUE, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:Attention", "combined/padding/*", "degenerate/*", "masks/*")
    assert sorted(sentences(done)) == [
        "it fills masked logits with -1e9, not with -inf",
        "it reads True in key_padding_mask as: ignore this key",
    ]


MIXING = """
import numpy as np

def attention(query, key, value, mask=None):
    logits = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    logits = np.where(True if mask is None else mask, logits, -1e30)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    output = weights / weights.sum(axis=-1, keepdims=True) @ value
    output[1:] += 0.25 * output[:-1]
    return output
"""


def test_a_function_that_mixes_batch_elements_is_found_out_by_another_order(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MIXING, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "shapes/*", "masks/key_padding*", "combined/pairs/*")
    (cause,) = done.causes
    assert not cause.explained
    (order,) = [fact for fact in cause.facts if "when the batch elements are reordered" in fact]
    assert re.fullmatch(r"it returns a different result .* \(in (\d+) of \1 tested calls?\)", order)
    assert cause.facts[0].startswith("it fails only with batch > 1")


UNMERGED = """
import numpy as np

def split(rows, heads):
    return rows.reshape(*rows.shape[:2], heads, -1).swapaxes(1, 2)

def attention(query, key, value, params, num_heads, mask=None, is_causal=False):
    q, k, v = (
        split(rows @ params["w" + letter] + (0 if params["b" + letter] is None else params["b" + letter]), num_heads)
        for letter, rows in (("q", query), ("k", key), ("v", value))
    )
    logits = q @ k.swapaxes(-1, -2) / q.shape[-1] ** 0.5
    if is_causal:
        logits = np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -1e30)
    logits = np.where(True if mask is None else mask, logits, -1e30)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    heads = weights / weights.sum(axis=-1, keepdims=True) @ v
    rows = (heads if len(query) == 1 else heads.swapaxes(1, 2)).reshape(*query.shape[:2], -1)
    return (rows @ params["wo"] + (0 if params["bo"] is None else params["bo"])).astype(query.dtype)
"""


def test_a_cause_is_told_once_of_both_forms_and_of_relations(checked: Check, tmp_path: Path) -> None:
    """In the dense form, one call fails directly; elsewhere, only the reply to a batch element that is passed alone."""
    (tmp_path / "mine.py").write_text(UNMERGED, encoding="utf-8")
    done = checked(
        f"{tmp_path / 'mine.py'}:attention", "shapes/lengths/one_*", "shapes/*/self_causal*", "causal/square/*"
    )
    (sentence,) = sentences(done)
    said = "it merges the heads with a reshape and without a transpose"
    assert sentence.startswith(f"{said}, only with batch = 1")
    rejected = [cell for key, cell in done.run.cells.items() if key in done.run.rejected]
    assert {cell.reason.startswith("batch_of_one: ") for cell in rejected} == {True, False}
    assert {cell.subject.endswith("[dense]") for cell in rejected} == {True, False}


def test_a_cause_is_told_where_nothing_but_relations_breaks(checked: Check, tmp_path: Path) -> None:
    """Every call has more than one batch element: only the reply to a batch element that is passed alone is wrong."""
    (tmp_path / "mine.py").write_text(UNMERGED, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "causal/square/*")
    said = "it merges the heads with a reshape and without a transpose, only with batch = 1"
    assert sentences(done) == [said]


def test_of_what_has_a_cause_nothing_is_read_off_the_weights(checked: Check) -> None:
    done = checked("checked_sdpa:no_scale", "shapes/lengths/*", "shapes/heads/*")
    patterns = [record["pattern"] for record in records(done.run.folder) if "pattern" in record]
    assert any(pattern.get("beyond") for pattern in patterns)
    assert not any("odd" in pattern for pattern in patterns)


HALF = "it rounds like code that rounds the logits to float16: coarser than its arithmetic profile"


def test_coarser_arithmetic_is_named(checked: Check) -> None:
    done = checked("checked_sdpa:half_inside", "shapes/*")
    assert done.decision.exit_code == decision.REJECTED
    assert sentences(done)[0].startswith("it rounds like code that rounds")
    assert "float16" in sentences(done)[0]


@pytest.mark.parametrize(
    ("given", "seen", "said"),
    [
        ("checked_sdpa:nan_in_fully_masked_rows", "fully_masked_row=nan", "returns NaN for a fully masked row"),
        (
            "checked_sdpa:mean_of_fully_masked_rows",
            "fully_masked_row=uniform",
            "returns the mean of V over all keys for a fully masked row",
        ),
        (
            "checked_sdpa:causal_at_the_end",
            "causal_alignment=bottom_right",
            "aligns the causal mask to the last key (bottom right)",
        ),
        (
            "checked_sdpa:window_at_the_end",
            "window_alignment=bottom_right",
            "aligns the window to the last key (bottom right)",
        ),
    ],
)
def test_what_has_no_consensus_is_observed_and_fine(checked: Check, given: str, seen: str, said: str) -> None:
    done = checked(given, "degenerate/*", "causal/*")
    assert done.decision.conforms, done.lines()
    assert f"observed: it {said} (accepted; to require it: --declare {seen})" in done.notes


def test_a_fully_masked_row_may_differ_between_dtypes(checked: Check) -> None:
    """A dtype in which the fill is -inf returns NaN in every such row, the others the mean in every such row."""
    done = checked("checked_sdpa:fill_beyond_float16", "degenerate/*", "combined/*")
    assert done.decision.conforms, done.lines()
    why = "(accepted: what a finite fill does depends on the dtype)"
    notes = {
        f"observed: in float16, it returns NaN for a fully masked row {why}",
        f"observed: in float32, float64, it returns the mean of V over all keys for a fully masked row {why}",
    }
    assert notes <= set(done.notes)


FILLED_AND_ADDED = """
import numpy as np

def attention(query, key, value, mask=None, bias=None):
    logits = query @ key.swapaxes(-1, -2) / query.shape[-1] ** 0.5
    logits = logits if bias is None else logits + bias
    logits = (logits if mask is None else np.where(mask, logits, -1e9)).astype(query.dtype)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value
"""


def test_beside_a_fill_only_rows_that_an_added_mask_hides_are_fully_masked(checked: Check, tmp_path: Path) -> None:
    """No call in float64 shows that before it is judged. It is taken to be as in float32, where -1e9 is finite too."""
    (tmp_path / "mine.py").write_text(FILLED_AND_ADDED, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "degenerate/*", "combined/*")
    assert done.decision.conforms, done.lines()
    why = "(accepted: what a finite fill does depends on the dtype)"
    row = "it returns NaN for a fully masked row"
    assert f"observed: in float32, float64, {row}, where an additive mask adds -inf {why}" in done.notes
    assert f"observed: in float16, {row} {why}" in done.notes


ADDED_IN_FLOAT64 = """
import numpy as np

def attention(query, key, value, mask=None):
    logits = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    if mask is not None:
        logits = logits + (1 - mask) * -1e9
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value
"""


@pytest.mark.parametrize("cast", [True, False], ids=["cast", "float64"])
def test_a_fill_that_is_added_in_float64_has_one_name(checked: Check, tmp_path: Path, *, cast: bool) -> None:
    """
    np.sqrt of an integer is a float64 number, so NumPy 2 computes in float64 whatever the dtype of the inputs.

    Then -1e9 hides no difference of logits: a fully masked row gets the weights of a row without a mask.
    """
    text = ADDED_IN_FLOAT64.replace("@ value", "@ value.astype(float)")
    text = text.replace("return weights", "return (weights") + "    ).astype(query.dtype)\n" if cast else text
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "degenerate/*", "combined/*", "masks/key_padding_self/*")
    added = (
        "it adds -1e9 to masked logits, so masked keys still get weight in a fully masked row, or if their logits are "
        "larger by 1e9"
    )
    assert sentences(done) == ([added] if cast else ["it returns float64", added])
    assert any(note.startswith("observed: it ignores the mask in a fully masked row (accepted") for note in done.notes)


def test_a_choice_under_which_a_cause_undoes_it_costs_as_much_as_the_mistake(checked: Check) -> None:
    """With one key the function ignores the mask. To take this for a fill would make every other such call fail."""
    given = str(HERE.parent / "mutation" / "bugs" / "plain_runtime.py:one_key_needs_no_softmax")
    done = checked(given, "degenerate/*", "numerics/nonfinite/*")
    assert [(cause.explained, cause.count) for cause in done.causes] == [(False, 3)], done.lines()
    assert not any("fills masked logits" in note for note in done.notes)


def test_a_declared_choice_holds_in_every_dtype(checked: Check) -> None:
    done = checked("checked_sdpa:fill_beyond_float16", "degenerate/*", declare={"fully_masked_row": "uniform"})
    assert sentences(done) == ["it returns NaN for a fully masked row, only in float16"]


def test_a_fully_masked_row_must_not_differ_within_a_dtype(checked: Check) -> None:
    done = checked("checked_sdpa:nan_or_mean_by_heads", "degenerate/*", "combined/*")
    assert not done.decision.conforms
    assert sentences(done)
    assert all(
        each.endswith((", only with an even num_heads", ", only with an odd num_heads")) for each in sentences(done)
    )


def test_a_declared_window_alignment_is_required(checked: Check) -> None:
    done = checked("checked_sdpa:window_at_the_end", "causal/window/*", declare={"window_alignment": "canonical"})
    assert sentences(done) == ["it aligns the window to the last key (bottom right)"]


@pytest.mark.parametrize(
    ("given", "said", "globs"),
    [
        ("checked_sdpa:padding_inverted", "it reads True in key_padding_mask as: ignore this key", ("masks/key_*",)),
        (
            "checked_sdpa:zeros_attended",
            "it pads the keys with zeros to full blocks of 16 and does not mask the padding",
            ("masks/key_*", "shapes/cross*"),
        ),
        ("checked_sdpa:half_inside", HALF, ("shapes/cross*",)),
    ],
)
def test_what_has_no_consensus_is_observed_beside_a_mistake(
    checked: Check, given: str, said: str, globs: tuple[str, ...]
) -> None:
    """The mistake shows with only one kind of mask, has no derived error bound, or is coarser arithmetic."""
    done = checked(given, "numerics/nonfinite/padding*", *globs)
    assert sentences(done) == [said]
    leak = "propagates NaN or infinity from V at a masked key to the output"
    assert f"observed: it {leak} (accepted; to require it: --declare nonfinite_value=leaks)" in done.notes
    assert not any("stepwise" in note for note in done.notes)


def test_the_first_line_counts_causes_apart_from_what_has_none(checked: Check) -> None:
    done = checked("checked_sdpa:no_scale", "shapes/cross*", "shapes/self*")
    named = done.causes
    unnamed = replace(named[0], explained=False, kind="fail", count=3)
    assert " does not conform: 1 cause in " in headline("f", done.run, named, conforms=False)
    both = headline("f", done.run, (*named, unnamed), conforms=False)
    assert " does not conform: 1 cause, and 3 verdicts without a known cause, in " in both
    assert " does not conform: 3 verdicts without a known cause in " in headline(
        "f", done.run, (unnamed,), conforms=False
    )


def test_replies_that_differ_each_time_are_a_cause(checked: Check) -> None:
    done = checked("checked_sdpa:noise_left_on", "shapes/cross*")
    first, cause, fix, *_ = done.lines()
    assert " does not conform: 1 cause in " in first
    assert cause.startswith(
        "1. it returns different results for the same call (nondeterministic): the same call, made twice"
    )
    assert fix.startswith("   fix: in the function, disable dropout")


def test_what_is_declared_is_held_against_it(checked: Check) -> None:
    done = checked("checked_sdpa:nan_in_fully_masked_rows", "degenerate/*", declare={"fully_masked_row": "zero"})
    assert sentences(done) == ["it returns NaN for a fully masked row"]
    assert "--declare fully_masked_row=zero -k" in done.lines()[3]


FILLED = """
import numpy as np

def attention(query, key, value, mask=None):
    logits = query @ key.swapaxes(-1, -2) * np.asarray(query.shape[-1] ** -0.5, query.dtype)
    logits = np.where(True if mask is None else mask, logits, np.finfo(query.dtype).min)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ value
"""


@pytest.mark.parametrize(("name", "conforms"), [("zero", False), ("nan", False), ("uniform", True)])
def test_a_finite_fill_is_no_way_around_a_declared_row(
    checked: Check, tmp_path: Path, name: str, *, conforms: bool
) -> None:
    """The fill makes every fully masked row the mean of V, so it is accepted only if that result is declared."""
    (tmp_path / "mine.py").write_text(FILLED, encoding="utf-8")
    given = f"{tmp_path / 'mine.py'}:attention"
    done = checked(given, "degenerate/fully_masked_row/*", declare={"fully_masked_row": name})
    assert done.decision.conforms is conforms, done.lines()
    assert not any("fills masked logits" in note for note in done.notes)
    if not conforms:
        assert sentences(done)[0] == "it returns the mean of V over all keys for a fully masked row"


def test_what_varies_fails(checked: Check) -> None:
    done = checked("checked_sdpa:nan_where_every_row_is_dead", "degenerate/*")
    assert done.decision.exit_code == decision.REJECTED
    (said,) = [note for note in done.notes if note.startswith(VARIES)]
    assert "fully_masked_row=nan in " in said
    assert "fully_masked_row=zero in " in said


@pytest.mark.parametrize("given", ["checked_sdpa:fully_masked_rows_by_batch", "checked_sdpa:one_query_not_causal"])
def test_that_a_decision_varies_is_not_told_where_the_cause_is_named(checked: Check, given: str) -> None:
    done = checked(given, "degenerate/*", "causal/rectangular/*")
    assert done.decision.exit_code == decision.REJECTED
    assert all(cause.explained for cause in done.causes)
    assert not any(note.startswith(VARIES) for note in done.notes)


def test_each_decision_that_varies_is_told_by_itself() -> None:
    varies = {"fully_masked_row": {"zero": "a", "nan": "b"}, "nonfinite_key": {"isolated": "c", "leaks": "d"}}
    ways = [
        "fully_masked_row=zero in a; fully_masked_row=nan in b",
        "nonfinite_key=isolated in c; nonfinite_key=leaks in d",
    ]
    assert list(varying_notes(varies, (), "abcde")) == [f"{VARIES}: {'; '.join(ways)}"]
    assert list(varying_notes(varies, {"b", "e"}, "abcde")) == [f"{VARIES}: {ways[1]}"]
    assert list(varying_notes(varies, {"a", "d"}, "abcde")) == []
    assert list(varying_notes(varies, (), "abc")) == [f"{VARIES}: {ways[0]}"]


ALWAYS_CAUSAL = """
import numpy as np

def attend(query, key, value):
    logits = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    logits = np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True) @ value).astype(query.dtype)
"""


def test_a_causal_mask_in_every_call_can_be_declared(checked: Check, tmp_path: Path) -> None:
    """Causal calls are judged then, too: nothing has to be passed for their mask."""
    (tmp_path / "mine.py").write_text(ALWAYS_CAUSAL, encoding="utf-8")
    given, cases = f"{tmp_path / 'mine.py'}:attend", ("causal/square/*", "shapes/self_attention/three*")
    plain = checked(given, *cases)
    assert sentences(plain) == ["it applies a causal mask although none is requested"]
    assert {cell.verdict for (case, _), cell in plain.run.cells.items() if "causal" in case} == {"unsupported"}
    declared = checked(given, *cases, declare={"causal_mask": "unasked"}, into="declared")
    assert declared.decision.conforms, declared.lines()
    assert "pass" in {cell.verdict for (case, _), cell in declared.run.cells.items() if "causal" in case}
    assert "no argument for a causal mask, because it applies one in every call, as declared" in declared.notes[0]


def test_what_true_means_can_be_declared(checked: Check) -> None:
    assert checked("checked_sdpa:inverted_mask", "masks/*", declare={"polarity[mask]": "ignore"}).decision.conforms


def test_what_true_means_can_be_declared_wrongly(checked: Check) -> None:
    done = checked("checked_sdpa:right", "masks/*", "verbatim/*", declare={"polarity[mask]": "ignore"})
    assert sentences(done) == ["it reads True in mask as: attend to this key, although ignore is declared"]
    assert done.causes[0].remedy == "pass ~mask, or correct the declaration of mask"


def test_coarser_arithmetic_is_told_and_not_taken(checked: Check) -> None:
    done = checked("checked_sdpa:tf32_operands", "shapes/*")
    assert done.decision.exit_code == decision.REJECTED
    assert any(
        "would conform under tf32" in note and "if this is intended, use --profile tf32" in note for note in done.notes
    )


def test_the_profile_that_is_like_the_named_arithmetic_is_told(checked: Check) -> None:
    done = checked("checked_sdpa:float16_softmax", "shapes/*", "masks/*")
    named = "it rounds like code that computes logits and softmax in float16: coarser than its arithmetic profile"
    assert sentences(done)[0].startswith(named)
    (note,) = [note for note in done.notes if "--profile" in note]
    said = (
        r"\d+ of \d+ verdicts would conform under float16_softmax; if this is intended, use --profile float16_softmax"
    )
    assert re.fullmatch(said, note)


def test_no_profile_is_told_that_says_nothing_of_the_dtype(checked: Check) -> None:
    """--profile bfloat16_operands would apply only to float32, but the function is coarse only in float16."""
    done = checked("checked_sdpa:bfloat16_operands_in_half", "shapes/*", "numerics/half/*")
    assert done.decision.exit_code == decision.REJECTED
    assert not any("--profile" in note for note in done.notes)


def test_a_folder_that_another_check_takes_meanwhile_is_refused(
    checked: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(path: Path) -> RunLog:
        raise FileExistsError(path)

    monkeypatch.setattr(RunLog, "create", taken)
    with pytest.raises(CheckError, match="has a run already: choose another --out"):
        checked("checked_sdpa:right", "shapes/*")


COARSE_SOFTMAX = """
import numpy as np

def attention(query, key, value, mask=None):
    logits = query @ key.swapaxes(-1, -2) * query.dtype.type(query.shape[-1] ** -0.5)
    logits = logits if mask is None else np.where(mask, logits, query.dtype.type(-np.inf))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / np.cumsum(weights, axis=-1)[..., -1:] @ value
"""


def test_a_mistake_of_another_dtype_does_not_decide_the_arithmetic(checked: Check) -> None:
    """The function computes in float16 throughout, and adds 1e-6 in float32 only."""
    bug = str(HERE.parent / "mutation" / "bugs" / "plain_sdpa.py:softmax_with_eps_in_float32")
    (cause,) = checked(bug, "causal/offset/*", "numerics/half/*").causes
    assert str(cause).startswith("it adds 1e-6 to the sum of exp(logit - row maximum), only in float32")


def test_long_rows_show_a_coarse_softmax_and_no_coarse_accumulators(checked: Check, tmp_path: Path) -> None:
    """Short rows show neither. A softmax may be computed in half precision; dot products must not be summed in it."""
    (tmp_path / "mine.py").write_text(COARSE_SOFTMAX, encoding="utf-8")
    globs = ("numerics/half/*", "shapes/kernel_sized/*")
    done = checked(f"{tmp_path / 'mine.py'}:attention", *globs)
    assert done.decision.conforms, done.lines()
    said = "in float16, it rounds after every operation, also inside the softmax (profile stepwise)"
    assert f"arithmetic: {said}" in done.notes
    bug = str(HERE.parent / "mutation" / "bugs" / "plain_sdpa.py:products_summed_in_half")
    done = checked(bug, *globs, into="bug")
    assert sentences(done) == [
        "it rounds like code that computes in float16 throughout: coarser than its arithmetic profile, only in float16"
    ]


def test_coarser_arithmetic_can_be_meant(checked: Check) -> None:
    assert checked("checked_sdpa:tf32_operands", "shapes/*", profile="tf32").decision.conforms


def test_float64_that_is_computed_in_float32_is_told(checked: Check) -> None:
    assert (
        "arithmetic: in float64, it computes in float32 (profile float32)"
        in checked("checked_sdpa:float32_inside", "numerics/*").notes
    )


def test_an_exception_is_an_error_with_its_text(checked: Check) -> None:
    done = checked("checked_sdpa:raises_with_a_mask", "masks/attention_2d/*")
    assert sentences(done) == ["error: NotImplementedError: masks come later"]


def test_of_a_pair_the_first_is_the_output(checked: Check) -> None:
    done = checked("checked_sdpa:returns_a_pair", "shapes/cross*")
    assert done.decision.conforms
    assert any("it returns the output and " in note for note in done.notes)


def test_a_crash_costs_the_calls_that_crash(checked: Check) -> None:
    done = checked("checked_sdpa:dies_on_one_query", "causal/rectangular/*")
    verdicts = {cell.verdict for cell in done.run.cells.values()}
    assert verdicts == {"pass", "crash"}
    assert sentences(done)[0].startswith("crash: ")


def test_a_hang_costs_the_calls_that_hang(checked: Check) -> None:
    done = checked("checked_sdpa:hangs_on_one_query", "causal/rectangular/*", timeout=1.0)
    assert {cell.verdict for cell in done.run.cells.values()} == {"pass", "timeout"}


def test_a_file_that_cannot_be_imported_says_why(checked: Check, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import nowhere_to_be_found\ndef f(q, k, v, mask): ...\n", encoding="utf-8")
    with pytest.raises(CheckError, match=r"mine.py cannot be imported: ModuleNotFoundError: .*nowhere"):
        checked(f"{tmp_path / 'mine.py'}:f", "shapes/*")


def test_what_stands_beside_the_function_is_found(checked: Check, tmp_path: Path) -> None:
    right = (Path(__file__).parent / "checked_sdpa.py").read_text(encoding="utf-8")
    (tmp_path / "kernels.py").write_text(right, encoding="utf-8")
    (tmp_path / "mine.py").write_text(
        "from kernels import right\n\ndef attend(q, k, v, mask=None):\n    return right(q, k, v, mask)\n",
        encoding="utf-8",
    )
    assert checked(f"{tmp_path / 'mine.py'}:attend", "shapes/*").decision.conforms


def test_the_adapter_that_was_written_stays_and_can_be_used(checked: Check) -> None:
    done = checked("checked_sdpa:right", "shapes/cross*")
    adapter = read_adapter(done.run.folder / ADAPTER)
    assert adapter.name == "checked_sdpa.right"


def test_one_case_can_be_checked_again(checked: Check) -> None:
    case = "shapes/cross_attention/three_tensors[operator=sdpa]"
    done = checked("checked_sdpa:no_scale", case)
    assert list(done.run.cells) == [(case, "checked_sdpa.no_scale")]
    assert done.lines()[4].endswith(f"-k '{case}'")


@pytest.mark.parametrize(
    ("globs", "options", "said"),
    [
        (("nothing/*",), {}, "no sdpa case matches nothing/\\*; see conformance list cases"),
        ((), {"profile": "tf3"}, "there is no profile 'tf3', only uniform, "),
        ((), {"like": "numpy.sdpa"}, "numpy.sdpa cannot be replaced by a function; these can: jax.sdpa, "),
        ((), {"like": "torhc.sdpa"}, "--as: no subject matches 'torhc.sdpa'; the nearest name is 'torch.sdpa"),
        (
            (),
            {"like": "torch.sdpa", "calling": Calling("sdpa")},
            "--operator, --framework, --layout, --device, --map, --exclusive, --head-dim and",
        ),
    ],
)
def test_what_cannot_be_done_says_why(
    checked: Check, globs: tuple[str, ...], options: dict[str, str], said: str
) -> None:
    with pytest.raises(CheckError, match=said):
        checked("checked_sdpa:right", *globs, **options)


def test_causes_that_differ_in_a_number_of_their_condition_are_two() -> None:
    said = [
        Finding("mine", "fail, semantic", f"does so, only in float{n}", "", True, (("a", "mine"),)) for n in (16, 64)
    ]
    assert [each.sentence for each in causes(said)] == ["does so, only in float16", "does so, only in float64"]
    ambiguous = causes([replace(said[0], ambiguous=("it does so; b would tell",))])
    assert cause_lines(ambiguous, {"a": "rerun a"})[-2:] == [
        "   rerun: rerun a",
        "   equally possible: it does so; b would tell",
    ]


def test_a_pattern_is_read_where_it_can_be_seen(checked: Check) -> None:
    """The case with one key is the simplest that shows this mistake, but it shows no pattern."""
    chosen = ("shapes/lengths/one_key*", "shapes/cross_attention/three*")
    done = checked("checked_sdpa:softmax_over_heads", *chosen)
    red = [case for (case, _), cell in done.run.cells.items() if cell.verdict == "fail"]
    assert "shapes/lengths/one_key[operator=sdpa]" in red
    read = [case for case, subject in done.run.judged if "pattern" in done.run.cells.record((case, subject))]
    assert read
    assert all(case.startswith("shapes/cross_attention/three") for case in read)
