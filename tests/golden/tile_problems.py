"""Problems for tests of tile deviations, with masks given explicitly."""

from typing import Any

import numpy as np

from conformance.deviations.catalogue import evaluate
from conformance.deviations.edges import causal
from conformance.spec.problem import Array, MaskOperand, Problem

from ..problems import sdpa


def scored(logits: Any, value: Any, *groups: MaskOperand) -> Problem:
    """Return a problem with one batch element, one head, and these logits of shape (seq_len_q, seq_len_k)."""
    products = np.asarray(logits, dtype=np.float64)
    return sdpa(np.eye(len(products))[None, None], products.T[None, None], np.asarray(value)[None, None], *groups)


def output(problem: Problem, lie: str = "") -> Array:
    dialect = dict([lie.split("=")]) if lie else {}
    return np.asarray(evaluate(problem, dialect).reply["output"].values[0, 0])


def even(queries: int, keys: int, *groups: MaskOperand) -> Problem:
    """Return a problem in which all logits are zero and the output equals the weights."""
    return scored(np.zeros((queries, keys)), np.eye(keys), *groups)


def flag(queries: int, keys: int, offset: int = 0) -> MaskOperand:
    return MaskOperand("is_causal", ("causal",), "flag", causal(queries, keys, offset), offset=offset)


def mask(values: Any, element: str = "bool") -> MaskOperand:
    array = np.asarray(values, dtype=bool if element == "bool" else np.float64)
    return MaskOperand("mask", ("attention",), element, array if array.ndim == 4 else array[None, None])


def seen(problem: Problem, lie: str = "") -> list[str]:
    """Return one string for each query: x for a key with weight, - for a key without weight."""
    return ["".join("x" if weight else "-" for weight in row) for row in output(problem, lie)]
