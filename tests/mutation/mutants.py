"""
The mutants: the oracle with one deviation, one under a condition, or two. One mutant has none and must survive.

Each mutant is a lying adapter generated for a run. It is judged on cases that detect it and on some that do not.
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
# Kind of mask, which is the name of its argument in the audit -> the argument of the lying adapters.
ARGUMENT = {"key_padding": "key_padding_mask", "attention": "mask", "additive": "bias"}

# Argument that takes no array -> its kind of mask. An adapter can only ignore it.
FLAGS = {"is_causal": "causal", "window": "window"}

# Conditions under which real implementations take another code path.
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
    """One deviation, and the condition under which the adapter takes it."""

    key: str
    when: Condition

    @property
    def decision(self) -> str:
        """The decision, as in a dialect."""
        return self.key.rpartition("=")[0]

    def record(self) -> dict[str, Any]:
        """Return the literal that `lying` reads."""
        decision, _, name = self.key.rpartition("=")
        return {"dialect": {decision: name}, "when": self.when.record()}


@dataclass(frozen=True)
class Mutant:
    """Lies of one adapter. kind: single, guarded, pair or identity. cases: the cases it is judged on; all if empty."""

    name: str
    kind: str
    lies: tuple[Lied, ...]
    cases: tuple[str, ...]

    @property
    def decision(self) -> str:
        """The decision of the first lie without its argument, for the table; "identity" if there is no lie."""
        return self.lies[0].decision.partition("[")[0] if self.lies else "identity"

    def path(self, folder: Path) -> Path:
        """Return the path to which `write` writes the adapter."""
        return folder / f"{self.name}.py"

    def write(self, folder: Path) -> Path:
        """Write the adapter and return its path."""
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
    """The call of a case to a lying adapter. dense: whether it is for the subject with all masks in one argument."""

    case: str
    facts: Facts
    problem: Problem
    dense: bool = False

    @cached_property
    def told(self) -> frozenset[str]:
        """The deviations that the call detects."""
        return frozenset(distinguished(self.problem))


def asked_of(cases: Sequence[Case], folder: Path) -> tuple[Asked, ...]:
    """Route cases to a lying adapter, both to its ordinary and to its dense subject."""
    adapter = read_adapter(Mutant("routed", "identity", (), ()).write(folder))
    found = []
    for subject in subjects_of([adapter]):
        for case in cases:
            cell = make_cell(case, materialise(case), subject)
            if isinstance(cell, Cell):
                found.append(Asked(case.id, cell.call.facts, cell.route.problem, subject.dense))
    return tuple(found)


def deviations() -> tuple[str, ...]:
    """Return every deviation that a lying adapter can take, except those that no case can distinguish."""
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
    """Chooses mutants, and their cases by which deviations the cases detect."""

    def __init__(self, asked: Sequence[Asked], seed: int = 2017) -> None:
        """Take the calls to choose from; the same seed gives the same mutants."""
        self._asked = [each for each in asked if not each.dense]
        self._dense = [each for each in asked if each.dense]
        self._random, self._numbers = random.Random(seed), count(1)  # noqa: S311 - a reproducible sample

    def singles(self) -> Iterator[Mutant]:
        """Yield one mutant for each deviation, without a condition."""
        for key in deviations():
            yield self._mutant("single", (Lied(key, always()),))

    def guarded(self) -> Iterator[Mutant]:
        """
        Yield one mutant for each deviation, under a condition that divides the calls that detect it.

        The conditions take turns. A deviation for which no condition divides the calls is left out.
        """
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
        """Yield `number` pairs of deviations of different decisions, which calls of one operator can detect."""
        while number:
            one, other = (Lied(key, always()) for key in self._random.sample(deviations(), 2))
            common = {*self._operators(one.key)} & {*self._operators(other.key)}
            if one.decision != other.decision and common:
                number -= 1
                yield self._mutant("pair", (one, other))

    def identity(self) -> Mutant:
        """Return the mutant without a lie, which must be reported as a survivor."""
        return self._mutant("identity", ())

    def _operators(self, key: str) -> set[str]:
        return {each.problem.operator for each in self._asked if key in each.told}

    def _mutant(self, kind: str, lies: tuple[Lied, ...]) -> Mutant:
        return Mutant(f"{kind}_{next(self._numbers)}", kind, lies, self._cases(lies))

    def _cases(self, lies: Sequence[Lied]) -> tuple[str, ...]:
        """
        Return some cases that detect a lie, where its condition holds and where it does not, and some other cases.

        All cases would take an hour.
        """
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


# Maximum number of cases that a mutant is judged on: of those that detect it, and of the others.
TELLING = 60
OTHERS = 40

# Minimum number of calls on each side of a condition that divides them.
ENOUGH = 2
