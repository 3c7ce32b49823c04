"""Sides made by hand, for the tests of comparisons and baselines."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def sides() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_tests_sides", Path(__file__).with_name("sides.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
