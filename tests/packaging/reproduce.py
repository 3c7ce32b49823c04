"""
Build the wheel and the sdist twice and compare their bytes; `nox -s package` runs this.

The first wheel is built from this folder, the second from the sdist: equal wheels show that the sdist is complete.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The time of every file in an archive if the caller sets no SOURCE_DATE_EPOCH.
EPOCH = "1700000000"
SUFFIXES = (".whl", ".tar.gz")


def digests(folder: Path) -> dict[str, str]:
    """Return a mapping from the name of each archive to the SHA-256 of its bytes."""
    archives = (path for path in sorted(folder.iterdir()) if path.name.endswith(SUFFIXES))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in archives}


def differences(first: Mapping[str, str], second: Mapping[str, str]) -> Iterator[str]:
    """Yield what differs between two builds, and what a build lacks."""
    for suffix in SUFFIXES:
        if not any(name.endswith(suffix) for name in first):
            yield f"the first build has no {suffix} file"
    for name in sorted({*first, *second}):
        if first.get(name) != second.get(name):
            yield f"{name}: {first.get(name, 'absent')} in the first build, {second.get(name, 'absent')} in the second"


def build(out: Path, *options: str) -> None:
    """Build with the installed hatchling, so that both builds use the same one."""
    environment = {"SOURCE_DATE_EPOCH": EPOCH, **os.environ}
    command = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", str(out), str(ROOT)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


def main(target: str) -> int:
    """Build into the target folder; return 1 if the second build differs."""
    out = ROOT / target
    out.mkdir(parents=True, exist_ok=True)
    for old in (path for path in out.iterdir() if path.name.endswith(SUFFIXES)):
        old.unlink()
    build(out, "--wheel", "--sdist")
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        first, second = digests(out), digests(Path(folder))
    texts = list(differences(first, second))
    print("\n".join(texts or (f"reproduced: {name} sha256:{digest}" for name, digest in first.items())))
    archives = [str(out / name) for name in first]
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *archives], check=True)
    return 1 if texts else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
