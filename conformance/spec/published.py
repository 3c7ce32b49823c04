"""
Numbers that others published for a case, with their source and their precision.

The oracle is compared with them (`verdicts.expectation`); subjects are compared with the oracle, as in every
case.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from conformance.spec import array_files
from conformance.spec.model import Model
from conformance.spec.problem import PRESENTS, SCORES, Array

# Outputs whose numbers may be written in a suite.
LITERALS = ("output", "weights", "weights_mean")

# Outputs whose numbers may be in an npz file.
NAMES = (*LITERALS, *SCORES, *PRESENTS)

Literals = Annotated[list[Any], Field(min_length=1)]
Tolerance = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class PublishedFields(Model):
    """The fields of `published` in a suite."""

    source: str = Field(description="URL where the numbers are published.", pattern=r"^https?://")
    output: Literals | None = Field(default=None, description="A nested list.")
    weights: Literals | None = Field(default=None, description="A nested list.")
    weights_mean: Literals | None = Field(default=None, description="A nested list.")
    file: str | None = Field(
        default=None, description="An npz file in the folder of the suite, with any outputs.", min_length=1
    )
    digits: Annotated[int, Field(ge=0, le=17)] | None = Field(
        default=None, description="Digits printed after the decimal point; half a unit of the last digit is allowed."
    )
    rtol: Tolerance | None = Field(default=None, description="Allowed relative difference from the published number.")
    atol: Tolerance | None = Field(default=None, description="Allowed absolute difference.")
    computed_in: Literal["float64", "float32", "float16", "bfloat16"] | None = Field(
        default=None, description="Also allow the bound of this dtype, with a rounding after every operator."
    )
    errata: str | None = Field(
        default=None, description="Why the numbers are wrong; if given, they must differ.", min_length=10
    )


def frozen(value: Any) -> Any:
    """Convert nested lists to nested tuples."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


# A literal array: nested tuples of bools, ints and floats.
Nested = Annotated[tuple[Any, ...], BeforeValidator(frozen)]


@dataclass(frozen=True)
class Published:
    """
    Published numbers of one case; fields as in docs/cases.md.

    literals: output name -> nested tuples. file: an npz file with further outputs, or None.
    """

    source: str
    literals: tuple[tuple[str, Nested], ...] = ()
    file: Path | None = None
    digits: int | None = None
    rtol: float = 0.0
    atol: float = 0.0
    computed_in: str | None = None
    errata: str | None = None

    def arrays(self) -> dict[str, Array]:
        """Return the numbers by output name, float64."""
        literal = {name: np.array(values, dtype=np.float64) for name, values in self.literals}
        return literal if self.file is None else literal | array_files.arrays(self.file)

    def allowed(self, numbers: Array) -> Array:
        """Return how far the exact value may be from each published number, given its printed precision."""
        unit = 0.0 if self.digits is None else 0.5 * 10.0**-self.digits
        return np.asarray(unit + self.atol + self.rtol * np.where(np.isfinite(numbers), np.abs(numbers), 0.0))


def published(model: PublishedFields | None, suite: Path) -> Published | None:
    """Convert the published numbers of an entry in the suite file `suite`."""
    if model is None:
        return None
    literals = {name: getattr(model, name) for name in LITERALS}
    return Published(
        source=model.source,
        literals=tuple((name, frozen(values)) for name, values in literals.items() if values is not None),
        file=None if model.file is None else suite.parent / model.file,
        digits=model.digits,
        rtol=model.rtol or 0.0,
        atol=model.atol or 0.0,
        computed_in=model.computed_in,
        errata=model.errata,
    )
