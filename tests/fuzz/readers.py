"""The readers of user files, and the real files that are mutated for them."""

import contextlib
import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from conformance import places
from conformance.cli import main as conformance
from conformance.cli.offer import declared_environments
from conformance.engine.environments import interpreter
from conformance.gate.known_file import PACKAGED
from conformance.gate.known_file import read_known as read_known_files
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.mistakes import CaseFileErrors
from tests.fuzz.mutating import LOADER, dumped

TESTS = Path(__file__).parents[1]
GOOD, USAGE = 0, 4
# The arrays of a case are made only if they have at most this many elements.
FEW = 1 << 16

PYPROJECTS = (
    b'[project]\nname = "x"\n\n[tool.conformance.environments]\nold = "old/bin/python"\nnew = "~/new"\n',
    b'[tool.conformance]\nenvironments = {a = "x", b-c = "../y"}\n\n[tool.other]\nname = [1, 2]\n',
)

ARRAYS = """\
format: 1
suite: t
summary: One file of arrays.
defaults: {operator: sdpa, batch: 2, num_heads: 2, seq_len_q: 3, seq_len_k: 5, head_dim: 4}
cases:
  - name: one
    inputs: {file: t.npz}
"""

THOROUGH = """\
format: 1
suite: t
summary: Two cases.
defaults: {operator: sdpa, batch: 2, num_heads: 2, seq_len_q: 3, seq_len_k: 5, head_dim: 4}
cases:
  - name: one
  - name: two
    matrix: {dtype: [float32, float64]}
"""


@dataclass
class Shelf:
    """A folder with a run, and the real files of each reader; every use of `scratch` empties it."""

    folder: Path
    corpus: dict[str, list[bytes]] = field(default_factory=dict)
    number: int = 0

    @property
    def run(self) -> Path:
        """A run folder."""
        return self.folder / "run"

    @property
    def short(self) -> Path:
        """A run folder whose log has only a few cells."""
        return self.folder / "short"

    @property
    def scratch(self) -> Path:
        """An empty folder."""
        path = self.folder / "scratch"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir()
        return path

    @classmethod
    def made(cls, folder: Path) -> "Shelf":
        """Judge a few cases and collect the real files, in the same way in every session."""
        shelf = cls(folder)
        fakes = (f"{TESTS / 'fakes' / 'varied.py'}[ignored_padding]", f"{TESTS / 'fakes' / 'broken.py'}[with_a_mask]")
        words = ["run", *(word for subject in (*fakes, "numpy.sdpa") for word in ("-a", subject))]
        words += [
            "-k",
            "masks/key_padding/*",
            "--no-cache",
            "--out",
            str(shelf.run),
            "--baseline",
            str(folder / "base.json"),
        ]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            conformance([*words, "--update-baseline"])
        log = (shelf.run / "run.jsonl").read_bytes()
        shelf.corpus = {
            "cases": [_retold(path) for path in sorted(places.cases().rglob("*.yaml"))],
            "known": [PACKAGED.read_bytes(), *_entries(PACKAGED)],
            "logs": [_short(log, seed) for seed in range(6)],
            "baselines": [_short_baseline((folder / "base.json").read_bytes(), seed) for seed in range(6)],
            "pyproject": list(PYPROJECTS),
            "arrays": [_npz()],
            "thorough": [b"# what takes long\nt/one\nt/two[dtype=float32]\n"],
        }
        shelf.short.mkdir()
        (shelf.short / "run.jsonl").write_bytes(shelf.corpus["logs"][0])
        return shelf


def _retold(path: Path) -> bytes:
    """Return a suite under the name t with at most four entries, so that many inputs can be read."""
    data = yaml.load(path.read_bytes(), Loader=LOADER)  # noqa: S506 - a safe loader
    rng = random.Random(path.name)  # noqa: S311 - no secret
    data["suite"] = "t"
    data["cases"] = rng.sample(data["cases"], min(len(data["cases"]), 4))
    return dumped(data)


def _entries(path: Path) -> list[bytes]:
    """Return lists of three known deviations each."""
    data = yaml.load(path.read_bytes(), Loader=LOADER)  # noqa: S506 - a safe loader
    entries = data["deviations"]
    parts = [entries[start : start + 3] for start in range(0, len(entries), 3)]
    return [dumped({"format": 1, "deviations": part}) for part in parts]


def _short(log: bytes, seed: int) -> bytes:
    """Return a log of eight cells, with only what the header, diagnoses and footer say about them."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    header, *records = map(json.loads, log.splitlines())
    cells = [each for each in records if each["type"] == "cell"]
    kept = {(each["case"], each["subject"]) for each in rng.sample(cells, 8)}
    named = {case for case, _ in kept}
    header["case_records"] = len(named)
    told = []
    for record in records:
        if record["type"] == "cell" and (record["case"], record["subject"]) not in kept:
            continue
        if record["type"] == "case" and record["case"] not in named:
            continue
        if record["type"] == "diagnosis":
            for part in (*record.get("causes", ()), *record.get("errors", ())):
                part["cells"] = [name for name in part["cells"] if (name, record["subject"]) in kept]
            record["unexplained"] = [n for n in record.get("unexplained", ()) if (n, record["subject"]) in kept]
        if record["type"] == "footer":
            record["gate"]["rejected"] = [key for key in record["gate"]["rejected"] if tuple(key) in kept]
        told.append(record)
    return b"".join(json.dumps(record).encode() + b"\n" for record in (header, *told))


def _short_baseline(content: bytes, seed: int) -> bytes:
    """Return a baseline with at most four cells of each subject."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    data = json.loads(content)
    for subject in data["subjects"].values():
        subject["cells"] = dict(rng.sample(sorted(subject["cells"].items()), min(4, len(subject["cells"]))))
    return json.dumps(data, indent=1).encode()


