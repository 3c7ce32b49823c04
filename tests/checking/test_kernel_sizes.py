"""Functions that accept only some sizes, like fused kernels, are judged on the same cases in those sizes."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.checking.case_sizes import in_sizes
from conformance.checking.check_report import constant_part
from conformance.checking.function_check import Checked, load_cases
from conformance.checking.preflight import Calling, preflight
from conformance.checking.signature import Sizes
from conformance.checking.target import CheckError, parse_target
from conformance.spec.case import ArrayMask, Case
from conformance.spec.materialise import materialise

Check = Callable[..., Checked]

KERNEL = """\
import numpy as np

def attention(query, key, value, mask=None, is_causal=False):
    assert query.shape[-1] in {head_dims}, "no such head_dim"
    assert query.shape[2] % {multiple} == 0 == key.shape[2] % {multiple}, "whole blocks only"
    logits = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    if is_causal:
        logits = np.where(np.tri(*logits.shape[-2:], {diagonal}, dtype=bool), logits, -np.inf)
    peak = logits.max(-1, keepdims=True)
    weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ value
"""


def written(folder: Path, head_dims: tuple[int, ...], multiple: int, diagonal: int = 0) -> str:
    text = KERNEL.format(head_dims=head_dims, multiple=multiple, diagonal=diagonal)
    (folder / "kernel.py").write_text(text, encoding="utf-8")
    return f"{folder / 'kernel.py'}:attention"


@pytest.mark.parametrize(
    ("head_dims", "multiple", "found", "refusal"),
    [
        ((16, 32, 64, 128), 1, Sizes((16, 32, 64, 128)), "no such head_dim"),
        ((64,), 16, Sizes((64,), 16), "no such head_dim"),
        ((128,), 128, Sizes((128,), 128), "no such head_dim"),
        (tuple(range(300)), 8, Sizes((), 8), "whole blocks only"),
        (tuple(range(300)), 1, Sizes(), ""),
        ((128,), 256, Sizes((128,), 256), "no such head_dim"),
    ],
)
def test_the_sizes_that_it_takes_are_found(
    tmp_path: Path, head_dims: tuple[int, ...], multiple: int, found: Sizes, refusal: str
) -> None:
    signature = preflight(parse_target(written(tmp_path, head_dims, multiple)), Calling(), 30)
    assert signature.sizes == found
    assert refusal in signature.size_refusal
    assert (signature.layout, signature.form.axes, "float32" in signature.dtypes) == (
        "bhsd", ("b", "h", "q", "k"), True
    )  # fmt: skip


def test_a_function_that_takes_no_size_is_told_what_the_usual_sizes_raised(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"it raised AssertionError: no such head_dim \(kernel\.py, line 4: "):
        preflight(parse_target(written(tmp_path, (48,), 1)), Calling(), 30)
    stated = Calling(sizes=Sizes((48,)))
    assert preflight(parse_target(written(tmp_path, (48,), 1)), stated, 30).sizes == Sizes((48,))


CASES = ("causal/*", "masks/key_padding/*", "shapes/*", "published/*", "degenerate/*")


def test_a_right_kernel_conforms_in_the_sizes_that_it_takes(tmp_path: Path, checked: Check) -> None:
    done = checked(written(tmp_path, (16, 64), 16), *CASES)
    assert done.decision.conforms, done.lines()
    judged = [case for (case, _), cell in done.run.judged.items() if cell.verdict in ("pass", "dialect")]
    assert len(judged) > 60
    assert (
        "only head_dim 16, 64 and seq_len_q and seq_len_k that are multiples of 16, because in a plain call in other "
        "sizes it raised AssertionError: no such head_dim (kernel.py, line 4: "
    ) in "\n".join(done.lines())
    text = done.run.header.cases["shapes/kernel_sized/cross[operator=sdpa]"].yaml
    assert "seq_len_q: 80, seq_len_k: 144, head_dim: 64" in text


def test_the_mistake_of_a_kernel_is_named(tmp_path: Path, checked: Check) -> None:
    done = checked(written(tmp_path, (64,), 32, diagonal=1), *CASES)
    assert [cause.sentence for cause in done.causes] == ["lets each query attend to one future key"]
    assert done.causes[0].count > 10


def test_sizes_can_be_stated_and_are_repeated_in_commands(tmp_path: Path, checked: Check) -> None:
    """A kernel without a check of its own, which reads past the end of an array, needs it."""
    calling = Calling(sizes=Sizes((128, 32), 32))
    done = checked(written(tmp_path, tuple(range(300)), 1, diagonal=1), "causal/square/*", calling=calling)
    assert [cause.sentence for cause in done.causes] == ["lets each query attend to one future key"]
    command = done.request.rerun(done.causes[0].case)
    assert " --head-dim 128 --head-dim 32 --seq-len-multiple 32 -k " in command
    assert "called with only head_dim 32, 128 and seq_len_q and seq_len_k that are multiples of 32" in done.lines()


def test_sizes_are_for_functions_without_projections() -> None:
    calling = Calling(operator="mha", sizes=Sizes((64,)))
    with pytest.raises(CheckError, match="--head-dim and --seq-len-multiple are for functions without projections"):
        preflight(parse_target(str(Path(__file__).with_name("checked_mha.py")) + ":right"), calling, 30)


def case_of(name: str) -> Case:
    return next(case for case in load_cases("sdpa") if case.id == name)


def test_more_keys_than_queries_stay_more_and_padding_hides_as_many() -> None:
    old = case_of("causal/offset/moved_by_padding[dtype=float32]")
    new = in_sizes(old, Sizes((16,), 64))
    assert (old.seq_len_q, old.seq_len_k, old.head_dim, old.value_dim) == (5, 7, 11, 11)
    assert (new.seq_len_q, new.seq_len_k, new.head_dim, new.value_dim) == (64, 128, 16, 16)
    mask = new.masks[0]
    assert isinstance(mask, ArrayMask)
    assert mask.lengths == (128, 127)  # of 7 keys: 7, 6
    assert materialise(new).query.shape == (2, 3, 64, 16)


@pytest.mark.parametrize(
    ("sizes", "asked", "given"),
    [
        (Sizes((), 16), (5, 7), (16, 32)),
        (Sizes((), 16), (7, 5), (32, 16)),
        (Sizes((), 16), (16, 17), (16, 32)),
        (Sizes((), 16, equal=True), (5, 17), (32, 32)),
        (Sizes(equal=True), (773, 513), (513, 513)),
        (Sizes((), 16, equal=True), (1, 1031), (304, 304)),
    ],
)
def test_lengths_become_the_next_possible_ones(sizes: Sizes, asked: tuple[int, int], given: tuple[int, int]) -> None:
    assert sizes.lengths(*asked) == given


def test_a_literal_mask_is_repeated_and_keeps_its_fully_masked_row() -> None:
    old = case_of("degenerate/by_combination/padding_and_attention[operator=sdpa]")
    new = in_sizes(old, Sizes((), 8))
    padding, mask = new.masks
    assert isinstance(padding, ArrayMask)
    assert isinstance(mask, ArrayMask)
    assert mask.values is not None
    assert (len(mask.values), len(mask.values[0])) == (8, 16)
    assert mask.values[0][:9] == (False, False, True, True, False, False, True, False, False)
    assert mask.values[5] == mask.values[0]
    assert padding.lengths == (11, 16)
    assert "lengths:" in new.yaml


def test_arrays_that_are_given_keep_their_sizes_and_are_not_asked(tmp_path: Path, checked: Check) -> None:
    given = replace(case_of("published/softmax/steep"), outputs=("output",), scale=None)
    assert in_sizes(given, Sizes((64,), 64)) == given
    drawn = case_of("shapes/cross_attention/three_tensors[operator=sdpa]")
    done = checked(written(tmp_path, (16, 64), 16), own_cases=(given, drawn))
    verdicts = {case: (cell.verdict, cell.reason) for (case, _), cell in done.run.cells.items()}
    assert verdicts[given.id] == (
        "unsupported", "takes only head_dim 16, 64 and seq_len_q and seq_len_k that are multiples of 16"
    )  # fmt: skip
    assert verdicts[drawn.id][0] == "pass"


def test_one_fully_masked_batch_element_stays_so() -> None:
    every = [case for case in load_cases("sdpa") if any(getattr(mask, "lengths", None) for mask in case.masks)]
    empty = [case for case in every if any(0 in (getattr(mask, "lengths", None) or ()) for mask in case.masks)]
    assert empty
    for case in empty:
        new = in_sizes(case, Sizes((), 32))
        assert any(0 in (getattr(mask, "lengths", None) or ()) for mask in new.masks)


REFUSING = """\
import numpy as np

