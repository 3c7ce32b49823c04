"""Reading files of known deviations: every mistake with its line and column, entries with where they stand."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from conformance.gate.known_entry import Accept, Delta, Entry, KnownFile
from conformance.judge.conditions import Condition
from conformance.spec import syntax
from conformance.spec.mistakes import CaseFileErrors, Mistake, Mistakes
from conformance.spec.wording import faults

PACKAGED = Path(__file__).with_name("known.yaml")
"""The known deviations of today's frameworks, shipped with the package."""

_KEYS = {
    0: tuple(KnownFile.model_fields),
    2: tuple(Entry.model_fields),
    "when": tuple(Condition.model_fields),
    "delta": tuple(Delta.model_fields),
    "accept": tuple(Accept.model_fields),
}


def read_known(paths: Iterable[Path]) -> list[tuple[Entry, str]]:
    """
    Entries of all files in order, each with its origin (`known.yaml:12`).

    Raises:
        CaseFileErrors: with every mistake of every file.
    """
    entries: list[tuple[Entry, str]] = []
    mistakes: list[Mistake] = []
    for path in paths:
        name = shown(path)
        document = syntax.read_file(path, name)
        mistakes += document.mistakes
        if document.mistakes:
            continue
        if document.node is None:
            mistakes.append(Mistake(name, 1, 1, "the file is empty; expected format and deviations"))
            continue
        try:
            checked = KnownFile.model_validate(document.data)
        except ValidationError as error:
            found = Mistakes(name)
            for fault in faults(error, document.data, _names):
                place = syntax.find([document.node], fault.path, at_key=fault.at_key)
                found.note(*place, fault.message, fault.count)
            mistakes += found.told(syntax.last_line(document.node))
            continue
        for number, entry in enumerate(checked.deviations):
            line, _ = syntax.find([document.node], ("deviations", number))
            entries.append((entry, f"{name}:{line}"))
    if mistakes:
        raise CaseFileErrors(mistakes)
    return entries


def shown(path: Path) -> str:
    """A file's name in messages and origins: the packaged one by its name alone, others as they were given."""
    return path.name if path == PACKAGED else str(path)


def _names(path: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that are valid in the mapping at `path`."""
    inner = path[2] if len(path) > 2 else len(path)  # noqa: PLR2004 - deviations, number, field
    return _KEYS.get(inner, ())
