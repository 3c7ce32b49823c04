"""
Convert a case to a problem: draw its arrays and round them once to the dtype under test. Name problems by digests.

Cases with the same declaration give the same bytes, independent of what else runs. Problems are kept while there is
room, and made again when they are needed once more. A digest shows whether two cases are the same problem.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from threading import Lock
from typing import Generic, TypeVar, get_args
from weakref import WeakKeyDictionary

import numpy as np

from conformance.bridge.contract import SECOND_CALL
from conformance.spec import streams
from conformance.spec.array_files import arrays
from conformance.spec.case import Case, Hidden, Zero
from conformance.spec.masks import mask_operand
from conformance.spec.old_names import former
from conformance.spec.problem import GRADIENTS, Array, MaskOperand, Problem
from conformance.spec.rounding import round_to

Result = TypeVar("Result")


class BoundedMemo(Generic[Result]):
    """Results by key. Beyond a limit in bytes, those that were used longest ago are dropped."""

    def __init__(self, limit: int, size_of: Callable[[Result], int]) -> None:
        """Start empty. limit: in bytes of all results. size_of: the bytes of one."""
        self._limit = limit
        self._size_of = size_of
        self._size = 0
        self._results: OrderedDict[Hashable, Result] = OrderedDict()
        self._lock = Lock()

    def once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """The result with this key, computed if it is not kept."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return self._results[key]
        result = compute()
        with self._lock:
            if key not in self._results:
                self._results[key] = result
                self._size += self._size_of(result)
            while self._size > self._limit and len(self._results) > 1:
                _, dropped = self._results.popitem(last=False)
                self._size -= self._size_of(dropped)
        return result

    def forget(self, key: Hashable) -> None:
        """Drop a result that nobody needs any more, if it is kept."""
        with self._lock:
            if key in self._results:
                self._size -= self._size_of(self._results.pop(key))


HALF = ("float16", "bfloat16")

# Factor for keys and values that no query attends, so that a leak is visible.
HIDDEN_SCALE = {"float64": 1e5, "float32": 1e5, "float16": 100.0, "bfloat16": 100.0}


# Maximum size in bytes of the arrays of problems that are kept. All shipped cases fit (100 MB), since each worker of a
# run goes through all of them.
LIMIT = 1 << 27


def size_of(problem: Problem) -> int:
    """Return the bytes of all arrays of a problem."""
    arrays = [problem.query, problem.key, problem.value, *problem.params.values()]
    arrays += [operand.values for operand in problem.mask_operands]
    return sum(array.nbytes for array in arrays)


_MADE: BoundedMemo[Problem] = BoundedMemo(LIMIT, size_of)


def materialise(case: Case) -> Problem:
    """
    Make the problem of a case; its mask operands are not assigned to arguments yet (slot "").

    Equal cases get the same object while there is room, so nobody may change its arrays. A file is read anew.
    """
    return _MADE.once(case, lambda: made_anew(case)) if case.inputs.file is None else made_anew(case)


def forget(case: Case) -> None:
    """Let go of the problem of a case that nobody needs any more."""
    _MADE.forget(case)


def made_anew(case: Case) -> Problem:
    """Make the problem of a case, and keep nothing."""
    given = _literals(case)
    problem = _poisoned(case, _large(case, _problem(case, given), given))
    return _first_batch_element(problem) if case.inputs.layout == "expanded" else problem


def _first_batch_element(problem: Problem) -> Problem:
    """Replace every batch element of query, key and value by the first one."""
    query, key, value = (
        np.repeat(array[:1], problem.batch, axis=0) for array in (problem.query, problem.key, problem.value)
    )
    key = query if problem.alias == "qkv" else key
    return problem.but(query=query, key=key, value=value if problem.alias == "none" else key)


