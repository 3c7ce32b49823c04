"""What all models of the file format have in common."""

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Strict: no text becomes a number, no unknown key is dropped."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
