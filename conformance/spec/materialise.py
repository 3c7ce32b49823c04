"""
A case to a problem: arrays drawn and rounded once to the dtype under test.

Two cases with the same declaration give the same bytes, whatever else runs.
"""

from collections.abc import Mapping
from typing import get_args

import numpy as np

from conformance.spec import streams
from conformance.spec.array_files import arrays
from conformance.spec.case import Case, Hidden
from conformance.spec.masks import mask_operand
from conformance.spec.problem import GRADIENTS, Array, Problem
from conformance.spec.rounding import round_to

HALF = ("float16", "bfloat16")

# What keys and values that nobody attends are multiplied by, so that a leak is visible.
HIDDEN_SCALE = {"float64": 1e5, "float32": 1e5, "float16": 100.0, "bfloat16": 100.0}


def materialise(case: Case) -> Problem:
    """Make the problem of a case; its groups are not routed yet (slot "")."""
    given = _literals(case)
    problem = _poisoned(case, _large(case, _problem(case, given), given))
    return _first_batch_element(problem) if case.inputs.layout == "expanded" else problem


def _first_batch_element(problem: Problem) -> Problem:
    """Make every item of query, key and value the first: it lies in memory once."""
    query, key, value = (
        np.repeat(array[:1], problem.batch, axis=0) for array in (problem.query, problem.key, problem.value)
    )
    key = query if problem.alias == "qkv" else key
    return problem.but(query=query, key=key, value=value if problem.alias == "none" else key)


def _large(case: Case, problem: Problem, given: Mapping[str, Array]) -> Problem:
    """Make keys and values that nobody attends large, where the case does not forbid it."""
    if not _hides(case, problem):
        return problem
    rows = _hidden_rows(problem)
    key = _hide(case, "key", problem.key, rows, given)
    value = key if case.inputs.alias != "none" else _hide(case, "value", problem.value, rows, given)
    query = key if case.inputs.alias == "qkv" else problem.query
    return problem.but(query=query, key=key, value=value)


def _problem(case: Case, given: Mapping[str, Array]) -> Problem:
    query, key, value = _inputs(case, given)
    params = {
        name: round_to(_parameter(case, name, shape, given), case.dtype)
        for name, shape in case.parameter_shapes.items()
    }
    return Problem(
        operator=case.operator,
        dtype=case.dtype,
        num_heads=case.num_heads,
        num_kv_heads=case.num_kv_heads,
        head_dim=case.head_dim,
        value_dim=case.value_dim,
        query=query,
        key=key,
        value=value,
        params=params,
        mask_operands=tuple(mask_operand(case, mask, f"masks.{number}") for number, mask in enumerate(case.masks)),
        scale=case.scale,
        outputs=case.reply_names(case.outputs),
        alias=case.inputs.alias,
        softcap=case.softcap,
        zero_key=case.zero_key,
        activation=case.activation,
        residual=case.residual,
        past=case.past,
        mistake=case.mistake,
        native=case.native,
        dropout_p=case.dropout_p,
        layout=case.inputs.layout,
        requirements=case.requirements(),
        grad_output=_grad_output(case),
    )


def _grad_output(case: Case) -> Array | None:
    """What the loss is differentiated by the output to, where gradients are asked for."""
    if GRADIENTS not in case.outputs:
        return None
    return round_to(streams.bell(case.inputs.seed, "grad_output", case.output_shapes["output"]), case.dtype)


def _literals(case: Case) -> dict[str, Array]:
    """Arrays that the case or its file spells out, unrounded."""
    spelled = {"query": case.inputs.query, "key": case.inputs.key, "value": case.inputs.value}
    given = {name: np.array(value, dtype=np.float64) for name, value in spelled.items() if value is not None}
    return given if case.inputs.file is None else given | arrays(case.inputs.file)


def _inputs(case: Case, given: Mapping[str, Array]) -> tuple[Array, Array, Array]:
    alias, gain = case.inputs.alias, case.inputs.gain
    if alias == "qkv":
        shared = round_to(_shared(case, given), case.dtype)
        return shared, shared, shared
    query = round_to(_draw(case, "query", given) * gain, case.dtype)
    if alias == "kv":
        shared = round_to(_shared(case, given), case.dtype)
        return query, shared, shared
    key, value = (round_to(_draw(case, name, given), case.dtype) for name in ("key", "value"))
    return query, key, value


