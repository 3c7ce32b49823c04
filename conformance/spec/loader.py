"""
Load suites: either all cases, or all mistakes of all files.

`root` is the case folder: a suite is named by its path in it, and nothing outside it is read.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from conformance.spec import yaml_syntax
from conformance.spec.case import Case
from conformance.spec.document import Suite
from conformance.spec.entry import read_entry
from conformance.spec.matrix import Expansion, expand, merge, without_metadata
from conformance.spec.mistakes import CaseFileErrors, Fault, Mistake, Mistakes
from conformance.spec.model_faults import faults
from conformance.spec.suites import SuiteFile, find_suites, marked
from conformance.spec.texts import quoted

# Maximum number of cases of one suite after expansion.
MAX_CASES = 4096


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
    loaded = [_load(file) for file in files]
    mistakes += [mistake for one in loaded for mistake in one.mistakes]
    mistakes += _repeated_suites(loaded)
    cases = [case for one in loaded for case in one.cases]
    if not mistakes:
        cases = marked(cases, root.resolve(), mistakes)
    if mistakes:
        raise CaseFileErrors(mistakes)
    return tuple(cases)


def _load(file: SuiteFile) -> Loaded:
    document = yaml_syntax.read_file(file.path, file.location)
    if document.node is None:
        empty = Mistake(file.location, 1, 1, "the file is empty; expected format, suite, summary and cases")
        return Loaded(None, file, (), document.mistakes or (empty,))
    return _Reader(file, document).read()


class _Reader:
    """Reads the cases of one file and collects mistakes with their positions."""

    def __init__(self, file: SuiteFile, document: yaml_syntax.Document) -> None:
        assert document.node is not None  # noqa: S101 - for the type checker: _load has checked it
        self.file, self.root_node, self.data = file, document.node, document.data
        self.mistakes = Mistakes(file.location, document.mistakes)
        self.summary = ""
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
        expansions = expand(merge(defaults if isinstance(defaults, dict) else {}, entry), expansion_faults)
        self.note(layers, expansion_faults)
        if self.case_count <= MAX_CASES < self.case_count + len(expansions):
            self.note(
                layers,
                [Fault((), f"the suite has more than {MAX_CASES} cases, counted up to this entry; split the suite")],
            )
        self.case_count += len(expansions)
        if self.case_count > MAX_CASES:
            return
        seen: dict[Case, str] = {}
        for expansion in expansions:
            case, entry_faults = read_entry(without_metadata(expansion.entry), self.file.path, self.file.root)
            self.note(layers, [_in_matrix(fault, expansion) for fault in entry_faults])
            if case is not None and not entry_faults:
                name = f"{self.file.suite}/{case.name}{expansion.suffix}"
                self.check_repeated(seen, case, name, layers)
                yield self.identified(case, name, layers, expansion)

    def check_repeated(self, seen: dict[Case, str], case: Case, name: str, layers: list[yaml.Node]) -> None:
        """Note a mistake if an earlier expansion of the entry is the same case, apart from summary and tags."""
        first = seen.setdefault(replace(case, tags=(), summary=""), name)
        if first != name:
            message = f"expands to {name}, which is the same case as {first}"
            self.note(layers, [Fault(("matrix",), message)])

    def identified(self, case: Case, name: str, layers: list[yaml.Node], expansion: Expansion) -> Case:
        line, _ = yaml_syntax.position(layers[0])
        return replace(
            case,
            id=sys.intern(name),  # a report reads these texts again from the log, and then shares them
            suite=self.file.suite,
            summary=case.summary or self.summary,
            yaml=sys.intern(_dump(expansion.entry)),
            source=sys.intern(f"{self.file.shown}:{line}"),
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
        if one.suite is not None and first.setdefault(one.suite, one.file) is not one.file:
            message = f"suite name {one.suite!r} is already used by {first[one.suite].shown}"
            yield Mistake(one.file.location, 1, 1, message)


try:
    from yaml import CSafeDumper as _BaseDumper
except ImportError:  # PyYAML without libyaml
    from yaml import SafeDumper as _BaseDumper  # type: ignore[assignment]


class _Dumper(_BaseDumper):
    """Writes repeated values in full instead of using YAML aliases, which the loader rejects."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's own signature
        return True


def _dump(entry: dict[str, Any]) -> str:
    named = {"name": entry.get("name"), **entry}
    text: str = yaml.dump(named, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=100)
    return text
