"""The decisions that the user declares with --declare DECISION=NAME, checked and sorted by their use."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from conformance.bounds.outputs import UnderivedBound
from conformance.bridge.profile import Profile
from conformance.checking.target import CheckError
from conformance.deviations.catalogue import find, names_of
from conformance.deviations.names import CANONICAL_NAMES, slot_of
from conformance.diagnosis.explanation import CANONICAL
from conformance.report.probe_report import way_name
from conformance.spec.old_names import current_value
from conformance.spec.problem import Problem
from conformance.spec.texts import one_of
from conformance.verdicts.expectation import expect

# Name of a causal mask that no argument requests -> its alignment.
ALWAYS_CAUSAL = {"unasked": "top_left", "unasked_bottom_right": "bottom_right"}


@dataclass(frozen=True)
class Declared:
    """
    Decisions that the user has declared.

    dialect: decisions that are not canonical. canonical: decisions that are declared canonical. polarity: name of a
    mask argument -> what True means in it; the adapter converts masks accordingly.
    """

    dialect: Mapping[str, str] = field(default_factory=dict)
    canonical: tuple[str, ...] = ()
    polarity: Mapping[str, str] = field(default_factory=dict)

    @property
    def always_causal(self) -> str:
        """Return the alignment of a causal mask that is declared for every call; "" if there is none."""
        return ALWAYS_CAUSAL.get(self.dialect.get("causal_mask", ""), "")

    def pins(self, decision: str) -> bool:
        """Return whether the user declares this decision."""
        return decision in self.dialect or decision in self.canonical


def parse_pairs(words: Iterable[str]) -> dict[str, str]:
    """
    Split words of the form DECISION=NAME.

    Raises:
        CheckError: a word has another form, or a decision is given twice.
    """
    found: dict[str, str] = {}
    for word in words:
        decision, equals, name = word.partition("=")
        if not equals or not decision or not name:
            raise CheckError(f"--declare {word}: expected DECISION=NAME, such as fully_masked_row=nan")
        if decision in found:
            raise CheckError(f"--declare {decision} is given twice")
        found[decision] = name
    return found


def read_declared(pairs: Mapping[str, str], slots: Iterable[str], example: Problem) -> Declared:
    """
    Check declared pairs against the table of deviations.

    slots: the names of the mask arguments. example: any problem of the operator.

    Raises:
        CheckError: a decision, name or argument is unknown, or nothing can be judged under the declaration.
    """
    dialect: dict[str, str] = {}
    polarity: dict[str, str] = {}
    pairs = {decision: current_value(decision, name) for decision, name in pairs.items()}
    canonical = tuple(decision for decision, name in pairs.items() if _is_canonical(decision, name))
    for decision, name in pairs.items():
        _check(decision, name, tuple(slots), example)
        if decision in canonical:
            continue
        family, slot = slot_of(decision)
        if slot is not None and family == "polarity":
            polarity[slot] = name
        else:
            dialect[decision] = name
    return Declared(dialect, canonical, polarity)


def is_declarable(decision: str, name: str, example: Problem) -> bool:
    """Return whether a deviation from canonical can be declared; example: any problem of the operator."""
    slot = slot_of(decision)[1]
    try:
        _check(decision, name, () if slot is None else (slot,), example)
    except CheckError:
        return False
    return not _is_canonical(decision, name)


def _is_canonical(decision: str, name: str) -> bool:
    return name in (CANONICAL, CANONICAL_NAMES.get(decision), way_name(decision, CANONICAL))


def _check(decision: str, name: str, slots: tuple[str, ...], example: Problem) -> None:
    names = names_of(decision)
    try:
        if not (names and _is_canonical(decision, name)):
            find(decision, name)
            expect(example, {decision: name}, Profile.ordinary(example.dtype))
    except KeyError as error:
        if "[" in error.args[0] and "[" not in decision and slots:
            raise CheckError(
                f"--declare {decision}={name}: name the mask argument, as in {decision}[{slots[0]}]={name}"
            ) from None
        choices = f"expected {one_of(list(dict.fromkeys((way_name(decision, CANONICAL), *names))))}" if names else ""
        said = choices or re.sub("^no deviation .*?: ", "", error.args[0])
        raise CheckError(f"--declare {decision}={name}: {said}") from None
    except UnderivedBound as error:
        raise CheckError(f"--declare {decision}={name}: {error}") from None
    slot = slot_of(decision)[1]
    if slot is not None and slot not in slots:
        known = f"its mask arguments are {', '.join(slots)}" if slots else "it has no mask argument"
        raise CheckError(f"--declare {decision}={name}: the function has no mask argument {slot}; {known}")
