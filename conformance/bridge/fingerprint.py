"""
What is installed in an interpreter, as one digest: two environments with the same digest compute the same.

It runs as a script in interpreters that have nothing of ours: `python -I fingerprint.py` prints a JSON object.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

# Not counted: workers import a copy of the bridge and nothing else of ours.
PACKAGE = "attention-conformance"

# Nanoseconds by which a file may be younger than the RECORD that an installer wrote after it.
_SLACK_NS = 2_000_000_000


def main() -> None:
    """Print what `listing` finds."""
    print(json.dumps(listing()))  # noqa: T201 - its output is what it is for


def listing() -> dict[str, Any]:
    """The version of Python, every distribution with its version, and the digest with the reason if there is none."""
    found = [each for each in distributions() if each.metadata["Name"]]
    versions = {str(each.metadata["Name"]): str(each.version) for each in found}
    digest, reason = fingerprint(found)
    return {"python": list(sys.version_info[:3]), "distributions": versions, "fingerprint": digest, "reason": reason}


def fingerprint(found: list[Distribution]) -> tuple[str, str]:
    """
    The digest of what is installed, or "" and the reason why it cannot be told.

    It covers the RECORD of every distribution, which has the hash of each file, and the size and time of each file that
    was changed after it was installed. What is installed in editable mode, or without a RECORD, has no digest.
    """
    total = hashlib.sha256(sys.version.encode())
    for each in sorted(found, key=lambda each: str(each.metadata["Name"])):
        name = str(each.metadata["Name"])
        if name.lower().replace("_", "-") == PACKAGE:
            continue
        if '"editable": true' in (each.read_text("direct_url.json") or ""):
            return "", f"{name} is installed in editable mode"
        record = each.read_text("RECORD")
        if record is None:
            return "", f"{name} was installed without a RECORD of its files"
        total.update(f"{name} {each.version}\n".encode())
        total.update(_without_compiled(record).encode())
        for line in _changed(each, record):
            total.update(line.encode())
    return f"sha256:{total.hexdigest()}", ""


def _without_compiled(record: str) -> str:
    """The lines with a hash, sorted: those without are what Python compiled, and the RECORD itself."""
    return "\n".join(sorted(line for line in record.splitlines() if ",sha256=" in line))


def _changed(each: Distribution, record: str) -> Iterator[str]:
    """Path, size and time of files that are younger than the RECORD, of another size, or gone."""
    root = Path(str(each.locate_file("")))
    lines = [line.rsplit(",", 2) for line in record.splitlines()]
    own = next((path for path, _, _ in lines if path.endswith(".dist-info/RECORD")), "")
    try:
        written = (root / own).stat().st_mtime_ns + _SLACK_NS
    except OSError:
        written = 0
    for path, kind, size in lines:
        if not kind:
            continue
        try:
            status = (root / path.strip('"')).stat()
        except OSError:
            yield f"{path} is gone\n"
            continue
        if status.st_mtime_ns > written or str(status.st_size) != size:
            yield f"{path} {status.st_size} {status.st_mtime_ns}\n"


if __name__ == "__main__":
    main()
