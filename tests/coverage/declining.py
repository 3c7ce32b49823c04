"""
Find out whether an adapter declines a call, without its framework.

The adapter runs up to its framework call, on stand-ins for every framework. An adapter declines a call before that
point, by the facts of the call alone. `test_surface.py` shows with real frameworks that the stand-ins change nothing.
"""

import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import conformance.bridge
from conformance.bridge.contract import Call, Unsupported
from conformance.bridge.loading import PACKAGE, load

FRAMEWORKS = (
    *("equinox", "flax", "jax", "keras", "ml_dtypes", "onnx", "onnxruntime", "onnxscript", "openvino", "tensorflow"),
    *("tf_keras", "torch", "transformers"),
)


class Reached(BaseException):
    """The adapter has reached its framework call."""


@contextmanager
def stopping() -> Iterator[None]:
    """Replace framework_call, and stop there."""
    raise Reached
    yield  # type: ignore[unreachable]  # it makes this a generator


class _StandIn(ModuleType):
    """A module that has every attribute."""

    __path__: MutableSequence[str] = []  # noqa: RUF012 - an attribute of every package
    __all__: Sequence[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = type(name, (), {}) if name in ("Module", "Layer") else MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads a stand-in for every module of a framework."""

    def find_spec(self, fullname: str, _path: Any = None, _target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in FRAMEWORKS:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a stand-in has no code to run."""


@contextmanager
def stand_ins() -> Iterator[None]:
    """Make imports of frameworks give stand-ins; restore everything afterwards."""
    ours = (*FRAMEWORKS, PACKAGE)
    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in ours}
    finder, path, marks = _StandIns(), list(sys.meta_path), conformance.bridge.framework_call
    for name in before:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    conformance.bridge.framework_call = stopping
    try:
        yield
    finally:
        conformance.bridge.framework_call = marks
        sys.meta_path[:] = path
        for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
            del sys.modules[name]
        sys.modules.update(before)


@cache
def loaded(path: Path) -> Any:
    """Return the adapter, loaded on stand-ins."""
    with stand_ins():
        return load(path)


def declines(path: Path, call: Call) -> str | None:
    """Return why the adapter declines the call, or None."""
    adapter = loaded(path)
    try:
        getattr(adapter, call.facts.operator)(call)
    except Unsupported as unsupported:
        return str(unsupported)
    except (Reached, Exception):  # noqa: BLE001 - other errors come from stand-ins and decline nothing
        return None
    return None
