"""Lists the releases of a distribution, and bisects them for the first one that differs."""

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from conformance.engine.provision import ProvisionError, pip_environment

# A release behaves like the first one, like the last one, or cannot be judged.
State = Literal["before", "after", "skip"]


@dataclass(frozen=True)
class FirstDifference:
    """
    The two releases between which the behaviour changed.

    last: the last release with the old behaviour. first: the first one that is known to have the new behaviour.
    skipped: releases between the two that could not be judged; any of them may be the first.
    """

    last: str
    first: str
    skipped: tuple[str, ...]


def bisect(releases: Sequence[str], state: Callable[[str], State]) -> FirstDifference:
    """
    Bisect releases, of which the first has the old behaviour and the last the new one.

    `state` is called at most once per release between them: about log2 of their number, more if some are skipped.
    """
    low, high = 0, len(releases) - 1
    skipped: set[int] = set()
    while candidates := [index for index in range(low + 1, high) if index not in skipped]:
        middle = min(candidates, key=lambda index: abs(2 * index - low - high))
        found = state(releases[middle])
        if found == "skip":
            skipped.add(middle)
        elif found == "before":
            low = middle
        else:
            high = middle
    return FirstDifference(releases[low], releases[high], tuple(releases[index] for index in range(low + 1, high)))


# Maximum number of newest and of nearest releases in a message about one that does not exist.
MAX_NAMED = 3


def released(python: str, package: str) -> list[str]:
    """
    The releases that this interpreter can install, oldest first, without pre-releases.

    Raises:
        ProvisionError: pip finds no release.
    """
    return [text for text in _listed(python, package) if _final(text)]


def absent(python: str, package: str, version: str) -> str | None:
    """
    A sentence that pip finds no such release, with the newest and nearest ones; None if pip finds the release.

    Raises:
        ProvisionError: pip finds no release of the package.
    """
    every = _listed(python, package, "--pre")
    if any(SpecifierSet(f"=={version}").contains(text, prereleases=True) for text in every):
        return None
    final = [text for text in every if _final(text)] or every
    newest = final[: -MAX_NAMED - 1 : -1]
    near = [text for text in _nearest(final, version) if text not in newest]
    also = f"; the nearest are {', '.join(near)}" if near else ""
    return (
        f"pip finds no {package} {version} that it can install here; the newest releases are {', '.join(newest)}{also}"
    )


def _listed(python: str, package: str, *more: str) -> list[str]:
    """
    The releases that pip lists, oldest first.

    Raises:
        ProvisionError: pip finds no release.
    """
    command = [python, "-m", "pip", "index", "versions", package, "--only-binary", ":all:", *more]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=pip_environment(), stdin=subprocess.DEVNULL
    )
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or listed is None:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        raise ProvisionError(
            "\n  ".join([f"pip finds no release of {package}:", *(lines or done.stderr.splitlines())[-3:]])
        )
    return sorted((text for text in listed[1].split(", ") if _readable(text)), key=Version)


def _readable(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _final(text: str) -> bool:
    return not Version(text).is_prerelease


def between(releases: Sequence[str], one: str, other: str) -> list[str]:
    """
    The releases from the older of two to the newer one, both included.

    Raises:
        ProvisionError: one of them is not a release; the text names the nearest ones.
    """
    for version in (one, other):
        if Version(version) not in map(Version, releases):
            near = ", ".join(_nearest(releases, version))
            raise ProvisionError(f"pip finds no release {version} that it can install here; the nearest are {near}")
    low, high = sorted(map(Version, (one, other)))
    return [text for text in releases if low <= Version(text) <= high]


def _nearest(releases: Sequence[str], version: str) -> list[str]:
    return sorted(releases, key=lambda text: _distance(releases, text, version))[:MAX_NAMED]


def _distance(releases: Sequence[str], text: str, version: str) -> int:
    older = sum(Version(release) < Version(version) for release in releases)
    return abs(2 * list(releases).index(text) + 1 - 2 * older)
