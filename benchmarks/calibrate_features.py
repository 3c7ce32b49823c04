"""
Measure how much of their bounds real kernels use in cases beyond plain attention: softcap, appended keys, ...

Random cases of each feature are written as a suite, and `conformance run` judges them on the adapters that support it.
Each line of the table is a subject and a dtype. It has the number of cells that conform and the quantiles of the budget
that they use; false alarms, which are failures of class precision and uncalibrated inconclusive cells; other cells
whose bound is too wide (inconclusive); known deviations; and failures that are semantic, impossible or errors (other),
which say nothing about the bound.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]

GREEN = ("pass", "dialect")
# Sizes: batch, num_heads, seq_len_q, seq_len_k, head_dim.
SHAPES = ((2, 3, 5, 7, 11), (3, 2, 7, 7, 8), (1, 2, 17, 33, 32), (1, 2, 7, 131, 64))
SQUARE = ((3, 2, 7, 7, 8), (1, 2, 33, 33, 32), (1, 3, 131, 131, 16))
NAMES = ("batch", "num_heads", "seq_len_q", "seq_len_k", "head_dim")
DISTRIBUTIONS = ("bell", "wide", "large", "alternating")
MASKS: tuple[list[dict[str, Any]], ...] = (
    [],
    [{"kind": "attention", "pattern": "holes"}],
    [{"kind": "additive", "distribution": "bell"}],
)
REPLACED: Mapping[str, Any] = {"activation": "relu", "residual": True, "output_projection": False}
FEATURES: Mapping[str, tuple[str, list[dict[str, Any]]]] = {
    "softcap": ("sdpa", [{"softcap": cap} for cap in (0.5, 3, 30)]),
    "softcap (mha)": ("mha", [{"softcap": cap} for cap in (0.5, 3, 30)]),
    "bias_kv": ("mha", [{"bias_kv": True}]),
    "zero_key": ("mha", [{"zero_key": True}]),
    "bias_kv and zero_key": ("mha", [{"bias_kv": True, "zero_key": True}]),
    "no_output_projection": ("mha", [{"output_projection": False, "biases": False}]),
    "relu": ("mha", [{"activation": "relu"}]),
    "residual": ("mha", [{"residual": True}]),
    "relu, residual, no_output_projection": ("mha", [dict(REPLACED)]),
    "scaled": ("sdpa", [{"outputs": ["scaled"]}]),
    "capped": ("sdpa", [{"outputs": ["capped"], "softcap": cap} for cap in (0.5, 3, 30)]),
    "logits": ("sdpa", [{"outputs": ["logits"]}, {"outputs": ["logits"], "softcap": 3}]),
    "grouped_heads": ("sdpa", [{"num_heads": 6, "num_kv_heads": 2}]),
    "window": ("sdpa", [{"masks": [{"kind": "window", "left": left, "right": 2}]} for left in (1, 3)]),
}
COLUMNS = (
    *("feature", "subject", "dtype", "judged", "median", "95 %", "largest"),
    *("false", "inconclusive", "known", "other"),
)
DTYPES = ("float64", "float32", "float16", "bfloat16")


def cases(feature: str, seeds: int) -> Iterator[dict[str, Any]]:
    """Yield a case for each shape, setting and mask, with a matrix over dtype, distribution and seed."""
    operator, settings = FEATURES[feature]
    shapes = {*SHAPES, *SQUARE}
    for number, shape in enumerate(sorted(shapes)):
        for index, setting in enumerate(settings):
            for masks in MASKS:
                both = [*setting.get("masks", []), *masks]
                common = {"operator": operator, **dict(zip(NAMES, shape, strict=True)), **setting, "masks": both}
                alias = "qkv" if shape in SQUARE and operator == "mha" and "bias_kv" not in feature else "none"
                matrix = {"dtype": DTYPES, "inputs.distribution": DISTRIBUTIONS, "inputs.seed": [*range(seeds)]}
                name = f"s{number}_{index}_{'_'.join(mask['kind'] for mask in masks) or 'none'}"
                yield {"name": name, **common, "inputs": {"alias": alias}, "matrix": matrix}


def suite(feature: str, seeds: int) -> dict[str, Any]:
    """Return the cases of a feature as a suite file. A shape that is in both lists counts once."""
    unique = {json.dumps(case, sort_keys=True): case for case in cases(feature, seeds)}
    return {"format": 1, "suite": "calibration", "summary": "Random cases.", "cases": list(unique.values())}


def measured(feature: str, seeds: int, subjects: list[str], device: str) -> Iterator[str]:
    """Run the feature's cases on a device and yield a line for each subject and dtype with judged cells."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "calibration.yaml"
        file.write_text(json.dumps(suite(feature, seeds)), encoding="utf-8")
        out = Path(folder) / "run"
        chosen = [word for subject in subjects for word in ("-a", subject)]
        where = ["--device", device, "--out", str(out)]
        command = [sys.executable, "-m", "conformance", "run", str(file), *chosen, *where, "--exit-zero"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        lines = (out / "run.jsonl").read_text(encoding="utf-8").splitlines()
    for (subject, dtype), found in sorted(grouped(map(json.loads, lines)).items()):
        yield from line(feature, subject, dtype, found)


def grouped(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """Return the cells of each subject and dtype, without dense forms: their arithmetic is the same."""
    rows: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["type"] == "cell" and ",dense" not in record["subject"] and "[dense]" not in record["subject"]:
            dtype = record["case"].split("dtype=")[1].split(",")[0].rstrip("]")
            rows.setdefault((record["subject"], dtype), []).append(record)
    return rows


def line(feature: str, subject: str, dtype: str, found: list[Record]) -> Iterator[str]:
    """Yield the row of one subject and dtype, or nothing if no cell was judged."""
    judged = [record for record in found if record["verdict"] != "unsupported"]
    if not judged:
        return
    green = [record["budget"] for record in judged if record["verdict"] in GREEN]
    new = [record for record in judged if "known" not in record]
    false = sum(record.get("class") == "precision" or bool(record.get("uncalibrated")) for record in new)
    blunt = sum(record["verdict"] == "inconclusive" for record in new if not record.get("uncalibrated"))
    known = len(judged) - len(new)
    other = len(judged) - len(green) - false - blunt - known
    quantiles = [f"{x:.2f}" for x in np.quantile(np.array(green, float), (0.5, 0.95, 1.0))] if green else ["-"] * 3
    cells = (feature, f"`{subject}`", dtype, len(green), *quantiles, false, blunt, known, other)
    yield "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-a", "--adapter", action="append", default=[], help="subjects, as for conformance run")
    parser.add_argument("--feature", choices=FEATURES, action="append", help="features (default: all)")
    parser.add_argument("--seeds", type=int, default=2, help="seeds for each case (default 2)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute (default: cpu)")
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for feature in options.feature or FEATURES:
        print("\n".join(measured(feature, options.seeds, options.adapter, options.device)), flush=True)


if __name__ == "__main__":
    main()
