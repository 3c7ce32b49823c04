"""Replies of earlier runs, for one call or for a whole worker: calls that did not change are not made again."""

import hashlib
import json
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

from conformance import bridge
from conformance.bridge.loading import digest
from conformance.bridge.messages import ANSWERS, Answer, Request, answer_message, read_answer, request_message
from conformance.bridge.strict_json import plain_data
from conformance.bridge.wire import PREFIX, WireError, decode, encode, lengths, message_digest
from conformance.engine.environments import fingerprint_of
from conformance.engine.job import Job, Outcome, Started
from conformance.engine.logged_cell import JudgedCell, LoggedCell
from conformance.engine.result_cache import ResultCache
from conformance.engine.runlog import Record
from conformance.engine.worker_plan import WorkerPlan, cpu, settings
from conformance.verdicts.compare import NON_REPRODUCIBLE

# Version of the entry format. It is part of every key.
FORMAT = 1

# Exceptions that may not occur the next time.
PASSING = ("MemoryError", "SystemError", "OSError", "BlockingIOError", "TimeoutError", "ConnectionError")


class ReplyCache:
    """
    Replies of earlier runs to the calls of one run. Without a cache there are none.

    cache: where replies are kept. known: number of calls answered from the cache. made: number of calls that a worker
    made.
    """

    def __init__(self, cache: ResultCache | None = None, adapters: Path | None = None) -> None:
        """
        Begin a run.

        adapters: only replies of adapters in this folder are kept. What other adapters import is not known.
        """
        self.cache = cache
        self._adapters = adapters
        self._workers: dict[str, str] = {}
        self._asked: Counter[str] = Counter()
        self._keys: dict[int, str] = {}
        self.known = 0
        self.made = 0

    def recalled(self, plan: WorkerPlan) -> Started | None:
        """The greeting of a worker from an earlier run, or None if the worker must be started."""
        stored = self._get(_key("hello", self.worker(plan)))
        if stored is None:
            return None
        return Started(plan, "ready", json.loads(stored), cached=True)

    def knows(self, plan: WorkerPlan) -> bool:
        """Whether an earlier run kept the greeting of this worker."""
        return self.recalled(plan) is not None

    def greet(self, started: Started) -> None:
        """Keep the greeting of a worker."""
        if started.status == "ready" and not started.cached:
            self._put(_key("hello", self.worker(started.plan)), json.dumps(plain_data(dict(started.hello))).encode())

    def recall(self, plan: WorkerPlan, job: Job) -> Outcome | None:
        """The outcome of the same call in an earlier run, or None if the call must be made."""
        if not (worker := self.worker(plan)):
            return None
        request = message_digest(request_message(Request(0, job.call, job.requirements, job.limit)))
        about = f"{worker} {request} {'alone' if job.fresh else ''}"
        self._asked[about] += 1
        self._keys[job.number] = key = _key("reply", f"{about} {self._asked[about]}") or ""
        outcome = _read(self._get(key))
        self.known += outcome is not None
        return outcome

    def keep(self, job: Job, outcome: Outcome) -> None:
        """Keep the outcome of a call."""
        self.made += outcome.status != "not_run"
        key = self._keys.pop(job.number, "")
        if key and outcome.status in ANSWERS and (outcome.error or {}).get("type") not in PASSING:
            self._put(key, _written(outcome))

    def _get(self, key: str | None) -> bytes | None:
        return self.cache.get(key) if self.cache is not None and key else None

    def _put(self, key: str | None, value: bytes) -> None:
        if self.cache is not None and key:
            self.cache.put(key, value)

    def worker(self, plan: WorkerPlan) -> str:
        """A digest of everything that the replies of a worker depend on; "" if it cannot be determined."""
        if plan.name not in self._workers:
            self._workers[plan.name] = self._digest(plan)
        return self._workers[plan.name]

    def _digest(self, plan: WorkerPlan) -> str:
        if self.cache is None or plan.device != "cpu" or plan.adapter.parent != self._adapters:
            return ""
        if not (installed := fingerprint_of(plan.python, plan.distributions)):
            return ""
        about = [digest(plan.adapter), installed, _interpreter(plan.python), settings(plan), dict(plan.env)]
        return _key("worker", about)


def _interpreter(python: str) -> list[Any]:
    """
    The interpreter file, with its size and modification time. Links of virtual environments are followed.

    A wrapper script that starts another interpreter counts as a file of its own.
    """
    file = Path(python).resolve()
    status = file.stat()
    return [str(file), status.st_size, status.st_mtime_ns]


def _key(kind: str, about: Any) -> str:
    """A key in the cache; "" if `about` is empty."""
    if not about:
        return ""
    return hashlib.sha256(json.dumps([FORMAT, kind, about, _here()], sort_keys=True).encode()).hexdigest()


