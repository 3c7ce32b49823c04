"""What the cases can tell: the command audit."""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from conformance.cli.choice import load_cases
from conformance.gate.decide import CONFORMS, REJECTED
from conformance.judge.power import FACTOR, INVISIBLE, SHARP, Power, Sight, power
from conformance.spec.materialise import materialise

OPERATORS = ("sdpa", "mha")
HEADINGS = (*OPERATORS, "half")


def audit(arguments: argparse.Namespace) -> int:
    """Print which cases tell every variation apart from canonical, and what nothing pins down."""
    cases = [case for case in load_cases(arguments.paths, (), None) if case.mistake is None]
    found = power((case.id, materialise(case)) for case in cases)
    if arguments.json:
        json.dump(record(found, len(cases)), sys.stdout, indent=2, allow_nan=False)
        print()
    else:
        print("\n".join(lines(found, len(cases))))
    return REJECTED if found.unpinned else CONFORMS


def lines(found: Power, cases: int) -> Iterator[str]:
    """The table of variations and what follows from it, a line at a time."""
    width = max(map(len, found.sights))
    yield f"{'variation':{width}}  {'  '.join(f'{heading:>4}' for heading in HEADINGS)}  simplest case"
    for key, seen in found.sights.items():
        counts = "  ".join(f"{number:4}" for number in _counts(seen))
        simplest = found.simplest(key)
        yield f"{key:{width}}  {counts}  {_remark(key) if simplest is None else simplest.case}"
    yield ""
    yield f"sdpa, mha: cases in {' or '.join(SHARP)} that are at least {FACTOR:g} bounds away; half: in other dtypes"
    unpinned = found.unpinned
    alike = sum(1 for key in found.sights if key in INVISIBLE)
    pinned = len(found.sights) - alike - len(unpinned)
    yield f"{cases} cases, {pinned} variations pinned down, {len(unpinned)} not; {alike} are canonical by nature"
    if unpinned:
        yield f"not pinned down: {', '.join(unpinned)}"
    if found.undecided:
        yield f"decisions that nothing pins down: {', '.join(found.undecided)}"
    if found.powerless:
        yield f"cases without power: {', '.join(found.powerless)}"


def _counts(seen: tuple[Sight, ...]) -> tuple[int, ...]:
    """How many cases tell a variation apart, in the order of HEADINGS."""
    sharp = [sight.operator for sight in seen if sight.dtype in SHARP]
    return (*(sharp.count(operator) for operator in OPERATORS), len(seen) - len(sharp))


def _remark(key: str) -> str:
    return f"canonical by nature: {INVISIBLE[key]}" if key in INVISIBLE else "NOT PINNED DOWN"


def record(found: Power, cases: int) -> dict[str, Any]:
    """The same as JSON values; infinite distances are the string inf."""
    return {
        "schema": 1,
        "cases": cases,
        "factor": FACTOR,
        "variations": [
            {
                "variation": key,
                "pinned": bool(found.sharp(key)),
                "canonical_by_nature": INVISIBLE.get(key),
                "cases": [_sight(sight) for sight in found.sharp(key)],
                "other_dtypes": [_sight(sight) for sight in seen if sight.dtype not in SHARP],
            }
            for key, seen in found.sights.items()
        ],
        "not_pinned": list(found.unpinned),
        "decisions_not_pinned": list(found.undecided),
        "without_power": list(found.powerless),
    }


def _sight(sight: Sight) -> dict[str, Any]:
    bounds = "inf" if sight.bounds == float("inf") else sight.bounds
    return {"case": sight.case, "dtype": sight.dtype, "bounds": bounds}
