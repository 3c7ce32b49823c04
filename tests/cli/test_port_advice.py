"""The advice of `conformance port` between real layers and functions: its text, and that it works when followed."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ..docs import porting
from ..running import conformance

PROJECT = Path(__file__).parents[2]
SIDES = {"from torch": ("torch.mha", "keras.mha[jax]"), "from keras": ("keras.mha[jax]", "torch.mha")}
BIAS = "overwrite the output rows of fully masked queries with the bias of the output projection (0 without one)"
WERE_MEAN = (
    "the output rows of fully masked queries were the mean of V and are now {}: "
    "overwrite them if your code relies on the old values"
)
PLAIN = "in calls without weights and with three tensors as query, key and value"
WITH_WEIGHTS = "in calls with weights and with three tensors as query, key and value"
# Direction -> what each side does with a fully masked row, with the calls in which it does so.
FULLY_MASKED = {
    "from torch": {
        "from": f"returns zeros for a fully masked row ({PLAIN})",
        "to": "returns the mean of V over all keys for a fully masked row (in calls without weights)",
    },
    "from keras": {
        "from": "returns the mean of V over all keys for a fully masked row (in calls without weights)",
        "to": f"returns zeros for a fully masked row ({PLAIN})",
    },
}
# Direction -> decision -> the expected changes.
SAID = {
    "from torch": {
        "polarity[attn_mask]": ["pass ~attn_mask as attention_mask"],
        "polarity[key_padding_mask]": ["pass ~key_padding_mask as value_mask"],
        "float_mask[attn_mask]": [
            (
                "if attn_mask holds only 0 and -inf, pass attn_mask == 0 as attention_mask; "
                "no argument accepts other numbers"
            )
        ],
        "nonfinite_key": ["nothing"],
        "fully_masked_row": [
            f"{PLAIN}: {BIAS}",
            f"{WITH_WEIGHTS}, or without weights and with one tensor as query, key and value: nothing",
        ],
    },
    "from keras": {
        "polarity[attention_mask]": ["pass ~attention_mask as attn_mask"],
        "polarity[value_mask]": ["pass ~value_mask as key_padding_mask"],
        "float_mask[attention_mask]": ["pass attention_mask == 0 as a boolean attn_mask"],
        "nonfinite_key": ["overwrite keys at masked positions with finite numbers, such as 0, before the call"],
        "fully_masked_row": [
            f"{PLAIN}: {WERE_MEAN.format('zero')}",
            f"{WITH_WEIGHTS}: {BIAS}",
            f"in calls without weights and with one tensor as query, key and value: {WERE_MEAN.format('NaN')}",
        ],
    },
}

HINTS = {
    "from torch": [
        "pass ~key_padding_mask as value_mask, if it is boolean",
        "pass ~attn_mask as attention_mask, if it is boolean",
        "pass use_causal_mask=True alone: the attn_mask that repeats it is not needed",
        (
            "pass sliding_window (one width for both sides, plus 1) instead of a window mask in attn_mask, "
            "if the window is equally wide on both sides"
        ),
    ],
    "from keras": [
        "pass ~value_mask as key_padding_mask, if it is boolean",
        "pass ~attention_mask as attn_mask, if it is boolean",
        "pass the causal mask itself as attn_mask; is_causal=True is only a hint that this mask is causal",
        "pass the window mask explicitly as attn_mask: True where the key is outside the window",
        "combine it with attention_mask: booleans by |, numbers by +",
    ],
}
# Direction -> the decisions for which the advice is to change something.
FOLLOWED = {
    "from torch": {*SAID["from torch"], "is_causal"} - {"nonfinite_key"},
    "from keras": {*SAID["from keras"], "use_causal_mask"},
}


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Direction -> the JSON file that port wrote."""
    folder = tmp_path_factory.mktemp("port")
    files = {direction: folder / f"{direction.replace(' ', '_')}.json" for direction in SIDES}
    for direction, sides in SIDES.items():
        out = str(files[direction].with_suffix(""))
        done = conformance("port", *sides, "--json", str(files[direction]), "--out", out, cwd=folder)
        assert done.returncode == 0, done.stderr
    return files


