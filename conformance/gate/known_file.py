"""The format of files of known deviations (docs/known-deviations.md), and reading them."""

import dataclasses
import datetime as dt
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from conformance.bridge.profile import Profile
from conformance.deviations.catalogue import find
from conformance.deviations.deviation import Dialect
from conformance.diagnosis.conditions import Condition, always
from conformance.engine.adapters import without_environment
from conformance.engine.environments import FEATURES, Machine
from conformance.spec import yaml_syntax
from conformance.spec.mistakes import CaseFileErrors, Mistake, Mistakes, matches, nearest
from conformance.spec.model_faults import faults
from conformance.spec.old_names import current_value

# One or several names or globs, of which any may match.
Globs = Annotated[
    tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given), Field(min_length=1)
]


class Delta(BaseModel):
    """The difference from the declaration: decisions by name, and fields of the profile."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decisions: dict[str, str] = Field(default_factory=dict)
    profile: dict[str, str | float | bool | None] = Field(default_factory=dict)

    @field_validator("decisions")
    @classmethod
    def _known_decisions(cls, decisions: dict[str, str]) -> dict[str, str]:
        decisions = {decision: current_value(decision, name) for decision, name in decisions.items()}
        for decision, name in decisions.items():
            if name != "canonical":
                try:
                    find(decision, name)
                except KeyError as error:
                    raise ValueError(str(error.args[0])) from None
        return decisions

    @field_validator("profile")
    @classmethod
    def _known_fields(cls, fields: dict[str, Any]) -> dict[str, Any]:
        valid = [each.name for each in dataclasses.fields(Profile)]
        for name in fields:
            if name not in valid:
                raise ValueError(f"a profile has no field {name!r}{nearest(name, valid)}")
        try:
            Profile.uniform("float32").but(**fields)
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a valid profile: {error}") from None
        return fields

    def applied_to(self, dialect: Dialect) -> dict[str, str]:
        """The declared dialect with the delta's decisions applied."""
        merged = {**dialect, **self.decisions}
        return {decision: name for decision, name in merged.items() if name != "canonical"}


class Accept(BaseModel):
    """
    A verdict that is not about numbers, accepted if its message contains a match of a regular expression.

    `fail` means that a call that must be refused has a reply.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    verdict: Literal["error", "crash", "timeout", "inconclusive", "fail"]
    message: str = ""

    @field_validator("message")
    @classmethod
    def _is_pattern(cls, message: str) -> str:
        try:
            re.compile(message)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"not a valid regular expression: {error}") from None
        return message


class MachineCondition(BaseModel):
    """
    A condition on the machine; every given field must hold.

    cpu, without_cpu: instruction sets that the CPU has, or lacks, named as in /proc/cpuinfo. libraries: the libraries
    that compute, as the adapter reports them (`libraries` of its evidence). environment: variables of the worker, as
    the adapter reports them (`environment` of its evidence); null means not set.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cpu: list[str] = Field(default_factory=list)
    without_cpu: list[str] = Field(default_factory=list)
    libraries: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str | None] = Field(default_factory=dict)

    @field_validator("cpu", "without_cpu")
    @classmethod
    def _known_features(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in FEATURES:
                raise ValueError(f"unknown instruction set {name!r}{nearest(name, FEATURES)}")
        return names

    def holds(self, machine: Machine) -> bool:
        """Whether a machine meets the condition; an unknown property does not."""
        return (
            set(machine.cpu).issuperset(self.cpu)
            and (not self.without_cpu or bool(machine.cpu))
            and set(machine.cpu).isdisjoint(self.without_cpu)
            and all(machine.libraries.get(name) == library for name, library in self.libraries.items())
            and all(
                name in machine.environment and machine.environment[name] == value
                for name, value in self.environment.items()
            )
        )


class KnownEntry(BaseModel):
    """One known deviation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: Globs
    cases: Globs = ("*",)
    versions: dict[str, str] = Field(default_factory=dict)
    platform: str = "*"
    machine: MachineCondition = MachineCondition()
    when: Condition = Field(default_factory=always)
    delta: Delta | None = None
    accept: Accept | None = None
    reason: str = Field(min_length=10)
    link: str = Field(pattern=r"^https://")
    expires: dt.date | None = None

    @field_validator("versions")
    @classmethod
    def _specifiers(cls, versions: dict[str, str]) -> dict[str, str]:
        for package, text in versions.items():
            try:
                SpecifierSet(text)
            except InvalidSpecifier:
                raise ValueError(f"{package}: {text!r} is not a version condition such as '>=3.14,<4'") from None
        return versions

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.delta is None) == (self.accept is None):
            raise ValueError("an entry must have exactly one of delta and accept")
        return self

    def concerns(self, subject: str, case: str) -> bool:
        """Whether the entry is about this subject and this case."""
        return self.names(subject) and self.has(case)

    def has(self, case: str) -> bool:
        """Whether the entry is about this case."""
        return "*" in self.cases or any(matches(glob, case) for glob in self.cases)

    def names(self, subject: str) -> bool:
        """Whether the entry is about this subject, in whatever environment it runs."""
        return any(matches(glob, name) for name in (subject, without_environment(subject)) for glob in self.subject)


class KnownFile(BaseModel):
    """The format of a file of known deviations."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1]
    deviations: list[KnownEntry]


# The known deviations of today's frameworks, shipped with the package.
PACKAGED = Path(__file__).with_name("known.yaml")

_KEYS = {
    0: tuple(KnownFile.model_fields),
    2: tuple(KnownEntry.model_fields),
    "when": tuple(Condition.model_fields),
    "delta": tuple(Delta.model_fields),
    "accept": tuple(Accept.model_fields),
}


def read_known(paths: Iterable[Path]) -> list[tuple[KnownEntry, str]]:
    """
    Read the entries of all files in order, each with its origin (`known.yaml:12`).

    Raises:
        CaseFileErrors: contains every mistake of every file.
    """
    entries: list[tuple[KnownEntry, str]] = []
    mistakes: list[Mistake] = []
    for path in paths:
        name = shown_entry(path)
        document = yaml_syntax.read_file(path, name)
        mistakes += document.mistakes
        if document.mistakes:
            continue
        if document.node is None:
            mistakes.append(Mistake(name, 1, 1, "the file is empty; expected format and deviations"))
            continue
        try:
            checked = KnownFile.model_validate(document.data)
        except ValidationError as error:
            found = Mistakes(name)
            for fault in faults(error, document.data, _names):
                position = yaml_syntax.find([document.node], fault.path, at_key=fault.at_key)
                found.note(*position, fault.message, fault.count)
            mistakes += found.listed(yaml_syntax.last_line(document.node))
            continue
        for number, entry in enumerate(checked.deviations):
            line, _ = yaml_syntax.find([document.node], ("deviations", number))
            entries.append((entry, f"{name}:{line}"))
    if mistakes:
        raise CaseFileErrors(mistakes)
    return entries


def shown_entry(path: Path) -> str:
    """The name of a file in messages and origins: only the file name if it is packaged, else the path as given."""
    return path.name if path == PACKAGED else str(path)


def _names(path: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that are valid in the mapping at `path`."""
    inner = path[2] if len(path) > 2 else len(path)  # noqa: PLR2004 - deviations, number, field
    return _KEYS.get(inner, ())
