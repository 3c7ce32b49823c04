"""The texts about calls name existing adapters, and state the defaults of the installed frameworks."""

import ast
import importlib
import inspect
import re
from typing import Any

import pytest

from conformance import places
from conformance.engine.adapters import read_adapters
from conformance.report.port_text import CALL_TOPICS, CALLS, is_described, side_by_side

DEFAULTS = [
    pytest.param(name, argument, default, id=f"{name}:{argument}", marks=pytest.mark.frameworks)
    for texts in CALLS.values()
    for name, defaults in texts.get("defaults", {}).items()
    for argument, default in defaults.items()
]


def found(name: str) -> Any:
    """Return the object of a dotted name: import the longest prefix that is a module, then look up the attributes."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for attribute in parts[count:]:
            value = getattr(value, attribute)
        return value
    raise AssertionError(name)


@pytest.mark.parametrize(("name", "argument", "default"), DEFAULTS)
def test_defaults_are_those_of_the_signature(name: str, argument: str, default: object) -> None:
    assert inspect.signature(found(name)).parameters[argument].default == default


def test_only_adapters_are_told_and_of_each_every_topic() -> None:
    adapters = {each.name: each for each in read_adapters([places.adapters()])}
    assert CALLS.keys() <= adapters.keys()
    for name, texts in CALLS.items():
        wanted = (
            set(CALL_TOPICS)
            if adapters[name].operators == ("mha",)
            else set(CALL_TOPICS) - {"constructor", "parameters"}
        )
        assert texts.keys() - {"defaults"} == wanted


# A builtin function, and a layer that shares the texts of keras.mha.
WITHOUT_SIGNATURE = {"torch.sdpa", "tf_keras.mha"}


def test_a_default_that_a_text_begins_with_is_held_against_the_signature() -> None:
    for name in CALLS.keys() - WITHOUT_SIGNATURE:
        held = [default for defaults in CALLS[name].get("defaults", {}).values() for default in defaults.items()]
        for topic in ("weights", "dropout"):
            if begins := re.match(r"(\w+)=(\w+(?:\.\d+)?)", CALLS[name][topic]):
                assert (begins[1], ast.literal_eval(begins[2])) in held


def test_topics_stand_side_by_side() -> None:
    both = side_by_side("torch.sdpa", "torch.mha")
    assert [each["topic"] for each in both] == list(CALL_TOPICS)
    assert both[0]["from"] == ""
    assert not is_described("mine.sdpa")
    assert side_by_side("mine.sdpa", "mine.sdpa") == []
