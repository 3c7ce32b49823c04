"""Subjects that can run in the same process share one."""

import sys
from pathlib import Path

import pytest

from conformance.engine.adapters import read_adapter, subjects_of
from conformance.engine.environments import Environment, our_own
from conformance.engine.job import Job
from conformance.engine.pool import Backlog
from conformance.engine.worker_plan import LIMITS_OF_THREADS, WorkerPlan, environ, plan_workers

ADAPTER = """
NAME = "fake.one"
OPERATORS = ["sdpa"]
REQUIRES = ["numpy"]
OUTPUTS = ["output"]
DTYPES = ["float32"]
DEVICES = ["cpu"]
CAPABILITIES = []
SLOTS = {"causal": {"role": "causal"}}
VARIANTS = {"a": {}, "b": {"env": {"X": "1"}, "REQUIRES": ["numpy", "turbo>=2"]}, "c": {"env": {"X": "1"}}, "d": {}}
declare = sdpa = print
"""


@pytest.fixture
def plans(tmp_path: Path) -> list[WorkerPlan]:
    path = tmp_path / "one.py"
    path.write_text(ADAPTER, encoding="utf-8")
    adapter = read_adapter(path)
    environments = {"default": our_own(), "old": Environment("old", "/opt/old/python", "3.10.1", {})}
    subjects = [*subjects_of([adapter]), *subjects_of([adapter], "cuda", ["old"])[:2]]
    return plan_workers(subjects, environments)


def test_one_process_for_each_adapter_place_and_settings(plans: list[WorkerPlan]) -> None:
    assert {plan.name: plan.subjects for plan in plans} == {
        "fake.one[a,d]": ("fake.one[a]", "fake.one[a,dense]", "fake.one[d]", "fake.one[d,dense]"),
        "fake.one[b,c]": ("fake.one[b]", "fake.one[b,dense]", "fake.one[c]", "fake.one[c,dense]"),
        "fake.one@cuda:old": ("fake.one[a]@cuda:old", "fake.one[a,dense]@cuda:old"),
    }
    assert [plan.python for plan in plans] == [sys.executable, sys.executable, "/opt/old/python"]
    assert [plan.distributions for plan in plans] == [("numpy",), ("numpy", "turbo"), ("numpy",)]


def test_settings_of_a_process(plans: list[WorkerPlan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    monkeypatch.setenv("X", "0")
    plain, fast, cuda = (environ(plan, tmp_path) for plan in plans)
    assert all(plain[name] == "1" for name in LIMITS_OF_THREADS)
    assert "PYTHONPATH" not in plain
    assert (plain["PYTHONHASHSEED"], plain["KERAS_HOME"]) == ("0", str(tmp_path))
    assert (plain["X"], fast["X"]) == ("0", "1")
    assert plain["CUDA_VISIBLE_DEVICES"] == "-1"
    assert cuda.get("CUDA_VISIBLE_DEVICES") != "-1"


def test_jax_takes_gpu_memory_when_it_needs_it_unless_the_user_says_otherwise(
    plans: list[WorkerPlan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "XLA_PYTHON_CLIENT_PREALLOCATE"
    monkeypatch.delenv(name, raising=False)
    assert environ(plans[-1], tmp_path)[name] == "false"
    monkeypatch.setenv(name, "true")
    assert environ(plans[-1], tmp_path)[name] == "true"


def job(number: int, *, fresh: bool = False) -> Job:
    return Job(number, ("case", "subject"), None, fresh=fresh)  # type: ignore[arg-type]  # its call is never looked at


def drained(backlog: Backlog) -> list[int]:
    found = []
    while (each := backlog.take()) is not None:
        found.append(each.number)
    while (each := backlog.take_fresh()) is not None:
        found.append(-each.number)
    return found


def test_the_order_of_jobs() -> None:
    backlog = Backlog()
    assert (backlog.opened, backlog.has_more()) == (False, False)
    backlog.open([job(1), job(2, fresh=True), job(3)])
    assert backlog.opened
    first = backlog.take()
    assert first is not None
    backlog.add([job(4), job(5, fresh=True), job(6)])
    backlog.give_back([first, job(7, fresh=True)])
    assert backlog.has_more()
    assert drained(backlog) == [1, 4, 6, 3, -7, -5, -2]
    assert not backlog.has_more()
