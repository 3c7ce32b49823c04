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

from conformance.own.errors import CheckError


@dataclass(frozen=True)
class Target:
    """
    A function at the top level of a file.

    given: FILE:FUNCTION as the user wrote it. definition: its `def`, for the signature.
    """

    given: str
    path: Path
    function: str
    definition: ast.FunctionDef

    @property
    def name(self) -> str:
        """The subject's name: file.function, in letters, digits and underscores."""
        return ".".join(re.sub(r"[^A-Za-z0-9_]", "_", part) for part in (self.path.stem, self.function))

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
    functions = _functions(path)
    if colon and function in functions:
        return Target(text, path, function, functions[function])
    near = difflib.get_close_matches(function, functions, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; it defines {', '.join(functions) or 'none'}"
    if not colon:
        raise CheckError(f"expected FILE:FUNCTION, such as {text}:{next(iter(functions), 'attention')}{hint}")
    raise CheckError(f"{file} defines no function {function} at its top level{hint}")


def _functions(path: Path) -> dict[str, ast.FunctionDef]:
    try:
        module = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise CheckError(f"{path}:{line}: no Python: {getattr(error, 'msg', error)}") from None
    return {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}


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
    return parse_target(f"{file}:{name}")
