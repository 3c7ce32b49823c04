"""
Choose the cases that only a thorough run has, and write cases/thorough.txt: `nox -s tiers -- RUN`.

RUN is the folder of a thorough run: it says what each case costs, and which known deviations it meets. `needs` lists
what the default tier must keep. Among the cases that meet these needs, those that meet most for their cost are chosen.
"""

import argparse
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from conformance import places
from conformance.cli.case_choice import load_cases
from conformance.cli.command_audit import RouteDetections, routes
from conformance.diagnosis.detectability import FACETS, SHARP
from conformance.engine.adapters import read_adapters, subjects_of
from conformance.spec.case import Case, asked
from conformance.spec.loader import NAME
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem

Need: TypeAlias = tuple[Any, ...]

# Needs that two cases of the default tier must meet if two can: a single case might be declined, or leave a tie.
TWICE = ("pin",)

# Cases with these tags are in the default tier.
ALWAYS = ("smoke", "probe")

# CPU seconds that a cell costs in addition to the call: its judgement, its record, its line in the report.
OVERHEAD = 0.01

# Cases that meet a condition under which a kernel takes another path; they are in the default tier.
PATHS = places.cases().parent / "docs" / "path-conditions.md"

HEAD = """\
# Cases that only a thorough run asks (conformance run --thorough). Made by `nox -s tiers`; do not edit by hand.
# On the own route of every subject, the other cases tell apart every deviation that all cases tell apart.
"""


class Log:
    """The cost of each case in a thorough run, and the known deviations that it meets."""

    def __init__(self, folder: Path, subjects: Collection[str]) -> None:
        """Read the cells of these subjects: those of a default run."""
        self.cost: Counter[str] = Counter()
        self.known: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for line in (folder / "run.jsonl").read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record["type"] == "cell" and record["subject"] in subjects:
                self._take(record)

    def _take(self, record: Mapping[str, Any]) -> None:
        self.cost[record["case"]] += OVERHEAD + record.get("seconds", {}).get("cpu", 0.0)
        matched = (origin for origin, outcome in record.get("covered_by", {}).items() if outcome == "matched")
        self.known[record["case"]].update((record["subject"], origin) for origin in matched)


def needs(case: Case, problem: Problem, log: Log, found: Sequence[RouteDetections]) -> Iterator[Need]:
    """Yield the needs of the default tier that a case meets."""
    sharp = "pin" if case.dtype in SHARP else "half"
    for number, route in enumerate(found):
        yield from ((sharp, number, key) for key in route.detections.get(case.id, ()))
    facets = [name for name, facet in FACETS.items() if facet(problem)]
    yield from (("pair", case.operator, *pair) for pair in combinations(facets, 2))
    yield from (("feature", case.operator, name) for name in asked(case))
    yield ("suite", case.operator, case.suite)
    yield ("dtype", case.operator, case.suite.partition("/")[0], case.dtype)
    yield from (("known", *each) for each in log.known[case.id])


def chosen(given: Mapping[str, frozenset[Need]], cost: Mapping[str, float], kept: set[str]) -> set[str]:
    """Return the cases of the default tier: `kept`, then greedily the case that meets most needs for its cost."""
    meets = Counter(need for each in given.values() for need in each)
    left = {need: min(2 if need[0] in TWICE else 1, number) for need, number in meets.items()}
    taken: set[str] = set()

    def take(case: str) -> None:
        taken.add(case)
        for need in given[case] & left.keys():
            left[need] -= 1
            if not left[need]:
                del left[need]

    for case in sorted(kept):
        take(case)
    while left:
        rest = sorted(given.keys() - taken)
        take(max(rest, key=lambda case: len(given[case] & left.keys()) / cost[case]))
    return taken


def main() -> int:
    """Choose the cases, write the list, and print what the default tier costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the folder of a thorough run")
    subjects = [each for each in subjects_of(read_adapters([places.adapters()])) if not each.thorough]
    log = Log(parser.parse_args().run, {subject.name for subject in subjects})
    cases = {case.id: case for case in load_cases((), (), None)}
    problems = {name: materialise(case) for name, case in cases.items()}
    found = routes(list(cases.values()), problems, subjects)
    given = {name: frozenset(needs(case, problems[name], log, found)) for name, case in cases.items()}
    on_paths = set(re.findall(r"\| `([^`]+)` \|", PATHS.read_text(encoding="utf-8")))
    kept = {name for name, case in cases.items() if name in on_paths or set(case.tags) & set(ALWAYS)}
    taken = chosen(given, {name: log.cost[name] or OVERHEAD for name in cases}, kept)
    left_out = sorted(cases.keys() - taken)
    (places.cases() / NAME).write_text(HEAD + "".join(f"{name}\n" for name in left_out), encoding="utf-8")
    seconds, every = sum(log.cost[name] for name in taken), sum(log.cost.values())
    told = f"{len(taken)} of {len(cases)} cases by default ({len(kept)} for what they are)"
    print(f"{told}: {seconds:.0f} of {every:.0f} CPU s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
