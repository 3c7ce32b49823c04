"""Run calls through real worker processes of the fake adapters."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from conformance.bridge import Call, Facts, Tensor
from conformance.engine.adapters import Subject, read_adapter
from conformance.engine.environments import our_own
from conformance.engine.job import Job, Limits, Outcome, Report, Started
from conformance.engine.pool import Hooks, Pool
from conformance.engine.worker_plan import WorkerPlan, plan_workers

FAKES = Path(__file__).parent.parent / "fakes"
PATIENT = Limits(start=20, first=20, call=20, close=5)


def make_call(batch: int, variant: str = "honest", outputs: tuple[str, ...] = ("output",)) -> Call:
    """Return a call with two heads of width 3, five queries and seven keys."""
    sizes = {"batch": batch, "num_heads": 2, "num_kv_heads": 2, "seq_len_q": 5, "seq_len_k": 7}
    facts = Facts("sdpa", "float32", "cpu", variant, outputs, sizes=sizes | {"head_dim": 3, "value_dim": 3})
    draw = np.random.default_rng(batch).standard_normal
    query, key, value = (Tensor.of(draw((batch, 2, n, 3), dtype=np.float32)) for n in (5, 7, 7))
    return Call(facts, query, key, value)


def make_plan(file: str, *variants: str, device: str = "cpu") -> WorkerPlan:
    """Return the worker plan for these variants of a fake adapter."""
    adapter = read_adapter(FAKES / file)
    subjects = [Subject(adapter, variant, device) for variant in variants or ("",)]
    return plan_workers(subjects, {"default": our_own()})[0]


@dataclass
class Run:
    """What a pool did with its plans; each subject gets one call for each size in `batches`."""

    batches: Sequence[int] = (1, 13, 2, 3)
    variants: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ("output",)
    limit: int = 1 << 20
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    started: list[Started] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    made: int = 0

    def jobs(self, plan: WorkerPlan, _: Started) -> Iterator[Job]:
        for name in plan.subjects:
            variant = name.partition("[")[2].rstrip("]")
            for number, batch in enumerate(self.batches):
                self.made += 1
                case = f"{variant} {number}:{batch}" if self.variants else f"{number}:{batch}"
                call = make_call(batch, variant, self.outputs)
                yield Job(self.made, (case, name), call, limit=self.limit, signature=case)

    def judged(self, job: Job, outcome: Outcome) -> Iterable[Job] | None:
        name = job.cell[0]
        assert name not in self.outcomes, f"{name} was judged twice"
        self.outcomes[name] = outcome
        self.order.append(name)
        return None

    def hooks(self) -> Hooks:
        return Hooks(self.jobs, self.judged, self.started.append)

    def through(self, *plans: WorkerPlan, limits: Limits = PATIENT, workers: int = 2) -> "Run":
        with Pool(plans, workers, limits) as pool:
            self.reports = pool.run(self.hooks())
        return self

    @property
    def statuses(self) -> list[str]:
        """The statuses of the outcomes, in the order of the calls."""
        return [self.outcomes[name].status for name in sorted(self.outcomes, key=lambda name: int(name.split(":")[0]))]


@pytest.fixture(scope="session")
def make_run() -> type[Run]:
    return Run


@pytest.fixture(scope="session")
def plan_of() -> Callable[..., WorkerPlan]:
    return make_plan


@pytest.fixture(scope="session")
def call_of() -> Callable[..., Call]:
    return make_call


@pytest.fixture(scope="session")
def patient() -> Limits:
    return PATIENT
