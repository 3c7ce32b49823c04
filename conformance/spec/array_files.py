"""Array files (npz) next to a suite: checked before they are read, and read without unpickling."""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from conformance.spec.mistakes import Fault
from conformance.spec.texts import cut, quoted, reason

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

SUFFIX = ".npz"

# Errors of zip readers; RuntimeError (and subclasses) for files with a password or an unsupported compression.
_UNREADABLE = (BadZipFile, OSError, EOFError, ValueError, zlib.error, RuntimeError, KeyError, struct.error)


def faults(
    at: tuple[str, ...], name: str, names: Sequence[str], expected: Mapping[str, Shape] | None, suite: Path, root: Path
) -> Iterator[Fault]:
    """
    Yield the faults of the file `name`, which the field `at` of the suite file `suite` names.

    names: names of the arrays that the file may contain. expected: their shapes; None if the sizes of the case are
    faulty, so that shapes cannot be checked.
    """
    if (refused := _refusal(name, suite, root)) is not None:
        yield Fault(at, refused)
        return
    try:
        actual = shapes(suite.parent / name)
    except ValueError as error:
        yield Fault(at, str(error))
        return
    wrong = list(_mismatches(at, name, names, expected, actual))
    yield from wrong
    if not wrong and expected is not None:
        try:
            arrays(suite.parent / name)
        except ValueError as error:
            yield Fault(at, str(error))


def _mismatches(
    at: tuple[str, ...],
    name: str,
    names: Sequence[str],
    expected: Mapping[str, Shape] | None,
    actual: Mapping[str, Shape],
) -> Iterator[Fault]:
    for array, shape in actual.items():
        if array not in names:
            yield Fault(at, f"{name} has an unknown array {quoted(array)}; expected some of {', '.join(names)}")
        elif expected is not None and shape != expected[array]:
            yield Fault(at, f"{array} in {name} has shape {shape}; expected {expected[array]}")


def _refusal(name: str, suite: Path, root: Path) -> str | None:
    """Explain why the file `name` of the suite file `suite` may not be opened, or return None; opens nothing."""
    path = suite.parent / name
    try:
        if Path(name).is_absolute() or not path.resolve().is_relative_to(root.resolve()):
            return f"file {quoted(name)} is outside the case folder; expected a file in the folder of the suite"
        if path.suffix != SUFFIX:
            return f"file {quoted(name)} must end in {SUFFIX}"
        return None if path.is_file() else f"file {quoted(name)} does not exist in the folder of the suite"
    except (OSError, ValueError) as error:
        return f"file {quoted(name)} cannot be opened: {reason(error)}"
    except RuntimeError:  # raised for loops of symbolic links before Python 3.13
        return f"file {quoted(name)} cannot be opened: its symbolic links form a loop"


def shapes(path: Path) -> dict[str, Shape]:
    """
    Read the shape of every array of an npz file without reading its numbers.

    Raises:
        ValueError: the file is not an npz file of numbers.
    """
    try:
        with ZipFile(path) as archive:
            return {name.removesuffix(".npy"): _shape(archive, name) for name in archive.namelist()}
    except _UNREADABLE as error:
        raise ValueError(f"{cut(path.name)} is not a readable npz of numbers: {error}") from error


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
        if (size := member.tell() + prod(shape) * dtype.itemsize) != archive.getinfo(name).file_size:
            raise ValueError(f"{name} has {archive.getinfo(name).file_size} bytes; its header says {size}")
        return tuple(shape)


def arrays(path: Path) -> dict[str, Array]:
    """
    Read the arrays of an npz file as float64.

    Raises:
        ValueError: the file is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name].astype(np.float64) for name in archive.files}
    except _UNREADABLE as error:
        raise ValueError(f"{cut(path.name)} is not a readable npz of numbers: {error}") from error
