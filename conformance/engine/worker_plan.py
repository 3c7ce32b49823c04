"""Which worker processes a run needs: one for each adapter, environment, device and set of process settings."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance.engine import compiled_programs
from conformance.engine.adapters import Subject
from conformance.engine.compiled_programs import JAX_FOLDER, JAX_SETTINGS, kept_folder
from conformance.engine.environments import Environment, distributions_of

# The variable that says how many threads the math libraries of a worker may use, 1 where it is not set.
THREADS = "CONFORMANCE_THREADS"

# Each is 1 by default: with many small problems a second thread costs up to 100 times (NPROC is XLA's).
LIMITS_OF_THREADS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "NPROC",
)

# Adapter file, device, environment.
WorkerPlace = tuple[Path, str, str]


@dataclass(frozen=True)
class WorkerPlan:
    """
    One worker process to be.

    subjects: what it serves, dense forms included. env: variables on top of ours. distributions: whose versions it
    tells. part, parts: it is asked every parts-th case, from case number `part` on. compiled: the folder in which
    compiled programs outlive the run, "" if they live as long as the run.
    """

    name: str
    adapter: Path
    subjects: tuple[str, ...]
    python: str
    device: str = "cpu"
    environment: str = "default"
    env: Mapping[str, str] = field(default_factory=dict)
    distributions: tuple[str, ...] = ()
    part: int = 0
    parts: int = 1
    compiled: str = ""


def plan_workers(
    subjects: Iterable[Subject], environments: Mapping[str, Environment], *, keep_compiled: bool = False
) -> list[WorkerPlan]:
    """
    Group subjects by process, in the order of their first ones.

    keep_compiled: whether what their frameworks compile is kept for later runs.
    """
    groups: dict[tuple[WorkerPlace, tuple[tuple[str, str], ...]], list[Subject]] = {}
    for subject in subjects:
        groups.setdefault((_place(subject), tuple(sorted(subject.env.items()))), []).append(subject)
    places = [place for place, _settings in groups]
    return [
        WorkerPlan(
            name=_name(members, alone=places.count(place) == 1),
            adapter=members[0].adapter.path,
            subjects=tuple(member.name for member in members),
            python=environments[members[0].environment].python,
            device=members[0].device,
            environment=members[0].environment,
            env=members[0].env,
            distributions=(names := tuple(dict.fromkeys(name for each in members for name in distributions_of(each)))),
            compiled=kept_folder(environments[members[0].environment].python, names) if keep_compiled else "",
        )
        for (place, _settings), members in groups.items()
    ]


def _place(subject: Subject) -> WorkerPlace:
    return subject.adapter.path, subject.device, subject.environment


def _name(members: list[Subject], *, alone: bool) -> str:
    first = members[0]
    variants = ",".join(dict.fromkeys(member.variant for member in members))
    where = first.name.removeprefix(first.short_name)
    return f"{first.adapter.name}{where}" if alone or not variants else f"{first.adapter.name}[{variants}]{where}"


# How variables begin that choose threads, instruction sets, kernels, precision or a backend.
_NUMERIC = (
    *("ATEN_", "OMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "XLA_", "JAX_", "TF_", "TORCH_", "KERAS_"),
    "NVIDIA_TF32",
)


# What names and values of variables say that may load code, or that write or connect somewhere.
_LOADS = re.compile(
    r"PATH|LIBRAR|DIR|HOME|FILE|FOLDER|PLUG|TOOL|DUMP|CACHE|EXTENSION|AUTOLOAD|COMPILE|CONFIG|HOST|SERVER|ADDR"
)

# Values that name no path.
_PLAIN = re.compile(r"[A-Za-z0-9_.,:;=+ -]{0,500}")


def harmless(variables: Mapping[str, str]) -> dict[str, str]:
    """Of the settings that a run log tells, those that choose numbers and nothing else: they may stand in a script."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(_NUMERIC) and not _LOADS.search(f"{name}={value}".upper()) and _PLAIN.fullmatch(value)
    }


def settings(plan: WorkerPlan) -> dict[str, str]:
    """The environment variables of a worker on which its numbers may depend, the user's own included."""
    variables = environ(plan, Path())
    ours = {"KERAS_HOME", JAX_FOLDER, *JAX_SETTINGS}
    return {name: variables[name] for name in sorted(variables) if name.startswith(_NUMERIC) and name not in ours}


def environ(plan: WorkerPlan, home: Path) -> dict[str, str]:
    """
    The environment variables of a worker: ours, and no settings of the user's Python or framework.

    One thread, unless THREADS says more. home: an empty folder, where frameworks look for configuration files and leave
    temporary ones.
    """
    base = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    base |= dict.fromkeys(LIMITS_OF_THREADS, os.environ.get(THREADS, "1"))
    base |= {
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "KERAS_HOME": str(home),
        "TMPDIR": str(home),
    }
    base |= compiled_programs.variables(Path(plan.compiled or home.parent / "cache"))
    if plan.device == "cpu":
        base["CUDA_VISIBLE_DEVICES"] = "-1"
    return base | dict(plan.env)
