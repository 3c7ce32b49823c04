"""
Load suites: either all cases, or all mistakes of all files.

`root` is the case folder: a suite is named by its path in it, and nothing outside it is read. A list in that folder
marks the cases that only a thorough run includes.
"""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from conformance.spec import yaml_syntax
from conformance.spec.case import Case
from conformance.spec.document import Suite
from conformance.spec.entry import Origin, read_entry
from conformance.spec.matrix import Expansion, expand, merge, without_metadata
from conformance.spec.mistakes import CaseFileErrors, Fault, Mistake, Mistakes, nearest
from conformance.spec.model_faults import faults
from conformance.spec.old_names import current
from conformance.spec.texts import NoText, quoted, read_text

SUFFIX = ".yaml"
LINK_LOOP = "cannot be read: its symbolic links form a loop"


@dataclass(frozen=True)
class SuiteFile:
    """A suite file inside the case folder: its path, and its names in messages."""

    path: Path
    root: Path

    @cached_property
    def suite(self) -> str:
        """The suite name that its path implies."""
        return self.path.relative_to(self.root).with_suffix("").as_posix()

    @cached_property
    def shown(self) -> str:
        """Its path relative to the parent of the case folder."""
        return f"{self.root.name}/{self.path.relative_to(self.root).as_posix()}"

    @cached_property
    def location(self) -> str:
        """Its path relative to the working folder, so that editors can open it; `shown` if it is not below that."""
        here = Path.cwd().resolve()
        return self.path.relative_to(here).as_posix() if self.path.is_relative_to(here) else self.shown


def find_suites(paths: Sequence[Path], root: Path, mistakes: list[Mistake]) -> list[SuiteFile]:
    """Return the suite files that `paths` select, each once, sorted by name."""
    suites: dict[Path, SuiteFile] = {}
    for path in paths:
        resolved = _resolved(path)
        if resolved is None:
            mistakes.append(Mistake(str(path), 1, 1, LINK_LOOP))
            continue
        if not resolved.is_relative_to(root):
            mistakes.append(Mistake(str(path), 1, 1, f"is outside the case folder {root.name}"))
            continue
        inside = sorted(resolved.rglob("*" + SUFFIX)) if resolved.is_dir() else [resolved]
        if not inside:
            mistakes.append(Mistake(str(path), 1, 1, f"this folder contains no suite (*{SUFFIX})"))
        for file in inside:
            if (refused := _refused(file, root)) is not None:
                mistakes.append(Mistake(str(file if file != resolved else path), 1, 1, refused))
            else:
                suites[file.resolve()] = SuiteFile(file.resolve(), root)
    return sorted(suites.values(), key=lambda file: file.suite)


def _refused(file: Path, root: Path) -> str | None:
    """Explain why a path cannot be read as a suite, or return None; links are resolved before anything is opened."""
    resolved = _resolved(file)
    if resolved is None:
        return LINK_LOOP
    if not resolved.is_relative_to(root):
        return f"{file.name} points outside the case folder {root.name}"
    if file.suffix != SUFFIX:
        return f"the name of a suite file must end in {SUFFIX}"
    return None if file.is_file() else "file does not exist"


