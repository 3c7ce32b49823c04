"""
The subjects that can be judged here, what the others need, and which calls a run would make.

Environments come from the options and from the table [tool.conformance] of the nearest pyproject.toml. The table names
interpreters that will be started, so only files inside the current repository are trusted: anybody may have written a
file further up.
"""

import stat
import sys
import tomllib
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from conformance import places
from conformance.cli.argument_parser import UsageError, absent
from conformance.engine.adapters import (
    Adapter,
    AdapterError,
    SelectionError,
    Subject,
    adapter_file,
    read_adapters,
    select,
    subjects_of,
)
from conformance.engine.cells import Cell, Refused, make_cell
from conformance.engine.environments import (
    MAX_PATH,
    Environment,
    Unusable,
    examine,
    install_command,
    is_name,
    missing,
    our_own,
    parse_environments,
)
from conformance.engine.run_header import not_offered_record
from conformance.engine.worker_plan import WorkerPlan
from conformance.gate.decision import CONFORMS, INCOMPLETE
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.mistakes import matches
from conformance.spec.texts import NoText, counted, printable, quoted, read_text

# Maximum size of a pyproject.toml in bytes.
MAX_BYTES = 2**20

_TABLE = "[tool.conformance.environments]"


@dataclass(frozen=True)
class DeclaredEnvironments:
    """The environments of a project: name -> interpreter or virtual environment; file: the file that declares them."""

    file: Path | None = None
    environments: Mapping[str, str] = field(default_factory=dict)


def declared_environments(folder: Path) -> DeclaredEnvironments:
    """
    Read the environments that the nearest pyproject.toml declares, from `folder` up to the root of its repository.

    Without a repository, only `folder` itself is searched. A relative path is relative to the file.

    Raises:
        ValueError: the file is not valid TOML, or the table has a wrong entry.
    """
    file = next((each for above in _folders(folder) if (each := above / "pyproject.toml").is_file()), None)
    if file is None:
        return DeclaredEnvironments()
    entries = _entries(file)
    for name, python in entries.items():
        if not (is_name(name) and isinstance(python, str) and python and "\0" not in python):
            raise ValueError(
                f'{file}: {_TABLE} {quoted(name)[1:-1]} = {quoted(python)}: expected NAME = "PYTHON", where NAME '
                "has letters, digits, _ . and - only"
            )
    return DeclaredEnvironments(file, {name: _path(file, name, python) for name, python in entries.items()})


def _folders(folder: Path) -> Iterator[Path]:
    """Yield the folder and its parents up to the root of the repository; stop at a folder that everybody may write."""
    above = [folder, *folder.parents]
    root = next((number for number, each in enumerate(above) if (each / ".git").exists()), 0)
    yield folder
    for each in above[1 : root + 1]:
        if each.stat().st_mode & stat.S_IWOTH:
            return
        yield each


def _entries(file: Path) -> dict[str, Any]:
    """
    Read the table of environments.

    Raises:
        ValueError: as above; the message begins with file, line and column if they are known.
    """
    try:
        table = tomllib.loads(read_text(file, MAX_BYTES))
    except NoText as error:
        raise ValueError(f"{file}:{error.line}:{error.column}: {error.message}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{file}: {error}") from None
    except RecursionError:
        raise ValueError(f"{file}: nested too deeply") from None
    for key in ("tool", "conformance", "environments"):
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise ValueError(f'{file}: {key} is not a table; {_TABLE} is a table of NAME = "PYTHON"')  # noqa: TRY004 - the user's file is wrong, not a type in our code
    return table


def _path(file: Path, name: str, python: str) -> str:
    try:
        return str(file.parent / Path(python).expanduser())
    except RuntimeError as error:
        raise ValueError(f"{file}: {_TABLE} {name} = {quoted(python)}: {error}") from None


# Frameworks from slowest to fastest; used for scheduling only.
SLOWEST_FIRST = ("onnx", "jax", "keras", "tensorflow", "torch")


