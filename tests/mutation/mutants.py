"""
The mutants: the oracle with one deviation, with one under a condition, with two; and without any, which must survive.

Each is an adapter that lies, generated for a run; cases are those that can tell, and some that cannot.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from pprint import pformat
from typing import Any

from conformance.bridge.contract import Facts
from conformance.deviations.catalogue import TABLE
from conformance.deviations.mask_arguments import slot_deviations
from conformance.deviations.names import INVISIBLE, slot_of
from conformance.diagnosis.conditions import Condition, always
from conformance.diagnosis.detectability import distinguished
from conformance.engine.adapters import read_adapter, subjects_of
from conformance.engine.cells import Cell, make_cell
from conformance.spec.case import Case
from conformance.spec.materialise import materialise
from conformance.spec.problem import Problem

SLOTS: dict[str, dict[str, Any]] = {
    "key_padding_mask": {
        "role": "mask",
        "takes": ["key_padding"],
        "axes": [["b", "k"]],
        "bool": "attend",
        "int": "attend",
        "float": "add",
    },
    "mask": {
        "role": "mask",
        "takes": ["attention", "key_padding", "causal", "window"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q", "k"],
        "bool": "attend",
        "int": "attend",
        "float": "add",
    },
    "bias": {
        "role": "mask",
        "takes": ["additive"],
        "axes": [["b", "h", "q", "k"]],
        "broadcast": ["b", "h", "q", "k"],
        "float": "add",
    },
    "is_causal": {"role": "causal", "alignment": "past"},
    "is_causal_at_the_end": {"role": "causal", "alignment": "bottom_right"},
    "window": {"role": "window", "alignment": "past"},
}
# Kind of mask, as the audit calls its argument -> the argument of the lying adapters.
ARGUMENT = {"key_padding": "key_padding_mask", "attention": "mask", "additive": "bias"}

# Arguments that hold no array, with their kind: they can only be ignored.
FLAGS = {"is_causal": "causal", "window": "window"}

# Conditions under which real implementations take another path.
GUARDS: tuple[Mapping[str, Any], ...] = (
    {"dtype": ["float32"]},
    {"dtype": ["float16"]},
    {"sizes_equal": [("seq_len_q", "seq_len_k")]},
    {"sizes_differ": [("seq_len_q", "seq_len_k")]},
    {"masks": True},
    {"masks": False},
    {"sizes": {"batch": 1}},
    {"sizes": {"seq_len_q": 1}},
    {"sizes": {"num_heads": 1}},
    {"sizes_above": {"seq_len_k": 16}},
    {"alias": ["qkv"]},
    {"outputs": ["weights"]},
    {"fully_masked_row": True},
    {"kinds": ["causal"]},
    {"without_kinds": ["attention"]},
)

_TEXT = '''\
"""An adapter that lies, written for a test."""

import sys

sys.path.insert(0, {here!r})
from lying import Lie, answer

from conformance.bridge import Call, Declaration, Deviation, Facts, Profile, framework_call

NAME = {name!r}
OPERATORS = {operators!r}
REQUIRES = ["numpy"]
OUTPUTS = ["output", "weights", "weights_mean", "present", "gradients", "scaled", "capped", "logits"]
DTYPES = ["float64", "float32", "float16", "bfloat16"]
DEVICES = ["cpu"]
CAPABILITIES = {capabilities!r}
SLOTS = {slots}

LIES = [Lie.of(each) for each in {lies}]


def declare(facts: Facts) -> Declaration:
    return Declaration(Profile.ordinary(facts.dtype), (), "the oracle, rounded once")


def sdpa(call: Call) -> dict:
    with framework_call():
        return answer(call, LIES)


mha = sdpa
'''
CAPABILITIES = [
    *("scale", "softcap", "dropout", "layout", "grouped_heads", "value_dim", "past"),
    *("kdim", "query_dim", "output_dim", "no_bias"),
    *("bias_kv", "zero_key", "relu", "residual", "no_output_projection"),
]


@dataclass(frozen=True)
class Lied:
    """One deviation, and where it is taken."""

    key: str
    when: Condition

    @property
    def decision(self) -> str:
        """As in a dialect."""
        return self.key.rpartition("=")[0]

    def record(self) -> dict[str, Any]:
        """The literal for `lying`."""
        decision, _, name = self.key.rpartition("=")
        return {"dialect": {decision: name}, "when": self.when.record()}


@dataclass(frozen=True)
class Mutant:
    """A set of lies, told together; kind: single, guarded, pair or identity. cases: on which it is run."""

    name: str
    kind: str
    lies: tuple[Lied, ...]
    cases: tuple[str, ...]

    @property
    def decision(self) -> str:
        """The decision of the first lie without its argument, for the table."""
        return self.lies[0].decision.partition("[")[0] if self.lies else "identity"

    def path(self, folder: Path) -> Path:
        """Where `write` puts the adapter."""
        return folder / f"{self.name}.py"

    def write(self, folder: Path) -> Path:
        """Write the adapter."""
        path = self.path(folder)
        path.write_text(
            _TEXT.format(
                here=str(Path(__file__).parent),
                name=f"mutant.{self.name}",
                operators=["sdpa", "mha"],
                capabilities=CAPABILITIES,
                slots=pformat(SLOTS, width=116, sort_dicts=False),
                lies=pformat([lie.record() for lie in self.lies], width=116, sort_dicts=False),
            ),
            encoding="utf-8",
        )
        return path


@dataclass(frozen=True, eq=False)
class Asked:
    """A case as it reaches a lying adapter. dense: with all masks in one argument, as a subject of its own."""

    case: str
    facts: Facts
    problem: Problem
    dense: bool = False

    @cached_property
    def told(self) -> frozenset[str]:
        """The deviations that the call distinguishes from canonical."""
        return frozenset(distinguished(self.problem))


def asked_of(cases: Sequence[Case], folder: Path) -> tuple[Asked, ...]:
    """Route cases to a lying adapter, in each form of masks."""
    adapter = read_adapter(Mutant("routed", "identity", (), ()).write(folder))
    found = []
    for subject in subjects_of([adapter]):
        for case in cases:
            cell = make_cell(case, materialise(case), subject)
            if isinstance(cell, Cell):
                found.append(Asked(case.id, cell.call.facts, cell.route.problem, subject.dense))
    return tuple(found)


def deviations() -> tuple[str, ...]:
    """Every deviation that a lying adapter can take and that is not canonical by nature."""
    kinds = {argument: kind for kind, argument in ARGUMENT.items()}
    arrays = [row.key for argument in kinds for row in slot_deviations(argument)]
    visible = [key for key in arrays if _by_kind(key, kinds) not in INVISIBLE]
    flags = [row.key for flag in FLAGS for row in slot_deviations(flag) if row.decision == f"use[{flag}]"]
    shown = [key for key in flags if _by_kind(key, FLAGS) not in INVISIBLE]
    return (*visible, *shown, *(row.key for row in TABLE if row.key not in INVISIBLE))


def _by_kind(key: str, kinds: Mapping[str, str]) -> str:
    _, slot = slot_of(key.rpartition("=")[0])
    return key if slot is None else key.replace(f"[{slot}]", f"[{kinds[slot]}]")


class Choice:
    """Chooses mutants and their cases by what the cases can tell."""

    def __init__(self, asked: Sequence[Asked], seed: int = 2017) -> None:
        """The same seed gives the same mutants."""
        self._asked = [each for each in asked if not each.dense]
        self._dense = [each for each in asked if each.dense]
        self._random, self._numbers = random.Random(seed), count(1)  # noqa: S311 - the same sample each time

    def singles(self) -> Iterator[Mutant]:
        """Every deviation, alone."""
        for key in deviations():
            yield self._mutant("single", (Lied(key, always()),))

    def guarded(self) -> Iterator[Mutant]:
        """Every deviation under a condition that divides the cases that tell it, the conditions in turn."""
        turn = 0
        for key in deviations():
            telling = self._telling({key})
            for step in range(len(GUARDS)):
                when = Condition(**GUARDS[(turn + step) % len(GUARDS)])
                inside = sum(when.holds(each.facts, each.problem) for each in telling)
                if ENOUGH <= inside <= len(telling) - ENOUGH:
                    turn += step + 1
                    yield self._mutant("guarded", (Lied(key, when),))
                    break

    def pairs(self, number: int) -> Iterator[Mutant]:
        """So many pairs of different decisions that one operator has."""
        while number:
            one, other = (Lied(key, always()) for key in self._random.sample(deviations(), 2))
            common = {*self._operators(one.key)} & {*self._operators(other.key)}
            if one.decision != other.decision and common:
                number -= 1
                yield self._mutant("pair", (one, other))

    def identity(self) -> Mutant:
        """No lie at all: it must be reported as one that survived."""
        return self._mutant("identity", ())

    def _operators(self, key: str) -> set[str]:
        return {each.problem.operator for each in self._asked if key in each.told}

    def _mutant(self, kind: str, lies: tuple[Lied, ...]) -> Mutant:
        return Mutant(f"{kind}_{next(self._numbers)}", kind, lies, self._cases(lies))

    def _cases(self, lies: Sequence[Lied]) -> tuple[str, ...]:
        """Some of the cases that can tell, where it lies and where not, and some others: all would take an hour."""
        keys = {lie.key for lie in lies}
        telling = self._telling(keys) or [each for each in self._dense if keys & each.told]
        lied = [each.case for each in telling if any(lie.when.holds(each.facts, each.problem) for lie in lies)]
        honest = [each.case for each in telling if each.case not in lied]
        other = [each.case for each in self._asked if not keys & each.told]
        some = self._some(honest, TELLING // 2)
        return (*self._some(lied, TELLING - len(some)), *some, *self._some(other, OTHERS))

    def _telling(self, keys: AbstractSet[str]) -> list[Asked]:
        return [each for each in self._asked if keys & each.told]

    def _some(self, cases: list[str], number: int) -> list[str]:
        return cases if len(cases) <= number else self._random.sample(cases, number)


TELLING = 60
# How many cases a mutant is run on, of those that can tell it and of the others.
OTHERS = 40

# A condition divides cases if so many lie on either side.
ENOUGH = 2
