"""
Compare our judged pairs per CPU second with those of other tools, on the same cases where a tool can take them.

The common cases are 100 calls of sdpa in float32 with at most one boolean or causal mask and no fully masked row. They
run on PyTorch and on the Attention operator of ONNX Runtime. "By hand" is pytest with `assert_close` against NumPy in
float64; its fixed tolerances reject some correct replies to large inputs. Polygraphy compares its two runners with each
other. The backend tests of onnx have their own cases, some of which fail. `nox -s benchmark` installs what it needs.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conformance.cli.case_choice import load_cases
from conformance.spec.case import ArrayMask, Case, CausalMask
from conformance.spec.materialise import materialise

CASES = 100
# The number of backend tests of the operator Attention in onnx 1.23.
BACKEND_TESTS = 93

SUBJECTS = ("torch.sdpa[math]", "ort.attention[opset23]")

SHARED = """
import json
import numpy as np, onnx, onnxruntime, torch
from onnx import helper, TensorProto

CASES = json.load(open("cases.json"))

def arrays(name):
    found = np.load(f"{name}.npz")
    return {each: found[each] for each in found.files}

def reference(query, key, value, mask=None):
    logits = query.astype(np.float64) @ key.astype(np.float64).swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True)) @ value.astype(np.float64)

def with_torch(query, key, value, mask=None):
    tensors = [torch.from_numpy(each) for each in (query, key, value)]
    mask = None if mask is None else torch.from_numpy(mask)
    return torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=mask).numpy()

def model(query, key, value, mask=None):
    given = {"Q": query, "K": key, "V": value} | ({} if mask is None else {"M": mask})
    kinds = {np.dtype("float32"): TensorProto.FLOAT, np.dtype("bool"): TensorProto.BOOL}
    inputs = [helper.make_tensor_value_info(n, kinds[a.dtype], a.shape) for n, a in given.items()]
    output = helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)
    node = helper.make_node("Attention", list(given), ["Y"])
    graph = helper.make_graph([node], "attention", inputs, [output])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return made.SerializeToString(), given

def with_ort(**given):
    serialized, feeds = model(**given)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(serialized, options).run(None, feeds)[0]
"""

BY_HAND = """
import pytest, torch
from shared import CASES, arrays, reference, with_ort, with_torch

@pytest.mark.parametrize("function", [with_torch, with_ort])
@pytest.mark.parametrize("name", CASES)
def test_attention(name, function):
    given = arrays(name)
    expected = torch.from_numpy(reference(**given)).to(torch.float32)
    torch.testing.assert_close(torch.from_numpy(function(**given)), expected)
"""

POLYGRAPHY = """
import time
from polygraphy.backend.base import BaseRunner
from polygraphy.common import TensorMetadata
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.comparator import Comparator, CompareFunc
from shared import CASES, arrays, model, with_torch

class Torch(BaseRunner):
    def __init__(self, feeds):
        super().__init__(name="torch")
        self.feeds = feeds
    def get_input_metadata_impl(self):
        found = TensorMetadata()
        for name, array in self.feeds.items():
            found.add(name, array.dtype, array.shape)
        return found
    def infer_impl(self, feed_dict):
        names = {"Q": "query", "K": "key", "V": "value", "M": "mask"}
        start = time.perf_counter()
        output = with_torch(**{names[each]: array for each, array in feed_dict.items()})
        self.inference_time = time.perf_counter() - start
        return {"Y": output}

for name in CASES:
    serialized, feeds = model(**arrays(name))
    runners = [OnnxrtRunner(SessionFromOnnx(serialized)), Torch(feeds)]
    results = Comparator.run(runners, data_loader=[feeds], warm_up=0)
    Comparator.compare_accuracy(results, compare_func=CompareFunc.simple(atol=1e-5, rtol=1.3e-6))
"""

BACKEND = """
import unittest
import onnx.backend.test
import onnxruntime.backend as backend

tests = onnx.backend.test.BackendTest(backend, "tests")
tests.include(r"test_attention_.*_cpu$").exclude("expanded")
globals().update(tests.enable_report().test_cases)
if __name__ == "__main__":
    unittest.main(exit=False)