@dataclass(frozen=True)
class Offer:
    """The subjects that can run here, and what the others need."""

    subjects: tuple[Subject, ...]
    environments: Mapping[str, Environment]
    not_offered: tuple[dict[str, Any], ...]
    incomplete: tuple[str, ...]

    @property
    def used(self) -> dict[str, Environment]:
        """Return the environments in which a subject runs."""
        names = dict.fromkeys(subject.environment for subject in self.subjects)
        return {name: self.environments[name] for name in names}


def make_offer(patterns: Sequence[str], environments: Sequence[str], device: str) -> Offer:
    """
    Choose the subjects that match the patterns; without patterns, all whose packages are installed.

    environments: `NAME=PYTHON`, in addition to those of the project; `default=PYTHON` replaces this interpreter.

    Raises:
        UsageError: an adapter file, a pattern or an environment cannot be used.
    """
    try:
        given = dict(parse_environments(environments))
        declared = declared_environments(Path.cwd())
        interpreters = {**declared.environments, **given}
        adapters = adapters_of(patterns)
        names = list(dict.fromkeys(["default", *interpreters]))
        chosen = select(subjects_of(adapters, device, names), patterns)
    except (AdapterError, SelectionError, ValueError) as error:
        raise UsageError(str(error)) from error
    wanted = dict.fromkeys([*given, *(subject.environment for subject in chosen)])
    _name_file(declared, [name for name in wanted if name in declared.environments and name not in given])
    found = [examine(name, interpreters[name]) if name in interpreters else our_own() for name in wanted]
    return _offered(chosen, found, patterns, device)


def by_default(offer: Offer, patterns: Sequence[str]) -> Offer:
    """
    Leave out the dense forms and the variants that only a thorough run asks.

    A subject that a pattern names with its variant in brackets, such as `torch.mha[aot_eager]`, is kept.
    """
    kept = [each for each in offer.subjects if not each.thorough or _variant_is_named(each, patterns)]
    return replace(offer, subjects=tuple(kept))


def _variant_is_named(subject: Subject, patterns: Iterable[str]) -> bool:
    """Return whether a pattern names the subject with its variant in brackets."""
    named = [pattern for pattern in patterns if "[" in pattern]
    return any(matches(pattern, name) for pattern in named for name in subject.names) or any(
        (file := adapter_file(pattern)) is not None and file[1] for pattern in named
    )


def _name_file(declared: DeclaredEnvironments, started: Sequence[str]) -> None:
    """Print the interpreters that a project file, and not the command line, names and that will be started."""
    if started:
        listed = ", ".join(f"{name} = {printable(declared.environments[name])[:MAX_PATH]}" for name in started)
        print(f"conformance: environments from {printable(str(declared.file))}: {listed}", file=sys.stderr)


def adapters_of(patterns: Sequence[str]) -> list[Adapter]:
    """
    Read the adapter files that patterns name, and the packaged adapters unless every pattern names a file.

    Raises:
        UsageError, AdapterError: a file does not exist, or is not an adapter.
    """
    named = [adapter_file(pattern) for pattern in patterns]
    files = list(dict.fromkeys(found[0] for found in named if found))
    packaged = [places.adapters()] if not patterns or None in named else []
    return read_adapters([*packaged, *existing(files)])


def _offered(
    chosen: Sequence[Subject], found: Sequence[Environment | Unusable], patterns: Sequence[str], device: str
) -> Offer:
    """
    Split the chosen subjects into those that can run in the examined environments and those that cannot.

    A variant that does not run on the device is reported if a pattern names it, or if no variant of its adapter does.
    """
    usable = {each.name: each for each in found if isinstance(each, Environment)}
    problems = [f"environment {each.name}: {each.reason}" for each in found if isinstance(each, Unusable)]
    offered, lacks = [], []
    here = {subject.adapter.name for subject in chosen if device in subject.devices}
    for subject in chosen:
        if subject.environment not in usable:
            continue
        if device not in subject.devices:
            other_variants_run = subject.adapter.name in here and not _variant_is_named(subject, patterns)
            if patterns and subject.counted and not other_variants_run:
                runs = ", ".join(subject.devices)
                problems.append(f"{subject.name}: its adapter runs on {runs}, not on {device}")
        elif lacking := missing(subject, usable[subject.environment]):
            lacks.append((subject, lacking))
        else:
            offered.append(subject)
    if patterns:
        elsewhere = {subject.short_name for subject in offered}
        problems += _lacking([each for each in lacks if not _spared(each[0], elsewhere)], usable)
    if device != "cpu" and not offered:
        problems.append(f"no subject can run on device {device!r} here")
    return Offer(tuple(offered), usable, _refused(lacks), tuple(problems))


