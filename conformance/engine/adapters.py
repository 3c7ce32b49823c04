"""Adapters as the coordinator reads them, their subjects, and the selection of subjects by patterns."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance.bridge.loading import digest
from conformance.engine.adapter_facts import THOROUGH, AdapterError, Slot, read_facts
from conformance.spec.mistakes import matches, near_glob

__all__ = ["Adapter", "AdapterError", "Subject", "read_adapter", "read_adapters", "subjects_of"]


@dataclass(frozen=True, eq=False)
class Adapter:
    """One adapter file; the fields are described in docs/adapters.md. `digest` covers the helpers that it imports."""

    path: Path
    name: str
    operators: tuple[str, ...]
    requires: tuple[tuple[str, ...], ...]
    outputs: tuple[str, ...]
    dtypes: tuple[str, ...]
    devices: tuple[str, ...]
    capabilities: tuple[str, ...]
    slots: Mapping[str, Slot]
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"": {}})
    extra: str = ""
    declines: Mapping[str, str] = field(default_factory=dict)

    @property
    def framework(self) -> str:
        """The first word of the name."""
        return self.name.partition(".")[0]

    @cached_property
    def digest(self) -> str:
        """sha256 of the file and its helpers."""
        return digest(self.path)


@dataclass(frozen=True)
class Subject:
    """A variant of an adapter on a device in an environment; `dense` folds all masks into one argument."""

    adapter: Adapter
    variant: str = ""
    device: str = "cpu"
    environment: str = "default"
    dense: bool = False

    @cached_property
    def name(self) -> str:
        """adapter[variant,dense]@device:environment; default parts are omitted."""
        default = self.environment == "default"
        where = "" if self.device == "cpu" and default else f"@{self.device}"
        return f"{self.short_name}{where}{'' if default else f':{self.environment}'}"

    @property
    def short_name(self) -> str:
        """adapter[variant,dense]."""
        parts = ",".join(part for part in (self.variant, "dense" if self.dense else "") if part)
        return f"{self.adapter.name}[{parts}]" if parts else self.adapter.name

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that selects this subject; the last one is that of its adapter."""
        placed = f"{self.short_name}@{self.device}"
        return self.name, self.short_name, placed, f"{placed}:{self.environment}", self.adapter.name

    @property
    def env(self) -> Mapping[str, str]:
        """Environment variables that its process is started with."""
        return dict(self._fields.get("env", {}))

    @property
    def summary(self) -> str:
        """A one-sentence description of the variant."""
        return str(self._fields.get("summary", ""))

    @property
    def framework(self) -> str:
        """The first word of the adapter's name."""
        return self.adapter.framework

    @property
    def counted(self) -> bool:
        """Whether it counts as a subject; a dense form does not."""
        return not self.dense

    @property
    def thorough(self) -> bool:
        """Whether only a thorough run or a selection by name includes it: a dense form or a thorough variant."""
        return self.dense or self._fields.get("tier") == THOROUGH

    @property
    def operators(self) -> tuple[str, ...]:
        """OPERATORS of the variant."""
        return tuple(self._fact("operators"))

    @property
    def requires(self) -> tuple[tuple[str, ...], ...]:
        """REQUIRES of the variant; each entry lists alternatives, of which one is enough."""
        return tuple(self._fact("requires"))

    @property
    def outputs(self) -> tuple[str, ...]:
        """OUTPUTS of the variant."""
        return tuple(self._fact("outputs"))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """DTYPES of the variant."""
        return tuple(self._fact("dtypes"))

    @property
    def devices(self) -> tuple[str, ...]:
        """DEVICES of the variant."""
        return tuple(self._fact("devices"))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """CAPABILITIES of the variant."""
        return tuple(self._fact("capabilities"))

    @property
    def slots(self) -> Mapping[str, Slot]:
        """SLOTS of the variant."""
        slots: Mapping[str, Slot] = self._fact("slots")
        return slots

    @property
    def extra(self) -> str:
        """EXTRA of the variant."""
        return str(self._fact("extra"))

    @property
    def _fields(self) -> Mapping[str, Any]:
        return self.adapter.variants[self.variant]

    def _fact(self, name: str) -> Any:
        return self._fields.get(name.upper(), getattr(self.adapter, name))


