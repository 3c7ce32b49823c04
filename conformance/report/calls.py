"""How entry points are called, in the words of `calls.toml`: for those who move a call from one to another."""

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

TOPICS = ("constructor", "call", "weights", "dropout", "gradients", "parameters")
"""What is told of an entry point, in this order; functions have no constructor and no parameters."""

CALLS: dict[str, dict[str, Any]] = tomllib.loads((files(__package__) / "calls.toml").read_text(encoding="utf-8"))
"""Adapter -> topic -> text, and under `defaults` the defaults that the texts speak of, by callable and argument."""


def side_by_side(here: str, there: str) -> list[dict[str, str]]:
    """For every topic that one of two adapters has a text about, the texts of both; "" where one has none."""
    mine, yours = _texts(here), _texts(there)
    return [
        {"topic": topic, "from": mine.get(topic, ""), "to": yours.get(topic, "")}
        for topic in TOPICS
        if topic in mine or topic in yours
    ]


def is_told(adapter: str) -> bool:
    """Whether there are texts about an adapter."""
    return adapter in CALLS


def _texts(adapter: str) -> Mapping[str, str]:
    return CALLS.get(adapter, {})
