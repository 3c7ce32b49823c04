"""Digests of problems: they identify a problem, and show whether two cases are the same problem."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from weakref import WeakKeyDictionary

import numpy as np

from conformance.bridge.contract import SECOND_CALL
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.problem import Array, MaskOperand, Problem

# The digests of the problems that are still in use: records, headers and expectations need the same ones.
_KNOWN: WeakKeyDictionary[Problem, str] = WeakKeyDictionary()


def problem_digest(problem: Problem) -> str:
    """Return the digest of everything in a problem, "sha256:..."; it is the same on every machine."""
    known = _KNOWN.get(problem)
    if known is None:
        known = _KNOWN[problem] = _digest(problem, {"outputs": list(problem.outputs)})
    return known


def arrays_digest(problem: Problem) -> str:
    """Return the digest of what a subject receives, without the requested outputs."""
    return _digest(problem, {})


def duplicates(cases: Iterable[Case]) -> tuple[tuple[str, ...], ...]:
    """Return the ids of cases whose problems are equal, in groups of two or more, in the order of the cases."""
    return tuple(ids for ids in _by_arrays(cases).values() if len(ids) > 1)


def distinct(cases: Iterable[Case]) -> int:
    """Count the problems; equal ones count once."""
    return len(_by_arrays(cases))


def alone(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return the cases with a mistake that have no twin, i.e. no case with the same problem without the mistake."""
    all_cases = tuple(cases)
    wrong = [case for case in all_cases if case.mistake is not None]
    valid = {arrays_digest(materialise(case)) for case in all_cases if case.mistake is None} if wrong else set()
    return tuple(case for case in wrong if arrays_digest(materialise(replace(case, mistake=None))) not in valid)


def _by_arrays(cases: Iterable[Case]) -> Mapping[str, tuple[str, ...]]:
    ids: dict[str, tuple[str, ...]] = {}
    for case in cases:
        digest = arrays_digest(materialise(case))
        ids[digest] = (*ids.get(digest, ()), case.id)
    return ids


def _digest(problem: Problem, more: Mapping[str, object]) -> str:
    named = list(_named(problem))
    header = {
        "operator": problem.operator,
        "dtype": problem.dtype,
        "heads": [problem.num_heads, problem.num_kv_heads, problem.head_dim, problem.value_dim],
        "scale": None if problem.scale is None else problem.scale.hex(),
        "alias": problem.alias,
        "groups": [_facts(operand) for operand in problem.mask_operands],
        "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in named],
        **_rare(problem),
        **more,
    }
    hashed = sha256(json.dumps(header, sort_keys=True).encode())
    for _, array in named:
        hashed.update(array.tobytes())
    return f"sha256:{hashed.hexdigest()}"


def _rare(problem: Problem) -> dict[str, object]:
    """Return the fields that most problems do not set, if this one sets them."""
    numbers = {"softcap": problem.softcap, "dropout_p": problem.dropout_p}
    rare: dict[str, object] = {name: number.hex() for name, number in numbers.items() if number is not None}
    rare |= {name: True for name in ("zero_key", "residual") if getattr(problem, name)}
    rare |= {"past": problem.past} if problem.past else {}
    rare |= {SECOND_CALL: True} if SECOND_CALL in problem.requirements else {}
    rare |= {"native": list(problem.native)} if problem.native else {}
    rare |= {} if problem.mistake is None else {"mistake": problem.mistake}
    rare |= {} if problem.activation is None else {"activation": problem.activation}
    return rare if problem.layout == "contiguous" else rare | {"layout": problem.layout}


def _facts(operand: MaskOperand) -> list[object]:
    window = None if operand.window is None else list(operand.window)
    rare = {"moved": operand.moved and list(operand.moved), "short": operand.short}
    rare |= {"attached": True} if operand.attached else {}
    about = [operand.slot, list(operand.kinds), operand.element, operand.verbatim, operand.offset, window]
    return [*about, rare] if any(rare.values()) else about


def _named(problem: Problem) -> Iterator[tuple[str, Array]]:
    """Yield every array with its name, little-endian, in a fixed order."""
    arrays = {"query": problem.query, "key": problem.key, "value": problem.value}
    arrays |= dict(sorted(problem.params.items()))
    if problem.grad_output is not None:
        arrays["grad_output"] = problem.grad_output
    arrays |= {f"groups.{number}": operand.values for number, operand in enumerate(problem.mask_operands)}
    for name, array in arrays.items():
        little = array.dtype.newbyteorder("<")
        yield name, np.ascontiguousarray(array, dtype=little)
