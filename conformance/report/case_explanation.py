"""What one case asks for and can distinguish: as JSON values, and as text with pictures of the masks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from conformance.bridge.profile import Profile
from conformance.bridge.strict_json import plain_data
from conformance.diagnosis.detectability import FACTOR, FORMS, by_kind, distances
from conformance.engine.adapters import Subject
from conformance.engine.cells import Refused, make_cell
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.problem import Array, MaskOperand, Problem
from conformance.verdicts.expectation import Expectation, expect

ATTENDS, IGNORES, RAISES, LOWERS = "#.+-"
LEGEND = f"{ATTENDS} attends, {IGNORES} does not"
LEGEND_OF_NUMBERS = f"{ATTENDS} adds 0, {IGNORES} adds -inf, {RAISES} and {LOWERS} add a number"

# Maximum number of pictures, rows and columns that are drawn; a line below says what is cut.
MAX_PICTURES, MAX_QUERIES, MAX_KEYS = 4, 12, 64


def draw(values: Array) -> Iterator[str]:
    """
    Draw a mask, line by line.

    values: (batch, num_heads, seq_len_q, seq_len_k); an axis that the mask does not span has size 1. bool (True =
    attend) or float (added to the logits).
    """
    signs = _signs(values)
    batch, heads, queries, keys = values.shape
    pictures = list(product(range(batch), range(heads)))
    for element, head in pictures[:MAX_PICTURES]:
        names = [f"{word} {i}" for word, i, size in (("batch", element, batch), ("head", head, heads)) if size > 1]
        label = ", ".join(names)
        for number, row in enumerate(signs[element, head, :MAX_QUERIES, :MAX_KEYS]):
            yield f"{label if number == 0 else '':{len(label)}}  {''.join(row)}".rstrip()
    if cut := _cut(len(pictures), queries, keys):
        yield f"cut: {cut}"


def _cut(pictures: int, queries: int, keys: int) -> str:
    sizes = (
        ("batch elements and heads", pictures, MAX_PICTURES),
        ("queries", queries, MAX_QUERIES),
        ("keys", keys, MAX_KEYS),
    )
    return ", ".join(f"{limit} of {size} {name}" for name, size, limit in sizes if size > limit)


def _signs(values: Array) -> Array:
    if values.dtype == bool:
        return np.where(values, ATTENDS, IGNORES)
    return np.select([values == 0, values == -np.inf, values > 0], [ATTENDS, IGNORES, RAISES], LOWERS)


# How many numbers of each output are printed.
MAX_NUMBERS = 4

Record = dict[str, Any]


def explanation(case: Case, subjects: Sequence[Subject]) -> Record:
    """The call, the expected reply and its bounds, the deviations that the case distinguishes, and the subjects."""
    problem = materialise(case)
    expected = expect(problem, {}, Profile.ordinary(case.dtype))
    found = dict(distances(by_kind(problem)))
    record = {
        "schema": 1,
        "case": case.id,
        "source": case.source,
        "summary": case.summary,
        "yaml": case.yaml,
        "operator": case.operator,
        "dtype": case.dtype,
        "sizes": problem.sizes(),
        "outputs": list(case.outputs),
        "requirements": list(case.requirements()),
        "mistake": case.mistake,
        "masks": [_mask(operand) for operand in problem.mask_operands],
        "together": list(draw(problem.attended())) if len(problem.mask_operands) > 1 else [],
        "fully_masked_rows": int((~problem.attended().any(axis=-1)).sum()),
        "rows": prod(problem.logits_shape[:-1]),
        "expected": _expected(expected),
        "bounds": {case.dtype: _bounds(expected), **_in_float32(case)},
        "factor": FACTOR,
        "detected": {key: away for key, away in found.items() if away is not None and away >= FACTOR},
        "too_close": {key: away for key, away in found.items() if away is not None and away < FACTOR},
        "without_effect": [key for key, away in found.items() if away is None],
        "subjects": [_stance(case, problem, subject) for subject in subjects if case.operator in subject.operators],
    }
    values: Record = plain_data(record)
    return values


def _mask(operand: MaskOperand) -> Record:
    return {
        "kinds": list(operand.kinds),
        "element": operand.element,
        "verbatim": operand.verbatim,
        "attached": operand.attached,
        "shape": list(operand.values.shape),
        "legend": LEGEND if operand.allowed is not None else LEGEND_OF_NUMBERS,
        "picture": list(draw(operand.values if operand.allowed is None else operand.allowed)),
    }


def _expected(expected: Expectation) -> Record:
    return {
        name: {
            "shape": list(each.values.shape),
            "dtype": each.dtype,
            "least": float(each.values.min()),
            "largest": float(each.values.max()),
            "first": each.values.reshape(-1)[:MAX_NUMBERS].tolist(),
        }
        for name, each in expected.reply.items()
    }


def _bounds(expected: Expectation) -> Record:
    return {
        name: {"largest": float(bound.tolerance.max()), "coverage": bound.coverage}
        for name, bound in expected.bounds.items()
    }


def _in_float32(case: Case) -> Record:
    """The bounds of the same case in float32, for comparison; empty if it is a float32 case."""
    if case.dtype == "float32":
        return {}
    return {"float32": _bounds(expect(materialise(replace(case, dtype="float32")), {}, Profile.ordinary("float32")))}


def _stance(case: Case, problem: Problem, subject: Subject) -> Record:
    """Whether a subject gets the case, judged by its facts alone: an adapter may still decline the call itself."""
    made = make_cell(case, problem, subject)
    record = {"subject": subject.name, "asked": False, "reason": ""}
    if made is None:
        return record | {"reason": "its dense form would be the same call"}
    if isinstance(made, Refused):
        return record | {"reason": made.reason}
    return record | {"asked": True, "route": made.route.record(), "dropped": list(made.dropped)}


def lines(record: Mapping[str, Any]) -> Iterator[str]:
    """The record as text, line by line."""
    yield f"{record['case']}  ({record['source']})"
    yield record["summary"]
    yield ""
    yield from (f"  {line}" for line in record["yaml"].splitlines())
    yield ""
    yield f"{record['operator']} in {record['dtype']}: {_pairs(record['sizes'])}"
    needed = f"; needs support for {', '.join(record['requirements'])}" if record["requirements"] else ""
    yield f"Requested outputs: {', '.join(record['outputs'])}{needed}"
    if record["mistake"] is not None:
        yield f"Must be refused: {record['mistake']}; everything below describes the valid call"
    yield from _masks(record)
    yield from _numbers(record)
    yield from _deviations(record)
    yield from _subjects(record)


def _pairs(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def _masks(record: Mapping[str, Any]) -> Iterator[str]:
    for mask in record["masks"]:
        verbatim = ", verbatim" if mask["verbatim"] else ""
        attached = ", attached" if mask["attached"] else ""
        yield f"Mask {' and '.join(mask['kinds'])} ({mask['element']}{verbatim}{attached}; {mask['legend']}):"
        yield from (f"  {line}" for line in mask["picture"])
    if record["together"]:
        yield f"All masks combined ({LEGEND}):"
        yield from (f"  {line}" for line in record["together"])
    if record["fully_masked_rows"]:
        yield f"{record['fully_masked_rows']} of {record['rows']} rows are fully masked"


def _numbers(record: Mapping[str, Any]) -> Iterator[str]:
    yield "Expected outputs of canonical attention:"
    for name, each in record["expected"].items():
        first = ", ".join(_number(value) for value in each["first"])
        yield (
            f"  {name} {each['shape']} {each['dtype']}: {first}, ...; "
            f"from {_number(each['least'])} to {_number(each['largest'])}"
        )
    for dtype, bounds in record["bounds"].items():
        yield f"Tolerance in {dtype}, for ordinary arithmetic:"
        for name, bound in bounds.items():
            yield f"  {name}: at most {_number(bound['largest'], 3)}; coverage {float(bound['coverage']):.0%}"


def _number(value: float | str, digits: int = 6) -> str:
    return value if isinstance(value, str) else f"{value:.{digits}g}"


def _deviations(record: Mapping[str, Any]) -> Iterator[str]:
    distinct = [key for key in record["detected"] if key not in FORMS]
    times = _number(record["factor"])
    yield f"Deviations that this case detects (difference at least {times} times the bound): {len(distinct)}"
    yield from _by_decision(distinct)
    close, without_effect = record["too_close"], record["without_effect"]
    missed = f"{len(close)} that change the reply too little, {len(without_effect)} without any effect"
    yield f"Deviations that it does not detect: {missed}"
    yield from _by_decision(f"{key} ({_number(away, 2)})" for key, away in close.items())


def _by_decision(keys: Iterator[str] | Sequence[str]) -> Iterator[str]:
    families: dict[str, list[str]] = {}
    for key in keys:
        decision, _, name = key.partition("=")
        families.setdefault(decision, []).append(name)
    yield from (f"  {decision}: {', '.join(names)}" for decision, names in families.items())


def _subjects(record: Mapping[str, Any]) -> Iterator[str]:
    for heading, asked in (("Subjects, unless the adapter declines the call:", True), ("Declined:", False)):
        chosen = [each for each in record["subjects"] if each["asked"] is asked]
        if not chosen:
            continue
        yield heading
        width = max(len(each["subject"]) for each in chosen)
        for each in chosen:
            yield f"  {each['subject']:{width}}  {_way(each) if asked else each['reason']}".rstrip()


def _way(each: Mapping[str, Any]) -> str:
    ways = [f"{', '.join(way['kinds'])} in {way['slot']} ({_form(way)})" for way in each["route"]]
    ways += [f"without {', '.join(each['dropped'])}"] if each["dropped"] else []
    return "; ".join(ways)


def _form(way: Mapping[str, Any]) -> str:
    return " ".join([way["element"], *way["axes"]])
