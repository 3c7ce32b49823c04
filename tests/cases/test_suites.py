"""
The suites that are shipped: enough distinct problems, within the budget of compilations, and able to see every mistake.

A case sees a mistake if the mistaken answer lies at least ten bounds from the right one.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from conformance.bridge.profile import Profile
from conformance.oracle.bounds import bound_reply
from conformance.oracle.evaluate import evaluate
from conformance.oracle.variation import Dialect, Reply
from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.problem import Array, Problem

ROOT = Path(__file__).parents[2] / "cases"
THEMES = ("shapes", "masks", "verbatim", "causal", "combined", "degenerate", "numerics", "parameters")
OPERATORS = ("sdpa", "mha")
HALF = ("float16", "bfloat16")
FACTOR = 10.0
"""A case catches a mistake if the answers lie this many bounds apart."""


@cache
def suites() -> tuple[Case, ...]:
    return tuple(load(ROOT))
