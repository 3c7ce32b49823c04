"""A reply counts only for the device on which it ran."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.engine.whereabouts import misplaced

FAKE = Path(__file__).parents[1] / "fakes" / "elsewhere.py"
SUITE = """
format: 1
suite: plain
summary: Anything.
cases:
  - {name: one, operator: sdpa, batch: 2, num_heads: 3, seq_len_q: 5, seq_len_k: 7, head_dim: 11}
"""
UNSAID = "asked to run on cuda, and the adapter's evidence does not say where it ran (ran_on)"


@pytest.mark.parametrize(
    ("asked", "evidence", "reason"),
    [
        ("cpu", {}, ""),
        ("cpu", {"ran_on": ["cpu"]}, ""),
        ("cpu", {"ran_on": []}, ""),
        ("cuda", {"ran_on": ["cuda"]}, ""),
        ("cuda", {}, UNSAID),
        ("cuda", {"ran_on": []}, UNSAID),
        ("cuda", {"ran_on": ["cpu"]}, "asked to run on cuda, ran on cpu"),
        ("cpu", {"ran_on": ["cuda"]}, "asked to run on cpu, ran on cuda"),
    ],
)
def test_evidence_is_held_against_the_device(asked: str, evidence: dict[str, list[str]], reason: str) -> None:
    assert misplaced(asked, evidence) == reason


def verdicts(folder: Path, device: str) -> dict[str, tuple[str, str]]:
    (folder / "cases").mkdir()
    (folder / "cases" / "plain.yaml").write_text(SUITE, encoding="utf-8")
    command = [sys.executable, "-m", "conformance", "run", "cases", "-a", str(FAKE), "--device", device, "--out", "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    log = (folder / "run" / "run.jsonl").read_text(encoding="utf-8")
    cells = [record for record in map(json.loads, log.splitlines()) if record["type"] == "cell"]
    assert done.returncode == (1 if any(cell["verdict"] == "error" for cell in cells) else 0), done.stderr
    return {
        cell["subject"].partition("[")[2].partition("]")[0]: (cell["verdict"], cell.get("reason", "")) for cell in cells
    }


def test_a_call_that_ran_elsewhere_is_an_error(tmp_path: Path) -> None:
    found = verdicts(tmp_path, "cuda")
    assert found["there"][0] == "pass"
    assert found["fallen_back"] == ("error", "asked to run on cuda, ran on cpu")
    assert found["half"] == (
        "error",
        "asked to run on cuda, ran on cpu, cuda; nodes: CPUExecutionProvider Softmax; CUDAExecutionProvider MatMul",
    )
    assert found["silent"] == ("error", UNSAID)


def test_on_the_cpu_only_a_claim_to_the_contrary_is(tmp_path: Path) -> None:
    found = verdicts(tmp_path, "cpu")
    assert {variant: verdict for variant, (verdict, _) in found.items()} == {
        "there": "pass",
        "fallen_back": "pass",
        "half": "error",
        "silent": "pass",
    }
