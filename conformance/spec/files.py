"""Array files beside a suite: looked at before they are read, and read without running anything in them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from conformance.spec.mistakes import Fault

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

SUFFIX = ".npz"


def faults(
    at: tuple[str, ...], name: str, names: Sequence[str], expected: Mapping[str, Shape] | None, suite: Path, root: Path
) -> Iterator[Fault]:
    """
    What is wrong with the file `name` that the field `at` of the suite file `suite` gives.

    names: of the arrays that it may have. expected: their shapes; None where sizes are faulty.
    """
    if (refused := _refusal(name, suite, root)) is not None:
        yield Fault(at, refused)
        return
    try:
        found = shapes(suite.parent / name)
    except ValueError as error:
        yield Fault(at, str(error))
        return
    for array, shape in found.items():
        if array not in names:
            yield Fault(at, f"{name} has an array {array!r}; expected some of {', '.join(names)}")
        elif expected is not None and shape != expected[array]:
            yield Fault(at, f"{array} in {name} has shape {shape}; expected {expected[array]}")


def _refusal(name: str, suite: Path, root: Path) -> str | None:
    """Why `name`, written in the suite file `suite`, may not be opened; None where it may. Opens nothing."""
    path = suite.parent / name
    if Path(name).is_absolute() or not path.resolve().is_relative_to(root.resolve()):
        return f"file {name!r} lies outside the case folder; expected a file beside the suite"
    if path.suffix != SUFFIX:
        return f"file {name!r} must end in {SUFFIX}"
    return None if path.is_file() else f"there is no file {name!r} beside the suite"


def shapes(path: Path) -> dict[str, Shape]:
    """
    Read the shape of every array of an npz, and none of its numbers.

    Raises:
        ValueError: it is not an npz of numbers.
    """
    try:
        with ZipFile(path) as archive:
            return {name.removesuffix(".npy"): _shape(archive, name) for name in archive.namelist()}
    except (BadZipFile, OSError, EOFError, ValueError) as error:
        raise ValueError(f"{path.name} is not a readable npz of numbers: {error}") from error


def _shape(archive: ZipFile, name: str) -> Shape:
    read_header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with archive.open(name) as member:
        version = np.lib.format.read_magic(member)
        if version not in read_header:
            raise ValueError(f"{name} has an unknown format")
        shape, _, dtype = read_header[version](member)
        if dtype.kind not in "fiub":
            raise ValueError(f"{name} holds {dtype}, not numbers")
        return tuple(shape)


def arrays(path: Path) -> dict[str, Array]:
    """Read the arrays of an npz as float64."""
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name].astype(np.float64) for name in archive.files}
