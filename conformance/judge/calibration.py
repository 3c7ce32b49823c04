"""
Where the bounds have been validated by measurement (benchmarks/calibrate_bounds.py, calibrate_features.py).

Outside of this table a failure of class precision says as much about the bound as about the subject: it is
inconclusive, marked uncalibrated. Semantic and impossible failures are red everywhere.
"""

from conformance.spec.problem import GRADIENT, GRADIENTS, PRESENTS, Problem

CALIBRATED: dict[str, frozenset[str]] = {
    "cpu": frozenset(
        {
            *("sdpa", "mha", "weights", "weights_mean", "gradients"),
            *("softcap", "bias_kv", "zero_key", "relu", "residual", "no_output_projection", "grouped_heads"),
            *("scaled", "capped", "logits"),
            *("causal", "key_padding", "attention", "window", "additive"),
        }
    ),
}
"""Features by device for which no false alarm was found; anything else is uncalibrated."""


WITH_TERMS = frozenset({"softcap", "bias_kv", "zero_key", "relu", "residual", "no_output_projection"})
"""Requirements that add operations, and so a term to the bound."""


def features(problem: Problem) -> frozenset[str]:
    """What a problem asks for beyond plain attention, in the words of CALIBRATED."""
    found = {problem.operator, *(kind for group in problem.groups for kind in group.kinds)}
    uncounted = ("output", *PRESENTS)  # in what is handed back nothing is computed
    found |= {name for name in problem.outputs if name not in uncounted and not name.startswith(GRADIENT)}
    if problem.differentiated:
        found.add(GRADIENTS)
    found |= set(problem.requirements) & WITH_TERMS
    if problem.num_kv_heads != problem.num_heads:
        found.add("grouped_heads")
    return frozenset(found)


def is_calibrated(problem: Problem, device: str) -> bool:
    """Whether every feature of the problem was validated on that kind of device."""
    return features(problem) <= CALIBRATED.get(device.split(":", maxsplit=1)[0], frozenset())