def _resolved(path: Path) -> Path | None:
    """Resolve a path; None for a loop of links, for which Python raises one of two exceptions."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return None


# File in the case folder that lists thorough cases.
NAME = "thorough.txt"

MAX_BYTES = 2**20


@dataclass(frozen=True)
class ThoroughList:
    """
    The ids in `thorough.txt` of the case folder, each with its line; none without this file.

    unread: why the file cannot be read.
    """

    shown: str
    listed: Mapping[str, int]
    unread: tuple[Mistake, ...] = ()

    def mistakes(self, cases: Iterable[Case]) -> tuple[Mistake, ...]:
        """Find listed ids that belong to a loaded suite, but to none of its cases."""
        ids: dict[str, dict[str, None]] = {}
        for case in cases:
            ids.setdefault(case.suite, {})[case.id] = None
        found = Mistakes(self.shown)
        for name, number in self.listed.items():
            if (suite := name.partition("[")[0].rpartition("/")[0]) in ids and not found.full:
                _check_id(name, ids[suite], number, found)
        rest = f"the rest of the {len(self.listed)} ids was not checked" if found.full else ""
        return (*self.unread, *found.listed(max(self.listed.values(), default=0), rest))


def _thorough_list(root: Path) -> ThoroughList:
    path = root / NAME
    shown = f"{path.parent.name}/{path.name}"
    if not path.is_file():
        return ThoroughList(shown, {})
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except NoText as error:
        return ThoroughList(shown, {}, (Mistake(shown, error.line, error.column, error.message),))
    named = ((line.strip(), number) for number, line in enumerate(lines, 1))
    return ThoroughList(shown, {current(line): number for line, number in named if line and not line.startswith("#")})


def _check_id(name: str, ids: Collection[str], number: int, id_mistakes: Mistakes) -> None:
    """Note a mistake if no case has the id `name` of line `number`; ids: the ids of its suite, which was loaded."""
    if name not in ids:
        id_mistakes.note(
            number, 1, f"no case has the id {quoted(name)}{nearest(name, ids)}; remove or correct this line"
        )


# Maximum number of cases of one suite after expansion.
MAX_CASES = 4096

# What two cases of one entry must differ in: every field that does not only name or describe the case.
_CALL = attrgetter(
    *(each.name for each in fields(Case) if each.name not in (*(own.name for own in fields(Origin)), "tags"))
)


@dataclass(frozen=True)
class Loaded:
    """The result of loading one file."""

    suite: str | None
    file: SuiteFile
    cases: tuple[Case, ...]
    mistakes: tuple[Mistake, ...]


def load(paths: Sequence[Path], root: Path) -> tuple[Case, ...]:
    """
    Load suites; `paths` are files and folders below the case folder `root`.

    Cases are ordered by suite name, then by position in the file.

    Raises:
        CaseFileErrors: there are mistakes; the exception lists all mistakes of all files.
    """
    mistakes: list[Mistake] = []
    files = find_suites(paths, root.resolve(), mistakes)
    thorough = _thorough_list(root.resolve())
    loaded = [_load(file, thorough.listed) for file in files]
    mistakes += [mistake for one in loaded for mistake in one.mistakes]
    mistakes += _repeated_suites(loaded)
    cases = tuple(case for one in loaded for case in one.cases)
    if mistakes := mistakes or [*thorough.mistakes(cases)]:
        raise CaseFileErrors(mistakes)
    return cases


def _load(file: SuiteFile, thorough: Collection[str]) -> Loaded:
    document = yaml_syntax.read_file(file.path, file.location)
    if document.node is None:
        empty = Mistake(file.location, 1, 1, "the file is empty; expected format, suite, summary and cases")
        return Loaded(None, file, (), document.mistakes or (empty,))
    return _Reader(file, document, thorough).read()


class _Reader:
    """Reads the cases of one file and collects mistakes with their positions."""

    def __init__(self, file: SuiteFile, document: yaml_syntax.Document, thorough: Collection[str]) -> None:
        assert document.node is not None  # noqa: S101 - for the type checker: _load has checked it
        self.file, self.root_node, self.data = file, document.node, document.data
        self.mistakes = Mistakes(file.location, document.mistakes)
        self.summary, self.thorough = "", thorough
        pairs = [yaml_syntax.child(self.root_node, name) for name in ("cases", "defaults")]
        self.cases_node, self.defaults_node = (pair and pair[1] for pair in pairs)
        self.names: dict[str, int] = {}
        self.case_count = 0

    def read(self) -> Loaded:
        suite = self.envelope()
        cases: list[Case] = []
        count, read = len(self.entries()), 0
        while read < count and not self.mistakes.full:
            cases += self.variants(read)
            read += 1
        unread = f"{count - read} of {count} entries were not checked" if read < count else ""
        return Loaded(
            suite, self.file, tuple(cases), self.mistakes.listed(yaml_syntax.last_line(self.root_node), unread)
        )

    def envelope(self) -> str | None:
        """Check the top level of the file; return the name of the suite if there is one."""
        plain = without_metadata(self.data)
        try:
            Suite.model_validate(plain)
        except ValidationError as error:
            self.note([self.root_node], faults(error, plain, lambda _: tuple(Suite.model_fields)))
        if not isinstance(plain, dict):
            return None
        suite, self.summary = plain.get("suite"), str(plain.get("summary", ""))
        if isinstance(suite, str) and suite != self.file.suite:
            message = f"suite {suite!r} is in the file {self.file.shown}; expected suite {self.file.suite!r}"
            self.note([self.root_node], [Fault(("suite",), message)])
        return suite if isinstance(suite, str) else None

    def entries(self) -> list[Any]:
        cases = self.data.get("cases") if isinstance(self.data, dict) else None
        return cases if isinstance(cases, list) else []

    def variants(self, number: int) -> Iterator[Case]:
        """Yield the valid cases of one entry and note its mistakes."""
        entry, defaults = self.entries()[number], self.data.get("defaults")
        if not isinstance(entry, dict):
            return
        layers = self.layers(number)
        self.check_name(number, entry)
        expansion_faults: list[Fault] = []
        merged = merge(defaults if isinstance(defaults, dict) else {}, entry)
        expansions = expand(merged, expansion_faults)
        definition = sys.intern(json.dumps({key: value for key, value in merged.items() if key != "matrix"}))
        self.note(layers, expansion_faults)
        if self.case_count <= MAX_CASES < self.case_count + len(expansions):
            self.note(
                layers,
                [Fault((), f"the suite has more than {MAX_CASES} cases, counted up to this entry; split the suite")],
            )
        self.case_count += len(expansions)
        if self.case_count > MAX_CASES:
            return
        seen: dict[tuple[Any, ...], str] = {}
        for expansion in expansions:
            origin = self.origin(expansion, definition, layers)
            case, entry_faults = read_entry(without_metadata(expansion.entry), self.file.path, self.file.root, origin)
            self.note(layers, [_in_matrix(fault, expansion) for fault in entry_faults])
            if case is not None and not entry_faults:
                self.check_repeated(seen, case, layers)
                yield case

    def check_repeated(self, seen: dict[tuple[Any, ...], str], case: Case, layers: list[yaml.Node]) -> None:
        """Note a mistake if an earlier expansion of the entry makes the same call."""
        first = seen.setdefault(_CALL(case), case.id)
        if first != case.id:
            message = f"expands to {case.id}, which is the same case as {first}"
            self.note(layers, [Fault(("matrix",), message)])

    def origin(self, expansion: Expansion, definition: str, layers: list[yaml.Node]) -> Origin:
        """Return the fields of a case that do not stand in its entry; texts are interned, as those read from a log."""
        name = current(f"{self.file.suite}/{expansion.entry.get('name')}{expansion.suffix}")
        line, _ = yaml_syntax.position(layers[0])
        return Origin(
            id=sys.intern(name),
            suite=sys.intern(current(self.file.suite)),
            summary=self.summary,
            definition=definition,
            settings=json.dumps(expansion.values),
            source=sys.intern(f"{self.file.shown}:{line}"),
            thorough=name in self.thorough,
        )

    def layers(self, number: int) -> list[yaml.Node]:
        """Return the node of an entry, then the node of the defaults."""
        entry = yaml_syntax.child(self.cases_node, number) if self.cases_node else None
        return [*([entry[1]] if entry else []), *([self.defaults_node] if self.defaults_node else [])]

    def check_name(self, number: int, entry: dict[str, Any]) -> None:
        """Note a mistake if an earlier entry has the same name, or if the defaults have a name."""
        defaults = self.data.get("defaults")
        if isinstance(defaults, dict) and "name" in defaults:
            self.note(
                self.layers(number)[1:],
                [Fault(("name",), "defaults cannot contain a name: each case has its own", at_key=True)],
            )
        if not isinstance(name := entry.get("name"), str):
            return
        line, _ = yaml_syntax.position(self.layers(number)[0])
        if name in self.names:
            message = f"name {quoted(name)} is already used on line {self.names[name]}"
            self.note(self.layers(number), [Fault(("name",), message)])
        self.names.setdefault(name, line)

    def note(self, layers: Sequence[yaml.Node], new: Iterable[Fault]) -> None:
        for fault in new:
            line, column = yaml_syntax.find(layers, fault.path, at_key=fault.at_key)
            self.mistakes.note(line, column, fault.message, fault.count)


def _in_matrix(fault: Fault, expansion: Expansion) -> Fault:
    """Move a fault of an expanded entry to the matrix value that caused it, if one did."""
    setting = max(
        (one for one in expansion.settings if fault.path[: len(one.path)] == one.path),
        key=lambda one: len(one.path),
        default=None,
    )
    if setting is None:
        return fault
    rest = fault.path[len(setting.path) :]
    if fault.at_key and not rest:
        return replace(fault, path=("matrix", setting.key))
    return replace(fault, path=("matrix", setting.key, setting.number, *rest))


def _repeated_suites(loaded: Sequence[Loaded]) -> Iterator[Mistake]:
    first: dict[str, SuiteFile] = {}
    for one in loaded:
        if one.suite is not None and (used := first.setdefault(current(one.suite), one.file)) is not one.file:
            message = f"suite name {one.suite!r} is already used by {used.shown}"
            yield Mistake(one.file.location, 1, 1, message)
