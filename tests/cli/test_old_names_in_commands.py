"""Commands, adapters and earlier runs may use old names."""

import subprocess
from pathlib import Path

import pytest

from ..running import cells, conformance

CHANGING = Path(__file__).with_name("changing.py").read_text(encoding="utf-8")
# It applies the mask of the first batch element to every batch element.
WRONG = CHANGING.replace("np.where(mask.bits,", "np.where(mask.bits[:1],")
DECLARING = WRONG.replace("Declaration, Facts", "Declaration, Deviation, Facts").replace(
    "Declaration(Profile.uniform(facts.dtype), evidence=",
    'Declaration(Profile.uniform(facts.dtype), (Deviation("mask_axes[mask]", "first_item", "docs"),), evidence=',
)
BATCH = "degenerate/fully_masked_batch/boolean[operator=sdpa]"
MISTAKE = "shapes/mistakes/mask[operator=sdpa,mistake=mask_batch]"
CHOSEN = ("-k", BATCH, "-k", "degenerate/fully_masked_row/boolean[operator=sdpa]", "-k", MISTAKE)
# New text -> old text, as earlier logs contain it.
BEFORE = {
    "degenerate/fully_masked_batch": "degenerate/dead_item",
    "degenerate/fully_masked_row": "degenerate/dead_row",
    "mistake=mask_batch": "mistake=mask_items",
    "=first_batch": "=first_item",
    '"first_batch"': '"first_item"',
}
SUITE = """\
format: 1
suite: degenerate/dead_row
summary: A copy of a suite of before.
cases:
  - name: boolean
    operator: sdpa
    batch: 2
    num_heads: 3
    seq_len_q: 5
    seq_len_k: 7
    head_dim: 11
    matrix: {inputs.seed: [1, 2]}
    masks: [{kind: attention, pattern: one_dead_row}]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the run folder `now` and the run folder `before`, the same run with old names."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "mine.py").write_text(WRONG, encoding="utf-8")
    done = conformance("run", "-a", "mine.py", *CHOSEN, "--out", "now", cwd=folder)
    assert done.returncode == 1
    text = (folder / "now" / "run.jsonl").read_text(encoding="utf-8")
    for new, old in BEFORE.items():
        assert new in text
        text = text.replace(new, old)
    (folder / "before").mkdir()
    (folder / "before" / "run.jsonl").write_text(text, encoding="utf-8")
    return folder


def test_a_run_of_before_is_compared_with_one_of_now(project: Path) -> None:
    for sides in (("before", "now"), ("now", "before")):
        done = conformance("compare", *sides, "--out", f"of-{sides[0]}", cwd=project)
        assert done.returncode == 0
        assert "Unchanged: 2 verdicts on 1 subject, judged on both sides; 1 verdict is red on both sides" in done.stdout
        assert "3 cells compared: 2 unchanged" in done.stdout


def test_a_run_of_before_is_reported_and_reproduced(project: Path) -> None:
    reported = [conformance("report", name, cwd=project).stdout for name in ("now", "before")]
    assert "it applies the part of mask for the first batch element to every batch element" in reported[0]
    assert reported[1].replace("before", "now") == reported[0]
    old = BATCH.replace("fully_masked_batch", "dead_item")
    done = conformance("repro", "before", old, "mine.sdpa", "--out", "again", cwd=project)
    assert done.returncode == 0
    assert f"-k '{BATCH}'" in done.stdout


def judge(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return conformance("run", "-a", "declaring.py", *words, "--no-cache", cwd=project)


def test_an_adapter_and_a_glob_may_have_old_names(tmp_path: Path) -> None:
    (tmp_path / "declaring.py").write_text(DECLARING, encoding="utf-8")
    done = judge(tmp_path, "-k", "degenerate/dead_item/boolean*sdpa*", "--out", "out")
    assert done.returncode == 0
    note = "degenerate/dead_item/boolean*sdpa*: degenerate/dead_item/boolean[operator=sdpa] is now called "
    assert f"conformance: {note}{BATCH}\n" in done.stderr
    assert [cell["verdict"] for cell in cells(tmp_path / "out").values()] == ["dialect"]
    unknown = judge(tmp_path, "-k", "degenerate/dead_items/*")
    assert unknown.returncode == 4
    assert "no case matches degenerate/dead_items/*" in unknown.stderr


def test_a_run_of_cases_with_old_names_can_be_finished(tmp_path: Path) -> None:
    (tmp_path / "declaring.py").write_text(CHANGING, encoding="utf-8")
    (tmp_path / "cases" / "degenerate").mkdir(parents=True)
    (tmp_path / "cases" / "degenerate" / "dead_row.yaml").write_text(SUITE, encoding="utf-8")
    assert judge(tmp_path, "cases", "--out", "out").returncode == 0
    log = tmp_path / "out" / "run.jsonl"
    log.write_text("".join(log.read_text(encoding="utf-8").splitlines(keepends=True)[:-2]), encoding="utf-8")
    done = judge(tmp_path, "cases", "--out", "out", "--resume")
    assert (done.returncode, "2 calls judged" in done.stdout) == (0, True)
    assert [case for case, _ in cells(tmp_path / "out")] == [
        f"degenerate/fully_masked_row/boolean[inputs.seed={seed}]" for seed in (1, 2)
    ]


@pytest.mark.parametrize(("name", "code"), [("first_item", 0), ("first_items", 4)])
def test_an_old_name_may_be_declared(tmp_path: Path, name: str, code: int) -> None:
    (tmp_path / "mine.py").write_text(FUNCTION, encoding="utf-8")
    words = ("check", "mine.py:attention", "--declare", f"mask_axes[mask]={name}", "-k", "masks/attention_2d/*")
    done = conformance(*words, cwd=tmp_path)
    assert done.returncode == code
    assert ("--declare mask_axes[mask]=first_item: first_item is now called first_batch" in done.stdout) == (code == 0)
    assert ("expected one of" in done.stderr) == (code != 0)


FUNCTION = """\
import numpy as np


def attention(query, key, value, mask=None):
    logits = query @ key.swapaxes(-1, -2) / np.sqrt(np.asarray(query.shape[-1], query.dtype))
    if mask is not None:
        logits = np.where(mask[:1], logits, -np.inf)
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True) @ value
"""
