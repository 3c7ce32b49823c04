"""
Build run folders by hand, with the files that the engine would write.

`RunBuilder` writes any log; `large` writes a run of the size that reports must support.
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
    """Replace non-finite numbers by the strings that a run log uses for them."""
    if isinstance(value, dict):
        return {str(key): strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return {"inf": "inf", "-inf": "-inf"}.get(str(value), "nan")
    return value


class RunBuilder:
    """The contents of a run folder; `write` writes them to disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.header: dict[str, Any] = {
            "type": "header",
            "schema": 2,
            "run": "20261120T141500-1a2b",
            "started": "2026-11-20T14:15:00Z",
            "command": ["conformance", "run"],
            "versions": {"conformance": "0.1.0", "python": "3.11.7", "numpy": "2.4.6"},
            "platform": {"system": "Linux", "machine": "x86_64", "cpus": 2, "cpu_features": ["avx2", "fma"]},
            "device": "cpu",
            "cases": {},
            "subjects": {},
            "not_offered": [],
        }
        self.records: list[dict[str, Any]] = []
        self.rejected: list[list[str]] = []
        self.gate: dict[str, Any] = {}
        self.footed = True

    def case(self, name: str, operator: str = "mha", dtype: str = "float32", **more: Any) -> str:
        """Add a case to the header; return its name."""
        suite = name.split("[", 1)[0].rpartition("/")[0]
        entry = {
            "suite": suite,
            "operator": operator,
            "dtype": dtype,
            "tags": ["smoke"],
            "yaml": YAML,
            "summary": "A padded key receives no attention.",
            "source": f"cases/{suite}.yaml:6",
            "digest": "sha256:0",
        }
        self.header["cases"][name] = entry | more
        return name

    def subject(self, name: str, *operators: str, framework: str = "torch", **more: Any) -> str:
        """Add a subject to the header; return its name."""
        adapter, _, variant = name.partition("[")
        entry = {
            "adapter": adapter,
            "variant": variant.rstrip("]"),
            "device": "cpu",
            "environment": "default",
            "operators": list(operators or ("mha",)),
            "framework": framework,
            "counted": True,
            "offered": True,
            "digest": "sha256:1",
        }
        self.header["subjects"][name] = entry | more
        return name

    def worker(self, name: str, subjects: list[str], **more: Any) -> None:
        """Add the record of a started worker."""
        entry = {
            "type": "worker",
            "schema": 2,
            "worker": name,
            "subjects": subjects,
            "status": "ready",
            "environment": "default",
            "device": "cpu",
            "python": "3.11.7",
            "versions": {"torch": "2.13.0"},
            "evidence": {"threads": 1},
            "start_seconds": 1.4,
            "stderr": "",
        }
        self.records.append(entry | more)

    def cell(self, case: str, subject: str, verdict: str = "pass", *, rejected: bool = False, **more: Any) -> None:
        """Add a verdict; `class_` becomes the key `class`."""
        entry: dict[str, Any] = {
            "type": "cell",
            "schema": 2,
            "case": case,
            "subject": subject,
            "verdict": verdict,
            "declared": {"dialect": [], "profile": {"store": "float32", "acc": "float32"}, "evidence": "documentation"},
            "route": [
                {
                    "slot": "attn_mask",
                    "kinds": ["key_padding", "causal"],
                    "element": "bool",
                    "axes": ["b", "1", "q", "k"],
                    "verbatim": False,
                }
            ],
            "evidence": {"kernel": "math"},
            "seconds": {"call": 0.001, "judge": 0.0005},
            "repeats": {"found": "same", "again": 3, "alone": 1},
            "digests": {"problem": "sha256:0", "call": "sha256:2", "adapter": "sha256:1", "judge": "sha256:3"},
            "rerun": f"conformance run -a {shlex.quote(subject)} -k {shlex.quote(case)}",
        }
        if "class_" in more:
            more["class"] = more.pop("class_")
        self.records.append(entry | more)
        if rejected:
            self.rejected.append([case, subject])

    def diagnosis(
        self,
        subject: str,
        *causes: dict[str, Any],
        unexplained: tuple[str, ...] = (),
        separated: tuple[dict[str, Any], ...] = (),
        where: str = "",
    ) -> None:
        """Add the record that says why a subject fails. where: the condition of the unexplained calls."""
        why: dict[str, Any] = {"causes": causes, "unexplained": unexplained} | (
            {"separated": separated} if separated else {}
        )
        why |= {"unexplained_where": where} if where else {}
        self.records.append({"type": "diagnosis", "schema": 2, "subject": subject, **why})

    def tensors(self, name: str, **arrays: tuple[Array, Array, Array]) -> str:
        """Write a tensors file (output name -> expected, actual, tolerance); return its path in the run folder."""
        path = self.folder / "tensors" / f"{name}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = ("expected", "actual", "tolerance")
        named = {
            f"{output}.{part}": array
            for output, trio in arrays.items()
            for part, array in zip(parts, trio, strict=True)
        }
        np.savez_compressed(path, **named)  # type: ignore[arg-type]  # keywords are arrays here
        return f"tensors/{name}.npz"

    def footer(self) -> dict[str, Any]:
        """Return the footer that matches the records added so far."""
        counts = Counter(record["verdict"] for record in self.records if record["type"] == "cell")
        gate = {
            "conforms": not self.rejected,
            "rejected": self.rejected,
            "incomplete": [],
            "problems": [],
            "known": {"live": 0, "dead": [], "too_wide": [], "not_reached": []},
        }
        gate |= self.gate
        return {
            "type": "footer",
            "schema": 2,
            "finished": "2026-11-20T14:18:00Z",
            "complete": not gate["incomplete"],
            "exit_code": 0 if gate["conforms"] else 1,
            "counts": dict(counts),
            "timing": {"wall": 170.0, "cpu": 50.0},
            "gate": gate,
        }

    def write(self) -> Path:
        """Write run.jsonl; return the folder."""
        cases = [{"type": "case", "schema": 2, "case": name, **about} for name, about in self.header["cases"].items()]
        header = {key: value for key, value in self.header.items() if key != "cases"} | {"case_records": len(cases)}
        lines = [header, *cases, *self.records, *([self.footer()] if self.footed else [])]
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(strict(line), allow_nan=False) + "\n" for line in lines)
        (self.folder / "run.jsonl").write_text(text, encoding="utf-8")
        return self.folder

    @staticmethod
    def trio(rng: np.random.Generator, *shape: int) -> tuple[Array, Array, Array]:
        """Return expected, actual and tolerance, with actual within the tolerance."""
        want = rng.normal(size=shape)
        return want, (want + 2e-7 * rng.normal(size=shape)).astype(np.float32).astype(np.float64), np.full(shape, 1e-6)


