"""`conformance audit`: which deviations all cases detect, and whether those of the default tier detect the same."""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from conformance import places
from conformance.cli.case_choice import load_cases
from conformance.deviations.names import INVISIBLE
from conformance.diagnosis.detectability import (
    FACETS,
    FACTOR,
    FORMS,
    SHARP,
    Detectability,
    Detection,
    Pair,
    detectability,
    distinguished,
    missing_pairs,
)
from conformance.engine.adapters import Subject, read_adapters, subjects_of
from conformance.engine.cells import Cell, make_cell
from conformance.gate.decision import CONFORMS, REJECTED
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem
from conformance.spec.texts import counted

# Maximum number of deviations that are listed again after the table.
MAX_LISTED = 20

# What the routed problem of a case depends on: the masks of each argument, their element types, and the outputs.
Shape: TypeAlias = tuple[object, ...]


@dataclass(frozen=True)
class RouteDetections:
    """
    The deviations that the calls of subjects with the same route distinguish.

    subjects: their names. detections: case id -> the deviations that the case distinguishes from canonical, without
    those of the form of a reply, which every case distinguishes. Arguments in their names are numbered: mask0, mask1.
    """

    subjects: tuple[str, ...]
    detections: Mapping[str, frozenset[str]]

    def pinned(self, cases: Iterable[Case]) -> set[str]:
        """The deviations that at least one of these cases distinguishes in float64 or float32."""
        sharp = (self.detections.get(case.id, frozenset()) for case in cases if case.dtype in SHARP)
        return set().union(*sharp)


def routes(
    cases: Sequence[Case], problems: Mapping[str, Problem], subjects: Iterable[Subject]
) -> list[RouteDetections]:
    """
    Find the deviations that every call of the subjects distinguishes; equal calls are computed once.

    No framework is needed. problems: case id -> problem. Subjects that only a thorough run includes are skipped, and so
    are cases that must be refused.
    """
    computed: dict[tuple[str, Shape], frozenset[str]] = {}
    grouped: dict[frozenset[tuple[str, Shape]], tuple[list[str], dict[str, frozenset[str]]]] = {}
    for subject in subjects:
        if subject.thorough:
            continue
        keys = {}
        for case, problem in _calls(cases, problems, subject):
            key = (case.id, _shape(problem))
            if key not in computed:
                computed[key] = frozenset(distinguished(_numbered(problem)).keys() - FORMS)
            keys[key] = computed[key]
        names, _ = grouped.setdefault(frozenset(keys), ([], {key[0]: detections for key, detections in keys.items()}))
        names.append(subject.name)
    return [RouteDetections(tuple(names), detections) for names, detections in grouped.values()]


def _calls(cases: Sequence[Case], problems: Mapping[str, Problem], subject: Subject) -> Iterator[tuple[Case, Problem]]:
    """The cases that a subject supports, each with its routed problem."""
    for case in cases:
        if case.mistake is None and isinstance(made := make_cell(case, problems[case.id], subject), Cell):
            yield case, made.route.problem


def _shape(problem: Problem) -> Shape:
    masks = tuple((operand.element, operand.kinds, operand.verbatim) for operand in problem.mask_operands)
    return (masks, problem.outputs)


def _numbered(problem: Problem) -> Problem:
    mask_operands = tuple(
        replace(operand, slot=f"mask{number}") for number, operand in enumerate(problem.mask_operands)
    )
    return problem.but(mask_operands=mask_operands)


def lost(found: Iterable[RouteDetections], cases: Sequence[Case]) -> dict[str, tuple[str, ...]]:
    """Names of subjects with the same route, joined by commas -> deviations that only thorough cases distinguish."""
    default = [case for case in cases if not case.thorough]
    missing = {", ".join(each.subjects): each.pinned(cases) - each.pinned(default) for each in found}
    return {names: tuple(sorted(keys)) for names, keys in missing.items() if keys}


OPERATORS = ("sdpa", "mha")
HEADINGS = (*OPERATORS, "half")


