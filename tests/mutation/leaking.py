"""Test whether NaN in a masked value reaches the reply of a bug, because that decides which causes are right."""

from collections.abc import Callable
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from .bugs_list import Bug

BATCH, HEADS, QUERIES, KEYS, DIM = 2, 3, 5, 7, 4
# The key that is masked for every query.
HIDDEN = 2


def leaks(bug: Bug) -> bool:
    """Whether the reply has NaN if a masked value, or a masked key and value, is NaN, but not if both are finite."""
    path, _, name = bug.given.rpartition(":")
    return function_leaks(getattr(import_module(f"mutation.bugs.{Path(path).stem}"), name))


def function_leaks(function: Callable[..., Any]) -> bool:
    """Whether a function leaks in the same way; it has a form that `conformance check` accepts."""
    clean, *poisoned = (_has_nan(function, names) for names in ((), ("value",), ("key", "value")))
    return not clean and any(poisoned)


def _has_nan(function: Callable[..., Any], poisoned: tuple[str, ...]) -> bool:
    rng = np.random.default_rng(7)
    layer = "params" in signature(function).parameters
    sizes = {"query": QUERIES, "key": KEYS, "value": KEYS}
    width = HEADS * DIM
    arrays = {
        name: rng.normal(size=(BATCH, length, width) if layer else (BATCH, HEADS, length, DIM)).astype(np.float32)
        for name, length in sizes.items()
    }
    for name in poisoned:
        arrays[name][..., HIDDEN, :] = np.nan
    mask = np.arange(KEYS)[None, None, None] != HIDDEN
    params = {f"w{name}": rng.normal(size=(width, width)).astype(np.float32) for name in "qkvo"}
    params |= {f"b{name}": rng.normal(size=width).astype(np.float32) for name in "qkvo"}
    more = (params, HEADS) if layer else ()
    with np.errstate(all="ignore"):
        reply = function(*arrays.values(), *more, np.broadcast_to(mask, (BATCH, 1, 1, KEYS)).copy())
    return bool(np.isnan(reply[0] if isinstance(reply, tuple) else reply).any())
