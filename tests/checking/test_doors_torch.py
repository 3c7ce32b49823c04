"""Functions and modules on torch tensors, checked with the first command that a user would try."""

from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.checking.function_check import Checked

from .door_tables import DOORS, ONE_DTYPE, WITH_ARGUMENTS, assert_it_conforms, assert_it_is_named, table

Check = Callable[..., Checked]


@pytest.mark.parametrize("given", list(table("RIGHT", "torch_*")))
def test_a_right_one_conforms(checked: Check, given: str) -> None:
    assert_it_conforms(checked(given, *WITH_ARGUMENTS, "causal/rectangular/*"))


@pytest.mark.frameworks
def test_a_right_one_conforms_in_all_cases(checked: Check) -> None:
    assert_it_conforms(checked(f"{DOORS / 'torch_functions.py'}:wrapped"))


@pytest.mark.frameworks
def test_masks_that_take_no_booleans_get_numbers(checked: Check) -> None:
    done = checked(f"{DOORS / 'torch_functions.py'}:numeric", "masks/attention_2d/*", "masks/key_padding/*")
    assert_it_conforms(done)
    (called,) = (note for note in done.notes if note.startswith("called with"))
    numbers = "the numbers 1 (attend) and 0, because booleans fail"
    assert f"seq_len_q, seq_len_k), {numbers}; padding_mask as {numbers}" in called
    adapter = (done.run.folder / "own_adapter.py").read_text(encoding="utf-8")
    assert "'padding_mask': ARRAYS.mask(call, 'padding_mask', numeric=True)" in adapter


@pytest.mark.frameworks
def test_a_mask_that_is_cast_to_numbers_is_not_added(checked: Check, tmp_path: Path) -> None:
    """With 0 and -inf, it hides the right keys, but for another reason."""
    source = (DOORS / "torch_functions.py").read_text(encoding="utf-8")
    file = tmp_path / "cast.py"
    file.write_text(
        source.replace("(1.0 - attention_mask)", "(1.0 - attention_mask.to(query.dtype))"), encoding="utf-8"
    )
    done = checked(f"{file}:bert", "masks/attention_2d/*", "masks/additive/*")
    (called,) = (note for note in done.notes if note.startswith("called with"))
    assert called.endswith("seq_len_q, seq_len_k), boolean (True = attend)")


@pytest.mark.parametrize(("given", "said"), list(table("WRONG", "torch_*")))
def test_a_wrong_one_is_named(checked: Check, given: str, said: str) -> None:
    assert_it_is_named(checked(given, *WITH_ARGUMENTS, dtypes=ONE_DTYPE), said)
