"""
One number for each deviation, from all its outputs of sixty small calls: a refactoring must not change it by accident.

    python -m tests.bounds.frozen        writes tests/bounds/frozen.tsv again

The number is the sum of tanh of every output element, each times its own weight, so a change of any element changes
it. Tests compare nine digits, because the last digits of matrix products differ between CPUs.
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
# The prefix of a line of the file that names a call instead of a deviation.
CALL = "# "
SLOTS = ("attention", "key_padding", "additive", "causal")
# Replaces NaN; tanh maps the infinities to -1 and 1.
NAN = 7.0


def problems() -> dict[str, Problem]:
    """Return case id -> call, with each mask in an argument that is named after its kind."""
    cases = {case.id: case for case in load([places.cases()], places.cases())}
    return {name: by_kind(materialise(cases[name])) for name in calls()}


def calls() -> list[str]:
    """Return the ids of the sixty cases at the start of the file; they stay the same when cases are added."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return [line.removeprefix(CALL) for line in lines if line.startswith(CALL)]


def deviations() -> Iterator[Deviation]:
    """Yield every row of the table, the deviations of four mask arguments, and every key loop."""
    yield from TABLE
    for slot in SLOTS:
        yield from slot_deviations(slot)
    yield from map(key_loop, key_loops())


def digest(deviation: Deviation, asked: Mapping[str, Problem]) -> float:
    """Return the number of a deviation, over all calls; a renamed case keeps the weights of its old name."""
    concerned = ((name, problem) for name, problem in asked.items() if deviation.concerns(problem))
    return sum(_number(former(name), problem, deviation) for name, problem in concerned)


def frozen() -> dict[str, float]:
    """Return deviation key -> number, as in the file."""
    lines = FILE.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith(CALL))
    return {key: float(number) for key, number in rows}


def main() -> int:
    """Write the file again, for the same calls."""
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
