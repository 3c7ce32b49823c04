"""What published numbers must be to the case that they are printed for."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from conformance.spec import files
from conformance.spec.mask_checks import nested, not_a_number
from conformance.spec.mistakes import Fault
from conformance.spec.published import LITERALS, NAMES, PublishedFields, frozen


def faults(
    model: PublishedFields, shapes: Mapping[str, tuple[int, ...]] | None, suite: Path, root: Path
) -> Iterator[Fault]:
    """What is wrong with published numbers; `shapes` are those of the outputs, None where sizes are faulty."""
    if (model.digits is None) == (model.rtol is None and model.atol is None):
        yield Fault(("published",), "expected either digits, or rtol and atol: how exactly the numbers are printed")
    given = [name for name in LITERALS if getattr(model, name) is not None]
    if not given and model.file is None:
        yield Fault(("published",), f"no numbers: expected some of {', '.join(LITERALS)}, or file")
    for name in given if shapes is not None else ():
        values = frozen(getattr(model, name))
        yield from nested(values, (shapes or {})[name], lambda each: not_a_number(each, "float64"), ("published", name))
    if model.file is not None:
        yield from files.faults(("published", "file"), model.file, NAMES, shapes, suite, root)
