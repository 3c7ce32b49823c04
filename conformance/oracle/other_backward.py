"""Variations of the backward pass alone: they show in gradients and nowhere else."""

from conformance.oracle.pipeline import Step, Steps, insert_after
from conformance.oracle.state import State
from conformance.oracle.variation import Variation, steps_row

RECOMPUTED = "recomputed_weights"
"""The decision of how a backward pass gets the weights again."""


def _unnormalised(steps: Steps, _: str) -> Steps:
    def keep(state: State) -> State:
        return state.but(normalises=False)

    return insert_after(steps, "softmax", Step("recomputed weights", keep))


ROWS: tuple[Variation, ...] = (
    steps_row(
        RECOMPUTED,
        "unnormalised",
        "gives every key the weight 1 in the backward pass of a row whose logits are all equally low, so that its "
        "gradients are too large by the number of keys",
        "leave no row without an attended key",
        _unnormalised,
    ),
)
