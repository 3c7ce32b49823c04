"""A pattern that means nothing is told with one that does."""

import pytest

from conformance.spec.glob import near_glob

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
