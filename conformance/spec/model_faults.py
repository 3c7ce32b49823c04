"""Convert pydantic errors to faults: what is wrong, what was expected, and the nearest valid name."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from pydantic import ValidationError

from conformance.spec.document import MASKS, fields
from conformance.spec.mistakes import MAX_MISTAKES, Fault, nearest
from conformance.spec.texts import quoted

Path = tuple[str | int, ...]

_TYPES = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_parsing_size": "an integer with fewer digits",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a string",
    "list_type": "a list",
    "tuple_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "too_short": "at least one item",
    "string_too_short": "a non-empty string",
    "date_type": "a date such as 2027-06-01",
    "date_parsing": "a date such as 2027-06-01",
    "date_from_datetime_parsing": "a date such as 2027-06-01",
}

# Descriptions of patterns; all other patterns are those of names.
_PATTERNS = {"^https://": "a URL that begins with https://"}

_LENGTHS = {
    "string_too_short": "a string of at least {min_length} characters",
    "string_too_long": "a string of at most {max_length} characters",
    "too_long": "at most {max_length} items",
}

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def faults(error: ValidationError, data: object, names: Callable[[Path], tuple[str, ...]]) -> list[Fault]:
    """
    Return the faults of a rejected mapping, one for each field; those beyond MAX_MISTAKES are only counted.

    data: the validated data. names: returns the valid keys of the mapping at a path.
    """
    by_path: dict[Path, list[Mapping[str, Any]]] = {}
    for detail in error.errors(include_url=False):
        by_path.setdefault(_path(detail["loc"], data, detail["type"]), []).append(detail)
    listed = [_fault(path, details, names) for path, details in islice(by_path.items(), MAX_MISTAKES)]
    more = len(by_path) - len(listed)
    return listed + ([Fault((), "", count=more)] if more else [])


def paths(error: ValidationError, data: object) -> set[Path]:
    """Return the paths of the faults of a rejected mapping."""
    return {_path(detail["loc"], data, detail["type"]) for detail in error.errors(include_url=False)}


def of_entry(error: ValidationError, entry: Mapping[str, Any]) -> list[Fault]:
    """Return the faults of an expanded entry."""

    def names(path: Path) -> tuple[str, ...]:
        return fields(path, _at(entry, (*path, "kind")))

    return faults(error, entry, names)


def _path(loc: Path, data: object, kind: str) -> Path:
    """Return the path in the data for pydantic's `loc`, without the names of union members."""
    return tuple(_steps(loc, data, missing=kind == "missing"))


def _steps(loc: Path, data: Any, *, missing: bool) -> Iterator[str | int]:
    here = data
    for number, part in enumerate(loc):
        if part in here if isinstance(here, dict) else _is_index(part, here):
            here = here[part]
            yield part
        elif missing and number == len(loc) - 1:
            yield part


def _is_index(part: str | int, data: object) -> bool:
    return isinstance(data, list) and isinstance(part, int) and part < len(data)


def _at(data: Any, path: Path) -> Any:
    for part in path:
        if isinstance(data, dict):
            data = data.get(part)
        elif _is_index(part, data):
            data = data[part]
        else:
            return None
    return data


def _fault(path: Path, details: list[Mapping[str, Any]], names: Callable[[Path], tuple[str, ...]]) -> Fault:
    """Make one fault from the pydantic errors at one path; there are several if every union member was rejected."""
    detail = details[0]
    kind, name = detail["type"], _name(path)
    if kind == "extra_forbidden":
        return Fault(path, f"unknown key {quoted(path[-1])}{nearest(path[-1], names(path[:-1]))}", at_key=True)
    if kind == "missing":
        last = path[-1] if path else ""
        return Fault(path, f"item {last} is missing" if isinstance(last, int) else f"{last!r} is required here")
    if kind == "value_error":
        return Fault(path, f"{name}: {detail['ctx']['error']}")
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _kind_fault(path, detail["input"])
    if kind == "literal_error" and len(details) == 1 and isinstance(detail["input"], str):
        hint = nearest(detail["input"], _options(detail))
        return Fault(path, f"{name}: {quoted(detail['input'])} is not valid{hint}")
    expected = " or ".join(dict.fromkeys(map(_expected, details)))
    return Fault(path, f"{name}: expected {expected}, got {quoted(detail['input'])}")


def _name(path: Path) -> str:
    if not path:
        return "the file"
    return path[-1] if isinstance(path[-1], str) else ".".join(map(str, path))


def _kind_fault(path: Path, mask: object) -> Fault:
    given = mask.get("kind") if isinstance(mask, dict) else None
    if given is None:
        return Fault(path, f"a mask needs a kind; expected one of {', '.join(MASKS)}")
    return Fault((*path, "kind"), f"unknown kind {quoted(given)}{nearest(given, MASKS)}")


def _options(detail: Mapping[str, Any]) -> list[str]:
    text = str(detail["ctx"]["expected"]).replace(" or ", ", ")
    return [option.strip("'") for option in text.split(", ")]


def _expected(detail: Mapping[str, Any]) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "literal_error":
        return ", ".join(_options(detail))
    if kind in _BOUNDS:
        key, words = _BOUNDS[kind]
        return f"{words} {context[key]:g}"
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(context["pattern"], "lower-case letters, digits and underscores")
    if kind in _LENGTHS and context.get("min_length") != 1:
        return _LENGTHS[kind].format(**context)
    return _TYPES.get(kind, str(detail["msg"]))
