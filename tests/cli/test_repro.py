"""`conformance repro` as a user runs it: the folder runs without the harness and reproduces the result of the run."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..running import cells, conformance, with_suite

TESTS = Path(__file__).parents[1]
LIAR = str(TESTS / "fakes" / "liar.py")

SUITE = """\
format: 1
suite: small
summary: A few calls; liars lie in a batch of 13.
defaults: {operator: sdpa, num_heads: 2, head_dim: 3, seq_len_q: 5, seq_len_k: 7, batch: 13}
cases:
  - name: plain
    masks: [{kind: key_padding, pattern: holes}]
  - name: half
    batch: 2
    dtype: bfloat16
    masks: [{kind: causal}]
"""
LIES = ("wrong_dtype", "raise_inside", "exit", "decline")
UNSCALED = '''\
"""Attention without a scale."""

NAME = "my.unscaled"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = []
SLOTS = {"mask": {"role": "mask", "takes": ["key_padding"], "axes": [["b", "k"]], "bool": "attend"}}

import numpy as np

from conformance.bridge import Declaration, Profile, framework_call


def declare(facts):
    return Declaration(Profile.uniform(facts.dtype))


def sdpa(call):
    with framework_call():
        logits = call.query.bits @ call.key.bits.swapaxes(-1, -2)
        logits = np.where(call.arguments["mask"].bits[:, None, None], logits, -np.inf)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return {"output": weights / weights.sum(-1, keepdims=True) @ call.value.bits}
'''


def scripted(folder: Path) -> tuple[int, list[str]]:
    """The exit code and stdout lines of a script, run from `/`; it can import our code only from its own folder."""
    command = [sys.executable, "-P", "-c", RUN, str(folder / "repro.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/")
    return done.returncode, done.stdout.splitlines()


RUN = """
import runpy, sys
ours = [path for path in sys.path if path.endswith("site-packages") or "lib/python" in path]
sys.path[:] = [sys.argv[1].rpartition("/")[0], *ours]
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
finally:
    loaded = {name: module.__file__ for name, module in sys.modules.items() if name.startswith("conformance.")}
    assert loaded, "the bridge was not loaded"
    assert all(file.startswith(sys.path[0]) for file in loaded.values()), loaded
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    with_suite(folder, SUITE)
    (folder / "mine.py").write_text(UNSCALED, encoding="utf-8")
    subjects = [*(f"{LIAR}[{lie}]" for lie in LIES), "mine.py", "numpy.sdpa", "torch.sdpa[math]"]
    done = conformance("run", "cases", "--out", "out", *(w for s in subjects for w in ("-a", s)), cwd=folder)
    assert (folder / "out" / "verdict.json").is_file(), done.stderr
    return folder


def records(project: Path) -> dict[tuple[str, str], dict[str, object]]:
    return cells(project / "out")


def written(project: Path, case: str, subject: str, out: Path) -> list[str]:
    done = conformance("repro", "out", case, subject, "--out", str(out), cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("subject", "case"),
    [("numpy.sdpa", "small/plain"), ("torch.sdpa[math]", "small/half")],
)
def test_a_pass_is_reproduced(project: Path, subject: str, case: str, tmp_path: Path) -> None:
    record = records(project)[case, subject]
    assert record["verdict"] == "pass"
    said = written(project, case, subject, tmp_path / "out")
    assert said[0].startswith("Run it: /")
    assert said[0].endswith(f" {tmp_path}/out/repro.py")
    code, lines = scripted(tmp_path / "out")
    assert code == 0, lines
    assert lines[0] == f"{case} on {subject}"
    assert f"{record['budget']:.3g} of the allowed error used" in "\n".join(lines)
    assert lines[-3] == "within the tolerance"
    assert lines[-2].startswith("in the run: pass: output: ")
    assert lines[-1].startswith("with conformance: conformance run cases -a ")


@pytest.mark.parametrize(
    ("subject", "found"),
    [
        ("my.unscaled", "output: max error "),
        ("fake.liar[wrong_dtype]", "output: dtype float16, expected float32"),
    ],
)
def test_a_failure_is_reproduced(project: Path, subject: str, found: str, tmp_path: Path) -> None:
    record = records(project)["small/plain", subject]
    assert record["verdict"] == "fail"
    written(project, "small/plain", subject, tmp_path / "out")
    code, lines = scripted(tmp_path / "out")
    assert code == 1
    assert any(line.startswith(found) for line in lines), lines
    assert record["budget"] == "inf" or f" {record['budget']:.3g} of the allowed error used" in "\n".join(lines)
    assert lines[-3] == "beyond the tolerance"
    assert lines[-1] == f"with conformance: {record['rerun']}"


