"""Which features of the cases each subject judged, declined, or was never asked for."""

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.engine.records import Cell
from conformance.engine.run import Run

DECLINED = "declined"
NOT_REACHED = "not reached"


@dataclass
class Reach:
    """How many cases with a feature a subject judged, and how many it declined."""

    judged: int = 0
    declined: int = 0

    @property
    def text(self) -> str:
        """The number judged, or why there is none."""
        if self.judged:
            return str(self.judged)
        return DECLINED if self.declined else NOT_REACHED


@dataclass(frozen=True)
class Row:
    """A feature and, for each counted subject by name, how it fared."""

    feature: str
    reach: Mapping[str, Reach]


def counted_subjects(run: Run) -> tuple[str, ...]:
    """The subjects of the run that count, in its order."""
    return tuple(name for name, subject in run.header.subjects.items() if subject.counted)


def coverage(run: Run) -> tuple[Row, ...]:
    """A row for each feature that a case of the run has, in the order of their names."""
    names = counted_subjects(run)
    features = sorted({feature for case in run.header.cases.values() for feature in case.features})
    found = {feature: {name: Reach() for name in names} for feature in features}
    for cell in run.cells.values():
        if cell.subject in names:
            for feature in run.header.cases[cell.case].features:
                _count(found[feature][cell.subject], cell, feature)
    return tuple(Row(feature, reach) for feature, reach in found.items())


def _count(reach: Reach, cell: Cell, feature: str) -> None:
    """An output that was asked for and that the subject does not have is declined, whatever became of the rest."""
    kind, _, name = feature.partition(" ")
    if cell.verdict == "unsupported" or (kind == "output" and name in cell.dropped_outputs):
        reach.declined += 1
    else:
        reach.judged += 1
