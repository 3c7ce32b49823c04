"""A case may request a second call with the same objects: what the first call changed in them shows in the reply."""

from pathlib import Path

from ..running import cells as cells_of
from ..running import conformance

FAKE = str(Path(__file__).parents[1] / "fakes" / "spent.py")
TWICE = "parameters/second_call/plain[operator=sdpa]"
ONCE = "masks/key_padding/trailing[operator=sdpa]"


def test_what_a_call_leaves_in_its_arrays_shows_in_the_second(tmp_path: Path) -> None:
    done = conformance("run", "-a", FAKE, "-k", TWICE, "-k", ONCE, "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    found = {key: record["verdict"] for key, record in cells_of(tmp_path / "out").items()}
    assert found == {
        (TWICE, "fake.spent[scales_in_place]"): "fail",
        (ONCE, "fake.spent[scales_in_place]"): "pass",
        (TWICE, "fake.spent[honest]"): "pass",
        (ONCE, "fake.spent[honest]"): "pass",
    }


def test_explain_says_that_the_call_is_made_twice() -> None:
    told = conformance("explain", TWICE).stdout
    assert "second_call" in told
    assert "does not support: second_call" not in told
