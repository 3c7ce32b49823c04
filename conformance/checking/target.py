"""The function that is checked: where it stands, and its definition, read without importing it."""

import ast
import difflib
import hashlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class CheckError(Exception):
    """What was asked for cannot be checked as it is written; the text says what to do."""


@dataclass(frozen=True)
class Target:
    """
    What is checked: something at the top level of a file, or an attribute of that.

    given: FILE:FUNCTION as the user wrote it. function: a name, or a dotted one such as Block.attend. definition: its
    `def`, where it is written with one at the top level.
    """

    given: str
    path: Path
    function: str
    definition: ast.FunctionDef | None = None

    @property
    def name(self) -> str:
        """The subject's name: file.function, in letters, digits and underscores."""
        return ".".join(re.sub(r"[^A-Za-z0-9_]", "_", part) for part in (self.path.stem, *self.function.split(".")))

    @property
    def package(self) -> tuple[Path, str]:
        """The folder that must be importable, and the dotted name of the module from there."""
        folder, parts = self.path.parent, [self.path.stem]
        while (folder / "__init__.py").is_file():
            parts.insert(0, folder.name)
            folder = folder.parent
        return folder, ".".join(parts)

    @property
    def digest(self) -> str:
        """sha256 of the file."""
        return f"sha256:{hashlib.sha256(self.path.read_bytes()).hexdigest()}"


def parse_target(text: str) -> Target:
    """
    Find what FILE:FUNCTION names.

    Raises:
        CheckError: there is no such file or function, or the file is no Python.
    """
    file, colon, function = text.rpartition(":")
    path = Path(file if colon else text).absolute()
    if not path.is_file():
        raise CheckError(
            f"there is no file {file if colon else text}; expected FILE:FUNCTION, such as mine.py:attention"
        )
    found = _top_level(path)
    functions = [name for name, node in found.items() if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    first, _, attribute = function.partition(".")
    if colon and first in found:
        node = found[first]
        return Target(text, path, function, node if isinstance(node, ast.FunctionDef) and not attribute else None)
    near = difflib.get_close_matches(function, found, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; it defines {', '.join(functions) or 'none'}"
    if not colon:
        raise CheckError(f"expected FILE:FUNCTION, such as {text}:{next(iter(functions), 'attention')}{hint}")
    raise CheckError(f"{file} defines no function {function} at its top level{hint}")


def _top_level(path: Path) -> dict[str, ast.stmt]:
    """Every name that the file defines, imports or assigns at its top level, with the statement."""
    try:
        module = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise CheckError(f"{path}:{line}: no Python: {getattr(error, 'msg', error)}") from None
    return {name: statement for statement in module.body for name in _names(statement)}


def _names(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [each.id for each in targets if isinstance(each, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [each.asname or each.name for each in names]
        case _:
            return []


def target_of(function: Callable[..., Any]) -> Target:
    """
    Find where a function is defined: a worker process loads it from there.

    Raises:
        CheckError: it does not stand at the top level of a file.
    """
    plain = inspect.unwrap(function)
    name = getattr(plain, "__qualname__", type(plain).__name__)
    try:
        file = inspect.getsourcefile(plain)
    except TypeError:
        file = None
    if file is None or not Path(file).is_file() or "." in name or name == "<lambda>":
        raise CheckError(
            f"{name} cannot be checked: a worker process loads the function by its file and name, "
            "so it must be defined with def at the top level of a file"
        )
    return parse_target(f"{_from_here(Path(file))}:{name}")


def _from_here(path: Path) -> Path:
    """A path as a user of the working folder writes it, so that a command holds on another machine."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
