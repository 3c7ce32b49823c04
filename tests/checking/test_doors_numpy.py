"""On NumPy arrays: right ones are checked with a user's first command, wrong ones on fewer cases, in float32."""

from collections.abc import Callable

import pytest

from conformance.checking.function_check import Checked

from .door_tables import ONE_DTYPE, WITH_ARGUMENTS, assert_it_conforms, assert_it_is_named, table

Check = Callable[..., Checked]


@pytest.mark.parametrize("given", list(table("RIGHT", "numpy_*")))
def test_a_right_one_conforms(checked: Check, given: str) -> None:
    assert_it_conforms(checked(given))


@pytest.mark.parametrize(("given", "said"), list(table("WRONG", "numpy_*")))
def test_a_wrong_one_is_named(checked: Check, given: str, said: str) -> None:
    assert_it_is_named(checked(given, *WITH_ARGUMENTS, dtypes=ONE_DTYPE), said)
