"""
A drop-in replacement for a subject: the adapter of the subject, with the user's function as its target.

The adapter is copied and its line `TARGET = ...` replaced; slots, tensors, declaration and profile are the subject's.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import places
from conformance.bridge.loading import sources
from conformance.checking.adapter_text import ADAPTER, FUNCTION, borrowed_function_text, overriding_text
from conformance.checking.arithmetic import profiles_by_dtype, profiles_named
from conformance.checking.declarations import read_declared
from conformance.checking.target import CheckError, Target
from conformance.engine.adapters import (
    Adapter,
    SelectionError,
    Subject,
    read_adapter,
    read_adapters,
    select,
    subjects_of,
)
from conformance.engine.environments import install_command, missing, our_own
from conformance.spec.problem import Problem

TARGET = "TARGET"
_TARGET_LINE = f"from .{Path(FUNCTION).stem} import FUNCTION as {TARGET}"


@dataclass(frozen=True)
class DropIn:
    """The variant of a subject that the function replaces."""

    subject: Subject

    @property
    def operator(self) -> str:
        """Return the operator that the subject computes."""
        return self.subject.operators[0]

    @property
    def note(self) -> str:
        """Return a sentence about what the function is compared with."""
        return f"judged as {self.subject.name}, with its documented arguments, dialect and arithmetic"


def find_drop_in(like: str) -> DropIn:
    """
    Find the subject to replace: the first variant that matches `like`.

    Raises:
        CheckError: there is none, its packages are missing, or its adapter has no target to replace.
    """
    adapters = read_adapters([places.adapters()])
    try:
        subject = select(subjects_of(adapters), [like])[0]
    except SelectionError as error:
        raise CheckError(f"--as: {error}") from None
    if _assignment(subject.adapter.path, TARGET) is None:
        able = ", ".join(each.name for each in adapters if _assignment(each.path, TARGET))
        raise CheckError(f"--as {like}: {subject.adapter.name} cannot be replaced by a function; these can: {able}")
    if lacking := missing(subject, our_own()):
        raise CheckError(f"--as {like}: needs {', '.join(lacking)}: {install_command('python', lacking)}")
    return DropIn(subject)


def adapt_drop_in(
    drop_in: DropIn, target: Target, folder: Path, declare: Mapping[str, str], profile: str | None, example: Problem
) -> list[Subject]:
    """
    Write the changed adapter into `folder`, and return its subjects: the variant and its dense form.

    Raises:
        CheckError: the declaration is not valid.
    """
    original = drop_in.subject.adapter
    declared = read_declared(declare, drop_in.subject.slots, example)
    if declared.polarity:
        raise CheckError("--declare polarity cannot be used with --as: the subject defines what True means")
    text = _with_target(original, target)
    if declare or profile:
        profiles = profiles_named(profiles_by_dtype(profile, drop_in.subject.dtypes)) if profile else {}
        text += overriding_text(profiles, declared.dialect, tuple(declare))
    for helper in sources(original.path)[1:]:
        (folder / helper.name).write_bytes(helper.read_bytes())
    (folder / ADAPTER).write_text(text, encoding="utf-8")
    (folder / FUNCTION).write_text(borrowed_function_text(target, str(Path.cwd())), encoding="utf-8")
    return _of_variant(subjects_of([read_adapter(folder / ADAPTER)]), drop_in.subject.variant)


def _of_variant(subjects: Sequence[Subject], variant: str) -> list[Subject]:
    return [subject for subject in subjects if subject.variant == variant]


def _assignment(path: Path, name: str) -> ast.Assign | None:
    """Return the top-level assignment to a name, or None."""
    for statement in ast.parse(path.read_bytes(), str(path)).body:
        targets: Sequence[Any] = statement.targets if isinstance(statement, ast.Assign) else ()
        if isinstance(statement, ast.Assign) and [getattr(each, "id", "") for each in targets] == [name]:
            return statement
    return None


def _with_target(adapter: Adapter, target: Target) -> str:
    """Return the source of the adapter with the function as its target and with the function's name."""
    lines = adapter.path.read_text(encoding="utf-8").splitlines()
    for name, line in ((TARGET, _TARGET_LINE), ("NAME", f"NAME = {target.name!r}")):
        statement = _assignment(adapter.path, name)
        if statement is None or statement.end_lineno != statement.lineno:
            raise CheckError(f"{adapter.path.name} has no line {name} = ...")
        lines[statement.lineno - 1] = line
    return "\n".join(lines) + "\n"