def large(folder: Path, cases: int = 300, subjects: int = 30, failing: int = 200) -> Path:
    """Write a run of the size that reports must support; failing cells have arrays, two of them of 512 x 512."""
    builder, rng = RunBuilder(folder), np.random.default_rng(1)
    names = [
        builder.case(f"theme{number % 10}/suite{number % 30}/case{number}[dtype=float32]") for number in range(cases)
    ]
    judged = [
        builder.subject(f"framework{number % 6}.layer.attention[variant{number}]", framework=f"framework{number % 6}")
        for number in range(subjects)
    ]
    chosen = set(rng.choice(cases * subjects, failing, replace=False).tolist())
    for number, (case, subject) in enumerate((case, subject) for case in names for subject in judged):
        if number not in chosen:
            builder.cell(case, subject, budget=round(float(rng.uniform(0.1, 0.8)), 3))
            continue
        shape = (1, 1, 512, 512) if number in sorted(chosen)[:2] else (2, 2, 16, 24)
        want, got, tolerance = builder.trio(rng, *shape)
        file = builder.tensors(
            f"{number:05}", output=(want, (got * 1.001).astype(np.float32).astype(np.float64), tolerance)
        )
        builder.cell(
            case,
            subject,
            "fail",
            class_="precision",
            rejected=True,
            budget=12.5,
            reason="output beyond the bound",
            tensors=file,
        )
    return builder.write()
