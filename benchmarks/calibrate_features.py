"""
How much of their bounds real kernels use where a case asks for more than plain attention: softcap, appended keys, ...

Random cases of each feature are written as a suite and judged by `conformance run` on the adapters that honour it.
Each line is a subject and a dtype: how many cells conform, and the quantiles of the
budget that they use; false alarms, which are failures of class precision; cells whose bound says too little
(inconclusive), and failures that are semantic, impossible or errors (other), which say nothing about the bound.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = ((2, 3, 5, 7, 11), (3, 2, 7, 7, 8), (1, 2, 17, 33, 32), (1, 2, 7, 131, 64))
"""(batch, num_heads, seq_len_q, seq_len_k, head_dim)"""
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
    "relu, residual, no_output_projection": ("mha", [dict(REPLACED)]),
    "grouped_heads": ("sdpa", [{"num_heads": 6, "num_kv_heads": 2}]),
    "window": ("sdpa", [{"masks": [{"kind": "window", "left": left, "right": 2}]} for left in (1, 3)]),
}
COLUMNS = ("feature", "subject", "dtype", "judged", "median", "95 %", "largest", "false", "inconclusive", "other")
DTYPES = ("float64", "float32", "float16", "bfloat16")


def cases(feature: str, seeds: int) -> Iterator[dict[str, Any]]:
    """One case for each shape, dtype, distribution, mask and seed."""
    operator, settings = FEATURES[feature]
    shapes = {*SHAPES, *SQUARE}
    for number, shape in enumerate(sorted(shapes)):
        for index, setting in enumerate(settings):
            for masks in MASKS:
                common = {"operator": operator, **dict(zip(NAMES, shape, strict=True)), "masks": masks, **setting}
                alias = "qkv" if shape in SQUARE and operator == "mha" and "bias_kv" not in feature else "none"
                matrix = {"dtype": DTYPES, "inputs.distribution": DISTRIBUTIONS, "inputs.seed": [*range(seeds)]}
                name = f"s{number}_{index}_{'_'.join(mask['kind'] for mask in masks) or 'none'}"
                yield {"name": name, **common, "inputs": {"alias": alias}, "matrix": matrix}


def measured(feature: str, seeds: int, subjects: list[str]) -> Iterator[str]:
    """Run the feature's cases and give a line for each subject and dtype that judged any."""
    with tempfile.TemporaryDirectory() as folder:
        unique = {json.dumps(case, sort_keys=True): case for case in cases(feature, seeds)}
        suite = {"format": 1, "suite": "calibration", "summary": "Random cases.", "cases": list(unique.values())}
        file = Path(folder) / "calibration.yaml"
        file.write_text(json.dumps(suite), encoding="utf-8")
        out = Path(folder) / "run"
        chosen = [word for subject in subjects for word in ("-a", subject)]
        command = [sys.executable, "-m", "conformance", "run", str(file), *chosen, "--out", str(out), "--exit-zero"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        lines = (out / "run.jsonl").read_text(encoding="utf-8").splitlines()
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in map(json.loads, lines):
        if record["type"] == "cell" and ",dense" not in record["subject"] and "[dense]" not in record["subject"]:
            dtype = record["case"].split("dtype=")[1].split(",")[0].rstrip("]")
            rows.setdefault((record["subject"], dtype), []).append(record)
    for (subject, dtype), found in sorted(rows.items()):
        yield from line(feature, subject, dtype, found)


def line(feature: str, subject: str, dtype: str, found: list[dict[str, Any]]) -> Iterator[str]:
    """The quantiles of one row; nothing where nothing was judged."""
    green = [record["budget"] for record in found if record["verdict"] in ("pass", "dialect")]
    if not green:
        return
    false = sum(record.get("class") == "precision" or bool(record.get("uncalibrated")) for record in found)
    blunt = sum(record["verdict"] == "inconclusive" for record in found if not record.get("uncalibrated"))
    other = sum(record["verdict"] not in ("pass", "dialect", "unsupported") for record in found) - false - blunt
    half, most, largest = np.quantile(np.array(green, float), (0.5, 0.95, 1.0))
    cells = (
        feature,
        f"`{subject}`",
        dtype,
        len(green),
        *(f"{x:.2f}" for x in (half, most, largest)),
        false,
        blunt,
        other,
    )
    yield "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-a", "--adapter", action="append", default=[], help="subjects, as for conformance run")
    parser.add_argument("--feature", choices=FEATURES, action="append", help="features (default: all)")
    parser.add_argument("--seeds", type=int, default=2, help="seeds for each case (default 2)")
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    for feature in options.feature or FEATURES:
        print("\n".join(measured(feature, options.seeds, options.adapter)), flush=True)


if __name__ == "__main__":
    main()
