"""Which versions of a distribution were released, as pip finds them where it is configured to look."""

import re
import subprocess
from collections.abc import Sequence

from packaging.version import InvalidVersion, Version

from conformance.engine.provision import ProvisionError, pip_environment


def released(python: str, package: str) -> list[str]:
    """
    The releases that this interpreter can install, the oldest first, without pre-releases.

    Raises:
        ProvisionError: pip knows none.
    """
    command = [python, "-m", "pip", "index", "versions", package, "--only-binary", ":all:"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=pip_environment(), stdin=subprocess.DEVNULL
    )
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    if done.returncode or listed is None:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        raise ProvisionError(
            "\n  ".join([f"pip finds no release of {package}:", *(lines or done.stderr.splitlines())[-3:]])
        )
    return sorted((text for text in listed[1].split(", ") if _final(text)), key=Version)


def _final(text: str) -> bool:
    try:
        return not Version(text).is_prerelease
    except InvalidVersion:
        return False


def between(releases: Sequence[str], one: str, other: str) -> list[str]:
    """
    The releases from the older of two to the newer, both included.

    Raises:
        ProvisionError: one of them is no release; with the nearest ones.
    """
    for version in (one, other):
        if Version(version) not in map(Version, releases):
            near = sorted(releases, key=lambda text: _distance(releases, text, version))[:3]
            raise ProvisionError(f"{version} is no release that pip can install here; the nearest: {', '.join(near)}")
    low, high = sorted(map(Version, (one, other)))
    return [text for text in releases if low <= Version(text) <= high]


def _distance(releases: Sequence[str], text: str, version: str) -> int:
    older = sum(Version(release) < Version(version) for release in releases)
    return abs(2 * list(releases).index(text) + 1 - 2 * older)
