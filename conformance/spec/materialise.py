"""
A case to a problem: masks as groups, arrays drawn and rounded once to the dtype under test.

Two cases with the same declaration give the same bytes, whatever else runs.
"""

from collections.abc import Mapping

import numpy as np

from conformance.spec import patterns, streams
from conformance.spec.case import AXES, ArrayMask, Case, CausalMask, Mask, WindowMask
from conformance.spec.files import arrays
from conformance.spec.problem import GRADIENTS, SLOTLESS, Array, Group, Problem
from conformance.spec.rounding import round_to

HALF = ("float16", "bfloat16")

HIDDEN_SCALE = {"float64": 1e5, "float32": 1e5, "float16": 100.0, "bfloat16": 100.0}
"""What keys and values that nobody attends are multiplied by, so that a leak is visible."""


def materialise(case: Case) -> Problem:
    """Make the problem of a case; its groups are not routed yet (slot "")."""
    given = _literals(case)
    problem = _poisoned(case, _large(case, _problem(case, given), given))
    return _first_item(problem) if case.inputs.layout == "expanded" else problem


def _first_item(problem: Problem) -> Problem:
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
        groups=tuple(group(case, mask, f"masks.{number}") for number, mask in enumerate(case.masks)),
        scale=case.scale,
        outputs=case.reply_names(case.outputs),
        alias=case.inputs.alias,
        softcap=case.softcap,
        zero_key=case.zero_key,
        activation=case.activation,
        residual=case.residual,
        past=case.past,
        mistake=case.mistake,
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
    dead = not problem.attended().any(axis=-1).all()
    return not dead or clean is False


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
    """Put NaN or infinity in keys or values that nobody attends."""
    if case.inputs.poison is None:
        return problem
    number, _, which = case.inputs.poison.partition("_")
    rows = _hidden_rows(problem)[..., None]
    if which == "keys":
        return problem.but(key=np.where(rows, float(number), problem.key))
    return problem.but(value=np.where(rows, float(number), problem.value))


def _hide(case: Case, name: str, array: Array, rows: Array, given: Mapping[str, Array]) -> Array:
    """Replace hidden rows by large ones; an array that the case spells out stays."""
    aliased = case.inputs.alias != "none"
    if not rows.any() or name in given or (aliased and any(_shares(case, n, given) for n in case.input_shapes)):
        return array
    large = streams.bell(case.inputs.seed, f"{name}/hidden", array.shape) * HIDDEN_SCALE[case.dtype]
    return np.where(rows[..., None], round_to(large, case.dtype), array)


def group(case: Case, mask: Mask, stream: str) -> Group:
    """
    One mask as a group that no argument has taken yet; `stream` names its random numbers.

    values has size one on the axes that the mask does not span.
    """
    if isinstance(mask, ArrayMask):
        values = spread(_written(case, mask, stream), mask.axes)
        return Group(SLOTLESS, (mask.kind,), mask.element, values, verbatim=mask.verbatim)
    query, key = np.arange(case.seq_len_q)[:, None], np.arange(case.seq_len_k)[None, :]
    if isinstance(mask, CausalMask):
        offset = _offset(case, mask)
        attended = key <= query + offset
        return Group(SLOTLESS, ("causal",), mask.element, _flat(attended, mask), offset=offset)
    offset = _offset(case, mask)
    left = None if mask.left is None else mask.left - offset
    right = None if mask.right is None else mask.right + offset
    attended = _in_window(left, right, query, key)
    return Group(SLOTLESS, ("window",), mask.element, _flat(attended, mask), window=(left, right))


def _offset(case: Case, mask: CausalMask | WindowMask) -> int:
    named = {"start": 0, "end": case.seq_len_k - case.seq_len_q, "past": case.past}
    return named[mask.offset] if isinstance(mask.offset, str) else mask.offset


def _in_window(left: int | None, right: int | None, query: Array, key: Array) -> Array:
    attended = np.ones(np.broadcast_shapes(query.shape, key.shape), dtype=bool)
    if left is not None:
        attended &= key >= query - left
    if right is not None:
        attended &= key <= query + right
    return attended


def _flat(attended: Array, mask: CausalMask | WindowMask) -> Array:
    """(q, k) to (1, 1, q, k) in the mask's element."""
    return spread(_as_element(attended, mask.element, verbatim=False), ("q", "k"))


def spread(values: Array, axes: tuple[str, ...]) -> Array:
    """Give an array over `axes` the four axes of the logits, size one where it does not span them."""
    sizes = dict(zip(axes, values.shape, strict=True))
    return values.reshape([sizes.get(axis, 1) for axis in AXES])


def _written(case: Case, mask: ArrayMask, stream: str) -> Array:
    """What the mask holds, over its axes, as `Group.values` describes it."""
    sizes = {axis: case.axes[axis] for axis in mask.axes}
    if mask.distribution is not None:
        return round_to(streams.draw(mask.distribution, mask.seed, stream, patterns.shape(sizes)), case.dtype)
    if mask.values is not None and (mask.verbatim or mask.kind == "additive"):
        return _literal(mask, case.dtype)
    attended = _attended(mask, sizes, stream)
    if mask.verbatim and mask.true_means == "ignore":
        attended = ~attended
    return _as_element(attended, mask.element, verbatim=mask.verbatim)


def _attended(mask: ArrayMask, sizes: patterns.Sizes, stream: str) -> Array:
    if mask.values is not None:
        literal = np.array(mask.values) != 0
        return np.asarray(~literal if mask.true_means == "ignore" else literal)
    if mask.lengths is not None:
        return patterns.from_lengths(sizes, mask.lengths, mask.lengths_q, leading=mask.pattern == patterns.LEADING)
    return patterns.make(mask.pattern or "all", sizes, mask.seed, stream)


def _literal(mask: ArrayMask, dtype: str) -> Array:
    if mask.element == "float":
        return round_to(np.array(mask.values, dtype=np.float64), dtype)
    return np.array(mask.values).astype(np.int64 if mask.element == "int" else bool)


def _as_element(attended: Array, element: str, *, verbatim: bool) -> Array:
    if element == "float":
        return np.where(attended, 0.0, -np.inf)
    return attended.astype(np.int64) if verbatim and element == "int" else attended
