"""A process that is kept after a run serves the next plan of its pool, or ends."""

import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.bridge.loading import digest
from conformance.engine.job import Job, Limits, Outcome
from conformance.engine.pool import Hooks, Pool
from conformance.engine.worker_plan import WorkerPlan

FAKES = Path(__file__).parents[1] / "fakes"

Plans = Callable[..., WorkerPlan]


@pytest.fixture
def asked(make_run: Any) -> Callable[..., tuple[Any, set[int]]]:
    """Return a function that runs a pool, and returns the run and the ids of the processes that replied."""

    def ask(pool: Pool, *, keep: bool) -> tuple[Any, set[int]]:
        run, pids = make_run((1, 2, 3)), set()

        def judged(job: Job, outcome: Outcome) -> Iterable[Job] | None:
            pids.add(outcome.evidence["pid"])
            result: Iterable[Job] | None = run.judged(job, outcome)
            return result

        run.reports = pool.run(Hooks(run.jobs, judged, run.started.append), keep=keep)
        return run, pids

    return ask


def test_a_kept_process_serves_another_adapter(asked: Any, plan_of: Plans, tmp_path: Path, patient: Limits) -> None:
    other = tmp_path / "liar.py"
    other.write_text((FAKES / "liar.py").read_text() + "\n# another declaration\n")
    (tmp_path / "_honest.py").write_text((FAKES / "_honest.py").read_text())
    first = plan_of("liar.py", "honest")
    with Pool([first], 1, patient) as pool:
        before, pids = asked(pool, keep=True)
        pool.go_on([replace(first, adapter=other)], 1, patient)
        after, same = asked(pool, keep=False)
        assert len(pool._launched) == 1
        assert pool._launched[0].exit.done()
    assert pids == same
    assert before.statuses == after.statuses == ["reply"] * 3
    digests = [run.started[0].hello["digest"] for run in (before, after)]
    assert digests == [digest(first.adapter), digest(other)]
    assert digests[0] != digests[1]
    assert [len(run.reports[0].usage) for run in (before, after)] == [0, 1]


@pytest.mark.parametrize("change", [{"distributions": ()}, {"name": "other"}, {"compiled": ""}])
def test_a_plan_that_differs_in_what_the_process_does_not_see_gets_it_too(
    asked: Any, plan_of: Plans, patient: Limits, tmp_path: Path, change: dict[str, Any]
) -> None:
    first = replace(plan_of("liar.py", "honest"), compiled=str(tmp_path / "compiled" / "here"))
    with Pool([first], 1, patient) as pool:
        _, pids = asked(pool, keep=True)
        pool.go_on([replace(first, **change)], 1, patient)
        _, same = asked(pool, keep=False)
    assert pids == same


@pytest.mark.parametrize("change", [{"env": {"OTHER": "1"}}, {"compiled": "compiled/here"}, {"environment": "old"}])
def test_a_plan_that_needs_another_process_gets_one(
    asked: Any,
    plan_of: Plans,
    patient: Limits,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    first = plan_of("liar.py", "honest")
    with Pool([first], 1, patient) as pool:
        _, pids = asked(pool, keep=True)
        pool.go_on([replace(first, **change)], 1, patient)
        assert pool._launched[0].exit.done()
        _, others = asked(pool, keep=False)
    assert pids.isdisjoint(others)


def test_a_kept_process_that_died_is_replaced(asked: Any, plan_of: Plans, patient: Limits) -> None:
    first = plan_of("liar.py", "honest")
    with Pool([first], 1, patient) as pool:
        _, pids = asked(pool, keep=True)
        os.kill(next(iter(pids)), signal.SIGKILL)
        pool.go_on([first], 1, replace(patient, starts=1))
        run, others = asked(pool, keep=False)
    assert run.statuses == ["reply"] * 3
    assert pids.isdisjoint(others)


def test_an_adapter_that_cannot_be_loaded_is_given_up(asked: Any, plan_of: Plans, patient: Limits) -> None:
    first = plan_of("liar.py", "honest")
    with Pool([first], 1, patient) as pool:
        asked(pool, keep=True)
        pool.go_on([replace(first, adapter=FAKES / "absent.py")], 1, replace(patient, starts=1))
        run = pool.run(Hooks(lambda _plan, _started: (), lambda _job, _outcome: None, lambda _: None))
    assert "FileNotFoundError" in run[0].failure


def test_only_the_first_of_several_plans_gets_it(asked: Any, plan_of: Plans, patient: Limits) -> None:
    first = plan_of("liar.py", "honest")
    halves = [replace(first, name=f"half {part}", part=part, parts=2) for part in (0, 1)]
    with Pool([first], 1, patient) as pool:
        _, pids = asked(pool, keep=True)
        pool.go_on(halves, 2, patient)
        assert len(pool._launched) == 2
        kept = pool._queues[0].kept is not None, pool._queues[1].kept is None
    assert kept == (True, True)
    assert len(pids) == 1


def test_a_process_that_is_kept_ends_with_its_pool(asked: Any, plan_of: Plans, patient: Limits) -> None:
    with Pool([plan_of("liar.py", "honest")], 1, patient) as pool:
        asked(pool, keep=True)
        assert not pool._launched[0].exit.done()
    assert pool._launched[0].exit.done()
