"""Merge defaults into an entry, and expand an entry by its matrix into variants with stable names."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from conformance.spec.mistakes import Fault

# Maximum number of cases that one matrix may expand to.
MAX_EXPANSIONS = 1024
# Maximum number of keys and values that one matrix may expand to.
MAX_PARTS = 2**17

# Maximum length of the label of a value in a case id.
MAX_LABEL = 40
# Fields that a matrix cannot vary.
FIXED = ("name", "matrix")

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Setting:
    """A field path set by a matrix: the key as written, and the number of the value."""

    path: Path
    key: str
    number: int


@dataclass(frozen=True)
class Expansion:
    """
    One variant of an entry: the suffix of its id, its fields, and the fields that the matrix set.

    values: key of the matrix -> value.
    """

    suffix: str
    entry: dict[str, Any]
    settings: tuple[Setting, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `over` into `under`: mappings are merged field by field, other values are replaced."""
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def without_metadata(data: Any) -> Any:
    """Drop keys that begin with `x-`, at any depth."""
    if isinstance(data, dict):
        return {key: without_metadata(value) for key, value in data.items() if not key.startswith("x-")}
    if isinstance(data, list) and any(isinstance(item, (dict, list)) for item in data):
        return [without_metadata(item) for item in data]
    return data


def expand(entry: Mapping[str, Any], faults: list[Fault]) -> list[Expansion]:
    """
    Expand `entry` to the product of its matrix; the last key varies fastest.

    Faults of the matrix are appended to `faults`. Faulty keys are left out, so that the rest can be checked too.
    """
    base = {key: value for key, value in entry.items() if key != "matrix"}
    written = entry.get("matrix", {})
    if not isinstance(written, dict):
        faults.append(Fault(("matrix",), "matrix: expected a mapping of field paths to lists of values"))
        written = {}
    axes: dict[str, list[Any]] = {}
    for key, values in written.items():
        key_faults = list(_key_faults(base, key, values))
        faults.extend(key_faults)
        if not key_faults and not key.startswith("x-"):
            axes[key] = values
    if (count := prod(map(len, axes.values()))) > MAX_EXPANSIONS:
        faults.append(Fault(("matrix",), f"the matrix expands to {count} cases; at most {MAX_EXPANSIONS} are allowed"))
        return []
    if axes and (parts := count * _parts(base)) > MAX_PARTS:
        faults.append(
            Fault(
                ("matrix",), f"the matrix expands to {parts} keys and values in total; at most {MAX_PARTS} are allowed"
            )
        )
        return []
    return list(_product(base, axes))


def _parts(data: Any) -> int:
    """Count the values inside a value, itself included."""
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return 1 + sum(map(_parts, inner))


def _product(base: dict[str, Any], axes: dict[str, list[Any]]) -> Iterator[Expansion]:
    names = {key: labels(values) for key, values in axes.items()}
    for numbers in product(*(range(len(values)) for values in axes.values())):
        settings, words, chosen = [], [], {}
        for (key, values), number in zip(axes.items(), numbers, strict=True):
            chosen[key] = values[number]
            settings.append(Setting(_split(key), key, number))
            words.append(f"{key}={names[key][number]}")
        suffix = f"[{','.join(words)}]" if words else ""
        yield Expansion(suffix, with_settings(base, chosen), tuple(settings), chosen)


def with_settings(entry: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Set the fields at these paths, written as in a matrix."""
    for key, value in values.items():
        entry = set_value(entry, _split(key), value)
    return entry


def _key_faults(base: Mapping[str, Any], key: str, values: object) -> Iterator[Fault]:
    """Yield the faults of one key of a matrix; unknown fields are found later, in the expanded entries."""
    path = ("matrix", key)
    if key.startswith("x-"):
        return
    if not isinstance(values, list) or not values:
        yield Fault(path, f"matrix path {key!r}: expected a list of at least one value")
    if key in FIXED:
        yield Fault(path, f"{key!r} cannot be varied by a matrix", at_key=True)
    elif (missing := _missing(base, _split(key))) is not None:
        yield Fault(path, f"matrix path {key!r} does not exist: {missing}", at_key=True)


def _split(key: str) -> Path:
    return tuple(int(part) if part.isdecimal() and len(part) < 6 else part for part in key.split("."))  # noqa: PLR2004


def _missing(base: Mapping[str, Any], path: Path) -> str | None:
    """Say where `path` ends before its last part, or return None if it exists."""
    here: Any = base
    for depth, part in enumerate(path):
        parent = ".".join(map(str, path[:depth]))
        if isinstance(here, list):
            if not isinstance(part, int) or part >= len(here):
                return (
                    f"{parent} has {len(here)} {'item' if len(here) == 1 else 'items'}, so index {part} is out of range"
                )
            here = here[part]
        elif isinstance(here, dict) and isinstance(part, str) and part:
            here = here.get(part, {} if part == "inputs" else None)
        else:
            return f"{parent or 'the entry'} has no {part!r}"
    return None


def set_value(data: Any, path: Path, value: Any) -> Any:
    """Copy `data` with the field at `path` replaced; values off the path are shared, not copied."""
    if not path:
        return value
    part, rest = path[0], path[1:]
    if isinstance(data, list):
        return [set_value(item, rest, value) if number == part else item for number, item in enumerate(data)]
    if not isinstance(data, dict):
        return data  # another key of the matrix replaced this part; its value is checked when the entry is read
    return {**data, part: set_value(data.get(part, {}), rest, value)}


def labels(values: Iterable[Any]) -> list[str]:
    """Return labels for the values of one matrix key; equal labels are numbered from 1."""
    words = [label(value) for value in values]
    return [f"{word}~{number}" if words.count(word) > 1 else word for number, word in enumerate(words, start=1)]


def label(value: Any) -> str:
    """Return a label for a value: of a mapping its kind, of a list the labels of its items joined with +."""
    if isinstance(value, dict):
        value = value.get("kind", "mapping")
    if isinstance(value, list):
        word = "+".join(map(label, value)) or "none"
    elif isinstance(value, bool) or value is None:
        word = {True: "true", False: "false", None: "null"}[value]
    else:
        word = str(value)
    return word if len(word) <= MAX_LABEL else "long"