"""


@dataclass(frozen=True)
class Measured:
    """One command: its judged pairs, CPU and wall seconds, and the peak memory of its largest process in MiB."""

    name: str
    pairs: int
    cpu: float
    wall: float
    peak: float

    def row(self) -> str:
        """Return a line of the table."""
        rate = self.pairs / self.cpu
        return f"{self.name:40} {self.pairs:6} {self.cpu:8.1f} {self.wall:8.1f} {rate:10.1f} {self.peak:8.0f}"


def common() -> list[Case]:
    """Return the cases that every tool can take."""
    return [case for case in load_cases((), (), None) if _is_common(case)][:CASES]


def _is_common(case: Case) -> bool:
    plain = case.operator == "sdpa" and case.dtype == "float32" and case.outputs == ("output",) and len(case.masks) <= 1
    if not plain or case.mistake or case.native or case.scale is not None or case.published or case.calls > 1:
        return False
    boolean = all(
        isinstance(each, CausalMask) or (isinstance(each, ArrayMask) and _is_boolean(each)) for each in case.masks
    )
    problem = materialise(case)
    finite = all(bool(np.isfinite(array).all()) for array in (problem.query, problem.key, problem.value))
    ordinary = not case.requirements() or case.requirements() == ("value_dim",)
    return boolean and finite and ordinary and bool(problem.attended().any(axis=-1).all())


def _is_boolean(mask: object) -> bool:
    return (
        isinstance(mask, ArrayMask)
        and mask.kind != "additive"
        and mask.element == "bool"
        and not mask.verbatim
        and not mask.short
    )


def written(folder: Path, cases: Sequence[Case]) -> None:
    """Write the arrays of the cases, and the programs of the other tools."""
    names = []
    for number, case in enumerate(cases):
        problem = materialise(case)
        given = {"query": problem.query, "key": problem.key, "value": problem.value}
        arrays = {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in given.items()}
        if case.masks:
            arrays["mask"] = np.ascontiguousarray(np.broadcast_to(problem.attended(), problem.logits_shape))
        np.savez(folder / f"case{number}.npz", **arrays)  # type: ignore[arg-type]  # no array is named allow_pickle
        names.append(f"case{number}")
    (folder / "cases.json").write_text(json.dumps(names), encoding="utf-8")
    for name, text in (("shared", SHARED), ("test_hand", BY_HAND), ("comparator", POLYGRAPHY), ("backend", BACKEND)):
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


def measured(name: str, pairs: int, command: Sequence[str], folder: Path) -> Measured:
    """Run a command in a folder. Exit code 1 is allowed: it means that some pairs were judged and rejected."""
    script = (
        "import os, resource, subprocess, sys, time; start = time.perf_counter();"
        "done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE);"
        "used = resource.getrusage(resource.RUSAGE_CHILDREN);"
        "print(used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss / 1024, done.returncode);"
        "sys.stderr.buffer.write(done.stderr[-2000:])"
    )
    variables = os.environ | {"OMP_NUM_THREADS": "1", "CONFORMANCE_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", script, *command], cwd=folder, env=variables, capture_output=True, text=True, check=True
    )
    cpu, wall, peak, code = done.stdout.split()
    if int(code) not in (0, 1):
        sys.exit(f"{name} ended with exit code {code}: {done.stderr}")
    return Measured(name, pairs, float(cpu), float(wall), float(peak))


def main() -> None:
    """Print the table."""
    cases = common()
    words = [word for subject in SUBJECTS for word in ("-a", subject)]
    words += [word for case in cases for word in ("-k", case.id)]
    run = [sys.executable, "-m", "conformance", "run", "-q", *words]
    print(f"{len(cases)} common cases")
    print(f"{'tool':40} {'pairs':>6} {'CPU s':>8} {'wall s':>8} {'pairs/CPU s':>10} {'peak MiB':>8}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, cases)
        hand = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_hand.py"]
        pairs = len(cases) * len(SUBJECTS)
        tools = (
            ("pytest by hand", pairs, hand),
            ("Polygraphy", len(cases), [sys.executable, "comparator.py"]),
            ("onnx backend tests (their own cases)", BACKEND_TESTS, [sys.executable, "backend.py"]),
            ("ours, without cache", pairs, [*run, "--no-cache", "--out", "cold"]),
            ("ours, filling the cache", pairs, [*run, "--out", "first"]),
            ("ours, all in the cache", pairs, [*run, "--out", "again"]),
        )
        for tool, judged, command in tools:
            print(measured(tool, judged, command, folder).row(), flush=True)


if __name__ == "__main__":
    main()
