"""
Compares what the default tier of cases distinguishes with what all cases distinguish, on the route of each subject.

A subject that folds all masks into one argument cannot show everything that another subject shows. So a case can be
superfluous for one subject and necessary for another. Subjects whose arguments carry the same masks share a route.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from conformance.bridge.contract import SECOND_CALL
from conformance.diagnosis.detectability import FORMS, SHARP, distinguished
from conformance.engine.adapters import Subject
from conformance.engine.cells import Cell, make_cell
from conformance.spec.case import Case
from conformance.spec.problem import Problem

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
        if case.mistake is None and set(case.requirements()) <= {*subject.capabilities, SECOND_CALL}:
            made = make_cell(case, problems[case.id], subject)
            if isinstance(made, Cell):
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
