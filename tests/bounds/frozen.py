"""
One number for everything that every deviation makes of sixty small calls: what a rebuild must not change by accident.

    python -m tests.bounds.frozen        writes tests/bounds/frozen.tsv anew

The number is a sum of all outputs, each times a weight of its own, so that any element that changes changes it. It is
compared to nine digits, since matrix products differ in the last ones from CPU to CPU.
"""

import sys
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from conformance import places
from conformance.deviations.catalogue import TABLE, evaluate_deviations
from conformance.deviations.deviation import Deviation, Reply
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.tiles import key_loop, key_loops
from conformance.diagnosis.detectability import by_kind
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.old_names import former
from conformance.spec.problem import Problem

FILE = Path(__file__).with_suffix(".tsv")
# What a line of the file begins with that names a call, not a deviation.
CALL = "# "
SLOTS = ("attention", "key_padding", "additive", "causal")
# What stands for NaN; infinities are the ends of the hyperbolic tangent.
NAN = 7.0


def problems() -> dict[str, Problem]:
    """The calls by the ids of their cases, each mask in an argument that is called like its kind."""
    cases = {case.id: case for case in load([places.cases()], places.cases())}
    return {name: by_kind(materialise(cases[name])) for name in calls()}


def calls() -> list[str]:
    """The ids of the sixty cases, which the file begins with: they stay the same when cases are added."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(CALL) for line in lines if line.startswith(CALL)]


def deviations() -> Iterator[Deviation]:
    """Every row of the table, of four arguments, and every member of the families."""
    yield from TABLE
    for slot in SLOTS:
        yield from slot_deviations(slot)
    yield from map(key_loop, key_loops())


def digest(deviation: Deviation, asked: Mapping[str, Problem]) -> float:
    """The number of a deviation, over all calls; a case that was renamed keeps the weights of its old name."""
    concerned = ((name, problem) for name, problem in asked.items() if deviation.concerns(problem))
    return sum(_number(former(name), problem, deviation) for name, problem in concerned)


def frozen() -> dict[str, float]:
    """Key of a deviation -> its number, as it was written."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith(CALL))
    return {key: float(number) for key, number in rows}


def main() -> int:
    """Write the file anew, for the same calls."""
    asked = problems()
    rows = (f"{deviation.key}\t{digest(deviation, asked):.12g}\n" for deviation in deviations())
    FILE.write_text("".join([*(f"{CALL}{name}\n" for name in asked), *rows]), encoding="utf-8")
    return 0


def _number(name: str, problem: Problem, deviation: Deviation) -> float:
    with np.errstate(all="ignore"):
        reply = evaluate_deviations(problem, (deviation,), "float64").reply
    return sum(_of_output(f"{name} {output}", reply, output) for output in reply)


def _of_output(name: str, reply: Reply, output: str) -> float:
    values = np.where(np.isnan(reply[output].values), NAN, reply[output].values)
    weights = np.random.default_rng(zlib.crc32(name.encode())).uniform(0.5, 1.5, size=values.size)
    return float(np.tanh(values.ravel()) @ weights)


if __name__ == "__main__":
    sys.exit(main())