def _npz() -> bytes:
    content = io.BytesIO()
    draw = np.random.default_rng(1).standard_normal
    np.savez(content, query=draw((2, 2, 3, 4)), key=draw((2, 2, 5, 4)), value=draw((2, 2, 5, 4)))
    return content.getvalue()


def _read_suite(root: Path) -> int:
    """Load the case folder, and make the arrays of its first two cases if they are small."""
    try:
        cases = load([root], root)
    except CaseFileErrors:
        return USAGE
    for case in cases[:2]:
        if prod(case.axes.values()) <= FEW and all(prod(each) <= FEW for each in case.input_shapes.values()):
            materialise(case)
    return GOOD


def _root(shelf: Shelf, files: dict[str, bytes]) -> Path:
    root = shelf.folder / "-".join(files) / "cases"
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name).write_bytes(content)
    return root


def read_cases(shelf: Shelf, content: bytes) -> int:
    """Read a suite."""
    return _read_suite(_root(shelf, {"t.yaml": content}))


def read_arrays(shelf: Shelf, content: bytes) -> int:
    """Read an npz file that a suite refers to."""
    return _read_suite(_root(shelf, {"t.yaml": ARRAYS.encode(), "t.npz": content}))


def read_thorough(shelf: Shelf, content: bytes) -> int:
    """Read a list of thorough cases."""
    return _read_suite(_root(shelf, {"t.yaml": THOROUGH.encode(), "thorough.txt": content}))


def read_known(shelf: Shelf, content: bytes) -> int:
    """Read a list of known deviations."""
    file = shelf.folder / "known.yaml"
    file.write_bytes(content)
    try:
        read_known_files([file])
    except CaseFileErrors:
        return USAGE
    return GOOD


def read_log(shelf: Shelf, content: bytes) -> int:
    """Read a run log with one of four commands, in turn."""
    folder = shelf.scratch / "run"
    folder.mkdir()
    (folder / "run.jsonl").write_bytes(content)
    shelf.number += 1
    out = str(folder.parent / "out")
    commands = (
        ["report", str(folder)],
        ["repro", str(folder), "masks/key_padding/*", "*", "--out", out],
        ["known", "update", "--from", str(folder)],
        ["compare", str(shelf.short), str(folder), "--out", out],
    )
    return conformance(commands[shelf.number % len(commands)])


def read_baseline(shelf: Shelf, content: bytes) -> int:
    """Read a baseline as one side of a comparison."""
    folder = shelf.scratch
    (folder / "base.json").write_bytes(content)
    return conformance(["compare", str(folder / "base.json"), str(shelf.short), "--out", str(folder / "out")])


def read_pyproject(shelf: Shelf, content: bytes) -> int:
    """Read the environments of a project, and find their interpreters."""
    folder = shelf.folder / "project"
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_bytes(content)
    try:
        declared = declared_environments(folder)
    except ValueError:
        return USAGE
    for python in declared.environments.values():
        with contextlib.suppress(OSError, ValueError):  # as `examine` does before it starts an interpreter
            interpreter(python)
    return GOOD


@dataclass(frozen=True)
class Reader:
    """
    The reader of one kind of file.

    kind: the format. share: its share of the inputs of a session. words: strings that a made-up file can contain.
    """

    name: str
    kind: str
    share: int
    read: Callable[[Shelf, bytes], int]
    words: tuple[str, ...] = ()

    def written(self, value: Any) -> bytes:
        """Return a made-up mapping in the format, together with the first keys that the format needs."""
        if self.kind == "yaml":
            return dumped({"format": 1, "suite": "t", "summary": "One.", **value})
        if self.kind == "jsonl":
            return json.dumps({"type": "header", "schema": 2, **value}).encode() + b"\n"
        return json.dumps({"type": "baseline", "schema": 2, **value}).encode()


READERS = (
    Reader(
        "cases", "yaml", 42, read_cases, ("cases", "defaults", "name", "operator", "sdpa", "batch", "masks", "inputs")
    ),
    Reader("known", "yaml", 18, read_known, ("deviations", "subject", "when", "delta", "accept", "reason", "link")),
    Reader("logs", "jsonl", 14, read_log, ("run", "started", "case_records", "subjects", "command", "versions")),
    Reader("baselines", "json", 10, read_baseline, ("environments", "cases", "subjects", "cells", "verdict")),
    Reader("pyproject", "toml", 8, read_pyproject),
    Reader("arrays", "raw", 5, read_arrays),
    Reader("thorough", "raw", 3, read_thorough),
)
