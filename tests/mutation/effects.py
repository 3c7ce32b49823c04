"""Compare a cause that the tool names with the right one: they match if they affect every judged call equally."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from conformance import places
from conformance.bridge.tensor import Tensor
from conformance.deviations.catalogue import evaluate
from conformance.deviations.deviation import Dialect
from conformance.diagnosis.coarser_arithmetic import ARITHMETIC
from conformance.diagnosis.conditions import always
from conformance.diagnosis.evidence import Evidence, reply_key
from conformance.engine.adapters import read_adapter, subjects_of
from conformance.engine.cells import Cell, make_cell
from conformance.engine.judging import Judge
from conformance.report import Run
from conformance.spec.case import Case
from conformance.spec.loader import load
from conformance.spec.materialise import materialise
from conformance.spec.rounding import round_to, to_tensor
from conformance.verdicts.verdict import CONFORMING

from .scoring import Option

# The option of an implementation that does not deviate from its declaration.
NOTHING = Option(frozenset(), always())


@dataclass(frozen=True, eq=False)
class Effects:
    """
    The effects of causes on the judged calls of one run.

    adapter: the file of the adapter that was run. judge: caches the expected replies.
    """

    run: Run
    adapter: Path
    judge: Judge = field(default_factory=Judge)

    def alike(self, named: Option, expected: Option, *, dense: bool) -> bool:
        """
        Whether two options are the same mistake, as far as the tool can see.

        They are if they are equal, or if no judged call distinguishes them and at least one judged call distinguishes
        `named` from no deviation. dense: whether to use the calls with all masks in one argument.
        """
        if named == expected:
            return True
        calls = self.calls[dense]
        return all(same_effect(call, named, expected) for call in calls) and any(
            not same_effect(call, named, NOTHING) for call in calls
        )

    @cached_property
    def calls(self) -> Mapping[bool, Sequence[Evidence]]:
        """The calls whose numbers were judged. Key True: all masks are in one argument; key False: the other calls."""
        subjects = {subject.name: subject for subject in subjects_of([read_adapter(self.adapter)])}
        found: dict[bool, list[Evidence]] = {False: [], True: []}
        for logged in self.run.cells.values():
            if logged.budget is None or logged.verdict not in (*CONFORMING, "fail"):
                continue
            case, subject = every_case()[logged.case], subjects[logged.subject]
            made = make_cell(case, materialise(case), subject)
            assert isinstance(made, Cell)  # a judged cell was not declined
            assert logged.declared is not None  # a judged cell was declared
            declaration = logged.declared.declaration()
            declared = self.judge.declared(made, declaration)
            call = Evidence(case.id, made.call.facts, made.route.problem, declared, declaration.profile)
            found[subject.dense].append(call)
        return found


@cache
def every_case() -> Mapping[str, Case]:
    """Return the shipped cases by id."""
    return {case.id: case for case in load([places.cases()], places.cases())}


def same_effect(call: Evidence, one: Option, other: Option) -> bool:
    """
    Whether the tool cannot distinguish two options in a call.

    It cannot if both make the arithmetic coarser in the same way and the oracle's replies under the two options match.
    The replies, each rounded once, match if they have the same bytes or if each is within the bound of the other.
    """
    if _arithmetic(call, one) != _arithmetic(call, other):
        return False
    first, second = _dialect(call, one), _dialect(call, other)
    if first == second:
        return True
    reply, changed = _reply(call, first), _reply(call, second)
    return reply_key(reply) == reply_key(changed) or (_holds(call, first, changed) and _holds(call, second, reply))


def _arithmetic(call: Evidence, option: Option) -> frozenset[str]:
    """The names of an option's arithmetic that is coarser than declared; empty if its condition does not hold."""
    coarser = (each.name for each in ARITHMETIC if each.name in option.keys and each.of(call.profile) is not None)
    return frozenset(coarser) if option.when.holds(call.facts, call.problem) else frozenset()


def _dialect(call: Evidence, option: Option) -> dict[str, str]:
    """The declared dialect of a call, with the deviations of an option if its condition holds."""
    if not option.when.holds(call.facts, call.problem):
        return dict(call.declared.dialect)
    ways = (key.rpartition("=") for key in sorted(option.keys) if "=" in key)
    return call.under(tuple((decision, name) for decision, _, name in ways))


def _reply(call: Evidence, dialect: Dialect) -> Mapping[str, Tensor]:
    """The oracle's reply under a dialect, rounded once."""
    return call.of_call.once(("reply", *sorted(dialect.items())), lambda: _computed(call, dialect))


def _computed(call: Evidence, dialect: Dialect) -> Mapping[str, Tensor]:
    reply = evaluate(call.problem, dialect, call.profile.score).reply
    return {name: to_tensor(round_to(each.values, each.dtype), each.dtype) for name, each in reply.items()}


def _holds(call: Evidence, dialect: Dialect, reply: Mapping[str, Tensor]) -> bool:
    """Whether a reply is within the bound under a dialect, by the rule that decides verdicts."""
    return call.failing(reply, ()).suspect().conforms_under(dialect)
