"""
Reads and checks the literal facts at the top of an adapter file with `ast`, without importing the file.

All mistakes of a file are reported at once, each with its line. SLOTS is what an adapter says about its mask, causal,
window and lengths arguments (docs/adapters.md).
"""

import ast
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from conformance.spec.masks import KINDS

ROLES = ("mask", "causal", "window", "lengths")
MEANINGS = {
    "bool": ("attend", "ignore", "undocumented"),
    "int": ("attend", "ignore", "add", "undocumented"),
    "float": ("add", "attend", "undocumented"),
}
ALIGNMENTS = ("top_left", "bottom_right", "past")
_LISTS = (
    *("takes", "broadcast", "excludes", "requires", "same_element_as", "moved_by"),
    *("without", "only_with", "arguments"),
)


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
    left_only: bool = False
    excludes: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    same_element_as: tuple[str, ...] = ()
    moved_by: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    only_with: tuple[str, ...] = ()
    short: bool = False
    attached: bool = False
    always: bool = False
    arguments: tuple[str, ...] = ()
    since: str = ""
    about: str = ""

    def meaning(self, element: str) -> str | None:
        """What the framework documents for an element type; None if the argument does not accept it."""
        return dict(self.elements).get(element)

    @property
    def title(self) -> str:
        """The names by which the framework documents it, in words."""
        return " and ".join(self.arguments or (self.name,))

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
    known = {each.name for each in fields_of(Slot)} - {"name", "elements"} | set(MEANINGS)
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
    if fields["role"] == "lengths" and axes not in ((("b", "k"),), (("b", "q"),)):
        raise ValueError(f"slot {name}: lengths need axes [['b', 'k']] (of keys) or [['b', 'q']] (of queries)")
    if fields["role"] == "lengths" and not fields.get("takes"):
        raise ValueError(f"slot {name}: lengths need the kinds of mask that they replace: 'takes': ['key_padding']")
    if fields.get("attached") and fields["role"] != "mask":
        raise ValueError(f"slot {name}: only a mask can be attached, not an argument with role {fields['role']}")
    if fields.get("always") and not (fields["role"] in ("mask", "lengths") and fields.get("takes")):
        raise ValueError(f"slot {name}: always needs the role mask or lengths, and the kinds of mask that it takes")
    if fields.get("symmetric") and fields.get("left_only"):
        raise ValueError(f"slot {name}: a window is either symmetric or left_only, not both")
    return Slot(
        name=name,
        role=fields["role"],
        axes=axes,
        elements=tuple((element, fields[element]) for element in MEANINGS if element in fields),
        alignment=fields.get("alignment", "top_left"),
        hint=bool(fields.get("hint", False)),
        symmetric=bool(fields.get("symmetric", False)),
        left_only=bool(fields.get("left_only", False)),
        short=bool(fields.get("short", False)),
        attached=bool(fields.get("attached", False)),
        always=bool(fields.get("always", False)),
        since=str(fields.get("since", "")),
        about=str(fields.get("about", "")),
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


# Facts that are lists, and their allowed entries.
CHOICES = {
    "OPERATORS": ("sdpa", "mha"),
    "OUTPUTS": ("output", "weights", "weights_mean", "gradients", "present", "scaled", "capped", "logits"),
    "DTYPES": ("float64", "float32", "float16", "bfloat16"),
    "DEVICES": ("cpu", "cuda"),
    "CAPABILITIES": (
        *("scale", "grouped_heads", "value_dim", "kdim", "query_dim", "output_dim", "no_bias", "some_biases"),
        *("bias_kv", "zero_key", "relu", "residual", "no_output_projection", "softcap", "dropout", "layout"),
        *("past", "mistakes", "mistaken_heads"),
    ),
}

# Facts that a file may omit, and their default values.
OPTIONAL: Mapping[str, Any] = {"EXTRA": "", "DECLINES": {}, "VARIANTS": {"": {}}}

FACTS = ("NAME", *CHOICES, "REQUIRES", "SLOTS", *OPTIONAL)

# The tier of a variant that only a thorough run includes.
THOROUGH = "thorough"

# Facts that a variant may override.
OVERRIDES = tuple(fact for fact in FACTS if fact not in ("NAME", "VARIANTS"))

_MAY_BE_EMPTY = ("CAPABILITIES",)
_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)+")
_VARIANT = re.compile(r"[A-Za-z0-9_.:-]+")
# Minimum similarity (difflib) at which a top-level name counts as a misspelled fact.
_MIN_SIMILARITY = 0.8