def test_an_exception_is_reproduced_with_its_place(project: Path, tmp_path: Path) -> None:
    written(project, "small/plain", "fake.liar[raise_inside]", tmp_path / "out")
    code, lines = scripted(tmp_path / "out")
    assert code == 1
    assert lines[-3] == "error in framework: ValueError: cannot reshape array of size 3 into shape (2,2)"


def test_a_crash_is_reproduced_by_crashing(project: Path, tmp_path: Path) -> None:
    said = written(project, "small/plain", "fake.liar[exit]", tmp_path / "out")
    assert said[1].startswith("In the run: crash: ")
    assert scripted(tmp_path / "out") == (3, [])


def test_a_reply_without_a_declaration_is_shown_and_is_no_pass(project: Path, tmp_path: Path) -> None:
    written(project, "small/plain", "numpy.sdpa", tmp_path / "out")
    facts = json.loads((tmp_path / "out" / "facts.json").read_text(encoding="utf-8"))
    (tmp_path / "out" / "facts.json").write_text(json.dumps({**facts, "outputs": {}}), encoding="utf-8")
    code, lines = scripted(tmp_path / "out")
    assert code == 1
    assert lines[-3] == "no comparison: the run has no declaration for this call"


def test_the_folder_is_called_like_the_cell(project: Path) -> None:
    assert conformance("repro", "out", "*/plain", "numpy.*", cwd=project).returncode == 0
    assert {path.name for path in (project / "repro-small-plain-numpy.sdpa").iterdir()} == {
        "adapter",
        "call.npz",
        "conformance",
        "facts.json",
        "repro.py",
    }
    again = conformance("repro", "out", "*/plain", "numpy.*", cwd=project)
    assert again.returncode == 4
    assert "repro-small-plain-numpy.sdpa exists already: choose another --out" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", "*", "*"], "there is no run folder nowhere"),
        (["out", "nothing/*", "*"], "out has no cell with the case nothing/*"),
        (["out", "small/plain", "torhc"], "out has no cell with the subject torhc"),
        (["out", "small/plain", "fake.liar*"], "4 cells match: name one, such as small/plain 'fake.liar["),
        (["out", "small/plain", "fake.liar[decline]"], "the framework was not called in this cell: no batch of 13"),
        (
            ["out", "small/half", "torch*math]", "--cases", "other"],
            "small/half in other/small.yaml:6 has changed since",
        ),
    ],
)
def test_what_cannot_be_reproduced_is_said_and_exits_with_4(project: Path, words: list[str], said: str) -> None:
    (project / "other").mkdir(exist_ok=True)
    text = SUITE.replace("  - name: plain\n    masks: [{kind: key_padding, pattern: holes}]\n", "")
    (project / "other" / "small.yaml").write_text(text.replace("batch: 2", "batch: 3"), encoding="utf-8")
    done = conformance("repro", *words, cwd=project)
    assert done.returncode == 4, done.stdout
    assert said in done.stderr


def test_an_adapter_that_has_changed_is_not_taken_for_the_one_that_was_judged(project: Path, tmp_path: Path) -> None:
    log = (project / "out" / "run.jsonl").read_text(encoding="utf-8")
    digest = json.loads(log.splitlines()[0])["subjects"]["numpy.sdpa"]["digest"]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.jsonl").write_text(log.replace(digest, "sha256:other"), encoding="utf-8")
    done = conformance("repro", str(tmp_path / "old"), "small/plain", "numpy.sdpa", cwd=project)
    assert done.returncode == 4
    assert "numpy_sdpa.py has changed since this run: judge it again" in done.stderr


UNMASKED = """\
import numpy as np


def attention(query, key, value, mask=None):
    logits = query @ key.swapaxes(-1, -2) / np.asarray(np.sqrt(query.shape[-1]), query.dtype)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
"""


def test_a_checked_function_is_reproduced_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(UNMASKED, encoding="utf-8")
    case = "masks/key_padding/trailing[operator=sdpa]"
    done = conformance("check", "mine.py:attention", "-k", case, "--out", "run", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    again = conformance("repro", "run", case, "mine.attention", "--out", "script", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    code, lines = scripted(tmp_path / "script")
    assert code == 1
    assert lines[0] == f"{case} on mine.attention"
    assert any("beyond the bound" in line for line in lines), lines
