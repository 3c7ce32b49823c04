"""The first records of a run: the header with its subjects, its environments and the machine, then its cases."""

import datetime as dt
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from conformance import __version__
from conformance.engine.adapters import Adapter, Subject
from conformance.engine.environments import Environment, cpu_features
from conformance.engine.judging import judge_digest
from conformance.spec.case import Case, asked
from conformance.spec.materialise import made_anew, materialise, problem_digest
from conformance.spec.problem import Problem


def utc_now() -> str:
    """The current time in UTC, in the format of the run log."""
    return f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%dT%H:%M:%SZ}"


# Maximum number of cases whose problems are kept for the calls. With more cases, they are made again, so that memory
# does not grow.
KEPT = 1_200


def _case(case: Case, problem: Problem) -> dict[str, Any]:
    return {
        "type": "case",
        "case": case.id,
        "suite": case.suite,
        "operator": case.operator,
        "dtype": case.dtype,
        "tags": list(case.tags),
        "summary": case.summary,
        "yaml": case.yaml,
        "source": case.source,
        "features": list(asked(case)),
        "digest": problem_digest(problem),
    }


def _subject(subject: Subject) -> dict[str, Any]:
    return {
        "adapter": subject.adapter.name,
        "variant": subject.variant,
        "device": subject.device,
        "environment": subject.environment,
        "operators": list(subject.operators),
        "framework": subject.framework,
        "counted": subject.counted,
        "digest": subject.adapter.digest,
        "offered": True,
        "summary": subject.summary,
    }


def _environment(environment: Environment) -> dict[str, Any]:
    """The interpreter of an environment, and every distribution that is installed in it."""
    return {
        "python": environment.python,
        "version": environment.version,
        "packages": dict(sorted(environment.distributions.items())),
    }


def not_offered_record(adapter: Adapter, variant: str, missing: Sequence[str]) -> dict[str, Any]:
    """The record of an adapter that is not offered: what it lacks, and the extra that would install it."""
    name = Subject(adapter, variant).name
    return {"adapter": name, "missing": list(missing), "extra": Subject(adapter, variant).extra}


def case_records(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """The record of each case. They follow the header, one after the other, so that memory does not grow with them."""
    problem = materialise if len(cases) <= KEPT else made_anew
    return (_case(case, problem(case)) for case in cases)


def header(
    run: str,
    command: Sequence[str],
    device: str,
    cases: Sequence[Case],
    subjects: Iterable[Subject],
    environments: Mapping[str, Environment],
    not_offered: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """The header record of a run that begins now. It must be followed by the records of `case_records`."""
    return {
        "type": "header",
        "run": run,
        "started": utc_now(),
        "command": list(command),
        "versions": {
            "conformance": __version__,
            "python": sys.version.split()[0],
            "numpy": np.__version__,
        },
        "platform": {
            "system": platform.system(),
            "machine": platform.machine(),
            "cpus": os.cpu_count() or 1,
            "cpu_features": list(cpu_features()),
        },
        "device": device,
        "judge": judge_digest(),
        "case_records": len(cases),
        "subjects": {subject.name: _subject(subject) for subject in subjects},
        "environments": {name: _environment(found) for name, found in environments.items()},
        "not_offered": list(not_offered),
    }
