"""What the gate accepted: the verdicts of known deviations."""

from dataclasses import dataclass

from conformance.engine.records import Cell, Known
from conformance.engine.run import Run


@dataclass(frozen=True)
class KnownGroup:
    """The verdicts that one known deviation accepts."""

    known: Known
    cells: tuple[Cell, ...]

    @property
    def subjects(self) -> tuple[str, ...]:
        """Who deviates."""
        return tuple(dict.fromkeys(cell.subject for cell in self.cells))


def known_groups(run: Run) -> list[KnownGroup]:
    """The accepted verdicts by the known deviation that accepts them, the widest first."""
    groups: dict[Known, list[Cell]] = {}
    for cell in run.cells.values():
        if cell.known is not None:
            groups.setdefault(cell.known, []).append(cell)
    known = [KnownGroup(entry, tuple(cells)) for entry, cells in groups.items()]
    return sorted(known, key=lambda group: -len(group.cells))
