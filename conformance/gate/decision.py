"""Decides about a run: which verdicts the gate does not accept, and the exit code."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, Self

from conformance.spec.texts import are
from conformance.verdicts.verdict import GRAVITY

CONFORMS, REJECTED, INTERRUPTED, INTERNAL, USAGE, NOTHING, INCOMPLETE = 0, 1, 2, 3, 4, 5, 7
# Exit codes in order of precedence.
PRECEDENCE = (INTERNAL, INTERRUPTED, USAGE, INCOMPLETE, REJECTED, NOTHING, CONFORMS)

JUDGED = ("pass", "dialect", "fail", "inconclusive", "error", "timeout", "crash")


@dataclass(frozen=True)
class Decision:
    """
    The gate's decision about a run.

    rejected: cells whose verdict is not accepted. problems: sentences that say why the run does not conform.
    incomplete: sentences that say what is missing. known: the results of the list of known deviations. not_working:
    subject -> the sentence that says that no valid call of it had a reply; these sentences come first in `incomplete`.
    """

    exit_code: int
    counts: Mapping[str, int]
    rejected: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    known: Mapping[str, Any] = field(default_factory=dict)
    not_working: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def recorded(cls, footer: Mapping[str, Any]) -> Self:
        """The decision in the footer of a run log."""
        gate = footer["gate"]
        return cls(
            footer["exit_code"],
            footer.get("counts", {}),
            tuple((case, subject) for case, subject in gate.get("rejected", ())),
            tuple(gate.get("problems", ())),
            tuple(gate.get("incomplete", ())),
            gate.get("known", {}),
            gate.get("not_working", {}),
        )

    @property
    def conforms(self) -> bool:
        """Whether everything was judged and accepted."""
        return self.exit_code == CONFORMS

    def record(self) -> dict[str, Any]:
        """The `gate` of the run log and of verdict.json."""
        return {
            "conforms": self.conforms,
            "rejected": [list(cell) for cell in self.rejected],
            "problems": list(self.problems),
            "incomplete": list(self.incomplete),
            "not_working": dict(self.not_working),
            "known": dict(self.known),
        }


@dataclass(frozen=True)
class Objections:
    """Sentences from a comparison with a baseline: what changed for the worse, and why nothing was compared."""

    rejected: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()


class Decided(Protocol):
    """
    What the decision needs of a cell; `engine.records.JudgedCell` has it.

    It is a protocol because the command line needs the exit codes of this module, and not the records of a log.
    """

    @property
    def key(self) -> tuple[str, str]:
        """Case and subject."""
        ...

    @property
    def verdict(self) -> str:
        """The verdict."""
        ...

    @property
    def green(self) -> bool:
        """Whether the gate accepts the cell."""
        ...


def decide(
    cells: Iterable[Decided],
    incomplete: Sequence[str],
    known_problems: Sequence[str],
    known: Mapping[str, Any],
    *,
    uncompared: Sequence[str] = (),
    not_working: Mapping[str, str] = MappingProxyType({}),
    interrupted: bool = False,
    stopped: bool = False,
) -> Decision:
    """
    Decide about a run from its cells and from what is missing.

    uncompared: sentences that say why nothing was compared with a baseline. not_working: subjects without a reply to
    any valid call -> the sentence that says so. stopped: -x ended the run at a
    rejected cell.

    Precedence of exit codes: 3, 2, 4, 7, 1, 5, 0.
    """
    counts: dict[str, int] = {}
    rejected = []
    for cell in cells:
        counts[cell.verdict] = counts.get(cell.verdict, 0) + 1
        if not cell.green:
            rejected.append(cell.key)
    incomplete = (*not_working.values(), *incomplete)
    codes = {
        INTERRUPTED: interrupted,
        INCOMPLETE: bool(incomplete) and not stopped,
        REJECTED: bool(rejected or known_problems),
        NOTHING: bool(uncompared) or not any(counts.get(verdict) for verdict in JUDGED),
    }
    code = next((code for code in PRECEDENCE if codes.get(code)), CONFORMS)
    counts = {verdict: counts[verdict] for verdict in GRAVITY if verdict in counts}
    rejected.sort()  # workers reply in any order
    return Decision(
        code,
        counts,
        tuple(rejected),
        _problems(rejected, (*known_problems, *uncompared)),
        incomplete,
        known,
        not_working,
    )


def _problems(rejected: Sequence[tuple[str, str]], known_problems: Sequence[str]) -> tuple[str, ...]:
    found = [f"{are(len(rejected), 'verdict')} rejected"] if rejected else []
    return (*found, *known_problems)
