"""
Helpers and links that the adapters of published implementations share.

`weights` returns the parameters of a call as arrays. `needs` declines calls that the text cannot express.
"""

from typing import Any

from conformance.bridge import Call, Unsupported

TUTORIAL = "https://www.tensorflow.org/text/tutorials/transformer"
MULTIPLE_ATTENTION = "https://mp.weixin.qq.com/s/cJqhESxTMy5cfj0EXh9s4w"


def weights(call: Call) -> dict[str, Any]:
    """Return the parameters of a call as arrays by name. The texts support only float64 and float32."""
    return {name: tensor.bits for name, tensor in call.params.items()}


def needs(call: Call, *requirements: str) -> None:
    """Decline a call unless it has all of `requirements`. The text always includes them."""
    for requirement in requirements:
        if requirement not in call.facts.requirements:
            raise Unsupported(f"the text has {requirement.replace('_', ' ')} built in, and this call is without")
