"""Reading one JSON object field by field: every complaint names the place, the key, and what stands there."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isinf
from typing import Any

SPELLED = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}
"""How strict JSON writes the numbers that it has no sign for."""


class RunLogError(ValueError):
    """A run log that cannot be trusted: where, what is wrong, and what can be done."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; non-finite numbers are the strings {', '.join(SPELLED)}")


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError(f"{digits} is beyond float64")
    return number


def strict_json(text: str | bytes) -> Any:
    """Parse JSON as the standard has it: no NaN, no Infinity, nothing that would become one."""
    return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)


@dataclass(frozen=True)
class Fields:
    """A JSON object and the place where it was found."""

    values: Mapping[str, Any]
    where: str

    @classmethod
    def of(cls, value: Any, where: str) -> "Fields":
        """Wrap `value`, which must be an object."""
        if not isinstance(value, dict):
            raise RunLogError(f"{where}: expected an object, found {shown(value)}")
        return cls(value, where)

    def text(self, name: str, default: str | None = None) -> str:
        """A string; `default` where the key is absent or null."""
        value = self._get(name, default)
        if isinstance(value, str):
            return value
        raise self._wrong(name, "a string", value)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """A boolean."""
        value = self._get(name, default)
        if isinstance(value, bool):
            return value
        raise self._wrong(name, "true or false", value)

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self._get(name, default)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self._wrong(name, "a whole number", value)

    def number(self, name: str) -> float | None:
        """A number, or one of the three spelled ones; None where the key is absent or null."""
        value = self.values.get(name)
        if isinstance(value, str) and value in SPELLED:
            return SPELLED[value]
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        raise self._wrong(name, "a number", value)

    def choice(self, name: str, allowed: Iterable[str]) -> str:
        """One of a closed set of words."""
        value = self.text(name)
        if value in (words := tuple(allowed)):
            return value
        raise self._wrong(name, f"one of {', '.join(words)}", value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list shown as strings; what is no string is shown as the JSON that it is."""
        return tuple(item if isinstance(item, str) else json.dumps(item) for item in self.items(name))

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of whole numbers."""
        values = self.items(name)
        if all(isinstance(value, int) for value in values):
            return tuple(values)
        raise self._wrong(name, "a list of whole numbers", values)

    def items(self, name: str) -> list[Any]:
        """A list; empty where the key is absent or null."""
        value = self.values.get(name)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        raise self._wrong(name, "a list", value)

    def mapping(self, name: str) -> dict[str, Any]:
        """An object as it stands; empty where the key is absent or null."""
        value = self.values.get(name)
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        raise self._wrong(name, "an object", value)

    def part(self, name: str) -> "Fields":
        """The object under `name`; an empty one where the key is absent or null."""
        return Fields(self.mapping(name), f"{self.where}.{name}")

    def parts(self, name: str) -> list["Fields"]:
        """The objects in the list under `name`."""
        items = enumerate(self.items(name))
        return [Fields.of(item, f"{self.where}.{name}[{index}]") for index, item in items]

    def named_parts(self, name: str) -> dict[str, "Fields"]:
        """The objects in the object under `name`, by their keys."""
        entries = self.mapping(name).items()
        return {key: Fields.of(value, f"{self.where}.{name}[{key!r}]") for key, value in entries}

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None and default is None:
            raise RunLogError(f"{self.where}: {name!r} is missing")
        return default if value is None else value

    def _wrong(self, name: str, expected: str, value: Any) -> RunLogError:
        return RunLogError(f"{self.where}.{name}: expected {expected}, found {shown(value)}")


def shown(value: Any) -> str:
    """`value` as JSON, short enough for one line of a message."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - what fits beside a path
