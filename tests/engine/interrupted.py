"""A run that never ends by itself; test_interruption.py starts it as a separate process."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from conformance.bridge import Call, Facts, Tensor
from conformance.engine.adapters import Subject, read_adapter
from conformance.engine.environments import our_own
from conformance.engine.job import Job, Limits, Started
from conformance.engine.pool import Hooks, Pool
from conformance.engine.worker_plan import WorkerPlan, plan_workers


def jobs(plan: WorkerPlan, started: Started) -> Iterator[Job]:
    print(started.hello["evidence"]["pid"], flush=True)  # noqa: T201 - read by the test
    batch = 13
    sizes = {"batch": batch, "num_heads": 1, "num_kv_heads": 1, "seq_len_q": 1, "seq_len_k": 1}
    facts = Facts("sdpa", "float32", "cpu", "hang", ("output",), sizes=sizes | {"head_dim": 1, "value_dim": 1})
    ones = Tensor.of(np.ones((batch, 1, 1, 1), np.float32))
    yield Job(1, ("case", plan.subjects[0]), Call(facts, ones, ones, ones))


subject = Subject(read_adapter(Path(sys.argv[1])), "hang")
with Pool(plan_workers([subject], {"default": our_own()}), 1, Limits()) as pool:
    pool.run(Hooks(jobs, lambda _job, _outcome: None, lambda _started: None))
