"""The conditions under which a known deviation shows: facts about a call, and one about its problem."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from conformance.bridge.contract import Facts
from conformance.spec.problem import Problem

Names = list[str]


class Condition(BaseModel):
    """
    A conjunction: every field that is given must hold. A list of dtypes, devices or aliases means any of them.

    slots, without_slots: arguments that are all used, or all unused. elements: argument -> element type in which it is
    handed over. kinds: masks of all of these kinds take part. masks: whether any mask is given. outputs,
    without_outputs: asked for, not asked for.
    dead_row: some query has nothing to attend. sizes: dimension -> exact value. sizes_equal, sizes_differ: pairs of
    dimensions.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    operator: Literal["sdpa", "mha"] | None = None
    dtype: Names | None = None
    device: Names | None = None
    alias: Names | None = None
    slots: Names = Field(default_factory=list)
    without_slots: Names = Field(default_factory=list)
    elements: dict[str, Literal["bool", "int", "float", "flag"]] = Field(default_factory=dict)
    kinds: Names = Field(default_factory=list)
    masks: bool | None = None
    verbatim: bool | None = None
    outputs: Names = Field(default_factory=list)
    without_outputs: Names = Field(default_factory=list)
    dead_row: bool | None = None
    sizes: dict[str, int] = Field(default_factory=dict)
    sizes_equal: list[tuple[str, str]] = Field(default_factory=list)
    sizes_differ: list[tuple[str, str]] = Field(default_factory=list)

    def holds(self, facts: Facts, problem: Problem) -> bool:
        """Whether the call that `facts` describe is one of those meant."""
        return self._about_call(facts) and self._about_masks(facts) and self._about_problem(facts, problem)

    def _about_call(self, facts: Facts) -> bool:
        asked = set(facts.outputs)
        return (
            self.operator in (None, facts.operator)
            and _among(self.dtype, facts.dtype)
            and _among(self.device, facts.device)
            and _among(self.alias, facts.alias)
            and asked.issuperset(self.outputs)
            and asked.isdisjoint(self.without_outputs)
        )

    def _about_masks(self, facts: Facts) -> bool:
        used = {mask.slot: mask.element for mask in facts.masks}
        kinds = {kind for mask in facts.masks for kind in mask.kinds}
        verbatim = any(mask.verbatim for mask in facts.masks)
        return (
            self.masks in (None, bool(used))
            and self.verbatim in (None, verbatim)
            and set(used).issuperset(self.slots)
            and set(used).isdisjoint(self.without_slots)
            and kinds.issuperset(self.kinds)
            and all(used.get(slot) == element for slot, element in self.elements.items())
        )

    def _about_problem(self, facts: Facts, problem: Problem) -> bool:
        sizes = facts.sizes
        dead = not bool(problem.attended().any(axis=-1).all()) if self.dead_row is not None else None
        return (
            self.dead_row == dead
            and all(sizes.get(name) == value for name, value in self.sizes.items())
            and all(sizes.get(a) == sizes.get(b) for a, b in self.sizes_equal)
            and all(sizes.get(a) != sizes.get(b) for a, b in self.sizes_differ)
        )


def _among(allowed: Names | None, value: str) -> bool:
    return allowed is None or value in allowed


def always() -> Condition:
    """A condition that every call meets."""
    return Condition(**dict[str, Any]())
