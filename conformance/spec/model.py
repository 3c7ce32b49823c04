"""The common base of all pydantic models of the file format."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A strict model: strings are not converted to numbers, and unknown keys are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