class AdapterError(Exception):
    """The facts of an adapter file are invalid; `faults` are texts of the form `file:line: what is wrong`."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class _Reader:
    """Collects the facts of one file and their mistakes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults: list[tuple[int, str]] = []

    def fault(self, node: ast.AST | None, text: str) -> None:
        self.faults.append((getattr(node, "lineno", 1), text))

    def facts(self) -> dict[str, Any]:
        try:
            module = ast.parse(self.path.read_bytes(), str(self.path))
        except (OSError, SyntaxError, ValueError) as error:
            raise AdapterError(
                [f"{self.path}:{getattr(error, 'lineno', None) or 1}: cannot be read: {error}"]
            ) from None
        nodes = self._assignments(module)
        for name in FACTS:
            if name not in nodes and name not in OPTIONAL:
                self.fault(None, f"{name} is missing")
        found = {name: self._checked(name, node) for name, node in nodes.items()}
        self._functions(module, found.get("OPERATORS") or ())
        self._raise()
        return {**OPTIONAL, **found}

    def _raise(self) -> None:
        if self.faults:
            raise AdapterError([f"{self.path}:{line}: {text}" for line, text in sorted(self.faults)])

    def _assignments(self, module: ast.Module) -> dict[str, ast.expr]:
        nodes: dict[str, ast.expr] = {}
        for statement in module.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            value = getattr(statement, "value", None)
            for name in (target.id for target in targets if isinstance(target, ast.Name)):
                if name in nodes:
                    self.fault(statement, f"{name} is assigned twice")
                elif name in FACTS and value is not None:
                    nodes[name] = value
                elif name.isupper() and (near := difflib.get_close_matches(name, FACTS, 1, _MIN_SIMILARITY)):
                    self.fault(statement, f"unknown fact {name}; did you mean {near[0]}?")
        return nodes

    def _functions(self, module: ast.Module, operators: tuple[str, ...]) -> None:
        bound = {name for statement in module.body for name in _bound(statement)}
        for name in ("declare", *operators):
            if name not in bound:
                self.fault(None, f"the function {name} is missing")

    def _checked(self, name: str, node: ast.expr) -> Any:
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            self.fault(node, f"{name} is not a literal; facts are read without running the file")
            return None
        if name in CHOICES:
            return self._choices(name, node, value)
        return getattr(self, f"_{name.lower()}")(node, value)

    def _choices(self, name: str, node: ast.expr, value: Any) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or not (value or name in _MAY_BE_EMPTY):
            self.fault(node, f"{name} is {value!r}, expected a list of {', '.join(CHOICES[name])}")
            return ()
        for entry in value:
            if entry not in CHOICES[name]:
                near = difflib.get_close_matches(str(entry), CHOICES[name], 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.fault(node, f"{name} has {entry!r}, expected {', '.join(CHOICES[name])}{hint}")
        return tuple(entry for entry in value if entry in CHOICES[name])

    def _name(self, node: ast.expr, value: Any) -> Any:
        if not (isinstance(value, str) and _NAME.fullmatch(value)):
            self.fault(node, f"NAME is {value!r}, expected framework.entry_point in letters, digits and _")
        return value

    def _extra(self, node: ast.expr, value: Any) -> Any:
        if not isinstance(value, str):
            self.fault(node, f"EXTRA is {value!r}, expected the name of an extra of this package")
        return value

    def _requires(self, node: ast.expr, value: Any) -> tuple[tuple[str, ...], ...]:
        if not isinstance(value, (list, tuple)):
            self.fault(node, f"REQUIRES is {value!r}, expected a list of distributions")
            return ()
        choices = tuple(tuple(entry) if isinstance(entry, (list, tuple)) else (entry,) for entry in value)
        for requirement in (requirement for choice in choices for requirement in choice):
            try:
                Requirement(requirement)
            except (InvalidRequirement, TypeError):
                self.fault(node, f"REQUIRES has {requirement!r}, expected a distribution such as 'keras>=3'")
        return choices

    def _declines(self, node: ast.expr, value: Any) -> Any:
        known = [name for fact in ("DTYPES", "OUTPUTS", "CAPABILITIES") for name in CHOICES[fact]]
        if not isinstance(value, dict) or not all(isinstance(reason, str) and reason for reason in value.values()):
            self.fault(
                node, f"DECLINES is {value!r}, expected a mapping from what is not supported to the reason, in words"
            )
            return {}
        for name in value:
            if name not in known:
                self.fault(node, f"DECLINES has {name!r}, expected {', '.join(known)}")
        return value

    def _slots(self, node: ast.expr, value: Any) -> Any:
        try:
            return parse_slots(value)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            self.fault(_entry(node, str(error)), f"SLOTS: {error}")
            return {}

    def _variants(self, node: ast.expr, value: Any) -> dict[str, dict[str, Any]]:
        if not (isinstance(node, ast.Dict) and value):
            self.fault(node, f"VARIANTS is {value!r}, expected name -> {{'env': ..., 'summary': ..., FACT: override}}")
            return {}
        variants = {}
        for key, fields in zip(node.keys, node.values, strict=True):
            name = ast.literal_eval(key) if key else None
            if not (isinstance(name, str) and _VARIANT.fullmatch(name)) or name == "dense":
                self.fault(
                    key,
                    f"invalid variant name {name!r}: only letters, digits, _ . : and - are allowed, and not 'dense'",
                )
            variants[str(name)] = self._variant(str(name), fields)
        return variants

    def _variant(self, name: str, node: ast.expr) -> dict[str, Any]:
        if not isinstance(node, ast.Dict):
            self.fault(node, f"variant {name} is not a mapping")
            return {}
        fields = {}
        for key, value in zip(node.keys, node.values, strict=True):
            field = ast.literal_eval(key) if key else None
            if field in OVERRIDES:
                fields[field] = self._checked(field, value)
            elif field in ("env", "summary"):
                fields[field] = self._words(name, field, value)
            elif field == "tier":
                fields[field] = self._tier(name, value)
            else:
                self.fault(key, f"variant {name} has {field!r}, expected env, summary, tier, {', '.join(OVERRIDES)}")
        return fields

    def _words(self, name: str, field: str, node: ast.expr) -> Any:
        value = ast.literal_eval(node)
        words = [*value.keys(), *value.values()] if field == "env" and isinstance(value, dict) else [value]
        if not all(isinstance(word, str) for word in words):
            expected = "names and values as strings" if field == "env" else "a sentence"
            self.fault(node, f"variant {name}: {field} is {value!r}, expected {expected}")
        return value

    def _tier(self, name: str, node: ast.expr) -> Any:
        value = ast.literal_eval(node)
        if value != THOROUGH:
            self.fault(node, f"variant {name}: tier is {value!r}, expected {THOROUGH!r} or no tier")
        return value


def _bound(statement: ast.stmt) -> list[str]:
    """The names that a top-level statement binds by a definition, an assignment or an import."""
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.ImportFrom):
        return [alias.asname or alias.name for alias in statement.names]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _entry(node: ast.expr, message: str) -> ast.expr:
    """The key of the slot that a message is about, or the whole node if there is none."""
    if isinstance(node, ast.Dict):
        for key in node.keys:
            if (
                isinstance(key, ast.Constant)
                and isinstance(key.value, str)
                and message.startswith(f"slot {key.value}:")
            ):
                return key
    return node


def read_facts(path: Path) -> dict[str, Any]:
    """
    The checked facts of the adapter at `path`, with defaults for those that it omits.

    Raises:
        AdapterError: the file has mistakes; all are listed.
    """
    return _Reader(path).facts()