def _large(case: Case, problem: Problem, given: Mapping[str, Array]) -> Problem:
    """Make keys and values that no query attends large, unless the case forbids it."""
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
    """Draw the gradient of the loss by the output, if gradients are requested."""
    if GRADIENTS not in case.outputs:
        return None
    return round_to(streams.bell(case.inputs.seed, "grad_output", case.output_shapes["output"]), case.dtype)


def _literals(case: Case) -> dict[str, Array]:
    """Return the arrays that are given in the case or in its file, unrounded."""
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
    """Make the array shared by aliased inputs: a literal one, else drawn as key (as value for alternating)."""
    literal = next((given[name] for name in ("query", "key", "value") if _shares(case, name, given)), None)
    if literal is not None:
        return literal
    return _draw(case, "value" if case.inputs.distribution == "alternating" else "key", given)


def _shares(case: Case, name: str, given: Mapping[str, Array]) -> bool:
    return name in given and (name != "query" or case.inputs.alias == "qkv")


def _draw(case: Case, name: str, given: Mapping[str, Array]) -> Array:
    """Draw query, key or value according to its role in the distribution."""
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
    Return which rows of key and value no query attends, True = not attended.

    Shape (batch, seq_len_k) for mha; (batch, num_kv_heads, seq_len_k) for sdpa, over all query heads of a key head.
    """
    seen = np.asarray(problem.attended().any(axis=2))
    if problem.operator == "mha":
        return np.asarray(~seen.any(axis=1))
    sharing = (problem.batch, problem.num_kv_heads, -1, problem.seq_len_k)
    return np.asarray(~seen.reshape(sharing).any(axis=2))


def _poisoned(case: Case, problem: Problem) -> Problem:
    """Put NaN or infinity in keys or values that no query attends, in one that is attended, or in a query; or zeros."""
    if case.inputs.poison is None:
        return problem
    number, _, where = case.inputs.poison.partition("_")
    name = next(name for name in ("query", "key", "value") if name in where)
    array = getattr(problem, name)
    if case.inputs.poison in get_args(Hidden):
        rows = _hidden_rows(problem)[..., None]
    else:
        rows = _one_number(problem, array, of_query=name == "query")
    if case.inputs.poison in get_args(Zero):
        return problem.but(**{name: np.where(rows.any(axis=-1, keepdims=True), 0.0, array)})
    return problem.but(**{name: np.where(rows, float(number), array)})


def _one_number(problem: Problem, array: Array, *, of_query: bool) -> Array:
    """
    Choose one number of `array`: True there, in the shape of `array`.

    It is the first number of a row of the first batch element (for sdpa, of the first head). The row is the key that
    most queries attend, or the query that attends most keys. If several rows tie (without masks all do), it is the
    second one, so that a loop that starts late or ends early still reads it.
    """
    heads = 1 if of_query else problem.num_heads // problem.num_kv_heads
    sharing = problem.num_heads if problem.operator == "mha" else heads
    seen = problem.attended()[0][:sharing].sum(axis=(0, 2 if of_query else 1))
    row = int(np.flatnonzero(seen == seen.max())[:2][-1])
    chosen = np.zeros(array.shape, dtype=bool)
    chosen[(*(0,) * (array.ndim - 2), row, 0)] = True
    return chosen


def _hide(case: Case, name: str, array: Array, rows: Array, given: Mapping[str, Array]) -> Array:
    """Replace masked rows by large ones; an array that is given in the case is unchanged."""
    aliased = case.inputs.alias != "none"
    if not rows.any() or name in given or (aliased and any(_shares(case, n, given) for n in case.input_shapes)):
        return array
    large = streams.bell(case.inputs.seed, f"{name}/hidden", array.shape) * HIDDEN_SCALE[case.dtype]
    return np.where(rows[..., None], round_to(large, case.dtype), array)


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
    # The old name of a mistake, so that the digest is the one in logs and baselines of before.
    rare |= {} if problem.mistake is None else {"mistake": former(f"mistake={problem.mistake}").partition("=")[2]}
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