def audit(arguments: argparse.Namespace) -> int:
    """Print how many cases detect each deviation and which deviations no case detects; return the exit code."""
    cases = [case for case in load_cases(arguments.paths, (), None) if case.mistake is None]
    problems = {case.id: materialise(case) for case in cases}
    if arguments.tiers:
        return _tiers(cases, problems)
    found, missing = detectability(problems.items()), missing_pairs(problems.values())
    if arguments.json:
        json.dump(record(found, missing, len(cases)), sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print("\n".join(lines(found, missing, len(cases))))
    return REJECTED if found.unpinned else CONFORMS


def _tiers(cases: Sequence[Case], problems: Mapping[str, Problem]) -> int:
    """Print what only thorough cases detect, on the own route of every subject; return the exit code."""
    found = routes(cases, problems, subjects_of(read_adapters([places.adapters()])))
    default = [case for case in cases if not case.thorough]
    only = [f"{names}: only thorough cases detect {', '.join(keys)}" for names, keys in lost(found, cases).items()]
    missing_in_all, missing = (missing_pairs(problems[case.id] for case in some) for some in (cases, default))
    for operator, pairs in missing.items():
        gone = [" and ".join(pair) for pair in pairs if pair not in missing_in_all[operator]]
        only += [f"{operator}: only thorough cases combine {each}" for each in gone]
    print("\n".join(only), end="\n" if only else "")
    default_cases = f"{len(default)} of {counted(len(cases), 'case')} run by default"
    checked = f"{counted(len(found), 'way')} to pass masks checked"
    print(f"{default_cases}; {checked}: a plain run misses {'what is listed above' if only else 'nothing'}")
    return REJECTED if only else CONFORMS


def lines(found: Detectability, missing: Mapping[str, Sequence[Pair]], cases: int) -> Iterator[str]:
    """Yield the lines of the table of deviations and of the summary. missing: pairs that no case combines."""
    width = max(map(len, found.detections))
    yield f"{'deviation':{width}}  {'  '.join(f'{heading:>4}' for heading in HEADINGS)}  simplest case"
    for key, seen in found.detections.items():
        counts = "  ".join(f"{number:4}" for number in _counts(seen))
        simplest = found.simplest(key)
        yield f"{key:{width}}  {counts}  {_remark(key) if simplest is None else simplest.case}"
    yield ""
    yield (
        f"sdpa, mha: number of cases in {' or '.join(SHARP)} in which the deviation changes the result by at least "
        f"{FACTOR:g} times the bound; half: the same in other dtypes"
    )
    unpinned = found.unpinned
    invisible = sum(1 for key in found.detections if key in INVISIBLE)
    pinned = len(found.detections) - invisible - len(unpinned)
    detected = f"{counted(cases, 'case')}, {pinned} deviations detected, {len(unpinned)} not"
    yield f"{detected}; {invisible} cannot change a result"
    if unpinned:
        yield f"not detected: {', '.join(unpinned) if len(unpinned) <= MAX_LISTED else 'the rows with NOT DETECTED'}"
    if found.undecided:
        yield f"decisions without a detected deviation: {', '.join(found.undecided)}"
    if found.powerless:
        yield f"cases that detect nothing: {', '.join(found.powerless)}"
    yield f"conditions that may change the code path ({', '.join(FACETS)}):"
    for operator, pairs in missing.items():
        listed = "; ".join(" and ".join(pair) for pair in pairs)
        yield f"{operator}: no case combines {listed}" if listed else f"{operator}: the cases combine every pair"


def _counts(seen: tuple[Detection, ...]) -> tuple[int, ...]:
    """Return how many cases detect a deviation, in the order of HEADINGS."""
    sharp = [detection.operator for detection in seen if detection.dtype in SHARP]
    return (*(sharp.count(operator) for operator in OPERATORS), len(seen) - len(sharp))


def _remark(key: str) -> str:
    return f"cannot change a result: {INVISIBLE[key]}" if key in INVISIBLE else "NOT DETECTED"


def record(found: Detectability, missing: Mapping[str, Sequence[Pair]], cases: int) -> dict[str, Any]:
    """Return the audit as JSON values; an infinite distance is the string inf."""
    return {
        "schema": 1,
        "cases": cases,
        "factor": FACTOR,
        "deviations": [
            {
                "deviation": key,
                "pinned": bool(found.sharp(key)),
                "canonical_by_nature": INVISIBLE.get(key),
                "cases": [_detection(each) for each in found.sharp(key)],
                "other_dtypes": [_detection(each) for each in seen if each.dtype not in SHARP],
            }
            for key, seen in found.detections.items()
        ],
        "not_pinned": list(found.unpinned),
        "decisions_not_pinned": list(found.undecided),
        "without_power": list(found.powerless),
        "not_asked_together": {operator: [list(pair) for pair in pairs] for operator, pairs in missing.items()},
    }


def _detection(detection: Detection) -> dict[str, Any]:
    bounds = "inf" if detection.bounds == float("inf") else detection.bounds
    return {"case": detection.case, "dtype": detection.dtype, "bounds": bounds}