def attention(query, key, value, is_causal=False):
    batch, num_heads, queries, head_dim = query.shape
    if query.dtype == np.float64:
        raise TypeError("float64 is too wide")
    if {refused}:
        raise ValueError("needs as many keys as queries, not %d" % key.shape[2])
    logits = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    if is_causal:
        logits = np.where(np.tri(*logits.shape[-2:], dtype=bool), logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
"""


def test_what_a_function_refuses_in_plain_calls_is_left_out(tmp_path: Path, checked: Check) -> None:
    text = REFUSING.format(refused="queries != key.shape[2]")
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    done = checked(f"{tmp_path / 'mine.py'}:attention", "causal/rect*", "causal/square/other*", "shapes/cross*")
    assert done.decision.conforms, done.lines()
    (called,) = (line for line in done.lines() if line.startswith("called with"))
    assert (
        "only seq_len_q and seq_len_k that are equal, because in a plain call in other sizes it raised ValueError"
        in called
    )
    assert (
        "not in float64, because in a plain call in float64 it raised TypeError: float64 is too wide (mine.py, "
        in called
    )
    verdicts = {case: cell.verdict for (case, _), cell in done.run.judged.items()}
    assert verdicts["causal/rectangular/more_keys[operator=sdpa,masks.0.offset=start]"] == "pass"
    assert {verdict for case, verdict in verdicts.items() if "dtype=float64" in case} == {"unsupported"}


def test_what_a_function_is_documented_to_refuse_can_be_stated(tmp_path: Path, checked: Check) -> None:
    text = REFUSING.format(refused="is_causal and queries != key.shape[2]")
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    given = f"{tmp_path / 'mine.py'}:attention"
    done = checked(given, "causal/rect*", "shapes/cross*")
    (cause,) = done.causes
    assert cause.kind == "error"
    option = "--declines 'needs as many keys as queries, not'"
    assert f"   if it is documented to refuse such calls: {option}" in done.lines()
    stated = Calling(declines=("needs as many keys as queries, not", "no such text"))
    again = checked(given, "causal/rect*", "shapes/cross*", into="again", calling=stated)
    assert again.decision.conforms, again.lines()
    assert f"{option} --declines 'no such text'" in again.request.rerun("one")
    accepted = "accepted: it raises 'needs as many keys as queries, not' (4 verdicts, such as causal/rectangular/"
    assert accepted in "\n".join(again.lines())
    assert "--declines 'no such text': no call raised an exception with this text" in again.lines()


@pytest.mark.parametrize(
    ("exception", "part"),
    [
        ("ValueError: float16 only", "float16 only"),
        ("ValueError: seq_len must be a multiple of 64, got 5", "seq_len must be a multiple of"),
        ("error: RuntimeError: expected (2, 3), got (3, 2)", "expected"),
        ("IndexError: 5 of 7", ""),
        ("AssertionError", ""),
    ],
)
def test_the_part_of_an_exception_that_is_the_same_in_every_call_is_suggested(exception: str, part: str) -> None:
    assert constant_part(exception) == part


LOOPS = """\
import numpy as np

def attention(query, key, value, mask=None):
    out = np.empty((*query.shape[:3], value.shape[3]), query.dtype)
    for b, h, i in np.ndindex(query.shape[:3]):
        logits = key[b, h] @ query[b, h, i] * query.shape[3] ** -0.5
        if mask is not None:
            logits = np.where(mask[b, h, i], logits, -np.inf)
        weights = np.exp(logits - max(logits.max(), np.finfo(query.dtype).min))
        out[b, h, i] = weights / max(weights.sum(), np.finfo(query.dtype).tiny) @ value[b, h]
    return out
"""


def test_a_function_that_indexes_its_mask_gets_it_in_full_size(tmp_path: Path, checked: Check) -> None:
    (tmp_path / "loops.py").write_text(LOOPS, encoding="utf-8")
    done = checked(f"{tmp_path / 'loops.py'}:attention", "masks/*", "causal/*")
    assert done.decision.conforms, done.lines()
    assert sum(cell.verdict == "pass" for cell in done.run.judged.values()) > 40
    called = "called with mask with all axes in full size, because with axes of size 1 it raises an exception"
    assert called in done.lines()


ADDED = LOOPS.replace("mask=None", "bias=None").replace("mask is not None", "bias is not None")
ADDED = ADDED.replace("np.where(mask[b, h, i], logits, -np.inf)", "logits + bias[b, h, i]")


def test_a_function_that_indexes_what_it_adds_gets_it_in_full_size(tmp_path: Path, checked: Check) -> None:
    (tmp_path / "added.py").write_text(ADDED, encoding="utf-8")
    done = checked(f"{tmp_path / 'added.py'}:attention", "masks/additive/*")
    assert done.decision.conforms, done.lines()
    assert "called with bias with all axes in full size" in "\n".join(done.lines())
    assert sum(cell.verdict == "pass" for cell in done.run.judged.values()) > 4


SEGMENTS = """\
import numpy as np

def attention(query, key, value, segment_ids):
    logits = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    if segment_ids is not None:  # (batch, seq_len), for query and key
        same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
        logits = np.where(same, logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
"""


def test_a_required_argument_that_is_no_mask_is_none(tmp_path: Path, checked: Check) -> None:
    (tmp_path / "segments.py").write_text(SEGMENTS, encoding="utf-8")
    done = checked(f"{tmp_path / 'segments.py'}:attention", "shapes/*")
    assert done.decision.conforms, done.lines()
    assert (
        "called with segment_ids always None, because every call with a mask in it fails "
        "(to name its role: --map segment_ids=ROLE)"
    ) in done.lines()


ONLY_FLOAT32 = """\
import numpy as np

def attention(query, key, value):
    if query.dtype != np.float32:  # as C code would that is given a pointer
        return np.full(query.shape[:3] + value.shape[3:], np.nan, np.float32)
    logits = query @ key.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
"""


def test_dtypes_in_which_another_one_is_returned_can_be_left_out(tmp_path: Path, checked: Check) -> None:
    (tmp_path / "narrow.py").write_text(ONLY_FLOAT32, encoding="utf-8")
    done = checked(f"{tmp_path / 'narrow.py'}:attention", "shapes/*", "numerics/half/*", "numerics/float64/*")
    assert (
        "every call in float64 or float16 returns another dtype; if the function is not meant to take float64 or "
        "float16, check it with --dtype float32"
    ) in done.lines()
