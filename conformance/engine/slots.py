"""The SLOTS of an adapter: what it says about its mask, causal, window and lengths arguments (docs/adapters.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.spec.masks import KINDS

ROLES = ("mask", "causal", "window", "lengths")
MEANINGS = {
    "bool": ("attend", "ignore", "undocumented"),
    "int": ("attend", "ignore", "add", "undocumented"),
    "float": ("add", "attend", "undocumented"),
}
ALIGNMENTS = ("top_left", "bottom_right", "past")
_LISTS = ("takes", "broadcast", "excludes", "requires", "same_element_as", "moved_by", "without", "only_with")


@dataclass(frozen=True)
class Slot:
    """One argument; the fields are described in docs/adapters.md. `elements` maps bool, int, float to a meaning."""

    name: str
    role: str
    takes: tuple[str, ...] = ()
    axes: tuple[tuple[str, ...], ...] = ()
    broadcast: tuple[str, ...] = ()
    elements: tuple[tuple[str, str], ...] = ()
    alignment: str = "top_left"
    hint: bool = False
    symmetric: bool = False
    excludes: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    same_element_as: tuple[str, ...] = ()
    moved_by: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only_with: tuple[str, ...] = ()
    short: bool = False
    attached: bool = False

    def meaning(self, element: str) -> str | None:
        """What the framework documents for an element type; None if the argument does not accept it."""
        return dict(self.elements).get(element)

    @property
    def width(self) -> int:
        """The number of axes of its widest form."""
        return max((len([part for axis in form for part in axis.split("*")]) for form in self.axes), default=0)


def parse_slots(literal: Mapping[str, Mapping[str, Any]]) -> dict[str, Slot]:
    """
    Check an adapter's SLOTS and turn them into records.

    Raises:
        ValueError: a key, role, kind, axis or meaning is unknown; the message names the slot and the allowed values.
    """
    slots = {name: _parse_slot(name, fields) for name, fields in literal.items()}
    for slot in slots.values():
        for field in ("excludes", "requires", "same_element_as", "moved_by"):
            for other in getattr(slot, field):
                if other not in slots:
                    raise ValueError(f"slot {slot.name}: {field} names {other!r}, which is not a slot")
    return slots


def _parse_slot(name: str, fields: Mapping[str, Any]) -> Slot:
    known = {"role", "axes", "alignment", "hint", "symmetric", "short", "attached", *_LISTS, *MEANINGS}
    if unknown := sorted(set(fields) - known):
        raise ValueError(f"slot {name}: unknown key {unknown[0]!r}; a slot has {', '.join(sorted(known))}")
    _one_of(name, "role", fields.get("role"), ROLES)
    _one_of(name, "alignment", fields.get("alignment", "top_left"), ALIGNMENTS)
    _check_words(name, fields)
    axes = tuple(tuple(form) for form in fields.get("axes", ()))
    for axis in (axis for form in axes for axis in form):
        _one_of(name, "axes", axis, ("b", "h", "q", "k", "b*h", "1"))
    if fields["role"] == "mask" and not (axes and any(element in fields for element in MEANINGS)):
        raise ValueError(f"slot {name}: a mask needs axes and at least one of bool, int, float")
    if fields["role"] == "lengths" and (axes not in ((("b", "k"),), (("b", "q"),)) or not fields.get("takes")):
        raise ValueError(f"slot {name}: lengths need axes [['b', 'k']] or [['b', 'q']], and takes")
    if fields.get("attached") and fields["role"] != "mask":
        raise ValueError(f"slot {name}: only a mask can be attached, not an argument with role {fields['role']}")
    return Slot(
        name=name,
        role=fields["role"],
        axes=axes,
        elements=tuple((element, fields[element]) for element in MEANINGS if element in fields),
        alignment=fields.get("alignment", "top_left"),
        hint=bool(fields.get("hint", False)),
        symmetric=bool(fields.get("symmetric", False)),
        short=bool(fields.get("short", False)),
        attached=bool(fields.get("attached", False)),
        **{key: tuple(fields.get(key, ())) for key in _LISTS},
    )


def _check_words(name: str, fields: Mapping[str, Any]) -> None:
    """Check the words of the lists and element meanings that are given."""
    for field, allowed in {"takes": KINDS, "without": ("past",), "only_with": ("past",)}.items():
        for word in fields.get(field, ()):
            _one_of(name, field, word, allowed)
    for element, meanings in MEANINGS.items():
        if element in fields:
            _one_of(name, element, fields[element], meanings)


def _one_of(name: str, field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"slot {name}: {field} is {value!r}, expected one of {', '.join(allowed)}")
