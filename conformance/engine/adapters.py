"""Adapters as the coordinator knows them, the subjects that they give, and how subjects are selected."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance.bridge.loading import digest
from conformance.engine.adapter_facts import THOROUGH, AdapterError, read_facts
from conformance.engine.slots import Slot
from conformance.spec.mistakes import matches, near_glob

__all__ = ["Adapter", "AdapterError", "Subject", "read_adapter", "read_adapters", "subjects_of"]


@dataclass(frozen=True, eq=False)
class Adapter:
    """One adapter file: fields as in docs/adapters.md. `digest` covers the helpers beside it that it imports."""

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
    """What is judged: an adapter's variant on a device in an environment; `dense` folds all masks into one argument."""

    adapter: Adapter
    variant: str = ""
    device: str = "cpu"
    environment: str = "default"
    dense: bool = False

    @property
    def name(self) -> str:
        """adapter[variant,dense]@device:environment; what is ordinary is left out."""
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
        """Every name under which it can be asked for, the adapter's last."""
        placed = f"{self.short_name}@{self.device}"
        return self.name, self.short_name, placed, f"{placed}:{self.environment}", self.adapter.name

    @property
    def env(self) -> Mapping[str, str]:
        """Environment variables of its process."""
        return dict(self._fields.get("env", {}))

    @property
    def summary(self) -> str:
        """The variant in a sentence."""
        return str(self._fields.get("summary", ""))

    @property
    def framework(self) -> str:
        """The first word of the adapter's name."""
        return self.adapter.framework

    @property
    def counted(self) -> bool:
        """Whether it counts among the subjects; a dense one does not."""
        return not self.dense

    @property
    def thorough(self) -> bool:
        """Whether only a thorough run asks it, unless it is named: a dense form, or a variant of that tier."""
        return self.dense or self._fields.get("tier") == THOROUGH

    @property
    def operators(self) -> tuple[str, ...]:
        """OPERATORS of the variant."""
        return tuple(self._fact("operators"))

    @property
    def requires(self) -> tuple[tuple[str, ...], ...]:
        """REQUIRES of the variant: each entry a choice."""
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
        AdapterError: with every mistake of the file, each as `file:line: what is wrong`.
    """
    facts = read_facts(path.absolute())
    return Adapter(path=path.absolute(), **{name.lower(): value for name, value in facts.items()})


def read_adapters(paths: Iterable[Path]) -> list[Adapter]:
    """
    Read adapter files, and folders of them (files whose names begin with `_` are helpers).

    Raises:
        AdapterError: with every mistake of every file; two adapters of one name are one.
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
            faults.append(f"{adapter.path}:1: NAME {adapter.name!r} is that of {other.path}")
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
    Every subject of the adapters on one device: variants, environments, and the dense form of each.

    A variant has a dense form where a call can choose between arguments: where SLOTS has a flag or a second slot.
    Whether the adapter knows the device is not asked here.
    """
    return [
        Subject(adapter, variant, device, environment, dense)
        for adapter in adapters
        for environment in environments
        for variant in adapter.variants
        for dense in ((False, True) if _has_dense(Subject(adapter, variant)) else (False,))
    ]


def _has_dense(subject: Subject) -> bool:
    return len(subject.slots) > 1 or any(slot.role != "mask" for slot in subject.slots.values())


class SelectionError(Exception):
    """A pattern that selects nothing; the text has the nearest name."""


_FILE = re.compile(r"(?P<file>.+\.py)(?P<rest>[\[@].*)?", re.DOTALL)


def adapter_file(pattern: str) -> tuple[Path, str] | None:
    """
    Split a pattern that names an adapter file: `mine.py`, or `mine.py[variant]@device` for one subject of it.

    None for names and globs of subjects.
    """
    match = _FILE.fullmatch(pattern)
    return (Path(match["file"]), match["rest"] or "") if match else None


def select(subjects: Sequence[Subject], patterns: Sequence[str]) -> list[Subject]:
    """
    The subjects that patterns ask for, in the order of the patterns; all of them where there is no pattern.

    A name of a subject selects that one alone, also where it is a glob or the beginning of others; an adapter's name
    selects all its variants, unless it is a subject itself.

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
            raise SelectionError(f"no subject is of the adapter file {file}")
        return _named(own, f"{own[0].adapter.name}{rest}") if rest else own
    return _named(subjects, pattern)


def _named(subjects: Sequence[Subject], pattern: str) -> list[Subject]:
    *own, _adapter = range(len(subjects[0].names)) if subjects else [0]
    for place in own:
        if exact := [subject for subject in subjects if subject.names[place] == pattern]:
            return exact
    if found := [subject for subject in subjects if any(matches(pattern, name) for name in subject.names)]:
        return found
    near = near_glob(pattern, {name for subject in subjects for name in subject.names})
    hint = f"the nearest name is {near!r}" if near else "conformance list adapters has their names"
    raise SelectionError(f"no subject matches {pattern!r}; {hint}")
