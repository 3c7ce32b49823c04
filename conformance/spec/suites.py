"""Which files of a case folder are suites, and which of their cases only a thorough run asks."""

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
    """A suite file that is inside the case folder: where it is, and how it is called in messages."""

    path: Path
    root: Path

    @property
    def suite(self) -> str:
        """The name that its place gives it."""
        return self.path.relative_to(self.root).with_suffix("").as_posix()

    @property
    def shown(self) -> str:
        """Its path from the folder that holds the case folder."""
        return f"{self.root.name}/{self.path.relative_to(self.root).as_posix()}"

    @property
    def place(self) -> str:
        """Its path as an editor opens it from the working folder, if it lies below that; else as it is shown."""
        here = Path.cwd().resolve()
        return self.path.relative_to(here).as_posix() if self.path.is_relative_to(here) else self.shown


def find_suites(paths: Sequence[Path], root: Path, mistakes: list[Mistake]) -> list[SuiteFile]:
    """The suite files that `paths` mean, each once, in the order of their names."""
    found: dict[Path, SuiteFile] = {}
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
                found[file.resolve()] = SuiteFile(file.resolve(), root)
    return sorted(found.values(), key=lambda file: file.suite)


def _refused(file: Path, root: Path) -> str | None:
    """Why a path may not be read as a suite; links are followed before anything is opened."""
    resolved = _resolved(file)
    if resolved is None:
        return LINK_LOOP
    if not resolved.is_relative_to(root):
        return f"{file.name} points outside the case folder {root.name}"
    if file.suffix != SUFFIX:
        return f"the name of a suite file must end in {SUFFIX}"
    return None if file.is_file() else "file does not exist"


def _resolved(path: Path) -> Path | None:
    """Where a path leads; None where its links lead in a circle, which Python tells by one of two exceptions."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return None


# The file's name in the case folder.
NAME = "thorough.txt"

MAX_BYTES = 2**20


def marked(cases: Sequence[Case], root: Path, mistakes: list[Mistake]) -> list[Case]:
    """
    Give the listed cases `thorough=True`; a listed id that no case of a loaded suite has is a mistake.

    root: the case folder. A folder without the file has no thorough cases.
    """
    path = root / NAME
    if not path.is_file():
        return list(cases)
    try:
        lines = read_text(path, MAX_BYTES).splitlines()
    except NoText as error:
        mistakes.append(Mistake(_quoted_ids(path), error.line, error.column, error.message))
        return list(cases)
    listed = {line.strip(): number for number, line in enumerate(lines, 1) if line.strip() and not _is_comment(line)}
    ids: dict[str, dict[str, None]] = {}
    for case in cases:
        ids.setdefault(case.suite, {})[case.id] = None
    found = Mistakes(_quoted_ids(path))
    for name, number in listed.items():
        if (suite := name.partition("[")[0].rpartition("/")[0]) in ids and not found.full:
            _see(name, ids[suite], number, found)
    mistakes += found.told(len(lines), f"the rest of the {len(listed)} ids was not checked" if found.full else "")
    return [replace(case, thorough=True) if case.id in listed else case for case in cases]


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _see(name: str, ids: Collection[str], number: int, found: Mistakes) -> None:
    """Note an id in line `number` that no case has; ids: those of its suite, which was loaded."""
    if name not in ids:
        found.note(number, 1, f"no case has the id {quoted(name)}{nearest(name, ids)}; remove or correct this line")


def _quoted_ids(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
