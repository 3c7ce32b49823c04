"""The function to check: its file and its definition, read without importing the file."""

import ast
import difflib
import functools
import hashlib
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Maximum number of functions of a file that a message names.
MAX_OFFERED = 10


class CheckError(Exception):
    """The function cannot be checked as requested; the message says what to do."""


@dataclass(frozen=True)
class Target:
    """
    The function to check: an object at the top level of a file, or an attribute of one.

    given: FILE:FUNCTION as the user wrote it. function: a name, or a dotted name such as Block.attend. definition: the
    `def` statement, if it is defined by one at the top level.
    """

    given: str
    path: Path
    function: str
    definition: ast.FunctionDef | None = None

    @property
    def name(self) -> str:
        """Return the name of the subject: file.function, in letters, digits and underscores."""
        return ".".join(re.sub(r"[^A-Za-z0-9_]", "_", part) for part in (self.path.stem, *self.function.split(".")))

    @property
    def package(self) -> tuple[Path, str]:
        """Return the folder that must be importable, and the dotted name of the module in it."""
        folder, parts = self.path.parent, [self.path.stem]
        while (folder / "__init__.py").is_file():
            parts.insert(0, folder.name)
            folder = folder.parent
        return folder, ".".join(parts)

    @property
    def digest(self) -> str:
        """Return the SHA-256 digest of the file."""
        return f"sha256:{hashlib.sha256(self.path.read_bytes()).hexdigest()}"


def parse_target(text: str) -> Target:
    """
    Find the function that FILE:FUNCTION names.

    Raises:
        CheckError: there is no such file or function, or the file is not valid Python.
    """
    file, colon, function = text.rpartition(":")
    path = Path(file if colon else text).absolute()
    if not path.is_file():
        raise CheckError(
            f"there is no file {file if colon else text}; expected FILE:FUNCTION, such as mine.py:attention"
        )
    found = _top_level(path)
    first, _, attribute = function.partition(".")
    if colon and first in found:
        node = found[first]
        return Target(text, path, function, node if isinstance(node, ast.FunctionDef) and not attribute else None)
    every = [name for name, node in found.items() if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    public = [name for name in every if not name.startswith("_")] or every
    more = [f"and {len(public) - MAX_OFFERED} more"] if len(public) > MAX_OFFERED else []
    hint = f"; it defines {', '.join((*public[:MAX_OFFERED], *more)) or 'none'}"
    if not function or not colon:
        name = file if colon else text
        raise CheckError(f"expected FILE:FUNCTION, such as {name}:{next(iter(public), 'attention')}{hint}")
    if near := difflib.get_close_matches(function, found, 1):
        hint = f"; did you mean {near[0]}?"
    raise CheckError(f"{file} defines no function {function} at its top level{hint}")


def _top_level(path: Path) -> dict[str, ast.stmt]:
    """Return each name that the file defines, imports or assigns at its top level, with the statement."""
    try:
        module = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise CheckError(f"{path}:{line}: not valid Python: {getattr(error, 'msg', error)}") from None
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
    Find the file that defines a function, from which a worker process loads it.

    Raises:
        CheckError: the function is not defined at the top level of a file.
    """
    plain = inspect.unwrap(function)
    name = getattr(plain, "__qualname__", type(plain).__name__)
    file = _source_of(plain)
    if file is None or "." in name or name == "<lambda>":
        raise CheckError(_instance_text(plain) or _NOT_LOADED.format(name))
    return parse_target(f"{_from_here(file)}:{name}")


_NOT_LOADED = (
    "{} cannot be checked: a worker process loads the function by its file and name, so it must be defined with def at "
    "the top level of a file"
)
INSTEAD = "so that check can build an instance with the sizes of each call"


def _source_of(plain: Any) -> Path | None:
    """Return the file that defines a function or class; None if there is none."""
    try:
        file = inspect.getsourcefile(plain)
    except TypeError:
        return None
    return Path(file) if file is not None and Path(file).is_file() else None


def _instance_text(plain: Any) -> str:
    """Say what to give instead of an instance, or of its method, if a file defines its class; "" for anything else."""
    owner = plain.__self__ if inspect.ismethod(plain) else plain
    kind = type(owner)
    file = None if isinstance(owner, type | functools.partial) else _source_of(kind)
    if file is None or not isinstance(_top_level(file).get(kind.__qualname__), ast.ClassDef):
        return ""
    what = "an instance" if plain is owner else f"the method {plain.__name__} of an instance"
    return f"{what} of {kind.__name__} was given: give the class instead, {INSTEAD}"


def _from_here(path: Path) -> Path:
    """Return a path relative to the current folder if possible, so that a printed command works on other machines."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
