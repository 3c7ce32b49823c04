"""
Which worker processes a run needs: one for each adapter, environment, device and set of process settings.

Workers keep what frameworks compiled, such as programs of JAX and exported models, in a folder of the cache.
"""

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from conformance import places
from conformance.engine.adapters import Subject
from conformance.engine.environments import Environment, distributions_of, fingerprint_of

# The folder in the cache in which workers keep what frameworks compiled: programs of JAX, and exported models.
COMPILED_FOLDER = "compiled"

# Maximum size in bytes of all kept files; beyond it the oldest files are removed.
MAX_COMPILED_BYTES = 1 << 29

# The part of the limit that stays when files are removed.
KEPT_SHARE = 0.8

# Distributions that compile for seconds what they can read back in milliseconds.
COMPILERS = frozenset({"jax", "onnx"})

# Variables that make JAX keep every program, however small and quick to compile.
JAX_FOLDER = "JAX_COMPILATION_CACHE_DIR"
JAX_SETTINGS = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


def kept_folder(python: str, distributions: tuple[str, ...]) -> str:
    """
    The folder for one environment on this CPU, or "" if its workers compile nothing that is worth keeping.

    It is named after everything that is installed and after the CPU, so that nothing compiled for another release or
    another instruction set is ever read. An environment with an editable install has no name: its code may change while
    its versions stay. A folder that cannot be written is not used: the run then keeps nothing, and loses nothing.
    """
    if COMPILERS.isdisjoint(distributions) or not (installed := fingerprint_of(python, distributions)):
        return ""
    name = hashlib.sha256(json.dumps([installed, cpu()]).encode()).hexdigest()[:16]
    folder = places.cache() / COMPILED_FOLDER / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    return str(folder) if os.access(folder, os.W_OK) else ""


def compiled_variables(folder: Path) -> dict[str, str]:
    """Variables of a worker: the folder for exported models, and the cache of compiled programs of JAX in it."""
    return {"CONFORMANCE_CACHE": str(folder), JAX_FOLDER: str(folder / "jax"), **JAX_SETTINGS}


def prune(folder: Path, limit: int = MAX_COMPILED_BYTES) -> None:
    """
    Remove the oldest files below `folder` if all of them together are larger than `limit` bytes.

    Raises:
        ValueError: the folder is not called COMPILED_FOLDER: a wrong path must not cost the user any file.
    """
    if folder.name != COMPILED_FOLDER:
        raise ValueError(f"{folder} is not a folder of compiled programs: its name is not {COMPILED_FOLDER!r}")
    files = []
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except OSError:  # another run removed it
            continue
        if path.is_file():
            files.append((status.st_mtime_ns, status.st_size, path))
    total = sum(size for _, size, _ in files)
    if total <= limit:
        return
    for _, size, path in sorted(files):
        if total <= KEPT_SHARE * limit:
            return
        path.unlink(missing_ok=True)
        total -= size


@cache
def cpu() -> tuple[str, ...]:
    """The lines of /proc/cpuinfo that say which CPU this is and what it can do; its name on other systems."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return (platform.processor(),)
    names = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features")
    return tuple(sorted({line for line in text.splitlines() if line.partition("\t")[0].strip() in names}))


# The variable that sets how many threads the math libraries of a worker may use. The default is 1.
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
    The plan of one worker process.

    subjects: what it serves, dense forms included. env: variables on top of ours. distributions: packages whose
    versions it reports. part, parts: it gets every parts-th case, starting with case number `part`. compiled: the
    folder in which compiled programs outlive the run, "" if they live as long as the run.
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


# Prefixes of variables that choose threads, instruction sets, kernels, precision or a backend.
_NUMERIC = (
    *("ATEN_", "OMP_", "MKL_", "OPENBLAS_", "ONEDNN_", "DNNL_", "XLA_", "JAX_", "TF_", "TORCH_", "KERAS_"),
    "NVIDIA_TF32",
)


# Words in variables that may load code, write files or open connections.
_LOADS = re.compile(
    r"PATH|LIBRAR|DIR|HOME|FILE|COMPILED_FOLDER|PLUG|TOOL|DUMP|CACHE|EXTENSION|AUTOLOAD|COMPILE|CONFIG|HOST|SERVER|ADDR"
)

# Values that cannot be a path.
_PLAIN = re.compile(r"[A-Za-z0-9_.,:;=+ -]{0,500}")


def harmless(variables: Mapping[str, str]) -> dict[str, str]:
    """The settings in a run log that affect only numbers: these may stand in a script."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(_NUMERIC) and not _LOADS.search(f"{name}={value}".upper()) and _PLAIN.fullmatch(value)
    }


def settings(plan: WorkerPlan) -> dict[str, str]:
    """The environment variables of a worker that may affect its numbers, including those of the user."""
    variables = environ(plan, Path())
    ours = {"KERAS_HOME", JAX_FOLDER, *JAX_SETTINGS}
    return {name: variables[name] for name in sorted(variables) if name.startswith(_NUMERIC) and name not in ours}


def environ(plan: WorkerPlan, home: Path) -> dict[str, str]:
    """
    The environment variables of a worker, without settings of the user's Python.

    Libraries use one thread unless THREADS says otherwise. home: an empty folder in which frameworks look for
    configuration files and leave temporary files.
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
    # By default, a JAX process takes three quarters of the GPU's memory, which the other workers may need.
    base.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    base |= compiled_variables(Path(plan.compiled or home.parent / "cache"))
    if plan.device == "cpu":
        base["CUDA_VISIBLE_DEVICES"] = "-1"
    return base | dict(plan.env)
