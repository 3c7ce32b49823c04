"""The advice of `conformance port` between two real layers: what it says, and that following it helps."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

SIDES = {"from torch": ("torch.mha", "keras.mha[jax]"), "from keras": ("keras.mha[jax]", "torch.mha")}
BIAS = "overwrite the rows of the output that attend no key with the bias of the output projection (0 without one)"
WERE_MEAN = (
    "the rows of the output that attend no key were the mean of V and are {} now: "
    "overwrite them where that was relied on"
)
SAID = {
    "from torch": {
        "polarity[attn_mask]": ["pass ~attn_mask as attention_mask"],
        "polarity[key_padding_mask]": ["pass ~key_padding_mask as value_mask"],
        "float_mask[attn_mask]": [
            "where attn_mask holds 0 and -inf, pass attn_mask == 0 as attention_mask; no argument takes other numbers"
        ],
        "nonfinite_key": ["nothing"],
        "fully_masked_row": [
            f"without weights, three tensors: {BIAS}",
            "with weights, three tensors; without weights, one tensor: nothing",
        ],
    },
    "from keras": {
        "polarity[attention_mask]": ["pass ~attention_mask as attn_mask"],
        "polarity[value_mask]": ["pass ~value_mask as key_padding_mask"],
        "float_mask[attention_mask]": ["pass attention_mask == 0 as a boolean attn_mask"],
        "nonfinite_key": ["overwrite the keys that nobody attends with finite numbers, such as 0, before the call"],
        "fully_masked_row": [
            f"without weights, three tensors: {WERE_MEAN.format('zero')}",
            f"with weights, three tensors: {BIAS}",
            f"without weights, one tensor: {WERE_MEAN.format('NaN')}",
        ],
    },
}
"""Direction -> decision -> what is to be changed."""

HINTS = {
    "from torch": "use_causal_mask=True suffices: leave out the attn_mask that only repeats it",
    "from keras": "pass the causal mask itself as attn_mask; is_causal=True beside it is only a hint that it is causal",
}
FOLLOWED = {
    "from torch": {*SAID["from torch"], "is_causal"} - {"nonfinite_key"},
    "from keras": {*SAID["from keras"], "use_causal_mask"},
}
"""Direction -> the decisions of which the advice is to change something."""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Direction -> the file that port wrote."""
    folder = tmp_path_factory.mktemp("port")
    files = {direction: folder / f"{direction.replace(' ', '_')}.json" for direction in SIDES}
    for direction, sides in SIDES.items():
        command = [sys.executable, "-m", "conformance", "port", *sides, "--json", str(files[direction])]
        words = [*command, "--out", str(files[direction].with_suffix(""))]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False, cwd=folder)
        assert done.returncode == 0, done.stderr
    return files


def read(records: Mapping[str, Path], direction: str) -> Any:
    return json.loads(records[direction].read_text(encoding="utf-8"))


@pytest.mark.frameworks
@pytest.mark.parametrize("direction", SIDES)
def test_every_difference_comes_with_what_to_change(direction: str, records: Mapping[str, Path]) -> None:
    told = read(records, direction)
    assert {each["decision"]["from"]: each["changes"] for each in told["differences"]} == SAID[direction]
    assert {each["change"] for each in told["arguments"]} == {"", HINTS[direction]}


@pytest.mark.frameworks
def test_arrays_and_parameters_are_told_as_the_adapters_translate_them(records: Mapping[str, Path]) -> None:
    told = read(records, "from torch")["conventions"]
    assert any("called as (query, value, key)" in point for point in told["to"])
    assert any("in_proj_weight" in point and "transposed" in point for point in told["from"])


@pytest.mark.frameworks
def test_nothing_is_advised_that_is_ours_alone(records: Mapping[str, Path]) -> None:
    told = read(records, "from torch")
    assert not any("layout" in text or "verbatim" in text for text in told["notes"])
    assert not any("layout" in each["sentence"] or "verbatim" in each["sentence"] for each in told["refused"])


@pytest.mark.frameworks
def test_following_the_advice_makes_them_agree_where_they_did_not(records: Mapping[str, Path]) -> None:
    script = Path(__file__).with_name("advised.py")
    command = [sys.executable, str(script), *map(str, records.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    trials = json.loads(done.stdout)
    followed = {(trial["direction"], trial["decision"]): (trial["before"], trial["after"]) for trial in trials}
    wanted = {(direction, decision) for direction, decisions in FOLLOWED.items() for decision in decisions}
    assert followed == dict.fromkeys(wanted, (False, True))
