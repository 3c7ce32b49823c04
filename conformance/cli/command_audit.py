"""What the cases can tell: the command audit."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance import places
from conformance.cli.case_choice import load_cases
from conformance.deviations.names import INVISIBLE
from conformance.diagnosis.detectability import (
    FACETS,
    FACTOR,
    SHARP,
    Detectability,
    Detection,
    Pair,
    detectability,
    missing_pairs,
)
from conformance.engine.adapters import read_adapters, subjects_of
from conformance.engine.tiers import lost, routes
from conformance.gate.decision import CONFORMS, REJECTED
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem
from conformance.spec.texts import counted

OPERATORS = ("sdpa", "mha")
HEADINGS = (*OPERATORS, "half")


def audit(arguments: argparse.Namespace) -> int:
    """Print which cases tell every deviation apart from canonical, and what nothing pins down."""
    cases = [case for case in load_cases(arguments.paths, (), None) if case.mistake is None]
    problems = {case.id: materialise(case) for case in cases}
    if arguments.tiers:
        return _tiers(cases, problems)
    found, apart = detectability(problems.items()), missing_pairs(problems.values())
    if arguments.json:
        json.dump(record(found, apart, len(cases)), sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print("\n".join(lines(found, apart, len(cases))))
    return REJECTED if found.unpinned else CONFORMS


def _tiers(cases: Sequence[Case], problems: Mapping[str, Problem]) -> int:
    """Say whether the default tier tells apart all that all cases do, on the own route of every subject."""
    found = routes(cases, problems, subjects_of(read_adapters([places.adapters()])))
    default = [case for case in cases if not case.thorough]
    only = [f"{names}: only thorough cases tell apart {', '.join(keys)}" for names, keys in lost(found, cases).items()]
    every, apart = (missing_pairs(problems[case.id] for case in some) for some in (cases, default))
    for operator, pairs in apart.items():
        gone = [" and ".join(pair) for pair in pairs if pair not in every[operator]]
        only += [f"{operator}: only thorough cases ask together {each}" for each in gone]
    print("\n".join(only), end="\n" if only else "")
    asked = f"{len(default)} of {counted(len(cases), 'case')} by default, {counted(len(found), 'route')} of subjects"
    print(f"{asked}: {'something' if only else 'nothing'} is told by thorough cases alone")
    return REJECTED if only else CONFORMS


def lines(found: Detectability, apart: Mapping[str, Sequence[Pair]], cases: int) -> Iterator[str]:
    """The table of deviations and what follows from it, a line at a time. apart: what is never asked together."""
    width = max(map(len, found.sights))
    yield f"{'deviation':{width}}  {'  '.join(f'{heading:>4}' for heading in HEADINGS)}  simplest case"
    for key, seen in found.sights.items():
        counts = "  ".join(f"{number:4}" for number in _counts(seen))
        simplest = found.simplest(key)
        yield f"{key:{width}}  {counts}  {_remark(key) if simplest is None else simplest.case}"
    yield ""
    yield f"sdpa, mha: cases in {' or '.join(SHARP)} that are at least {FACTOR:g} bounds away; half: in other dtypes"
    unpinned = found.unpinned
    alike = sum(1 for key in found.sights if key in INVISIBLE)
    pinned = len(found.sights) - alike - len(unpinned)
    yield f"{cases} cases, {pinned} deviations pinned down, {len(unpinned)} not; {alike} are canonical by nature"
    if unpinned:
        yield f"not pinned down: {', '.join(unpinned)}"
    if found.undecided:
        yield f"decisions that nothing pins down: {', '.join(found.undecided)}"
    if found.powerless:
        yield f"cases without power: {', '.join(found.powerless)}"
    yield f"of what may send a call another way ({', '.join(FACETS)}):"
    for operator, pairs in apart.items():
        told = "; ".join(" and ".join(pair) for pair in pairs)
        yield (
            f"{operator}: no case asks together {told}"
            if told
            else f"{operator}: any two that are asked are asked together, too"
        )


def _counts(seen: tuple[Detection, ...]) -> tuple[int, ...]:
    """How many cases tell a deviation apart, in the order of HEADINGS."""
    sharp = [sight.operator for sight in seen if sight.dtype in SHARP]
    return (*(sharp.count(operator) for operator in OPERATORS), len(seen) - len(sharp))


def _remark(key: str) -> str:
    return f"canonical by nature: {INVISIBLE[key]}" if key in INVISIBLE else "NOT PINNED DOWN"


def record(found: Detectability, apart: Mapping[str, Sequence[Pair]], cases: int) -> dict[str, Any]:
    """The same as JSON values; infinite distances are the string inf."""
    return {
        "schema": 1,
        "cases": cases,
        "factor": FACTOR,
        "deviations": [
            {
                "deviation": key,
                "pinned": bool(found.sharp(key)),
                "canonical_by_nature": INVISIBLE.get(key),
                "cases": [_detection(sight) for sight in found.sharp(key)],
                "other_dtypes": [_detection(sight) for sight in seen if sight.dtype not in SHARP],
            }
            for key, seen in found.sights.items()
        ],
        "not_pinned": list(found.unpinned),
        "decisions_not_pinned": list(found.undecided),
        "without_power": list(found.powerless),
        "not_asked_together": {operator: [list(pair) for pair in pairs] for operator, pairs in apart.items()},
    }


def _detection(sight: Detection) -> dict[str, Any]:
    bounds = "inf" if sight.bounds == float("inf") else sight.bounds
    return {"case": sight.case, "dtype": sight.dtype, "bounds": bounds}
