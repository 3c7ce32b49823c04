"""
A folder of wheels from which pip installs without a network: `fakeframe` in several versions, and NumPy.

The NumPy wheel has only a .pth file that points to the installed NumPy, so an environment takes a second to make.
"""

import base64
import hashlib
import importlib.metadata
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import numpy as np
from packaging.requirements import Requirement

SOURCE = """\
import numpy as np


def attention(query, key, value, scale, mask, causal):
    {first}
    queries, keys = query.shape[2], key.shape[2]
    logits = query @ key.swapaxes(-1, -2) * query.dtype.type(scale)
    if mask is not None:
        logits = np.where(mask, logits, -np.inf)
    if causal:
        logits = np.where(np.tri(queries, keys, {diagonal}, dtype=bool), logits, -np.inf)
    peak = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - np.where(peak == -np.inf, 0, peak))
    total = weights.sum(axis=-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ value
"""

RIGHT = SOURCE.format(first="pass", diagonal="0")
BOTTOM_RIGHT = SOURCE.format(first="pass", diagonal="keys - queries")
RAISES = SOURCE.format(first="if causal: raise ValueError('causal is gone')", diagonal="0")
UNKNOWN = SOURCE.format(
    first="raise TypeError(\"attention() got an unexpected keyword argument 'causal'\")", diagonal="0"
)
DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"


def write_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], requires: tuple[str, ...] = ()
) -> Path:
    """Write a wheel with these files. Each of `requires` becomes a Requires-Dist."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    content = {
        **files,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    listing = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items())
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        for path, text in {**content, f"{info}/RECORD": f"{listing}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def write_numpy(folder: Path) -> None:
    """Write the wheel that points to the installed NumPy."""
    installed = Path(np.__file__).parents[1]
    beside = folder / "numpy-here"
    beside.mkdir(parents=True)
    for path in (*installed.glob("numpy"), *installed.glob("numpy.libs")):
        (beside / path.name).symlink_to(path)
    write_wheel(folder, "numpy", importlib.metadata.version("numpy"), {"numpy_here.pth": f"{beside}\n"})


def link(site: Path, *names: str) -> None:
    """Link distributions that are installed here, and all their dependencies, into another environment."""
    wanted = [importlib.metadata.distribution(name) for name in names]
    for each in wanted:
        for top in {Path(file).parts[0] for file in each.files or ()} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(str(each.locate_file(top)))
        needed = (Requirement(text) for text in each.requires or ())
        plain = {one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})}
        wanted += [importlib.metadata.distribution(name) for name in plain - {other.name for other in wanted}]


def wheelhouse(folder: Path, versions: Mapping[str, str]) -> Path:
    """Write wheels of `fakeframe` (version -> source) and of NumPy, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_numpy(folder)
    for version, source in versions.items():
        write_wheel(folder, "fakeframe", version, {"fakeframe.py": source}, ("numpy",))
    return folder


def offline(wheels: Path) -> dict[str, str]:
    """Return variables with which pip sees only these wheels."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": "/dev/null"}


def environment(folder: Path, frame: str | None = None) -> Path:
    """Make an environment with NumPy and, unless `frame` is None, `fakeframe` 1.0; return its interpreter."""
    site = folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    home = Path(sys.executable).resolve().parent
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n", encoding="utf-8")
    write_numpy(folder / "wheels")
    for wheel in [
        *(folder / "wheels").glob("*.whl"),
        *([] if frame is None else [write_wheel(folder, "fakeframe", "1.0", {"fakeframe.py": frame})]),
    ]:
        with ZipFile(wheel) as archive:
            archive.extractall(site)
    return folder / "bin" / "python"
