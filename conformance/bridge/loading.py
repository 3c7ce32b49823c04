"""
Load an adapter by its path, under a private package, and keep what takes seconds to make, such as an exported model.

`from ._torch import ...` finds `_torch.py` next to the adapter; only files whose names begin with `_` are found. The
adapter's folder is never added to `sys.path`, so no file in it can shadow a real module of the same name.
"""

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "_conformance_adapter"


class _FromSource(SourceFileLoader):
    """
    Compiles the source file every time; existing bytecode is ignored and none is written.

    Python validates bytecode by a modification time in seconds and a size. That is too coarse for a file that is edited
    and judged again within a second; `digest` would see the edit.
    """

    def path_stats(self, path: "str | bytes") -> "Mapping[str, Any]":
        """Raise OSError, so that no bytecode is looked for."""
        raise OSError(f"{path!r} is compiled each time")


class _Helpers:
    """Finds the files next to an adapter whose names begin with `_`, as modules of the private package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(
        self, fullname: str, _path: "Sequence[str] | None" = None, _target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        package, _, name = fullname.rpartition(".")
        file = self.folder / f"{name}.py"
        if package != PACKAGE or not name.startswith("_") or not file.is_file():
            return None
        return importlib.util.spec_from_file_location(fullname, file, loader=_FromSource(fullname, str(file)))


def load(path: Path) -> ModuleType:
    """
    Import the adapter at `path`.

    A process may load a second adapter only if it has the same helper files: those that were imported are kept.

    Raises:
        ImportError: the file is not a Python source file.
        Exception: whatever the adapter's own code raises.
    """
    package = ModuleType(PACKAGE)
    package.__path__ = []
    sys.modules[PACKAGE] = package
    sys.meta_path.insert(0, _Helpers(path.parent))
    name = f"{PACKAGE}.{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_FromSource(name, str(path)))
    if path.suffix != ".py" or spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def sources(path: Path) -> list[Path]:
    """The adapter's file and the helper files that it imports, directly or through other helpers."""
    found = [path]
    for file in found:
        found += [helper for helper in _imported(file) if helper not in found]
    return [path, *sorted(found[1:])]


def _imported(file: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(file.read_bytes(), str(file))):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in dict.fromkeys(names):
                helper = file.parent / f"{name}.py"
                if name.startswith("_") and helper.is_file():
                    yield helper


def digest(path: Path) -> str:
    """The sha256 of the names and contents of `sources`."""
    total = hashlib.sha256()
    for file in sources(path):
        content = file.read_bytes()
        total.update(f"{file.name} {len(content)}\n".encode())
        total.update(content)
    return f"sha256:{total.hexdigest()}"


def kept(key: str, make: Callable[[], bytes], suffix: str) -> bytes:
    """
    What `make` returns, from the folder that CONFORMANCE_CACHE names if an earlier process kept it there.

    `key` is everything that could change the bytes: equal keys mean equal bytes. Without the variable nothing is kept.
    Several processes may use one folder: a file appears whole or not at all, and may be removed at any time.
    """
    folder = os.environ.get("CONFORMANCE_CACHE")
    if not folder:
        return make()
    file = Path(folder) / f"{hashlib.sha256(key.encode()).hexdigest()}{suffix}"
    try:
        return file.read_bytes()
    except FileNotFoundError:
        made = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(made)
    unfinished.replace(file)
    return made
