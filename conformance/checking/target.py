"""The function to check: its file or module and its definition, found without importing anything."""

import ast
import difflib
import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# Maximum number of functions of a file that a message names.
MAX_OFFERED = 10

# The file of a package that is imported under the package's name.
INIT = "__init__.py"

# With one of these at its top level, a module may have names that do not stand there: `from x import *`.
OPEN = frozenset({"*", "__getattr__"})


class CheckError(Exception):
    """The function cannot be checked as requested; the message says what to do."""


@dataclass(frozen=True)
class Target:
    """
    The function to check: an object at the top level of a module, or an attribute of one.

    given: FILE:FUNCTION or MODULE:FUNCTION as the user wrote it. function: a name, or a dotted name such as
    Block.attend. definition: the `def` statement, if it is defined by one at the top level. module: the dotted name, if
    the user gave the module. here: whether that is a module of the current folder, which need not be importable.
    """

    given: str
    path: Path
    function: str
    definition: ast.FunctionDef | None = None
    module: str = ""
    here: bool = False

    @property
    def name(self) -> str:
        """Return the name of the subject: module.function, in letters, digits and underscores."""
        module = self.package[1].rpartition(".")[2]
        return ".".join(re.sub(r"[^A-Za-z0-9_]", "_", part) for part in (module, *self.function.split(".")))

    @property
    def package(self) -> tuple[Path | None, str]:
        """Return the folder that must become importable, if any, and the dotted name of the module."""
        if self.module:
            return Path.cwd() if self.here else None, self.module
        folder, parts = self.path.parent, [self.path.stem]
        while (folder / INIT).is_file():
            parts.insert(0, folder.name)
            folder = folder.parent
        if self.path.name == INIT and parts[1:]:
            del parts[-1]
        return folder, ".".join(parts)

    @property
    def is_imported(self) -> bool:
        """Return whether the module is imported by its name, as part of a package or as the user named it."""
        return bool(self.module) or "." in self.package[1]

    @property
    def digest(self) -> str:
        """Return the SHA-256 digest of the file."""
        return f"sha256:{hashlib.sha256(self.path.read_bytes()).hexdigest()}"


def parse_target(text: str) -> Target:
    """
    Find the function that FILE:FUNCTION or MODULE:FUNCTION names.

    Raises:
        CheckError: there is no such file, module or function, or the file is not valid Python.
    """
    place, colon, function = text.rpartition(":")
    place = place if colon else text
    path, module, here = _file_of(place)
    found = _top_level(path)
    first, _, attribute = function.partition(".")
    if colon and (first in found or (first and not OPEN.isdisjoint(found))):
        node = found.get(first)
        definition = node if isinstance(node, ast.FunctionDef) and not attribute else None
        return Target(text, path, function, definition, module, here)
    every = [name for name, node in found.items() if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    public = [name for name in every if not name.startswith("_")] or every
    more = [f"and {len(public) - MAX_OFFERED} more"] if len(public) > MAX_OFFERED else []
    hint = f"; it defines {', '.join((*public[:MAX_OFFERED], *more)) or 'none'}"
    if not function or not colon:
        raise CheckError(f"expected FILE:FUNCTION, such as {place}:{next(iter(public), 'attention')}{hint}")
    if near := difflib.get_close_matches(function, found, 1):
        hint = f"; did you mean {near[0]}?"
    raise CheckError(f"{place} defines no function {function} at its top level{hint}")


def _file_of(place: str) -> tuple[Path, str, bool]:
    """
    Return the file, the name of the module ("" if the file was given), and whether it is one of the current folder.

    Raises:
        CheckError: there is no such file or module, or it is not written in Python.
    """
    path = Path(place).absolute()
    if path.is_file():
        return path, "", False
    expected = "expected FILE:FUNCTION, such as mine.py:attention, or MODULE:FUNCTION, such as package.module:attention"
    if path.suffix == ".py" or not all(part.isidentifier() for part in place.split(".")):
        raise CheckError(
            f"{place} is a folder; {expected}" if path.is_dir() else f"there is no file {place}; {expected}"
        )
    package = place.partition(".")[0]
    here = _specification(place, PathFinder.find_spec(package, [str(Path.cwd())]))
    found = here or _specification(place, _installed(package))
    if found is None:
        raise CheckError(f"there is no file and no module {place}; {expected}")
    if found.origin is None and found.submodule_search_locations is not None:
        raise CheckError(f"{place} is a folder without {INIT}; {expected}")
    if found.origin is None or not found.origin.endswith(".py"):
        raise CheckError(f"the module {place} is not written in Python: write a function that calls it, and check that")
    return Path(found.origin), place, here is not None


def _installed(name: str) -> ModuleSpec | None:
    """Return where a package or module can be imported from, if it can; nothing is imported for that."""
    try:
        return find_spec(name)
    except ValueError:  # a module without a specification, such as __main__
        return None


def _specification(module: str, top: ModuleSpec | None) -> ModuleSpec | None:
    """Return where a module of a package is, given where the package is; None if it has no such module."""
    found, name = top, module.partition(".")[0]
    for part in module.split(".")[1:]:
        if found is None or found.submodule_search_locations is None:
            return None
        name = f"{name}.{part}"
        found = PathFinder.find_spec(name, list(found.submodule_search_locations))
    return found


def _top_level(path: Path) -> dict[str, ast.stmt]:
    """Return each name that the file defines, imports or assigns at its top level, with the statement."""
    try:
        module = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise CheckError(f"{path}:{line}: not valid Python: {getattr(error, 'msg', error)}") from None
    return {name: statement for statement in _statements(module.body) for name in _names(statement)}


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when the module is imported, those inside `if`, `try` and `with` included."""
    for statement in body:
        match statement:
            case ast.If(body=first, orelse=second):
                yield from _statements([*first, *second])
            case ast.Try(body=first, handlers=handlers, orelse=second, finalbody=last):
                caught = [each for handler in handlers for each in handler.body]
                yield from _statements([*caught, *first, *second, *last])
            case ast.With(body=inner):
                yield from _statements(inner)
            case _:
                yield statement


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
