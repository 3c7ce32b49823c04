"""
A digest of what is installed in an interpreter: two environments with the same digest compute the same results.

It also runs as a script, in interpreters without this package: `python -I fingerprint.py` prints a JSON object.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from typing import Any

# Not part of the digest: workers import a copy of the bridge and nothing else of this package.
PACKAGE = "attention-conformance"

# The two fields that are read of METADATA; to parse all of them takes 0.1 s of every command.
_HEADER = re.compile(r"^(Name|Version):[ \t]*(\S+)", re.MULTILINE)

# Tolerance in nanoseconds for a file that is newer than its RECORD, which installers write last.
_SLACK_NS = 2_000_000_000


def main() -> None:
    """Print the result of `listing` as JSON."""
    print(json.dumps(listing()))  # noqa: T201 - printing is the purpose of the script


def listing() -> dict[str, Any]:
    """The Python version, every distribution with its version, and the digest, or the reason why there is none."""
    found = installed()
    versions = {name: version for name, version, _ in found}
    digest, reason = fingerprint(found)
    return {"python": list(sys.version_info[:3]), "distributions": versions, "fingerprint": digest, "reason": reason}


def installed() -> list[tuple[str, str, Distribution]]:
    """Name and version of every distribution of this interpreter."""
    headers = ((dict(_HEADER.findall(_metadata(each))), each) for each in distributions())
    return [(about["Name"], about.get("Version", ""), each) for about, each in headers if "Name" in about]


def _metadata(each: Distribution) -> str:
    """The header fields of METADATA, or of PKG-INFO in an egg: what stands before the first empty line."""
    text = each.read_text("METADATA") or each.read_text("PKG-INFO") or ""
    return text.partition("\n\n")[0]


def fingerprint(found: list[tuple[str, str, Distribution]]) -> tuple[str, str]:
    """
    The digest of all installed distributions and "", or "" and the reason why there is no digest.

    It covers the RECORD of every distribution, which has the hash of each file, and the size and time of each file that
    was changed after installation. There is no digest if a distribution is installed in editable mode or without a
    RECORD. found: each distribution after its name and its version.
    """
    total = hashlib.sha256(sys.version.encode())
    for name, version, each in sorted(found, key=lambda each: each[0]):
        if name.lower().replace("_", "-") == PACKAGE:
            continue
        if '"editable": true' in (each.read_text("direct_url.json") or ""):
            return "", f"{name} is installed in editable mode"
        record = each.read_text("RECORD")
        if record is None:
            return "", f"{name} was installed without a RECORD of its files"
        total.update(f"{name} {version}\n".encode())
        total.update(_without_compiled(record).encode())
        for line in _changed(each, record):
            total.update(line.encode())
    return f"sha256:{total.hexdigest()}", ""


def _without_compiled(record: str) -> str:
    """The lines with a hash, sorted; lines without one are compiled bytecode and the RECORD itself."""
    return "\n".join(sorted(line for line in record.splitlines() if ",sha256=" in line))


def _changed(each: Distribution, record: str) -> Iterator[str]:
    """Path, size and time of each file that is newer than the RECORD, has another size, or is gone."""
    root = str(each.locate_file(""))
    lines = [line.rsplit(",", 2) for line in record.splitlines()]
    own = next((path for path, _, _ in lines if path.endswith(".dist-info/RECORD")), "")
    try:
        written = _status(root, own).st_mtime_ns + _SLACK_NS
    except OSError:
        written = 0
    for path, kind, size in lines:
        if not kind:
            continue
        try:
            status = _status(root, path.strip('"'))
        except OSError:
            yield f"{path} is gone\n"
            continue
        if status.st_mtime_ns > written or str(status.st_size) != size:
            yield f"{path} {status.st_size} {status.st_mtime_ns}\n"


def _status(root: str, path: str) -> os.stat_result:
    return os.stat(f"{root}{os.sep}{path}")  # noqa: PTH116 - 30,000 Path objects take 0.2 s of every run


if __name__ == "__main__":
    main()
