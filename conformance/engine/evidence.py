"""What is read of an adapter's evidence: only in this shape does it cross into a run, and is it read from a log."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from conformance.spec.wording import faults


class Evidence(BaseModel):
    """
    The keys of evidence that something here reads; beside them it may hold any JSON value.

    environment: variables of the worker, None where one is not set. nodes: execution provider -> its operators.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    versions: dict[str, str] = {}
    libraries: dict[str, str] = {}
    environment: dict[str, str | None] = {}
    ran_on: list[str] = []
    nodes: dict[str, dict[str, Any] | list[str]] = {}
    device: str | None = None
    threads: int | str | None = None


def odd_evidence(evidence: Mapping[str, Any]) -> str:
    """What is wrong with evidence, in words; "" where nothing is."""
    said = unlike(Evidence, evidence)
    return f"odd evidence: {said}" if said else ""


def unlike(model: type[BaseModel], value: Mapping[str, Any]) -> str:
    """The first thing in which a value is not what the model says, in words; "" where there is none."""
    try:
        model.model_validate(value)
    except ValidationError as error:
        return faults(error, dict(value), lambda _: ())[0].message
    return ""
