"""For a pattern that matches nothing, the nearest pattern that matches is found."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.spec.mistakes import matches, near_glob

IDS = {
    "masks/key_padding/trailing[operator=sdpa]",
    "masks/key_padding/trailing[operator=mha]",
    "masks/attention/random",
    "causal/square/one_tensor",
}
SUBJECTS = {"torch.mha", "torch.mha[eval]", "torch.sdpa[math]", "numpy.sdpa"}


@pytest.mark.parametrize(
    ("names", "pattern", "near"),
    [
        (IDS, "mask/*", "masks/*"),
        (IDS, "MASKS/*", "masks/*"),
        (IDS, "masks", "masks/*"),
        (IDS, "masks/key_pading/*", "masks/key_padding/*"),
        (IDS, "masks/key_pading/trailing[operator=sdpa]", "masks/key_padding/trailing[operator=sdpa]"),
        (IDS, "masks/key_padding/trailing", "masks/key_padding/trailing*"),
        (IDS, "masks/nonsense/*", "masks/*"),
        (IDS, "padding", "*padding*"),
        (IDS, "*randmo*", "*random*"),
        (IDS, "zzz", None),
        (IDS, "zzz/*", None),
        (set(), "masks/*", None),
        (SUBJECTS, "trch.*", "torch.*"),
        (SUBJECTS, "torhc.sdpa", "torch.sdpa*"),
        (SUBJECTS, "torch.sdpa[mth]", "torch.sdpa[math]"),
        (SUBJECTS, "torch.MultiheadAttention", "torch.*"),
        (SUBJECTS, "tor", "torch.*"),
    ],
)
def test_the_nearest_pattern_means_something(names: set[str], pattern: str, near: str | None) -> None:
    assert near_glob(pattern, names) == near


@given(st.text("ab*?", max_size=8), st.text("ab\n", max_size=10))
def test_a_pattern_means_what_trying_everything_finds(pattern: str, name: str) -> None:
    parts = {"*": ".*", "?": "."}
    every = re.compile("".join(parts.get(letter, letter) for letter in pattern), re.DOTALL)
    assert matches(pattern, name) == (pattern == name or every.fullmatch(name) is not None)


@pytest.mark.parametrize(
    "pattern", ["*" * 5000 + "zz", "*?" * 9 + "zz", "*a" * 2500 + "z", "?*" * 2500 + "z", "a*" * 50 + "c"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    started = time.process_time()
    assert not matches(pattern, "a" * 3000 + "b")
    near_glob(pattern, {f"{number}{'a' * 200}" for number in range(200)})
    assert time.process_time() - started < 2
