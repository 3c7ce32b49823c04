"""
All records of one worker, known from an earlier run in which nothing was different: not even the calls are looked at.

What the records depend on beside the calls is told by `about`: cases, subjects, known deviations, and all of our code.
A worker is not remembered where a cell crashed, timed out or changed when it was repeated: such a cell is asked again.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from conformance.bridge.values import plain
from conformance.engine.plan import WorkerPlan
from conformance.engine.reply_cache import ReplyCache
from conformance.engine.result_cache import ResultCache
from conformance.judge.repetition import CLASSES

Record = dict[str, Any]

LOST = ("crash", "timeout")
"""Verdicts that may be others the next time."""


@dataclass(frozen=True)
class WorkerResult:
    """
    What a run said of the subjects of one worker.

    cells, diagnoses: their records. tensors: the bytes of the archives that cells name.
    """

    cells: tuple[Record, ...]
    diagnoses: tuple[Record, ...]
    tensors: Mapping[str, bytes]


class WorkerResults:
    """What earlier runs know of whole workers; without a cache nothing is."""

    def __init__(self, cache: ResultCache | None = None, replies: ReplyCache | None = None, about: Any = None) -> None:
        """
        Begin a run.

        replies: tells what the replies of a worker depend on. about: JSON values, everything that records depend on
        beside the replies.
        """
        self._cache = cache
        self._replies = replies
        self._about = hashlib.sha256(json.dumps([_code(), plain(about)], sort_keys=True).encode()).hexdigest()

    def recall(self, plan: WorkerPlan) -> WorkerResult | None:
        """The records of a worker, or None where one of its calls may be another one now."""
        if self._cache is None or not (key := self._key(plan)) or (stored := self._cache.get(key)) is None:
            return None
        known = json.loads(stored)
        tensors = {name: self._cache.get(_part(key, name)) for name in known["tensors"]}
        whole = {name: value for name, value in tensors.items() if value is not None}
        if len(whole) < len(tensors):  # removed to keep the cache small
            return None
        return WorkerResult(tuple(known["cells"]), tuple(known["diagnoses"]), whole)

    def keep(self, plan: WorkerPlan, cells: Sequence[Record], diagnoses: Iterable[Record], folder: Path) -> None:
        """Remember the records of a worker that answered every call; folder: of the run, with the tensors."""
        if self._cache is None or not (key := self._key(plan)) or not cells or any(map(_may_change, cells)):
            return
        names = [record["tensors"] for record in cells if "tensors" in record]
        for name in names:
            self._cache.put(_part(key, name), (folder / name).read_bytes())
        known = {"cells": list(cells), "diagnoses": list(diagnoses), "tensors": names}
        self._cache.put(key, json.dumps(plain(known)).encode())

    def _key(self, plan: WorkerPlan) -> str:
        worker = self._replies.worker(plan) if self._replies is not None and plan.parts == 1 else ""
        return _part(worker, json.dumps([self._about, plan.subjects])) if worker else ""


def _may_change(record: Record) -> bool:
    return record["verdict"] in LOST or record.get("class") in CLASSES


def _part(key: str, name: str) -> str:
    return hashlib.sha256(f"{key} {name}".encode()).hexdigest()


@cache
def _code() -> str:
    """sha256 of all of our code: any of it may change what a record says."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
