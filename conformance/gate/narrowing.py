"""What tells the cells that a known deviation matches from those that it wrongly covers: one more condition."""

from collections.abc import Mapping, Sequence
from typing import Any

Cell = Mapping[str, Any]
"""A cell of the run log."""


def narrowing(matched: Sequence[Cell], conforming: Sequence[Cell], cases: Mapping[str, Cell]) -> dict[str, Any]:
    """
    A field of `when`, or `subject`, that holds for every matched cell and for none that conforms; {} if none does.

    cases: the header's, by id.
    """
    if not matched or not conforming:
        return {}
    mine, others = ([_facts(cell, cases) for cell in cells] for cells in (matched, conforming))
    subjects = {facts["subject"] for facts in mine}
    if len(subjects) == 1 and subjects.isdisjoint(facts["subject"] for facts in others):
        return {"subject": subjects.pop()}
    for name in ("operator", "dtype"):
        values = sorted({facts[name] for facts in mine})
        if all(facts[name] not in values for facts in others):
            return {name: values if name == "dtype" else values[0]}
    return _of_sets(mine, others)


def _of_sets(mine: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    for name in ("slots", "kinds", "outputs", "elements"):
        here, there = ([set(facts[name]) for facts in cells] for cells in (mine, others))
        if found := sorted(set.intersection(*here) - set.union(*there)):
            return {name: dict([found[0]]) if name == "elements" else [found[0]]}
        if name != "elements" and (found := sorted(set.intersection(*there) - set.union(*here))):
            return {f"without_{name}": [found[0]]}
    return {}


def _facts(cell: Cell, cases: Mapping[str, Cell]) -> dict[str, Any]:
    case, route = cases[cell["case"]], cell.get("route", ())
    return {
        "subject": cell["subject"],
        "operator": case["operator"],
        "dtype": case["dtype"],
        "slots": [mask["slot"] for mask in route],
        "kinds": [kind for mask in route for kind in mask["kinds"]],
        "elements": [(mask["slot"], mask["element"]) for mask in route],
        "outputs": [output.get("output", "") for output in cell.get("outputs", ())],
    }
