"""`conformance import`: the test vectors of others as a suite of cases."""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from conformance import places
from conformance.cli.errors import UsageError
from conformance.gate.decision import CONFORMS, REJECTED
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.onnx_vectors import Imported, Vector, imported
from conformance.verdicts.published_numbers import published_findings

SUITE = "attention"
HEAD = "# Written by conformance import onnx: not edited, made anew.\n"


def import_onnx(arguments: argparse.Namespace) -> int:
    """Write the suite, hold the oracle against it, and account for every vector."""
    folder: Path = arguments.folder
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name a new folder")
    version, vectors = _vectors(arguments.python)
    made = [imported(vector) for vector in vectors]
    _write(folder, version, made)
    cases = load([folder], folder)
    findings = {finding.case: finding for finding in published_findings(cases, materialise)}
    for case, one in zip(cases, made, strict=True):
        finding = findings[case.id]
        print(f"{case.name}  {finding.problem or f'agrees, {finding.budget:.0%} of what is allowed'}")
        for sentence in one.left_out:
            print(f"  left out: {sentence}")
    wrong = [finding for finding in findings.values() if finding.problem]
    print(
        f"onnx {version}: {len(vectors)} vectors, {len(cases)} cases; the oracle agrees with {len(cases) - len(wrong)}"
    )
    print(f"next: conformance run {folder}")
    return REJECTED if wrong else CONFORMS


def _vectors(python: str) -> tuple[str, list[Vector]]:
    """What the installed onnx has, dumped by a process of its own: none of our modules imports a framework."""
    with tempfile.TemporaryDirectory() as place:
        dump = Path(place) / "vectors.npz"
        script = places.adapters() / "_onnx_vectors.py"
        done = subprocess.run(  # our own script, in the interpreter that was asked for
            [python, "-W", "ignore", str(script), str(dump)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            last = done.stderr.strip().rpartition("\n")[2]
            raise UsageError(f"{python} cannot write the vectors: {last}; --python names one that has onnx")
        with np.load(dump, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    index = json.loads(str(arrays["index"]))
    return index["onnx"], [
        Vector(**about, arrays={name: arrays[f"{number}/{name}"] for name in (*about["inputs"], *about["outputs"])})
        for number, about in enumerate(index["vectors"])
    ]


def _write(folder: Path, version: str, made: Sequence[Imported]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for one in made:
        for part, arrays in (("inputs", one.inputs), ("published", one.published)):
            np.savez_compressed(folder / one.entry[part]["file"], **arrays)  # type: ignore[arg-type]  # names of arrays
    suite: dict[str, Any] = {
        "format": 1,
        "suite": SUITE,
        "summary": f"The node tests of the operator Attention that ship inside onnx {version}; generated, not edited.",
        "defaults": {"operator": "sdpa"},
        "cases": [dict(one.entry) for one in made],
    }
    text = HEAD + yaml.safe_dump(suite, sort_keys=False, default_flow_style=None, width=120)
    (folder / f"{SUITE}.yaml").write_text(text, encoding="utf-8")
