"""Find the suite files of a case folder, and mark the cases that only a thorough run includes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.spec.case import Case
from conformance.spec.mistakes import Mistake, Mistakes, nearest
from conformance.spec.texts import NoText, quoted, read_text

SUFFIX = ".yaml"
LINK_LOOP = "cannot be read: its symbolic links form a loop"


@dataclass(frozen=True)
class SuiteFile:
    """A suite file inside the case folder: its path, and its names in messages."""

    path: Path
    root: Path

    @property
    def suite(self) -> str:
        """The suite name that its path implies."""
        return self.path.relative_to(self.root).with_suffix("").as_posix()

    @property
    def shown(self) -> str:
        """Its path relative to the parent of the case folder."""
        return f"{self.root.name}/{self.path.relative_to(self.root).as_posix()}"

    @property
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


def marked(cases: Sequence[Case], root: Path, mistakes: list[Mistake]) -> list[Case]:
    """
    Set `thorough=True` on the cases listed in `thorough.txt`.

    A listed id that belongs to a loaded suite but to none of its cases is a mistake. root: the case folder; without the
    file it has no thorough cases.
    """
    path = root / NAME
    if not path.is_file():
        return list(cases)
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except NoText as error:
        mistakes.append(Mistake(_shown_name(path), error.line, error.column, error.message))
        return list(cases)
    listed = {line.strip(): number for number, line in enumerate(lines, 1) if line.strip() and not _is_comment(line)}
    ids: dict[str, dict[str, None]] = {}
    for case in cases:
        ids.setdefault(case.suite, {})[case.id] = None
    id_mistakes = Mistakes(_shown_name(path))
    for name, number in listed.items():
        if (suite := name.partition("[")[0].rpartition("/")[0]) in ids and not id_mistakes.full:
            _check_id(name, ids[suite], number, id_mistakes)
    mistakes += id_mistakes.listed(
        len(lines), f"the rest of the {len(listed)} ids was not checked" if id_mistakes.full else ""
    )
    return [replace(case, thorough=True) if case.id in listed else case for case in cases]


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _check_id(name: str, ids: Collection[str], number: int, id_mistakes: Mistakes) -> None:
    """Note a mistake if no case has the id `name` of line `number`; ids: the ids of its suite, which was loaded."""
    if name not in ids:
        id_mistakes.note(
            number, 1, f"no case has the id {quoted(name)}{nearest(name, ids)}; remove or correct this line"
        )


def _shown_name(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
