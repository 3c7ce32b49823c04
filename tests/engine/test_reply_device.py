"""A reply counts only for the device on which it ran."""

from pathlib import Path

import pytest

from conformance.engine.judging import misplaced

from ..running import cells, conformance

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
    done = conformance("run", "cases", "-a", str(FAKE), "--device", device, "--out", "run", cwd=folder)
    found = cells(folder / "run")
    assert done.returncode == (1 if any(cell["verdict"] == "error" for cell in found.values()) else 0), done.stderr
    return {
        subject.partition("[")[2].partition("]")[0]: (cell["verdict"], cell.get("reason", ""))
        for (_, subject), cell in found.items()
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
