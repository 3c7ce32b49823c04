"""
A function that is meant as a drop-in for a subject: that subject's adapter, with the function as its target.

The adapter is copied, and its line `TARGET = ...` exchanged: slots, tensors, declaration and profile are the subject's.
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
    """The variant of a subject whose place the function takes."""

    subject: Subject

    @property
    def operator(self) -> str:
        """What it computes."""
        return self.subject.operators[0]

    @property
    def note(self) -> str:
        """What the function is held to, in a sentence."""
        return f"held to what {self.subject.name} documents: its arguments, its dialect, its arithmetic"


def find_drop_in(like: str) -> DropIn:
    """
    Choose the subject: the first variant of what `like` names.

    Raises:
        CheckError: there is none, its packages are missing, or its adapter has no target to exchange.
    """
    adapters = read_adapters([places.adapters()])
    try:
        subject = select(subjects_of(adapters), [like])[0]
    except SelectionError as error:
        raise CheckError(f"--as: {error}") from None
    if _assignment(subject.adapter.path, TARGET) is None:
        able = ", ".join(each.name for each in adapters if _assignment(each.path, TARGET))
        raise CheckError(
            f"--as {like}: {subject.adapter.name} is no function that another can stand in for, as {able} are"
        )
    if lacking := missing(subject, our_own()):
        raise CheckError(f"--as {like}: needs {', '.join(lacking)}: {install_command('python', lacking)}")
    return DropIn(subject)


def adapt_drop_in(
    loan: DropIn, target: Target, folder: Path, declare: Mapping[str, str], profile: str | None, example: Problem
) -> list[Subject]:
    """
    Write the exchanged adapter into `folder`; the subjects are its variant, and the dense form of it.

    Raises:
        CheckError: something is declared that cannot be.
    """
    original = loan.subject.adapter
    declared = read_declared(declare, loan.subject.slots, example)
    if declared.polarity:
        raise CheckError("--declare polarity: with --as the subject says what True means")
    text = _exchanged(original, target)
    if declare or profile:
        profiles = profiles_named(profiles_by_dtype(profile, loan.subject.dtypes)) if profile else {}
        text += overriding_text(profiles, declared.dialect, tuple(declare))
    for helper in sources(original.path)[1:]:
        (folder / helper.name).write_bytes(helper.read_bytes())
    (folder / ADAPTER).write_text(text, encoding="utf-8")
    (folder / FUNCTION).write_text(borrowed_function_text(target, str(Path.cwd())), encoding="utf-8")
    return _of_variant(subjects_of([read_adapter(folder / ADAPTER)]), loan.subject.variant)


def _of_variant(subjects: Sequence[Subject], variant: str) -> list[Subject]:
    return [subject for subject in subjects if subject.variant == variant]


def _assignment(path: Path, name: str) -> ast.Assign | None:
    """The top-level assignment to one name."""
    for statement in ast.parse(path.read_bytes(), str(path)).body:
        targets: Sequence[Any] = statement.targets if isinstance(statement, ast.Assign) else ()
        if isinstance(statement, ast.Assign) and [getattr(each, "id", "") for each in targets] == [name]:
            return statement
    return None


def _exchanged(adapter: Adapter, target: Target) -> str:
    """The adapter's text under the function's name, with the function as its target."""
    lines = adapter.path.read_text(encoding="utf-8").splitlines()
    for name, line in ((TARGET, _TARGET_LINE), ("NAME", f"NAME = {target.name!r}")):
        statement = _assignment(adapter.path, name)
        if statement is None or statement.end_lineno != statement.lineno:
            raise CheckError(f"{adapter.path.name} has no line {name} = ...")
        lines[statement.lineno - 1] = line
    return "\n".join(lines) + "\n"