def _shared(case: Case, given: Mapping[str, Array]) -> Array:
    """Draw the array that key and value are: literal by any of its names, else as the key, alternating as the value."""
    literal = next((given[name] for name in ("query", "key", "value") if _shares(case, name, given)), None)
    if literal is not None:
        return literal
    return _draw(case, "value" if case.inputs.distribution == "alternating" else "key", given)


def _shares(case: Case, name: str, given: Mapping[str, Array]) -> bool:
    return name in given and (name != "query" or case.inputs.alias == "qkv")


def _draw(case: Case, name: str, given: Mapping[str, Array]) -> Array:
    """One of query, key, value, by the part it has in the distribution."""
    if name in given:
        return given[name]
    distribution, seed, shape = case.inputs.distribution, case.inputs.seed, case.input_shapes[name]
    if distribution == "alternating" and name == "key":
        return streams.paired(seed, name, shape, axis=-2)
    plain = {"equal": ("query", "value"), "ramp": ("query",), "alternating": ("query",)}
    if name in plain.get(distribution, ()):
        distribution = "bell"
    return streams.draw(distribution, seed, name, shape, axis=-2)


def _parameter(case: Case, name: str, shape: tuple[int, ...], given: Mapping[str, Array]) -> Array:
    return given[name] if name in given else streams.parameter(case.inputs.seed, name, shape)


def _hides(case: Case, problem: Problem) -> bool:
    """Whether masked keys and values are made large."""
    clean = case.inputs.clean
    if (
        clean
        or case.verbatim
        or case.inputs.layout == "expanded"
        or (case.inputs.alias == "qkv" and case.dtype in HALF)
    ):
        return False
    fully_masked = not problem.attended().any(axis=-1).all()
    return not fully_masked or clean is False


def _hidden_rows(problem: Problem) -> Array:
    """
    Which rows of key and value nobody attends, True = nobody.

    Shape (batch, seq_len_k) for mha; for sdpa (batch, num_kv_heads, seq_len_k), by the heads that share a key head.
    """
    seen = np.asarray(problem.attended().any(axis=2))
    if problem.operator == "mha":
        return np.asarray(~seen.any(axis=1))
    sharing = (problem.batch, problem.num_kv_heads, -1, problem.seq_len_k)
    return np.asarray(~seen.reshape(sharing).any(axis=2))


def _poisoned(case: Case, problem: Problem) -> Problem:
    """Put NaN or infinity in keys or values that nobody attends, in one that is, or in a query."""
    if case.inputs.poison is None:
        return problem
    number, _, where = case.inputs.poison.partition("_")
    name = next(each for each in ("query", "key", "value") if each in where)
    array = getattr(problem, name)
    if case.inputs.poison in get_args(Hidden):
        rows = _hidden_rows(problem)[..., None]
    else:
        rows = _one_number(problem, array, of_query=name == "query")
    return problem.but(**{name: np.where(rows, float(number), array)})


def _one_number(problem: Problem, array: Array, *, of_query: bool) -> Array:
    """
    The first number of a row of the first item, in sdpa of the first head: True there, in the shape of `array`.

    The row is that which most queries attend, or the query that attends most keys; the second of several, which no loop
    leaves out that begins late or ends early: all do but under masks that hide something of each.
    """
    heads = 1 if of_query else problem.num_heads // problem.num_kv_heads
    sharing = problem.num_heads if problem.operator == "mha" else heads
    seen = problem.attended()[0][:sharing].sum(axis=(0, 2 if of_query else 1))
    row = int(np.flatnonzero(seen == seen.max())[:2][-1])
    chosen = np.zeros(array.shape, dtype=bool)
    chosen[(*(0,) * (array.ndim - 2), row, 0)] = True
    return chosen


def _hide(case: Case, name: str, array: Array, rows: Array, given: Mapping[str, Array]) -> Array:
    """Replace hidden rows by large ones; an array that the case spells out stays."""
    aliased = case.inputs.alias != "none"
    if not rows.any() or name in given or (aliased and any(_shares(case, n, given) for n in case.input_shapes)):
        return array
    large = streams.bell(case.inputs.seed, f"{name}/hidden", array.shape) * HIDDEN_SCALE[case.dtype]
    return np.where(rows[..., None], round_to(large, case.dtype), array)
