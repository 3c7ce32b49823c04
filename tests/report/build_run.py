"""
Run folders made by hand: what an engine would write, without an engine.

`RunBuilder` writes any log; `demonstration` is a small run in which everything that a report can show occurs once;
`large` is one at the size that a report must bear.
"""

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

YAML = """name: trailing
matrix:
  dtype: [float32, bfloat16]
masks: [{kind: key_padding, lengths: [7, 4, 1]}]
"""


def strict(value: Any) -> Any:
    """Non-finite numbers as the strings that a run log has for them."""
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return {"inf": "inf", "-inf": "-inf"}.get(str(value), "nan")
    return value


class RunBuilder:
    """A run folder while it is written; `write` puts it on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header: dict[str, Any] = {
            "type": "header", "schema": 1, "run": "20261120T141500-1a2b", "started": "2026-11-20T14:15:00Z",
            "command": ["conformance", "run"],
            "versions": {"conformance": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
            "platform": {"system": "Linux", "machine": "x86_64", "cpus": 2, "cpu_features": ["avx2", "fma"]},
            "device": "cpu", "cases": {}, "subjects": {}, "not_offered": [],
        }  # fmt: skip
        self.records: list[dict[str, Any]] = []
        self.rejected: list[list[str]] = []
        self.gate: dict[str, Any] = {}
        self.footed = True

    def case(self, name: str, operator: str = "mha", dtype: str = "float32", **more: Any) -> str:
        """Name a case in the header."""
        suite = name.split("[", 1)[0].rpartition("/")[0]
        entry = {
            "suite": suite, "operator": operator, "dtype": dtype, "tags": ["smoke"], "yaml": YAML,
            "summary": "A padded key receives no attention.", "source": f"cases/{suite}.yaml:6", "digest": "sha256:0",
        }  # fmt: skip
        self.header["cases"][name] = entry | more
        return name

    def subject(self, name: str, *operators: str, framework: str = "torch", **more: Any) -> str:
        """Name a subject in the header."""
        adapter, _, variant = name.partition("[")
        entry = {
            "adapter": adapter, "variant": variant.rstrip("]"), "device": "cpu", "environment": "default",
            "operators": list(operators or ("mha",)), "framework": framework, "counted": True, "offered": True,
            "digest": "sha256:1",
        }  # fmt: skip
        self.header["subjects"][name] = entry | more
        return name

    def worker(self, name: str, subjects: list[str], **more: Any) -> None:
        """Add the record of a started worker."""
        entry = {
            "type": "worker", "schema": 1, "worker": name, "subjects": subjects, "status": "ready",
            "environment": "default", "device": "cpu", "python": "3.11.7", "versions": {"torch": "2.13.0"},
            "evidence": {"threads": 1}, "start_seconds": 1.4, "stderr": "",
        }  # fmt: skip
        self.records.append(entry | more)

    def cell(self, case: str, subject: str, verdict: str = "pass", *, rejected: bool = False, **more: Any) -> None:
        """Add a verdict; `class_` becomes the key `class`."""
        entry: dict[str, Any] = {
            "type": "cell", "schema": 1, "case": case, "subject": subject, "verdict": verdict,
            "declared": {"dialect": [], "profile": {"store": "float32", "acc": "float32"}, "evidence": "documentation"},
            "route": [{"slot": "attn_mask", "kinds": ["key_padding", "causal"], "element": "bool",
                       "axes": ["b", "1", "q", "k"], "verbatim": False}],
            "evidence": {"kernel": "math"}, "seconds": {"call": 0.001, "judge": 0.0005}, "repeats": ["same", "same"],
            "digests": {"problem": "sha256:0", "call": "sha256:2", "adapter": "sha256:1", "judge": "sha256:3"},
            "rerun": f"conformance run -a {shlex.quote(subject)} -k {shlex.quote(case)}",
        }  # fmt: skip
        if "class_" in more:
            more["class"] = more.pop("class_")
        self.records.append(entry | more)
        if rejected:
            self.rejected.append([case, subject])

    def tensors(self, name: str, **arrays: tuple[Array, Array, Array]) -> str:
        """Write a tensors file: output name -> expected, actual, tolerance; returns its path in the folder."""
        path = self.folder / "tensors" / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = ("expected", "actual", "tolerance")
        named = {f"{output}.{part}": array for output, trio in arrays.items() for part, array in zip(parts, trio, strict=True)}
        np.savez_compressed(path, **named)  # type: ignore[arg-type]  # keywords are arrays here
        return f"tensors/{name}.npz"

    def footer(self) -> dict[str, Any]:
        """The footer that fits what was added."""
        counts = Counter(record["verdict"] for record in self.records if record["type"] == "cell")
        gate = {
            "conforms": not self.rejected, "rejected": self.rejected, "incomplete": [], "problems": [],
            "known": {"live": 0, "dead": [], "too_wide": [], "not_reached": []},
        }  # fmt: skip
        gate |= self.gate
        return {
            "type": "footer", "schema": 1, "finished": "2026-11-20T14:18:00Z", "complete": not gate["incomplete"],
            "exit_code": 0 if gate["conforms"] else 1, "counts": dict(counts),
            "timing": {"wall": 170.0, "cpu": 50.0}, "gate": gate,
        }  # fmt: skip

    def write(self) -> Path:
        """Write run.jsonl; returns the folder."""
        lines = [self.header, *self.records, *([self.footer()] if self.footed else [])]
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(strict(line), allow_nan=False) + "\n" for line in lines)
        (self.folder / "run.jsonl").write_text(text, encoding="utf-8")
        return self.folder


FRAMEWORKS = {
    "numpy.sdpa[float32]": ("numpy", "sdpa"), "numpy.mha[float32]": ("numpy", "mha"),
    "torch.sdpa[math]": ("torch", "sdpa"), "torch.sdpa[flash]": ("torch", "sdpa"),
    "torch.sdpa[math,dense]": ("torch", "sdpa"), "torch.mha": ("torch", "mha"),
    "keras.mha[tensorflow]": ("keras", "mha"), "keras.mha[jax]": ("keras", "mha"), "keras.mha[torch]": ("keras", "mha"),
    "keras.ops.dot_product_attention[jax]": ("keras", "sdpa"), "jax.nn.dot_product_attention": ("jax", "sdpa"),
    "onnx.torch_mha": ("onnx", "mha"), "onnx.torch_sdpa": ("onnx", "sdpa"),
}  # fmt: skip
THEMES = {
    "shapes/cross": ("longer_keys", "one_query"), "masks/key_padding": ("trailing", "leading", "holes"),
    "masks/attention": ("bool_4d", "float_3d"), "causal/offset": ("start", "past"),
    "degenerate/dead_rows": ("one_row", "all_rows"), "numerics/large": ("equal_logits", "wide_range"),
    "verbatim/polarity": ("true_means_ignore",),
}  # fmt: skip


def trio(rng: np.random.Generator, *shape: int) -> tuple[Array, Array, Array]:
    """Expected, actual and tolerance that agree."""
    want = rng.normal(size=shape)
    return want, (want + 2e-7 * rng.normal(size=shape)).astype(np.float32).astype(np.float64), np.full(shape, 1e-6)


def demonstration(folder: Path) -> Path:
    """A run that does not conform, in which every verdict and most kinds of evidence occur."""
    builder, rng = RunBuilder(folder), np.random.default_rng(7)
    _name_all(builder)
    special = _special(builder, rng)
    for name, entry in builder.header["subjects"].items():
        for case, about in builder.header["cases"].items():
            if about["operator"] not in entry["operators"] or (not entry["counted"] and "masks" not in case):
                continue
            verdict = special.get((case, name))
            if verdict is None:
                budget = round(float(rng.uniform(0.08, 0.8)), 3)
                verdict = {"budget": budget, "outputs": [{"output": "output", "verdict": "pass", "budget": budget, "max_error": 2e-7, "bound": 1e-6, "at": [0, 1, 2], "coverage": 1.0, "beyond": 0, "elements": 120}]}
            builder.cell(case, name, **verdict)
    builder.gate = {
        "known": {"live": 2, "dead": ["known.yaml:31 jax.nn.dot_product_attention"], "too_wide": [], "not_reached": []},
        "incomplete": ["onnx.torch_sdpa: 1 verdict missing"],
        "problems": [f"{len(builder.rejected)} verdicts the gate does not accept"],
    }
    return builder.write()


def _name_all(builder: RunBuilder) -> None:
    for suite, names in THEMES.items():
        for name in names:
            for operator in ("mha", "sdpa"):
                for dtype in ("float32", "bfloat16"):
                    builder.case(f"{suite}/{operator}_{name}[dtype={dtype}]", operator, dtype)
    for name, (framework, operator) in FRAMEWORKS.items():
        builder.subject(name, operator, framework=framework, counted="dense" not in name)
    for framework in dict.fromkeys(framework for framework, _ in FRAMEWORKS.values()):
        own = [name for name, (other, _) in FRAMEWORKS.items() if other == framework]
        builder.worker(f"{framework}", own, versions={framework: "2.13.0", "numpy": "2.4.6"})
    builder.worker("keras.mha", [], status="failed", reason="the interpreter ended with code 1 before the handshake", stderr="Traceback (most recent call last):\nModuleNotFoundError: No module named 'keras'\n")
    builder.header["not_offered"] = [{"adapter": "tensorflow.mha", "missing": ["tensorflow"], "extra": "tensorflow"}]


def _special(builder: RunBuilder, rng: np.random.Generator) -> dict[tuple[str, str], dict[str, Any]]:
    """The cells that do not pass, by case and subject."""
    special: dict[tuple[str, str], dict[str, Any]] = {}
    cases = builder.header["cases"]
    for number, case in enumerate(name for name, one in cases.items() if name.startswith("masks/") and one["operator"] == "sdpa"):
        special[case, "torch.sdpa[math]"] = _inverted(builder, rng, f"inverted{number}")
    for case in (name for name, one in cases.items() if "dead_rows" in name and one["operator"] == "mha"):
        for subject in ("keras.mha[jax]", "keras.mha[torch]", "keras.mha[tensorflow]"):
            name = "uniform" if "torch" in subject else "unmasked_softmax"
            special[case, subject] = {"verdict": "dialect", "budget": 0.31, "declared": {"dialect": [{"decision": "fully_masked_row", "name": name, "source": "https://keras.io/api/layers/attention_layers/multi_head_attention/"}], "profile": {"store": "float32"}, "evidence": "documentation"}, "differs_from_canonical": True}
        special[case, "torch.mha"] = _nan_rows(builder, rng, case.replace("/", "_"))
    for case in (name for name in cases if "causal" in name):
        special[case, "onnx.torch_sdpa"] = {"verdict": "error", "rejected": True, "reason": "the framework raised RuntimeError", "error": {"type": "RuntimeError", "message": "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Attention node", "traceback": 'Traceback (most recent call last):\n  File "onnx_torch_sdpa.py", line 41, in sdpa\n    return session.run(None, feeds)\nRuntimeError: Non-zero status code'}}
    for case in (name for name in cases if "bfloat16" in name):
        special.setdefault((case, "onnx.torch_mha"), {"verdict": "unsupported", "reason": "bfloat16 is not in DTYPES of this adapter"})
    special["numerics/large/sdpa_wide_range[dtype=float32]", "jax.nn.dot_product_attention"] = _imprecise(builder, rng)
    special["numerics/large/sdpa_equal_logits[dtype=float32]", "jax.nn.dot_product_attention"] = _wrong_shape(builder, rng)
    special["numerics/large/sdpa_equal_logits[dtype=bfloat16]", "torch.sdpa[flash]"] = {"verdict": "inconclusive", "uncalibrated": True, "reason": "precision outside the calibrated table", "budget": 1.4}
    special["shapes/cross/sdpa_one_query[dtype=float32]", "torch.sdpa[flash]"] = {"verdict": "crash", "rejected": True, "reason": "the worker died with SIGSEGV"}
    special["shapes/cross/sdpa_one_query[dtype=float32]", "jax.nn.dot_product_attention"] = {"verdict": "timeout", "rejected": True, "reason": "no reply within 60 s"}
    return special


def _inverted(builder: RunBuilder, rng: np.random.Generator, name: str) -> dict[str, Any]:
    want, got, tolerance = trio(rng, 3, 2, 5, 8)
    got[:, :, 1:3] += rng.normal(scale=0.4, size=got[:, :, 1:3].shape)
    weights = np.exp(rng.normal(size=(3, 2, 5, 7)))
    weights /= weights.sum(-1, keepdims=True)
    moved = weights[..., ::-1].copy()
    file = builder.tensors(name, output=(want, got, tolerance), weights=(weights, moved, np.full(weights.shape, 1e-7)))
    at = [int(item) for item in np.unravel_index(int(np.abs(got - want).argmax()), got.shape)]
    return {
        "verdict": "fail", "class_": "semantic", "rejected": True, "budget": 1.1e6, "tensors": file,
        "reason": "output: 96 of 240 elements beyond the bound; weights: 168 of 210 elements beyond the bound",
        "outputs": [
            {"output": "output", "verdict": "fail", "class": "semantic", "max_error": 1.1, "bound": 1e-6, "at": at, "expected": float(want[tuple(at)]), "actual": float(got[tuple(at)]), "budget": 1.1e6, "rms": 3e5, "coverage": 1.0, "not_judged": 0, "unspecified": 0, "beyond": 96, "elements": 240, "beyond_worst": True, "message": "96 of 240 elements beyond the bound"},
            {"output": "weights", "verdict": "fail", "class": "semantic", "max_error": 0.4, "bound": 1e-7, "at": [0, 1, 2, 3], "expected": 0.25, "actual": 0.75, "budget": 4e6, "beyond": 168, "elements": 210},
        ],
        "explanation": {"decision": "polarity[attn_mask]", "name": "ignore", "sentence": "reads True in attn_mask as ignore", "remedy": "pass ~attn_mask", "budget": 0.4},
        "ties": ["use[attn_mask]=ignored"],
    }  # fmt: skip


def _nan_rows(builder: RunBuilder, rng: np.random.Generator, name: str) -> dict[str, Any]:
    want, got, tolerance = trio(rng, 3, 5, 16)
    want[1, 2], got[1, 2] = 0.0, np.nan
    got[2, 0, 3], got[2, 0, 4], want[2, 0, 5], got[2, 0, 5] = np.inf, -np.inf, np.inf, np.inf
    tolerance[0, 0] = np.inf
    return {
        "verdict": "fail", "class_": "impossible", "budget": float("inf"), "tensors": builder.tensors(name, output=(want, got, tolerance)),
        "reason": "output: 18 elements are not finite where a number is expected",
        "outputs": [{"output": "output", "verdict": "fail", "class": "impossible", "max_error": float("nan"), "at": [1, 2, 0], "expected": 0.0, "actual": float("nan"), "budget": float("inf"), "beyond": 18, "elements": 240, "message": "non-finite pattern differs"}],
        "known": {"reason": "A fully masked row is NaN in the fast path of torch.nn.MultiheadAttention", "link": "https://github.com/pytorch/pytorch/issues/103749", "entry": "known.yaml:12"},
    }  # fmt: skip


def _imprecise(builder: RunBuilder, rng: np.random.Generator) -> dict[str, Any]:
    want, got, tolerance = trio(rng, 1, 2, 64, 96)
    got += 1.2e-6 * rng.normal(size=got.shape)
    return {"verdict": "fail", "class_": "precision", "rejected": True, "budget": 4.21, "tensors": builder.tensors("imprecise", output=(want, got, tolerance)), "reason": "output: 3 of 12288 elements beyond the bound", "outputs": [{"output": "output", "verdict": "fail", "class": "precision", "budget": 4.21, "at": [0, 1, 2, 3]}]}


def _wrong_shape(builder: RunBuilder, rng: np.random.Generator) -> dict[str, Any]:
    want, _, tolerance = trio(rng, 3, 2, 5, 8)
    got = want.transpose(0, 2, 1, 3)
    return {"verdict": "fail", "class_": "impossible", "rejected": True, "tensors": builder.tensors("shape", output=(want, got, tolerance)), "reason": "output: shape (3, 5, 2, 8), expected (3, 2, 5, 8)", "outputs": [{"output": "output", "verdict": "fail", "class": "impossible", "message": "shape (3, 5, 2, 8), expected (3, 2, 5, 8)"}]}


def large(folder: Path, cases: int = 300, subjects: int = 30, failing: int = 200) -> Path:
    """A run at the size that a report must bear; the failing cells have arrays, two of them 512 by 512."""
    builder, rng = RunBuilder(folder), np.random.default_rng(1)
    names = [builder.case(f"theme{number % 10}/suite{number % 30}/case{number}[dtype=float32]") for number in range(cases)]
    judged = [builder.subject(f"framework{number % 6}.layer.attention[variant{number}]", framework=f"framework{number % 6}") for number in range(subjects)]
    chosen = set(rng.choice(cases * subjects, failing, replace=False).tolist())
    for number, (case, subject) in enumerate((case, subject) for case in names for subject in judged):
        if number not in chosen:
            builder.cell(case, subject, budget=round(float(rng.uniform(0.1, 0.8)), 3))
            continue
        shape = (1, 1, 512, 512) if number in sorted(chosen)[:2] else (2, 2, 16, 24)
        want, got, tolerance = trio(rng, *shape)
        file = builder.tensors(f"{number:05}", output=(want, got * 1.001, tolerance))
        builder.cell(case, subject, "fail", class_="precision", rejected=True, budget=12.5, reason="output beyond the bound", tensors=file)
    return builder.write()
