"""Which files are suites: found below the case folder, and refused outside of it before they are opened."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.spec.mistakes import Mistake

SUFFIX = ".yaml"
CIRCLE = "cannot be read: its links lead in a circle"


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
            mistakes.append(Mistake(str(path), 1, 1, CIRCLE))
            continue
        if not resolved.is_relative_to(root):
            mistakes.append(Mistake(str(path), 1, 1, f"lies outside the case folder {root.name}"))
            continue
        inside = sorted(resolved.rglob("*" + SUFFIX)) if resolved.is_dir() else [resolved]
        if not inside:
            mistakes.append(Mistake(str(path), 1, 1, f"no suite (*{SUFFIX}) in this folder"))
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
        return CIRCLE
    if not resolved.is_relative_to(root):
        return f"{file.name} leads outside the case folder {root.name}"
    if file.suffix != SUFFIX:
        return f"a suite ends in {SUFFIX}"
    return None if file.is_file() else "there is no such file"


def _resolved(path: Path) -> Path | None:
    """Where a path leads; None where its links lead in a circle, which Python tells by one of two exceptions."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return None
