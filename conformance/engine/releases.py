"""Which versions of a distribution were released, and which of them is the first that differs."""

import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from conformance.engine.provision import ProvisionError, pip_environment

# Like the first release, like the last one, or not to be judged.
State = Literal["before", "after", "skip"]


@dataclass(frozen=True)
class FirstDifference:
    """
    Between which two releases something changed.

    last, first: the last release like the one before, the first like the one after. skipped: releases between the two
    that could not be judged: any of them may be the first.
    """

    last: str
    first: str
    skipped: tuple[str, ...]


def bisect(releases: Sequence[str], state: Callable[[str], State]) -> FirstDifference:
    """
    Search the releases from the first, which is as before, to the last, which is not.

    `state` is asked for those between, at most once each: about log2 of their number, and more where some are skipped.
    """
    low, high = 0, len(releases) - 1
    skipped: set[int] = set()
    while open_ones := [place for place in range(low + 1, high) if place not in skipped]:
        middle = min(open_ones, key=lambda place: abs(2 * place - low - high))
        found = state(releases[middle])
        if found == "skip":
            skipped.add(middle)
        elif found == "before":
            low = middle
        else:
            high = middle
    return FirstDifference(releases[low], releases[high], tuple(releases[place] for place in range(low + 1, high)))


# Releases that are named where one is absent.
MAX_NAMED = 3


def released(python: str, package: str) -> list[str]:
    """
    The releases that this interpreter can install, the oldest first, without pre-releases.

    Raises:
        ProvisionError: pip knows none.
    """
    return [text for text in _listed(python, package) if _final(text)]


def absent(python: str, package: str, version: str) -> str | None:
    """
    In a sentence that pip finds no such release, with the newest and the nearest ones; None where it finds it.

    Raises:
        ProvisionError: pip knows no release of the package.
    """
    every = _listed(python, package, "--pre")
    if any(SpecifierSet(f"=={version}").contains(text, prereleases=True) for text in every):
        return None
    final = [text for text in every if _final(text)] or every
    newest = final[: -MAX_NAMED - 1 : -1]
    near = [text for text in _nearest(final, version) if text not in newest]
    also = f"; near it are {', '.join(near)}" if near else ""
    return f"there is no {package} {version} that pip can install here; the newest are {', '.join(newest)}{also}"


def _listed(python: str, package: str, *more: str) -> list[str]:
    """
    What pip lists, the oldest first.

    Raises:
        ProvisionError: it knows no release.
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
    The releases from the older of two to the newer, both included.

    Raises:
        ProvisionError: one of them is no release; with the nearest ones.
    """
    for version in (one, other):
        if Version(version) not in map(Version, releases):
            near = ", ".join(_nearest(releases, version))
            raise ProvisionError(f"{version} is no release that pip can install here; the nearest: {near}")
    low, high = sorted(map(Version, (one, other)))
    return [text for text in releases if low <= Version(text) <= high]


def _nearest(releases: Sequence[str], version: str) -> list[str]:
    return sorted(releases, key=lambda text: _distance(releases, text, version))[:MAX_NAMED]


def _distance(releases: Sequence[str], text: str, version: str) -> int:
    older = sum(Version(release) < Version(version) for release in releases)
    return abs(2 * list(releases).index(text) + 1 - 2 * older)
