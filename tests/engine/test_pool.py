"""A misbehaving adapter loses only the verdict of its own call, and leaves no process or file."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.bridge import Call
from conformance.engine.job import Job, Limits, Outcome
from conformance.engine.pool import Hooks, Pool
from conformance.engine.process import STDERR_TAIL
from conformance.engine.worker_plan import WorkerPlan

FAKES = Path(__file__).parents[1] / "fakes"
BROKEN = "the installed package is broken, or its versions do not fit together"

Plans = Callable[..., WorkerPlan]
Calls = Callable[..., Call]


def living() -> list[tuple[int, int]]:
    """Return the id and the group of every running process."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, group = file.read_text().rpartition(")")[2].split()[:3]
            found += [(int(file.parent.name), int(group))] if state != "Z" else []
    return found


def surroundings(pid: int) -> bytes:
    """Return the environment with which a process was started; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def dead(pid: int) -> bool:
    return pid not in dict(living())


LIARS = {
    "segfault": ("crash", "the worker was killed by SIGSEGV"),
    "abort": ("crash", "the worker was killed by SIGABRT"),
    "exit": ("crash", "the worker exited with code 3"),
    "exit_zero": ("crash", "the worker exited with code 0"),
    "system_exit": ("error", "SystemExit: I am done here"),
    "fork_and_die": ("crash", "the worker exited with code 1"),
    "fork_away_and_die": ("crash", "the worker exited with code 1"),
    "close_everything": ("crash", "the worker exited with code"),
    "speak_protocol": ("crash", "the worker broke the protocol: the frame begins with b'hell', expected b'ACW1'"),
    "memory": ("error", "MemoryError: Unable to allocate 2.00 EiB"),
    "too_large": (
        "error",
        "ValueError: the reply has 33554432 bytes (output [4194304]), expected at most 1048576",
    ),
    "missing_output": ("error", "KeyError: 'the call requests output; the adapter returned no output'"),
    "no_mapping": ("error", "TypeError: the adapter returned list, expected a mapping of output names to arrays"),
    "raise_inside": ("error", "ValueError: cannot reshape array of size 3 into shape (2,2)"),
    "raise_outside": ("error", "ZeroDivisionError: before the framework was called"),
    "raise_in_declare": ("error", "LookupError: no such kernel in the table"),
    "declare_nothing": ("error", "TypeError: declare() returned NoneType, expected a Declaration"),
    "decline_late": ("error", "Unsupported: I have seen the result and do not like it"),
    "never_call": ("error", "RuntimeError: the adapter returned without calling the framework inside framework_call()"),
    "odd_dtype": ("error", "ValueError: dtype 'complex64' is not supported"),
    "long_message": ("error", "no no no"),
    "lose_cuda": ("error", "RuntimeError: CUDA error: device-side assert triggered"),
    "decline": ("unsupported", "no batch of 13: an odd superstition"),
    "slow": ("reply", ""),
    "flood_stdout": ("reply", ""),
    "flood_stderr": ("reply", ""),
    "read_stdin": ("reply", ""),
    "wrong_dtype": ("reply", ""),
}


@pytest.fixture(scope="module")
def lived(make_run: Any, plan_of: Plans, patient: Limits) -> Any:
    """Run all liars in one worker at a time, each liar between two honest calls."""
    run = make_run(variants=tuple(LIARS), batches=(1, 13, 2))
    return run.through(plan_of("liar.py", *LIARS), limits=replace(patient, deaths=len(LIARS)))


@pytest.mark.parametrize("liar", LIARS)
def test_a_liar_costs_one_verdict(liar: str, lived: Any) -> None:
    status, reason = LIARS[liar]
    lost = lived.outcomes[f"{liar} 1:13"]
    assert lost.status == status
    assert reason in lost.reason
    assert lived.outcomes[f"{liar} 0:1"].status == lived.outcomes[f"{liar} 2:2"].status == "reply"
    if status in ("error", "crash"):
        assert len(lost.error["traceback"]) <= 16_000


def test_only_what_kills_a_worker_needs_another(lived: Any) -> None:
    killers = [liar for liar, (status, _) in LIARS.items() if status == "crash" or liar == "lose_cuda"]
    assert [started.status for started in lived.started] == ["ready"] * (1 + len(killers))
    assert len(lived.outcomes) == 3 * len(LIARS)
    assert not lived.reports[0].failure


def test_the_time_of_a_call_that_kills_its_worker_counts_as_a_call(lived: Any) -> None:
    killers = [liar for liar, (status, _) in LIARS.items() if status == "crash"]
    lost = [lived.outcomes[f"{liar} 1:13"].seconds for liar in killers]
    assert {frozenset(seconds) for seconds in lost} == {frozenset(("call", "cpu"))}
    assert all(seconds["call"] > 0 for seconds in lost)
    used = [usage for usage in lived.reports[0].usage if "exited with code 0" not in usage.ending]
    assert all(usage.start_cpu + usage.call_cpu <= usage.cpu for usage in used)


@pytest.mark.parametrize("liar", ["hang", "hang_holding_gil", "hang_flooding"])
def test_a_hang_costs_one_verdict_and_says_where(liar: str, make_run: Any, plan_of: Plans, patient: Limits) -> None:
    limits = replace(patient, first=0.6)
    run = make_run().through(plan_of("liar.py", liar), limits=limits)
    assert run.statuses == ["reply", "timeout", "reply", "reply"]
    lost = run.outcomes["1:13"]
    assert lost.reason == "the worker was killed after 0.6 s in one call"
    assert lost.seconds["call"] >= limits.first
    assert run.reports[0].usage[0].call_cpu >= lost.seconds["cpu"] >= 0
    if liar != "hang_flooding":
        assert "in _run_call" in lost.error["traceback"] or "in answer" in lost.error["traceback"]


def test_the_first_call_of_a_signature_has_a_limit_of_its_own(make_run: Any, plan_of: Plans, patient: Limits) -> None:
    limits = replace(patient, first=20, call=0.1)
    assert make_run().through(plan_of("liar.py", "slow"), limits=limits).statuses == ["reply"] * 4
    limits = replace(patient, first=0.1, call=20)
    assert make_run().through(plan_of("liar.py", "slow"), limits=limits).statuses[1] == "timeout"


def test_where_an_error_comes_from_is_told(lived: Any) -> None:
    stages = dict.fromkeys(("raise_inside", "memory", "system_exit"), "framework")
    stages |= {"raise_outside": "adapter", "missing_output": "adapter", "raise_in_declare": "declare"}
    for liar, stage in stages.items():
        lost = lived.outcomes[f"{liar} 1:13"]
        assert lost.error["stage"] == stage
        assert (lost.declaration is None) == (stage == "declare")


def test_what_a_liar_started_ends_with_it(make_run: Any, plan_of: Plans) -> None:
    run = make_run().through(plan_of("liar.py", "fork_and_die"))
    groups = {started.hello["evidence"]["group"] for started in run.started}
    assert not [pid for pid, group in living() if group in groups]


def test_what_has_left_the_group_ends_too(make_run: Any, plan_of: Plans) -> None:
    run = make_run()
    with Pool([plan_of("liar.py", "fork_away_and_die")], 1) as pool:
        pool.run(run.hooks())
        left = [pid for pid, _ in living() if pool._folder.name.encode() in surroundings(pid)]
    assert run.statuses == ["reply", "crash", "reply", "reply"]
    assert left == []


def test_the_temporary_folder_has_one_name_in_every_text(make_run: Any, plan_of: Plans) -> None:
    run = make_run().through(plan_of("liar.py", "raise_inside"))
    traceback = run.outcomes["1:13"].error["traceback"]
    assert '"<temporary>/bridge/conformance/bridge/serving.py"' in traceback
    assert "conformance-" not in traceback.replace(str(FAKES), "")


def test_a_death_between_two_calls_costs_none(make_run: Any, plan_of: Plans) -> None:
    run = make_run((13, 1, 2))

    def judged(job: Job, outcome: Outcome) -> None:
        run.judged(job, outcome)
        time.sleep(0.3)

    with Pool([plan_of("liar.py", "die_later")], 1, Limits(start=20, window=1)) as pool:
        (report,) = pool.run(Hooks(run.jobs, judged, run.started.append))
    assert run.statuses == ["reply"] * 3
    assert [usage.ending for usage in report.usage] == ["exited with code 9", "exited with code 0"]


def test_a_flood_keeps_only_its_end(make_run: Any, plan_of: Plans) -> None:
    run = make_run((13, 13, 1))
    with Pool([plan_of("liar.py", "flood_stderr")], 1) as pool:
        run.reports = pool.run(run.hooks())
        (process,) = pool._launched
        assert len(process.stderr) <= STDERR_TAIL
        assert sum(map(len, process._stderr)) <= 2 * STDERR_TAIL


def test_a_plan_is_given_up_after_too_many_deaths(make_run: Any, plan_of: Plans, patient: Limits) -> None:
    run = make_run((13,) * 6).through(plan_of("liar.py", "exit"), limits=replace(patient, deaths=2))
    assert run.statuses == ["crash"] * 3 + ["not_run"] * 3
    assert [started.status for started in run.started] == ["ready"] * 3 + ["failed"]
    assert run.reports[0].failure == "died 3 times in a row; the last exited with code 3, in 2:13"
    assert run.outcomes["5:13"].reason == f"its worker {run.reports[0].failure}"


STARTS = {
    "import_raises.py": ("did not start: ImportError: libframework.so.7: cannot open shared object file", 1),
    "import_dies.py": (
        f"did not start: was killed by SIGILL before it was ready, while it imported {FAKES}/import_dies.py: {BROKEN}",
        2,
    ),
    "import_hangs.py": ("did not start: was not ready after 2 s", 1),
}


@pytest.mark.parametrize("file", STARTS)
def test_a_worker_that_cannot_start_is_reported_once(file: str, make_run: Any, plan_of: Plans, patient: Limits) -> None:
    run = make_run().through(plan_of(file), plan_of("liar.py", "honest"), limits=replace(patient, start=2))
    reason, processes = STARTS[file]
    (failed,) = [started for started in run.started if started.status == "failed"]
    assert failed.reason == reason
    assert len(run.reports[0].usage) == processes
    assert run.reports[0].failure == reason
    assert run.statuses == ["reply"] * 4
    if file == "import_raises.py":
        assert "looking for the library" in failed.stderr
    if file == "import_hangs.py":
        assert "import_hangs.py" in failed.stderr


def test_an_interpreter_that_cannot_run_is_a_failed_start(make_run: Any, plan_of: Plans) -> None:
    run = make_run().through(replace(plan_of("liar.py", "honest"), python="/nowhere/python"))
    assert [(started.status, started.reason) for started in run.started] == [
        ("failed", "did not start: /nowhere/python: No such file or directory")
    ]
    assert run.started[0].record()["status"] == "failed"


def test_a_device_that_the_framework_does_not_see_is_a_failed_start(make_run: Any, plan_of: Plans) -> None:
    run = make_run().through(plan_of("liar.py", "honest", device="cuda"))
    assert "the framework sees no device 'cuda', only 'cpu'" in run.started[0].reason


def test_printing_at_import_harms_nothing(make_run: Any, plan_of: Plans) -> None:
    run = make_run().through(plan_of("import_prints.py"))
    assert run.statuses == ["reply"] * 4


def test_the_same_numbers_come_back_for_the_same_call(make_run: Any, plan_of: Plans) -> None:
    outputs = ("output", "weights")
    one, two = (make_run((3, 3), outputs=outputs).through(plan_of("liar.py", "honest")) for _ in range(2))
    first = one.outcomes["0:3"].outputs
    assert sorted(first) == sorted(outputs)
    assert first["weights"].shape == (3, 2, 5, 7)
    for outcome in (one.outcomes["1:3"], two.outcomes["0:3"]):
        assert all(np.array_equal(first[name].bits, outcome.outputs[name].bits) for name in outputs)


def test_requirements_are_declined_before_the_adapter_is_called(plan_of: Plans, call_of: Calls, make_run: Any) -> None:
    run = make_run()
    job = Job(1, ("case", "subject"), call_of(13, "exit"), requirements=("scale", "kdim", "grouped_heads"))
    with Pool([plan_of("liar.py", "exit")], 2) as pool:
        pool.run(Hooks(lambda _plan, _started: [job], run.judged, run.started.append))
    assert run.outcomes["case"].status == "unsupported"
    assert run.outcomes["case"].reason == "does not support: grouped_heads, kdim"


def test_jobs_are_made_as_they_are_needed(make_run: Any, plan_of: Plans) -> None:
    run = make_run(range(1, 12))
    ahead = []

    def judged(job: Job, outcome: Outcome) -> None:
        run.judged(job, outcome)
        ahead.append(run.made - len(run.outcomes))

    with Pool([plan_of("liar.py", "honest")], 1, Limits(window=3)) as pool:
        pool.run(Hooks(run.jobs, judged, run.started.append))
    assert run.made == 11
    assert max(ahead) <= 3


def test_workers_start_before_there_is_work_and_no_more_than_allowed(make_run: Any, plan_of: Plans) -> None:
    plans = [plan_of("liar.py", liar) for liar in ("honest", "slow", "exit")]
    alive = []
    run = make_run((1, 13))

    def judged(_job: Job, _outcome: Outcome) -> None:
        alive.append(sum(not process.exit.done() for process in pool._launched))

    with Pool(plans, 2) as pool:
        assert len(pool._launched) == 2
        pool.run(Hooks(run.jobs, judged, run.started.append))
    assert max(alive) == 2
    assert len(alive) == 6
    assert all(process.exit.done() for process in pool._launched)


def test_a_pool_that_is_never_run_leaves_nothing(plan_of: Plans) -> None:
    with Pool([plan_of("import_hangs.py"), plan_of("liar.py", "honest")], 2) as pool:
        pids = [process.pid for process in pool._launched]
        folder = Path(pool._folder.name)
        assert folder.exists()
    assert all(dead(pid) for pid in pids)
    assert not folder.exists()


def test_follow_ups_run_in_the_same_process_or_alone_in_a_fresh_one(make_run: Any, plan_of: Plans) -> None:
    run = make_run((1, 2))
    pids = {}

    def judged(job: Job, outcome: Outcome) -> list[Job]:
        pids[job.cell[0]] = outcome.evidence["pid"]
        if job.cell[0] != "0:1":
            return []
        again = [replace(job, cell=(name, job.cell[1])) for name in ("again", "and again")]
        return [replace(job, cell=("fresh", job.cell[1]), fresh=True), *again]

    with Pool([plan_of("liar.py", "honest")], 2) as pool:
        (report,) = pool.run(Hooks(run.jobs, judged, run.started.append))
    assert pids["again"] == pids["and again"] == pids["0:1"] == pids["1:2"] != pids["fresh"]
    assert len(report.usage) == 2


def test_what_a_hook_raises_ends_the_run_and_every_process(make_run: Any, plan_of: Plans) -> None:
    run = make_run()

    def judged(_job: Job, _outcome: Outcome) -> None:
        raise ArithmeticError("the judge is broken")

    with Pool([plan_of("liar.py", "honest"), plan_of("import_hangs.py")], 2) as pool:
        with pytest.raises(ArithmeticError, match="the judge is broken"):
            pool.run(Hooks(run.jobs, judged, run.started.append))
        assert all(dead(process.pid) for process in pool._launched)


def test_a_slow_judge_makes_no_timeout(make_run: Any, plan_of: Plans, patient: Limits) -> None:
    run = make_run((1, 2, 3))

    def judged(job: Job, outcome: Outcome) -> None:
        run.judged(job, outcome)
        time.sleep(0.45)

    with Pool([plan_of("liar.py", "honest")], 1, replace(patient, first=0.3, call=0.3)) as pool:
        pool.run(Hooks(run.jobs, judged, run.started.append))
    assert run.statuses == ["reply"] * 3


def test_a_worker_has_one_thread_and_nothing_of_ours_but_the_bridge(
    make_run: Any, plan_of: Plans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent.parent))
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    run = make_run((1,)).through(plan_of("liar.py", "honest"))
    evidence = run.started[0].hello["evidence"]
    assert evidence["threads"] == "1"
    assert evidence["python_variables"] == ["PYTHONHASHSEED", "PYTHONNOUSERSITE"]
    assert evidence["engine"] is False
    assert str(Path(__file__).parent.parent) not in evidence["path"]
    assert not any(Path(entry).name == "fakes" for entry in evidence["path"])


def test_use_is_accounted_for(make_run: Any, plan_of: Plans) -> None:
    run = make_run((1, 2, 3)).through(plan_of("liar.py", "honest"))
    (usage,) = run.reports[0].usage
    assert usage.worker == "fake.liar"
    assert 0 < usage.start_cpu + usage.call_cpu < usage.cpu < 5
    assert 10 << 20 < usage.peak < 1 << 30
    assert set(run.outcomes["0:1"].seconds) == {"call", "cpu"}
    record = run.started[0].record()
    assert record["versions"]["numpy"]
    assert record["start_seconds"] > 0
    assert run.started[0].hello["digest"].startswith("sha256:")
