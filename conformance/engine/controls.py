"""
Controls: valid calls that show whether a refusal is due to the mistake, and whether a subject works at all.

A refusal of a call with a mistake is meaningful only if the same call without the mistake has a reply. And if every
call of a subject ends in an error, plainer calls are made before the subject is reported as not working.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from math import prod

from conformance.engine.adapters import Subject
from conformance.engine.cells import Cell, make_cell
from conformance.engine.job import Outcome, Status
from conformance.engine.logged_cell import LoggedCell
from conformance.engine.second_look import Question
from conformance.spec.case import Case, asked
from conformance.spec.materialise import materialise
from conformance.spec.texts import counted
from conformance.verdicts.verdict import LOST, gist, root

# Maximum number of plainer calls for a subject without any reply.
MAX_PLAIN = 12


# Some kernels reject widths that are not a multiple of this.
BLOCK = 8


@dataclass(eq=False)
class CallCounts:
    """The outcomes of the valid calls of one subject: the number of replies, and the errors of the other calls."""

    replies: int = 0
    lost: list[str] = field(default_factory=list)

    def count(self, status: str, reason: str) -> None:
        """Count one call."""
        if status in LOST:
            self.lost.append(reason)
        elif status == "reply":
            self.replies += 1

    @property
    def works(self) -> bool:
        """Whether there is a reply, or no error at all."""
        return bool(self.replies) or not self.lost

    @property
    def sentence(self) -> str:
        """How the calls ended, as a sentence without its subject."""
        roots = Counter(map(root, self.lost))
        common, number = roots.most_common(1)[0]
        message = gist(next(reason for reason in self.lost if root(reason) == common))
        most = "" if len(roots) == 1 else f"; {number} of them with"
        return f"does not work here: {_every(len(self.lost))} failed{most}: {message}"


def _every(calls: int) -> str:
    return "its only call" if calls == 1 else f"every one of its {counted(calls, 'call')}"


@dataclass(eq=False)
class RefusedCall:
    """A call with a mistake that was refused: the number of its job, its outcome, and that of the valid call."""

    number: int
    cell: Cell
    outcome: Outcome
    twin: Outcome | None = None

    @property
    def doubt(self) -> str:
        """Why the refusal proves nothing; "" if the valid call has a reply."""
        if self.twin is None or self.twin.status == "not_run":
            return "the valid call, without the mistake, was not made"
        if self.twin.status == "reply":
            return ""
        return f"the valid call, without the mistake, has no reply either: {gist(self.twin.reason)}"


def _plainness(case: Case) -> tuple[int, bool, int]:
    """A sort key: number of features, then regular shapes (seq_len_q == seq_len_k, width % BLOCK == 0), then size."""
    regular = case.seq_len_q == case.seq_len_k and case.head_dim == case.value_dim and not case.head_dim % BLOCK
    return len(asked(case)), not regular, prod(case.axes.values())


# What identifies a call.
CallKey = bytes


def _call_of(cell: Cell) -> CallKey:
    """A digest of the subject and of the call: one is kept for every call of a run."""
    return hashlib.sha256(f"{cell.subject.name} {cell.digest}".encode()).digest()


@lru_cache(maxsize=1024)
def _without_numbers(status: Status, reason: str) -> Outcome:
    """What is needed later of an outcome; the same object for all calls that ended alike."""
    return Outcome(status, reason=reason)


class Controls:
    """The outcomes of the calls of one worker, and the additional valid calls to make."""

    def __init__(self, subjects: Iterable[Subject], suite: Callable[[], Iterable[Case]]) -> None:
        """Begin without outcomes; suite: returns every case, including those that were not selected."""
        self.refused: list[RefusedCall] = []
        self._suite = suite
        self._begun = False
        self._outcomes: dict[CallKey, Outcome] = {}
        self._counts: dict[str, CallCounts] = {}
        self._forms = {subject.name: replace(subject, dense=False) for subject in subjects}

    def hear(self, cell: Cell, outcome: Outcome) -> None:
        """Record the outcome of a call; a call with a mistake does not count by itself."""
        if cell.case.mistake is None:
            self._counts_of(cell.subject.name).count(outcome.status, outcome.reason)
            self._outcomes.setdefault(_call_of(cell), _without_numbers(outcome.status, outcome.reason))

    def recall(self, cell: LoggedCell) -> None:
        """Record a cell from before the run was interrupted."""
        if cell.mistake is None and cell.verdict != "unsupported":
            self._counts_of(cell.subject).count(cell.verdict if cell.verdict in LOST else "reply", cell.reason)

    def _counts_of(self, subject: str) -> CallCounts:
        return self._counts.setdefault(self._forms[subject].name, CallCounts())

    def take_refused(self) -> list[RefusedCall]:
        """Return the refused calls that waited for their valid calls, and forget them."""
        taken, self.refused = self.refused, []
        return taken

    def next_questions(self) -> list[Question]:
        """The valid calls to make, returned once: those of refused calls, and plain ones if a subject has no reply."""
        if self._begun:
            return []
        self._begun = True
        questions = list(self._questions())
        self._outcomes.clear()  # nothing asks for them any more
        return questions

    def _questions(self) -> Iterator[Question]:
        for twin, refused in self._twins().values():
            yield Question("controls", twin, self._takes(twin, refused))
        for form in dict.fromkeys(self._forms.values()):
            if form.name in self._counts and not self._counts[form.name].works:
                yield from (Question("controls", cell, self._takes(cell, ())) for cell in self._plainest(form))

    def _takes(self, cell: Cell, refused: Iterable[RefusedCall]) -> Callable[[Outcome], None]:
        def take(outcome: Outcome) -> None:
            self.hear(cell, outcome)
            for each in refused:
                each.twin = outcome

        return take

    def _twins(self) -> dict[CallKey, tuple[Cell, list[RefusedCall]]]:
        """The valid calls that were not made yet, each with the refused calls that it belongs to."""
        found: dict[CallKey, tuple[Cell, list[RefusedCall]]] = {}
        for refused in self.refused:
            case = replace(refused.cell.case, mistake=None)
            twin = make_cell(case, materialise(case), refused.cell.subject)
            if not isinstance(twin, Cell):
                continue
            if (call := _call_of(twin)) in self._outcomes:
                refused.twin = self._outcomes[call]
            else:
                found.setdefault(call, (twin, []))[1].append(refused)
        return found

    def _plainest(self, subject: Subject) -> Iterator[Cell]:
        """The plainest calls that were not made, one for each set of features, of a regular shape if possible."""
        found: dict[tuple[str, ...], Case] = {}
        for case in sorted(self._suite(), key=_plainness):
            if case.mistake is None and case.operator in subject.operators:
                found.setdefault(asked(case), case)
        made = (make_cell(case, materialise(case), subject) for case in found.values())
        new = (cell for cell in made if isinstance(cell, Cell) and _call_of(cell) not in self._outcomes)
        return islice(new, MAX_PLAIN)

    @property
    def not_working(self) -> dict[str, str]:
        """Subject -> sentence about it, for subjects without a reply to any valid call."""
        return {name: f"{name} {counts.sentence}" for name, counts in self._counts.items() if not counts.works}