@cache
def _here() -> Mapping[str, Any]:
    """The machine, and a digest of the bridge, which is copied to every worker."""
    code = hashlib.sha256()
    for path in sorted(Path(bridge.__file__).parent.glob("*.py")):
        code.update(path.name.encode() + b"\0" + path.read_bytes())
    return {
        "bridge": code.hexdigest(),
        "system": platform.system(),
        "machine": platform.machine(),
        "libc": platform.libc_ver(),
        "cpu": cpu(),
    }


def _written(outcome: Outcome) -> bytes:
    reason = "" if outcome.error else outcome.reason
    answer = Answer(
        0,
        outcome.status,
        outcome.declaration,
        outcome.outputs,
        reason,
        outcome.error,
        outcome.evidence,
        outcome.seconds,
    )
    return b"".join(encode(answer_message(answer)))


def _read(stored: bytes | None) -> Outcome | None:
    """The outcome in a stored frame, or None if it is not a valid frame."""
    if stored is None:
        return None
    try:
        header, _ = lengths(stored[: PREFIX.size])
        end = PREFIX.size + header
        answer = read_answer(decode(stored[PREFIX.size : end], memoryview(stored)[end:]))
    except WireError:
        return None
    return replace(Outcome.of(answer), cached=True)


# Number of records that are kept as one entry.
BATCH = 64

# Verdicts that may differ the next time.
LOST = ("crash", "timeout")


@dataclass(frozen=True)
class WorkerResult:
    """
    The records of the subjects of one worker.

    batches: its cells, some log records as JSON at a time, because a worker may have many. diagnoses: log records.
    tensors: the archives that the cells name, as bytes by name.
    """

    batches: tuple[bytes, ...]
    diagnoses: tuple[Record, ...]
    tensors: Mapping[str, bytes]

    @property
    def cells(self) -> Iterator[LoggedCell]:
        """Its cells."""
        return map(LoggedCell.model_validate, chain.from_iterable(map(json.loads, self.batches)))


class WorkerResults:
    """Records of whole workers from earlier runs. Without a cache there are none."""

    def __init__(self, cache: ResultCache | None = None, replies: ReplyCache | None = None, about: Any = None) -> None:
        """
        Begin a run.

        replies: knows what the replies of a worker depend on. about: everything else that records depend on, as JSON
        values.
        """
        self._cache = cache
        self._replies = replies
        self._about = hashlib.sha256(json.dumps([_code(), plain_data(about)], sort_keys=True).encode()).hexdigest()

    def recall(self, plan: WorkerPlan) -> WorkerResult | None:
        """The records of a worker, or None if any of its calls may have changed."""
        if self._cache is None or not (key := self._key(plan)) or (stored := self._cache.get(key)) is None:
            return None
        known = json.loads(stored)
        names = [*known["tensors"], *map(_batch_name, range(known["batches"]))]
        parts = {name: self._cache.get(_part(key, name)) for name in names}
        whole = {name: value for name, value in parts.items() if value is not None}
        if len(whole) < len(parts):  # removed to keep the cache small
            return None
        batches = tuple(whole.pop(_batch_name(number)) for number in range(known["batches"]))
        return WorkerResult(batches, tuple(known["diagnoses"]), whole)

    def keep(
        self,
        plan: WorkerPlan,
        cells: Sequence[JudgedCell],
        logged: Iterable[LoggedCell],
        diagnoses: Iterable[Record],
        folder: Path,
    ) -> None:
        """
        Keep the records of a worker that answered every call.

        cells: all of the worker. logged: the same as they are in the log; they are only taken if they are kept.
        folder: the run folder, which holds the tensors.
        """
        if self._cache is None or not (key := self._key(plan)) or not cells or any(map(_may_change, cells)):
            return
        names = [cell.tensors for cell in cells if cell.tensors]
        for name in names:
            self._cache.put(_part(key, name), (folder / name).read_bytes())
        batches, rest = 0, (cell.record() for cell in logged)
        while batch := list(islice(rest, BATCH)):
            self._cache.put(_part(key, _batch_name(batches)), json.dumps(plain_data(batch)).encode())
            batches += 1
        known = {"batches": batches, "diagnoses": list(diagnoses), "tensors": names}
        self._cache.put(key, json.dumps(plain_data(known)).encode())

    def _key(self, plan: WorkerPlan) -> str:
        worker = self._replies.worker(plan) if self._replies is not None and plan.parts == 1 else ""
        return _part(worker, json.dumps([self._about, plan.subjects])) if worker else ""


def _may_change(cell: JudgedCell) -> bool:
    return cell.verdict in LOST or cell.fail_class in NON_REPRODUCIBLE


def _batch_name(number: int) -> str:
    return f"cells {number}"


def _part(key: str, name: str) -> str:
    return hashlib.sha256(f"{key} {name}".encode()).hexdigest()


@cache
def _code() -> str:
    """SHA-256 of all code and sentences of this package: any of them may change a record."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.toml")]):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
