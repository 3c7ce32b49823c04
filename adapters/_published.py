"""What the adapters of published implementations share: projections (out, in), and what texts ask of every call."""

from typing import Any

from conformance.bridge import Call, Unsupported

TUTORIAL = "https://www.tensorflow.org/text/tutorials/transformer"
MULTIPLE_ATTENTION = "https://mp.weixin.qq.com/s/cJqhESxTMy5cfj0EXh9s4w"


def weights(call: Call) -> dict[str, Any]:
    """The parameters of a call as arrays, under their names; the texts take float64 and float32 alone."""
    return {name: tensor.bits for name, tensor in call.params.items()}


def needs(call: Call, *requirements: str) -> None:
    """Decline a call without something that the text always does."""
    for requirement in requirements:
        if requirement not in call.facts.requirements:
            raise Unsupported(f"the text has {requirement.replace('_', ' ')} built in, and this call is without")
