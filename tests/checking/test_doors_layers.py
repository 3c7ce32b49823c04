"""Layers of Flax, Equinox and Keras, checked with the first command that a user would try."""

from collections.abc import Callable

import pytest

from conformance.checking.function_check import Checked

from .door_tables import FEW, ONE_DTYPE, assert_it_conforms, assert_it_is_named, table

Check = Callable[..., Checked]


@pytest.mark.parametrize("given", list(table("RIGHT", "[efk]*_modules")))
def test_a_right_one_conforms(checked: Check, given: str) -> None:
    assert_it_conforms(checked(given, *FEW, dtypes=ONE_DTYPE))


# What is named does not depend on the framework, and `nox -s tests` checks wrong layers of PyTorch.
@pytest.mark.measurement
@pytest.mark.parametrize(("given", "said"), list(table("WRONG", "[efk]*_modules")))
def test_a_wrong_one_is_named(checked: Check, given: str, said: str) -> None:
    assert_it_is_named(checked(given, *FEW, dtypes=ONE_DTYPE), said)