def read_adapter(path: Path) -> Adapter:
    """
    Read the facts of one adapter file without importing it.

    Raises:
        AdapterError: the file has mistakes; all are listed, each as `file:line: what is wrong`.
    """
    facts = read_facts(path.absolute())
    return Adapter(path=path.absolute(), **{name.lower(): value for name, value in facts.items()})


def read_adapters(paths: Iterable[Path]) -> list[Adapter]:
    """
    Read adapter files and folders of adapter files (files whose names begin with `_` are helpers).

    Raises:
        AdapterError: files have mistakes, all of which are listed, or two adapters have the same name.
    """
    faults: list[str] = []
    found: dict[str, Adapter] = {}
    for file in [file for path in paths for file in _files(path)]:
        try:
            adapter = read_adapter(file)
        except AdapterError as error:
            faults += error.faults
            continue
        if (other := found.setdefault(adapter.name, adapter)).path != adapter.path:
            faults.append(f"{adapter.path}:1: NAME {adapter.name!r} is already used by {other.path}")
    if faults:
        raise AdapterError(faults)
    return list(found.values())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.glob("*.py") if not file.name.startswith("_"))


def subjects_of(
    adapters: Iterable[Adapter], device: str = "cpu", environments: Sequence[str] = ("default",)
) -> list[Subject]:
    """
    Every subject of the adapters on one device: each variant in each environment, and its dense form.

    A variant has a dense form if a call can choose between arguments: if SLOTS has several slots, or a slot that is no
    mask. Whether the adapter supports the device is not checked here.
    """
    return [
        Subject(adapter, variant, device, environment, dense)
        for adapter in adapters
        for environment in environments
        for variant in adapter.variants
        for dense in ((False, True) if _has_dense(Subject(adapter, variant)) else (False,))
    ]


def without_environment(subject: str) -> str:
    """The name of a subject in the default environment: `x` for `x@cpu:new`, and `x@cuda` for `x@cuda:new`."""
    name, _, place = subject.rpartition("@")
    if not name:
        return subject
    device = place.partition(":")[0]
    return name if device == "cpu" else f"{name}@{device}"


def _has_dense(subject: Subject) -> bool:
    return len(subject.slots) > 1 or any(slot.role != "mask" for slot in subject.slots.values())


class SelectionError(Exception):
    """A pattern selects nothing; the text suggests the nearest name."""


_FILE = re.compile(r"(?P<file>.+\.py)(?P<rest>[\[@].*)?", re.DOTALL)


def adapter_file(pattern: str) -> tuple[Path, str] | None:
    """
    Split a pattern that names an adapter file: `mine.py`, or `mine.py[variant]@device` for one of its subjects.

    Returns None for names and globs of subjects.
    """
    match = _FILE.fullmatch(pattern)
    return (Path(match["file"]), match["rest"] or "") if match else None


def select(subjects: Sequence[Subject], patterns: Sequence[str]) -> list[Subject]:
    """
    The subjects that match the patterns, in the order of the patterns; all subjects if there is no pattern.

    The exact name of a subject selects only that subject, even if the name is also a glob or a prefix of other names.
    The name of an adapter selects all its variants, unless it is also the name of a subject.

    Raises:
        SelectionError: a pattern selects nothing.
    """
    if not patterns:
        return list(subjects)
    chosen = {subject.name: subject for pattern in patterns for subject in _chosen(subjects, pattern)}
    return list(chosen.values())


def _chosen(subjects: Sequence[Subject], pattern: str) -> list[Subject]:
    if (named := adapter_file(pattern)) is not None:
        file, rest = named
        own = [subject for subject in subjects if subject.adapter.path == file.absolute()]
        if not own:
            raise SelectionError(f"the adapter file {file} has no subject here")
        return _named(own, f"{own[0].adapter.name}{rest}") if rest else own
    return _named(subjects, pattern)


def _named(subjects: Sequence[Subject], pattern: str) -> list[Subject]:
    *own, _adapter = range(len(subjects[0].names)) if subjects else [0]
    for position in own:
        if exact := [subject for subject in subjects if subject.names[position] == pattern]:
            return exact
    if found := [subject for subject in subjects if any(matches(pattern, name) for name in subject.names)]:
        return found
    near = near_glob(pattern, {name for subject in subjects for name in subject.names})
    hint = f"the nearest name is {near!r}" if near else "conformance list adapters prints all names"
    raise SelectionError(f"no subject matches {pattern!r}; {hint}")
