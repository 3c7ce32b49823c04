"""`conformance explain` as a user runs it: a case that was computed by hand, as text and as JSON."""

import json
import re
from pathlib import Path

import pytest

from ..running import conformance, with_suite

SUITE = """\
format: 1
suite: small
summary: Two queries and three keys, all logits 0.
defaults:
  {operator: sdpa, batch: 1, num_heads: 1, head_dim: 1, seq_len_q: 2, seq_len_k: 3,
   inputs: {key: [[[[0], [0], [0]]]], value: [[[[1], [2], [6]]]]}}
cases:
  - name: causal
    matrix: {dtype: [float32, float16]}
    masks: [{kind: causal}, {kind: key_padding, values: [[0, 1, 1]]}]
  - name: softcap
    softcap: 2.0
    outputs: [output, weights]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return with_suite(tmp_path, SUITE)


def test_explain_has_help_with_an_example(tmp_path: Path) -> None:
    done = conformance("explain", "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "example: conformance explain 'masks/key_padding/trailing[operator=sdpa]'" in done.stdout


def test_a_case_is_told_in_full(project: Path) -> None:
    done = conformance("explain", "small/causal[dtype=float16]", "--cases", "cases", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "small/causal[dtype=float16]  (cases/small.yaml:8)\nTwo queries and three keys, all logits 0.\n",
        "sdpa in float16: batch 1, num_heads 1, num_kv_heads 1, seq_len_q 2, seq_len_k 3, head_dim 1, value_dim 1\n",
        "Mask causal (bool; # attends, . does not):\n    #..\n    ##.\n",
        "Mask key_padding (bool; # attends, . does not):\n    .##\n",
        "All masks combined (# attends, . does not):\n    ...\n    .#.\n1 of 2 rows are fully masked\n",
        "Expected outputs of canonical attention:\n  output [1, 1, 2, 1] float16: 0, 2, ...; from 0 to 2\n",
        "Tolerance in float16, for ordinary arithmetic:\n  output: at most ",
        "Tolerance in float32, for ordinary arithmetic:\n  output: at most ",
        "  causal_alignment: bottom_right",
        "Subjects, unless the adapter declines the call:\n",
    ):
        assert text in done.stdout
    assert re.search(
        r"^Declined:\n(?:  .*\n)*  numpy\.sdpa +does not support float16, only float64, float32$",
        done.stdout,
        re.MULTILINE,
    )
    assert conformance(
        "explain", "small/soft*", "--cases", "cases", "-a", "torch.sdpa[math]", cwd=project
    ).stdout.endswith("Declined:\n  torch.sdpa[math]  does not support: softcap\n")


def test_as_json_every_deviation_has_its_distance(project: Path) -> None:
    words = ("explain", "small/softcap", "--cases", "cases", "-a", "numpy.sdpa*", "--json")
    found = json.loads(conformance(*words, cwd=project).stdout)
    assert (found["schema"], found["case"], found["source"]) == (1, "small/softcap", "cases/small.yaml:11")
    assert found["expected"]["output"] | {"first": []} == {
        "shape": [1, 1, 2, 1],
        "dtype": "float32",
        "least": 3.0,
        "largest": 3.0,
        "first": [],
    }
    assert found["expected"]["weights"]["first"] == pytest.approx([1 / 3] * 4)
    assert found["bounds"]["float32"]["output"]["coverage"] == 1.0
    assert found["detected"]["arguments=key_as_value"] >= found["factor"]
    assert found["detected"]["result_dtype=float64"] == "inf"
    assert found["too_close"]["scale=seq_len"] == 0.0, "logits of 0 tell no scale apart"
    assert "causal_alignment=bottom_right" in found["without_effect"]
    dense, plain = sorted(found["subjects"], key=lambda each: -len(each["subject"]))
    assert plain == {"subject": "numpy.sdpa", "asked": True, "reason": "", "route": [], "dropped": []}
    assert (dense["asked"], dense["reason"]) == (False, "its dense form would be the same call")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing/*"], "no case matches nothing/*"),
        (["small/*", "--cases", "cases"], "small/* matches 3 cases: give one id, such as 'small/causal[dtype"),
        (["small/softcap", "--cases", "cases", "-a", "torhc.sdpa"], "no subject matches 'torhc.sdpa'"),
        (["small/softcap", "--cases", "nowhere"], "there is no case file or folder nowhere"),
    ],
)
def test_wrong_usage_says_what_is_wrong_and_exits_with_4(words: list[str], said: str, project: Path) -> None:
    done = conformance("explain", *words, cwd=project)
    assert done.returncode == 4
    assert said in done.stderr
