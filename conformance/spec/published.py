"""
Numbers that somebody else printed for a case, with where they stand and how exactly they are printed.

The oracle is judged on them (`judge.published`); subjects are judged by the oracle, as in every case.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from conformance.spec import array_files
from conformance.spec.model import Model
from conformance.spec.problem import PRESENTS, SCORES, Array

# Outputs whose numbers may stand in a suite.
LITERALS = ("output", "weights", "weights_mean")

# Outputs whose numbers may stand in a file.
NAMES = (*LITERALS, *SCORES, *PRESENTS)

Literals = Annotated[list[Any], Field(min_length=1)]
Tolerance = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class PublishedFields(Model):
    """What may stand in a suite under `published`."""

    source: str = Field(description="Where the numbers are printed: an address.", pattern=r"^https?://")
    output: Literals | None = Field(default=None, description="A nested list.")
    weights: Literals | None = Field(default=None, description="A nested list.")
    weights_mean: Literals | None = Field(default=None, description="A nested list.")
    file: str | None = Field(default=None, description="An npz beside the suite with any outputs.", min_length=1)
    digits: Annotated[int, Field(ge=0, le=17)] | None = Field(
        default=None, description="Printed digits after the point: half a unit of the last is allowed."
    )
    rtol: Tolerance | None = Field(default=None, description="Allowed, as a part of the published number.")
    atol: Tolerance | None = Field(default=None, description="Allowed in any case.")
    computed_in: Literal["float64", "float32", "float16", "bfloat16"] | None = Field(
        default=None, description="The bound of this arithmetic, rounded after every operator, is allowed as well."
    )
    errata: str | None = Field(
        default=None, description="Why the numbers are wrong; then they must differ.", min_length=10
    )


@dataclass(frozen=True)
class Published:
    """
    Published numbers of one case; fields as in docs/cases.md.

    literals: output name -> nested tuples. file: an npz with more of them, or None.
    """

    source: str
    literals: tuple[tuple[str, Any], ...] = ()
    file: Path | None = None
    digits: int | None = None
    rtol: float = 0.0
    atol: float = 0.0
    computed_in: str | None = None
    errata: str | None = None

    def arrays(self) -> dict[str, Array]:
        """The numbers by the name of the output, float64."""
        literal = {name: np.array(values, dtype=np.float64) for name, values in self.literals}
        return literal if self.file is None else literal | array_files.arrays(self.file)

    def allowed(self, numbers: Array) -> Array:
        """How far the truth may be from each published number by the way it is printed."""
        unit = 0.0 if self.digits is None else 0.5 * 10.0**-self.digits
        return np.asarray(unit + self.atol + self.rtol * np.where(np.isfinite(numbers), np.abs(numbers), 0.0))


def published(model: PublishedFields | None, suite: Path) -> Published | None:
    """The numbers of an entry of the suite file `suite`."""
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


def frozen(value: Any) -> Any:
    """Nested lists as nested tuples."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value
