"""The script that measures bounds on kernels: its cases are valid and differ, and the counts in its table are right."""

import json
import pickle
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.spec.loader import load
from conformance.spec.materialise import materialise

script = SimpleNamespace(**runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "calibrate_features.py")))
EVERY_DTYPE = {"float64", "float32", "float16", "bfloat16"}


@pytest.mark.parametrize("feature", script.FEATURES)
def test_the_cases_of_a_feature_load_and_are_all_different(feature: str, tmp_path: Path) -> None:
    (tmp_path / "calibration.yaml").write_text(json.dumps(script.suite(feature, 1)), encoding="utf-8")
    cases = load([tmp_path], tmp_path)
    assert {case.dtype for case in cases} == EVERY_DTYPE
    assert len({(case.seq_len_k, case.head_dim) for case in cases}) >= 5
    problems = [materialise(case) for case in cases if case.seq_len_k == 7 and case.dtype == "float32"]
    told = {pickle.dumps((p.query, p.key, p.value, p.params, p.mask_operands, p.softcap, p.outputs)) for p in problems}
    assert len(told) == len(problems) >= 24


def record(verdict: str, **more: Any) -> dict[str, Any]:
    return {"verdict": verdict} | more


def test_a_row_counts_what_conforms_and_tells_false_alarms_from_the_rest() -> None:
    found = [
        *(record("pass", budget=each) for each in (0.1, 0.2, 0.4)),
        record("dialect", budget=0.3),
        record("fail", **{"class": "precision"}, budget=3.0),
        record("inconclusive", uncalibrated=True, budget=2.0),
        record("inconclusive", budget=0.5),
        record("fail", **{"class": "semantic"}, budget=9.0),
        record("fail", **{"class": "semantic"}, budget=9.0, known="float_mask=cast_to_integer"),
        record("fail", **{"class": "precision"}, budget=7.0, known="a reason"),
        record("error"),
        record("unsupported"),
    ]
    # of .1 .2 .3 .4: the median is between the middle two, the 95 % quantile at 2.85 of 3 steps
    assert [*script.line("relu", "numpy.mha", "float32", found)] == [
        "| relu | `numpy.mha` | float32 | 4 | 0.25 | 0.39 | 0.40 | 2 | 1 | 2 | 2 |"
    ]


def test_a_row_of_false_alarms_alone_is_shown_and_one_that_judged_nothing_is_not() -> None:
    false = [record("fail", **{"class": "precision"}, budget=3.0)]
    assert [*script.line("relu", "numpy.mha", "float32", false)] == [
        "| relu | `numpy.mha` | float32 | 0 | - | - | - | 1 | 0 | 0 | 0 |"
    ]
    assert [*script.line("relu", "numpy.mha", "float32", [record("unsupported")])] == []


def test_rows_are_one_for_each_subject_and_dtype_without_dense_routes() -> None:
    cells = [
        {"type": "cell", "subject": subject, "case": f"calibration/s0[dtype={dtype}{rest}]"}
        for subject, dtype, rest in (
            ("numpy.mha", "float64", ""),
            ("torch.mha[eval]", "float32", ",inputs.seed=0"),
            ("torch.mha[eval]", "float32", ",inputs.seed=1"),
            ("torch.mha[eval,dense]", "float32", ""),
            ("numpy.mha[dense]", "float64", ""),
        )
    ]
    rows = script.grouped([{"type": "header"}, *cells, {"type": "footer"}])
    assert {key: len(found) for key, found in rows.items()} == {
        ("numpy.mha", "float64"): 1,
        ("torch.mha[eval]", "float32"): 2,
    }
