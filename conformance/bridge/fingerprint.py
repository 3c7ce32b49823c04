"""
A digest of what is installed in an interpreter: two environments with the same digest compute the same results.

It also runs as a script, in interpreters without this package: `python -I fingerprint.py` prints a JSON object.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import Distribution, distributions

# Not part of the digest: workers import a copy of the bridge and nothing else of this package.
PACKAGE = "attention-conformance"

# The fields that are read of METADATA; to parse all of them takes 0.1 s of every command.
_HEADER = re.compile(r"^(Name|Version):[ \t]*(\S+)", re.MULTILINE)
_REQUIRED = re.compile(r"^Requires-Dist:[ \t]*([A-Za-z0-9._-]+)", re.MULTILINE)

# Tolerance in nanoseconds for a file that is newer than its RECORD, which installers write last.
_SLACK_NS = 2_000_000_000


def main() -> None:
    """Print the digest, or the reason why there is none, as JSON."""
    digest, reason = fingerprint()
    sys.stdout.write(json.dumps({"fingerprint": digest, "reason": reason}) + "\n")


@cache
def installed() -> tuple[tuple[str, str, Distribution], ...]:
    """Name and version of every distribution of this interpreter."""
    headers = ((dict(_HEADER.findall(_metadata(each))), each) for each in distributions())
    return tuple((about["Name"], about.get("Version", ""), each) for about, each in headers if "Name" in about)


def _metadata(each: Distribution) -> str:
    """The header fields of METADATA, or of PKG-INFO in an egg: what stands before the first empty line."""
    text = each.read_text("METADATA") or each.read_text("PKG-INFO") or ""
    return text.partition("\n\n")[0]


def fingerprint(names: Iterable[str] | None = None) -> tuple[str, str]:
    """
    The digest of all installed distributions and "", or "" and the reason why there is no digest.

    It covers the RECORD of every distribution, which has the hash of each file, and the size and time of each file that
    was changed after installation. Such files are looked for in the named distributions and in those that they require,
    optional ones included: to look at every file of all frameworks takes half a second. None stands for all. There is
    no digest if a distribution is installed in editable mode or without a RECORD.
    """
    digest, reason = _recorded()
    if reason:
        return "", reason
    total = hashlib.sha256(digest.encode())
    for name, each in sorted(_needed(names).items()):
        for line in _changed(each):
            total.update(f"{name} {line}".encode())
    return f"sha256:{total.hexdigest()}", ""


@cache
def _recorded() -> tuple[str, str]:
    """The digest of the version and the RECORD of every distribution, or the reason why there is none."""
    total = hashlib.sha256(sys.version.encode())
    for name, version, each in sorted(installed(), key=lambda each: each[0]):
        if _normalised(name) == PACKAGE:
            continue
        if '"editable": true' in (each.read_text("direct_url.json") or ""):
            return "", f"{name} is installed in editable mode"
        record = each.read_text("RECORD")
        if record is None:
            return "", f"{name} was installed without a RECORD of its files"
        total.update(f"{name} {version}\n".encode())
        total.update(_without_compiled(record).encode())
    return total.hexdigest(), ""


def _needed(names: Iterable[str] | None) -> dict[str, Distribution]:
    """The installed distributions among these, and those that they require directly or indirectly; None: all."""
    every = {_normalised(name): each for name, _, each in reversed(installed())}  # of two, Python imports the first
    every.pop(PACKAGE, None)
    if names is None:
        return every
    needed: dict[str, Distribution] = {}
    open_names = [_normalised(name) for name in names]
    while open_names:
        name = open_names.pop()
        if name in every and name not in needed:
            needed[name] = every[name]
            open_names += map(_normalised, _REQUIRED.findall(_metadata(every[name])))
    return needed


def _normalised(name: str) -> str:
    """The name as the packaging specifications compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _without_compiled(record: str) -> str:
    """The lines with a hash, sorted; lines without one are compiled bytecode and the RECORD itself."""
    return "\n".join(sorted(line for line in record.splitlines() if ",sha256=" in line))


@cache
def _changed(each: Distribution) -> tuple[str, ...]:
    """Path, size and time of each file that is newer than the RECORD, has another size, or is gone."""
    root = str(each.locate_file(""))
    lines = [line.rsplit(",", 2) for line in (each.read_text("RECORD") or "").splitlines()]
    own = next((path for path, _, _ in lines if path.endswith(".dist-info/RECORD")), "")
    try:
        written = _status(root, own).st_mtime_ns + _SLACK_NS
    except OSError:
        written = 0
    found = []
    for path, kind, size in lines:
        if not kind:
            continue
        try:
            status = _status(root, path.strip('"'))
        except OSError:
            found.append(f"{path} is gone\n")
            continue
        if status.st_mtime_ns > written or str(status.st_size) != size:
            found.append(f"{path} {status.st_size} {status.st_mtime_ns}\n")
    return tuple(found)


def _status(root: str, path: str) -> os.stat_result:
    return os.stat(f"{root}{os.sep}{path}")  # noqa: PTH116 - 30,000 Path objects take 0.2 s of every run


if __name__ == "__main__":
    main()
