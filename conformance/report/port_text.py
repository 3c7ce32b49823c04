"""Advice for moving calls from one subject to another, for terminals and as JSON."""

import shlex
from collections.abc import Iterator
from typing import Any

from conformance.engine.slots import Slot
from conformance.report.porting import Argument, Difference, Port

ROLES = {
    "key_padding": "padding mask",
    "attention": "attention mask",
    "causal": "causal order",
    "window": "window",
    "additive": "numbers added to the logits",
}
MEANINGS = {
    ("bool", "attend"): "True attends",
    ("bool", "ignore"): "True ignores",
    ("int", "attend"): "non-zero attends",
    ("int", "ignore"): "non-zero ignores",
    ("int", "add"): "integers are added",
    ("float", "add"): "floats are added",
    ("float", "attend"): "floats are cast to bool",
}
VERBS = {"unsupported": "declines", "error": "raises", "crash": "crashes", "timeout": "hangs"}


def lines(found: Port) -> Iterator[str]:
    """The advice, line by line."""
    yield f"From {found.here.name} to {found.there.name}"
    yield ""
    yield "Arguments:"
    yield from (f"  {_argument(argument)}" for argument in found.arguments if argument.here or argument.there)
    yield ""
    if found.differences:
        yield f"Where they differ ({len(found.differences)}):"
    else:
        yield "They take every decision alike that the probe cases show on both."
    for difference in found.differences:
        yield from _difference(found, difference)
    yield from _facts(found)
    yield from _refusals(found)


def _argument(argument: Argument) -> str:
    return f"{ROLES[argument.kind]}: {described(argument.here)} -> {described(argument.there)}"


def described(slot: Slot | None) -> str:
    """An argument with what is documented about it."""
    if slot is None:
        return "no argument"
    if slot.role != "mask":
        hint = f"only a hint, requires {' and '.join(slot.requires)}" if slot.hint else ""
        about = [slot.alignment.replace("_", " ") if slot.role == "causal" else "(left, right)", hint]
    else:
        about = [MEANINGS.get(element, f"{element[0]} is undocumented") for element in slot.elements]
    return f"{slot.name} ({', '.join(filter(None, about))})"


def _difference(found: Port, difference: Difference) -> Iterator[str]:
    mine, yours = difference.sentences
    yield f"  {found.here.name} {mine}; {found.there.name} {yours}"
    for change in difference.changes:
        yield f"    change: {change}"
    yield f"    declared: {difference.declared[0]} -> {difference.declared[1]}"
    yield f"    observed: {difference.observed[0]} -> {difference.observed[1]}"
    yield f"    see: {command(found, difference.case)}"


def _facts(found: Port) -> Iterator[str]:
    for side, has in ((found.here, found.lost), (found.there, found.gained)):
        only = [f"{name} {', '.join(values)}" for name, values in has.items() if values]
        if only:
            yield f"Only {side.name} has: {'; '.join(only)}"
        if has is found.lost and "weights_mean" in has["outputs"] and "weights" in found.there.subject.outputs:
            yield f"    change: take the mean of the weights of {found.there.name} over axis 1"


def _refusals(found: Port) -> Iterator[str]:
    for refusal in found.refusals:
        calls = "1 probe case" if refusal.count == 1 else f"{refusal.count} probe cases"
        yield f"{found.there.name} {VERBS.get(refusal.verdict, refusal.verdict)} ({calls}): {refusal.reason}"
        yield f"    see: {command(found, refusal.case)}"


def command(found: Port, case: str) -> str:
    """The command that runs one case on both."""
    return shlex.join(["conformance", "run", "-a", found.here.name, "-a", found.there.name, "-k", case])


def record(found: Port) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "schema": 1,
        "from": found.here.name,
        "to": found.there.name,
        "arguments": [
            {"kind": each.kind, "from": each.here and each.here.name, "to": each.there and each.there.name}
            for each in found.arguments
        ],
        "differences": [_difference_record(found, each) for each in found.differences],
        "only_from": {name: list(values) for name, values in found.lost.items()},
        "only_to": {name: list(values) for name, values in found.gained.items()},
        "refused": [
            {
                "verdict": each.verdict,
                "reason": each.reason,
                "cases": each.count,
                "case": each.case,
                "command": command(found, each.case),
            }
            for each in found.refusals
        ],
    }


def _difference_record(found: Port, each: Difference) -> dict[str, Any]:
    def pair(values: tuple[str, str]) -> dict[str, str]:
        return {"from": values[0], "to": values[1]}

    return {
        "decision": pair(each.decision),
        "declared": pair(each.declared),
        "observed": pair(each.observed),
        "sentences": pair(each.sentences),
        "changes": list(each.changes),
        "case": each.case,
        "command": command(found, each.case),
    }
