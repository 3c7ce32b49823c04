"""The worker of the user's function: their interpreter, and the paths on which they import."""

import os
from collections.abc import Sequence
from dataclasses import replace

from conformance.engine.adapters import Subject
from conformance.engine.environments import our_own
from conformance.engine.plan import WorkerPlan, plan_workers


def plans_of(subjects: Sequence[Subject], workers: int) -> list[WorkerPlan]:
    """So many workers, each of which is asked a part of the cases."""
    plan = plan_of(*subjects)
    if workers == 1:
        return [plan]
    named = (f"{plan.name} ({part + 1} of {workers})" for part in range(workers))
    return [replace(plan, name=name, part=part, parts=workers) for part, name in enumerate(named)]


def plan_of(*subjects: Subject) -> WorkerPlan:
    """
    One worker for all of them.

    Adapters of ours are kept from the user's PYTHONPATH and site-packages; the user's own function needs them.
    """
    (plan,) = plan_workers(subjects, {"default": our_own()})
    return replace(plan, env={**plan.env, **import_paths(os.environ.get("PYTHONPATH", "").split(os.pathsep))})


def import_paths(paths: Sequence[str]) -> dict[str, str]:
    """The variables that let a worker, which runs elsewhere, import what the user can."""
    absolute = [os.path.abspath(path) for path in paths if path]  # noqa: PTH100 - a name, also of what does not exist
    return {"PYTHONNOUSERSITE": "", "PYTHONPATH": os.pathsep.join(absolute)}