_Lacks = Sequence[tuple[Subject, tuple[str, ...]]]


def _spared(subject: Subject, elsewhere: Container[str]) -> bool:
    """Return whether a subject may be missing in the default environment, because another environment has it."""
    return subject.environment == "default" and subject.short_name in elsewhere


def _refused(lacks: _Lacks) -> tuple[dict[str, Any], ...]:
    """Return the records of subjects that the default environment cannot run, for the run log."""
    return tuple(
        not_offered_record(subject.adapter, subject.variant, lacking)
        for subject, lacking in lacks
        if subject.counted and subject.environment == "default"
    )


def _lacking(lacks: _Lacks, environments: Mapping[str, Environment]) -> list[str]:
    """Return one sentence for each set of missing packages, with the install command."""
    groups: dict[tuple[str, tuple[str, ...], str], list[str]] = {}
    for subject, lacking in lacks:
        if subject.counted:
            groups.setdefault((subject.environment, lacking, subject.extra), []).append(subject.name)
    sentences = []
    for (environment, lacking, extra), names in groups.items():
        is_own = environments[environment] == our_own()
        remedy = install_command("python" if is_own else environments[environment].python, lacking)
        if is_own and not extra:
            remedy = ""
        sentences.append(f"{', '.join(names)}: needs {', '.join(lacking)}{f': {remedy}' if remedy else ''}")
    return sentences


def existing(paths: Sequence[Path]) -> list[Path]:
    """
    Check that files exist, and return them.

    Raises:
        UsageError: a file does not exist.
    """
    for path in paths:
        if not path.is_file():
            raise absent("file", path)
    return list(paths)


def cost(plan: WorkerPlan) -> int:
    """Return the sort key of a plan: the slowest frameworks come first."""
    framework = plan.name.partition(".")[0]
    return SLOWEST_FIRST.index(framework) if framework in SLOWEST_FIRST else len(SLOWEST_FIRST)


Found: TypeAlias = Cell | Refused


def collect(cases: Sequence[Case], offer: Offer, *, every: bool) -> int:
    """Print a line for each subject, and with `every` for each cell, and return the exit code."""
    calls: Counter[str] = Counter()
    declined: Counter[str] = Counter()
    for cell in _cells(cases, offer):
        (declined if isinstance(cell, Refused) else calls)[cell.subject.name] += 1
        if every:
            why = f"declined: {cell.reason}" if isinstance(cell, Refused) else "to call"
            print(f"{cell.case.id} on {cell.subject.name}: {why}")
    width = max((len(subject.name) for subject in offer.subjects), default=0)
    for subject in offer.subjects:
        if calls[subject.name] or declined[subject.name]:
            print(f"{subject.name.ljust(width)}  {calls[subject.name]:5} to call  {declined[subject.name]:5} declined")
    for sentence in offer.incomplete:
        print(f"incomplete: {sentence}")
    asked = [subject for subject in offer.subjects if calls[subject.name] or declined[subject.name]]
    dense = sum(not subject.counted for subject in asked)
    forms = f" and {counted(dense, 'dense form')}" if dense else ""
    print(
        f"{counted(calls.total(), 'call')}, and {declined.total():,} declined without a call, for "
        f"{counted(len(cases), 'case')} on {counted(len(asked) - dense, 'subject')}{forms}; nothing was started"
    )
    return INCOMPLETE if offer.incomplete else CONFORMS


def _cells(cases: Sequence[Case], offer: Offer) -> Iterator[Found]:
    for case in cases:
        problem = materialise(case)
        for subject in offer.subjects:
            if (cell := make_cell(case, problem, subject)) is not None:
                yield cell