def followed_by(script: str, files: Iterable[Path]) -> Any:
    """Return what a script in this folder prints for these records, parsed as JSON."""
    command = [sys.executable, "-m", f"tests.cli.{script}", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def read(records: Mapping[str, Path], direction: str) -> Any:
    return json.loads(records[direction].read_text(encoding="utf-8"))


@pytest.mark.frameworks
@pytest.mark.parametrize("direction", SIDES)
def test_every_difference_comes_with_what_to_change(direction: str, records: Mapping[str, Path]) -> None:
    told = read(records, direction)
    assert {each["decision"]["from"]: each["changes"] for each in told["differences"]} == SAID[direction]
    assert [change for each in told["arguments"] for change in each["changes"]] == HINTS[direction]


@pytest.mark.frameworks
@pytest.mark.parametrize("direction", SIDES)
def test_what_happens_only_in_some_calls_is_said_of_these_calls(direction: str, records: Mapping[str, Path]) -> None:
    told = {each["decision"]["from"]: each for each in read(records, direction)["differences"]}
    assert told["fully_masked_row"]["sentences"] == FULLY_MASKED[direction]
    assert told["nonfinite_key"]["sentences"]["from"].endswith(")") == (direction == "from torch")


@pytest.mark.frameworks
def test_the_call_and_the_parameters_are_told_for_both_sides(records: Mapping[str, Path]) -> None:
    told = read(records, "from torch")
    assert told["conventions"] == {"from": [], "to": []}
    calls = {each["topic"]: each for each in told["calls"]}
    assert list(calls) == ["constructor", "call", "weights", "dropout", "gradients", "parameters"]
    assert "key_dim is embed_dim // num_heads" in calls["constructor"]["to"]
    assert "(query, value, key) returns the output: the value comes before the key" in calls["call"]["to"]
    assert calls["weights"]["from"].startswith("need_weights=True")
    assert calls["weights"]["to"].startswith("return_attention_scores=False")
    assert "in_proj_weight" in calls["parameters"]["from"]


@pytest.mark.frameworks
@pytest.mark.parametrize("direction", SIDES)
def test_the_page_in_the_documentation_is_what_port_says_today(direction: str, records: Mapping[str, Path]) -> None:
    written = (records[direction].with_suffix("") / "port.md").read_text(encoding="utf-8")
    kept = porting.page(*SIDES[direction])
    assert kept.read_text(encoding="utf-8") == written, f"nox -s porting writes {kept.name} anew"
    assert "…" not in written


@pytest.mark.frameworks
def test_nothing_is_advised_that_is_ours_alone(records: Mapping[str, Path]) -> None:
    told = read(records, "from torch")
    assert not any("layout" in text or "verbatim" in text for text in told["notes"])
    assert not any("layout" in each["sentence"] or "verbatim" in each["sentence"] for each in told["refused"])


@pytest.mark.frameworks
def test_following_the_advice_makes_them_agree_where_they_did_not(records: Mapping[str, Path]) -> None:
    trials = followed_by("advised", records.values())
    followed = {(trial["direction"], trial["decision"]): (trial["before"], trial["after"]) for trial in trials}
    wanted = {(direction, decision) for direction, decisions in FOLLOWED.items() for decision in decisions}
    assert followed == dict.fromkeys(wanted, (False, True))


NO_ROW = "the output rows of fully masked queries"
# More pairs -> decision -> one of the changes, which a test follows.
MORE = {
    ("torch.sdpa", "jax.sdpa"): {"fully_masked_row": f"overwrite {NO_ROW} with 0"},
    ("jax.sdpa", "torch.sdpa"): {
        "nonfinite_key": SAID["from keras"]["nonfinite_key"][0],
    },
    ("torch.mha", "flax.mha[linen]"): {
        "polarity[attn_mask]": "pass ~attn_mask as mask",
        "polarity[key_padding_mask]": "pass ~key_padding_mask as mask",
        "float_mask[attn_mask]": (
            "if attn_mask holds only 0 and -inf, pass attn_mask == 0 as mask; no argument accepts other numbers"
        ),
        "fully_masked_row": f"{PLAIN}: {BIAS}",
    },
    ("torch.sdpa", "onnx.attention"): {
        "scale": "if the scale is negative, pass -scale and negate the query (in a layer: wq and bq)"
    },
}

# Pair -> the advice about its arguments. The tests also follow advice about shapes and order, but not about windows.
SHAPED = {
    ("torch.sdpa", "onnx.attention"): {
        (
            "pass the number of keys that are not padding as nonpad_kv_seqlen; "
            "pass padding that is not at the end as a mask in attn_mask"
        ),
        (
            "pass the causal mask in attn_mask if nonpad_kv_seqlen is given: it shifts the causal mask of is_causal "
            "by nonpad_kv_seqlen - seq_len_q in each batch element"
        ),
        "pass left_window_size and right_window_size instead of a window mask in attn_mask",
        (
            "pass the window mask in attn_mask if nonpad_kv_seqlen is given: it shifts the window mask of "
            "left_window_size and right_window_size by nonpad_kv_seqlen - seq_len_q in each batch element"
        ),
    },
    ("torch.sdpa", "jax.sdpa"): {
        "pass it as mask",
        "pass local_window_size instead of a window mask in attn_mask",
        "pass it as bias",
    },
    ("torch.mha", "flax.mha[linen]"): {
        "pass it as (batch, 1, 1, seq_len_k)",
        "pass it as (1, 1, seq_len_q, seq_len_k)",
        "combine it with key_padding_mask: booleans by &",
        "pass the causal mask explicitly as mask: True where the key is at or before the query",
    },
    ("jax.sdpa", "torch.sdpa"): {
        "pass it as attn_mask",
        "combine it with mask: booleans by &, numbers by +",
        "pass the causal mask in attn_mask if attn_mask is given: is_causal excludes attn_mask",
        "pass the window mask explicitly as attn_mask: True where the key is inside the window",
    },
}


@pytest.mark.frameworks
@pytest.mark.measurement
def test_following_the_advice_between_more_pairs_makes_them_agree(tmp_path: Path) -> None:
    files = {sides: tmp_path / f"{'_'.join(sides)}.json" for sides in MORE}
    for sides, file in files.items():
        out = str(file.with_suffix(""))
        done = conformance("port", *sides, "--json", str(file), "--out", out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        told = json.loads(file.read_text(encoding="utf-8"))
        changes = {each["decision"]["from"]: each["changes"] for each in told["differences"]}
        for decision, change in MORE[sides].items():
            assert change in changes[decision], sides
        shaped = {change for each in told["arguments"] for change in each["changes"]}
        assert shaped == SHAPED.get(sides, set()), sides
    trials = followed_by("advised_pairs", files.values())
    followed = {(each["direction"], each["decision"]): (each["before"], each["after"]) for each in trials}
    wanted = {(" ".join(sides), decision) for sides, decisions in MORE.items() for decision in decisions}
    of_arguments = {("torch.mha flax.mha[linen]", "is_causal"), ("torch.sdpa onnx.attention", "is_causal")}
    assert followed == dict.fromkeys(wanted | of_arguments, (False, True))
