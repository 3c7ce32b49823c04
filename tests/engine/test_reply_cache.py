"""A run reuses the replies of earlier runs; a worker whose replies are all known is not started."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance import places
from conformance.engine import reply_cache
from conformance.engine.adapters import read_adapters, subjects_of
from conformance.engine.cells import Cell, make_cell
from conformance.engine.environments import our_own
from conformance.engine.job import Job, Outcome
from conformance.engine.reply_cache import ReplyCache
from conformance.engine.worker_plan import WorkerPlan, plan_workers
from conformance.spec.loader import load
from conformance.spec.materialise import materialise

from ..running import conformance
from ..running import records as log_of

CASES = "masks/attention_2d/*"


def run(*words: str, out: Path, cache: Path, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """Run one NumPy subject; return its records and its stdout."""
    variables = {"CONFORMANCE_CACHE": str(cache)}
    done = conformance("run", "-a", "numpy.sdpa", "-k", CASES, *words, "--out", str(out), env=variables)
    assert done.returncode == code, done.stderr
    return log_of(out), done.stdout


def replies(records: list[dict[str, Any]]) -> tuple[int, int]:
    """Return how many calls were known, and how many were made."""
    return records[-1]["replies"]["known"], records[-1]["replies"]["made"]


def verdicts(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return case -> its cell record, without the fields that differ from run to run."""
    ignored = ("seconds", "cached")
    cells = [record for record in records if record["type"] == "cell"]
    return {cell["case"]: {name: cell[name] for name in cell if name not in ignored} for cell in cells}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def first(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run(out=tmp_path_factory.mktemp("first") / "run", cache=cache)[0]


def test_an_unchanged_rerun_starts_no_worker_and_says_the_same(
    first: list[dict[str, Any]], cache: Path, tmp_path: Path
) -> None:
    again, told = run(out=tmp_path / "run", cache=cache)
    known, made = replies(again)
    assert made == 0
    assert known > 10
    assert f"{known} calls reused from earlier runs, 0 made now" in told
    assert again[-1]["workers"] == []
    assert all(record["cached"] for record in again if record["type"] == "worker")
    assert verdicts(again) == verdicts(first)
    assert replies(first)[0] == 0


def test_more_cases_ask_only_what_is_new(first: list[dict[str, Any]], cache: Path, tmp_path: Path) -> None:
    more, _ = run("-k", "masks/attention_3d/*", out=tmp_path / "run", cache=cache)
    known, made = replies(more)
    assert known > 10
    assert 0 < made < known + made
    assert verdicts(first).items() <= verdicts(more).items()


def test_no_cache_asks_everything_and_keeps_nothing(tmp_path: Path) -> None:
    for name in ("one", "two"):
        records, _ = run("--no-cache", out=tmp_path / name, cache=tmp_path / "cache")
        known, made = replies(records)
        assert known == 0
        assert made > 10
    assert not (tmp_path / "cache").exists()


def test_an_adapter_of_ones_own_is_asked_each_time(tmp_path: Path) -> None:
    adapter = tmp_path / "mine.py"
    text = (places.adapters() / "numpy_sdpa.py").read_text(encoding="utf-8")
    adapter.write_text(text.replace('"numpy.sdpa"', '"mine.sdpa"'), encoding="utf-8")
    for helper in places.adapters().glob("_numpy*.py"):
        shutil.copy(helper, tmp_path)
    for name in ("one", "two"):
        records, _ = run("-a", str(adapter), out=tmp_path / name, cache=tmp_path / "cache")
        mine = [record for record in records if record["type"] == "cell" and record["subject"] == "mine.sdpa"]
        assert mine
        assert not any("cached" in record for record in mine)


def test_other_settings_of_the_environment_are_other_replies(
    first: list[dict[str, Any]], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONFORMANCE_THREADS", "2")
    other, _ = run(out=tmp_path / "run", cache=cache)
    assert replies(other)[0] == 0
    assert replies(other)[1] == replies(first)[1]


class Kept:
    """A cache that keeps its entries in a dict."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.values[key] = value


def numpy_job() -> tuple[WorkerPlan, Job]:
    """Return the worker plan of numpy.sdpa, and one of its jobs."""
    (subject,) = (each for each in subjects_of(read_adapters([places.adapters() / "numpy_sdpa.py"])) if not each.dense)
    (plan,) = plan_workers([subject], {"default": our_own()})
    case = load([places.cases() / "masks" / "attention_2d.yaml"], places.cases())[0]
    cell = make_cell(case, materialise(case), subject)
    assert isinstance(cell, Cell)
    return plan, Job(1, cell.key, cell.call)


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (Outcome("unsupported", reason="declined"), True),
        (Outcome("error", error={"type": "ValueError", "message": "", "traceback": "", "stage": "framework"}), True),
        (Outcome("error", error={"type": "MemoryError", "message": "", "traceback": "", "stage": "framework"}), False),
        (Outcome("crash", reason="killed"), False),
        (Outcome("timeout", reason="too long"), False),
    ],
)
def test_only_what_would_be_the_same_again_is_kept(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    monkeypatch.setattr(reply_cache, "fingerprint_of", lambda *_: "sha256:installed")
    store = Kept()
    plan, job = numpy_job()
    replies = ReplyCache(store, places.adapters())  # type: ignore[arg-type]  # it has the methods that are used
    assert replies.recall(plan, job) is None
    replies.keep(job, outcome)
    assert bool(store.values) == kept
    again = ReplyCache(store, places.adapters()).recall(plan, job)  # type: ignore[arg-type]  # as above
    assert (again is not None and again.cached and again.status == outcome.status) == kept


@pytest.mark.parametrize(("device", "installed"), [("cuda", "sha256:installed"), ("cpu", "")])
def test_a_gpu_and_what_has_no_fingerprint_have_no_key(
    device: str, installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_cache, "fingerprint_of", lambda *_: installed)
    plan, _ = numpy_job()
    replies = ReplyCache(Kept(), places.adapters())  # type: ignore[arg-type]  # it has the methods that are used
    assert replies.worker(replace(plan, device=device)) == ""
