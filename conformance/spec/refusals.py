"""
Calls that must be refused: a valid call in which one array, or the choice of arguments, is made inconsistent.

The valid call is the twin of the case: the same case without its mistake. `engine.cells.mistaken` makes the mistake.
"""

from dataclasses import dataclass
from typing import Literal

Name = Literal[
    "value_positions",
    "key_batch",
    "key_width",
    "query_width",
    "mask_keys",
    "mask_queries",
    "mask_batch",
    "num_heads",
    "two_masks",
    "lone_flag",
]


@dataclass(frozen=True)
class Refusal:
    """
    One mistake of a call.

    sentence: what an implementation that returns numbers does, after "it". remedy: what its user can do. masks: number
    of masks that the mistake needs. batch: whether the mistake removes a batch element; the batch needs at least
    MIN_BATCH then, because a single remaining batch element would be broadcast.
    """

    sentence: str
    remedy: str
    masks: int = 0
    batch: bool = False


REFUSALS: dict[Name, Refusal] = {
    "value_positions": Refusal(
        "accepts a value with fewer positions than the key", "check that key and value have the same length"
    ),
    "key_batch": Refusal(
        "accepts a key and value whose batch size is smaller than the query's but not 1, so they cannot be broadcast",
        "check that the batch sizes agree",
        batch=True,
    ),
    "key_width": Refusal("accepts a key that is wider than the query", "check that query and key have the same width"),
    "query_width": Refusal(
        "accepts a query that is wider than the input width of the query projection (wq)",
        "check the width of the query against wq",
    ),
    "mask_keys": Refusal(
        "accepts a mask over more keys than there are", "check the mask against the number of keys", masks=1
    ),
    "mask_queries": Refusal(
        "accepts a mask over more queries than there are", "check the mask against the number of queries", masks=1
    ),
    "mask_batch": Refusal(
        "accepts a mask whose batch size is smaller than the query's but not 1, so it cannot be broadcast",
        "check the mask against the batch size",
        masks=1,
        batch=True,
    ),
    "num_heads": Refusal(
        "accepts a num_heads that does not divide the width of the query",
        "choose num_heads so that it divides the width of the query",
    ),
    "two_masks": Refusal(
        "accepts two arguments that are documented to exclude each other",
        "combine the masks in one argument",
        masks=2,
    ),
    "lone_flag": Refusal(
        "accepts a call that sets the causal argument but does not pass the mask that this argument requires",
        "pass the mask as well",
        masks=1,
    ),
}

# Minimum batch size for mistakes that remove a batch element: the remaining two are not broadcast.
MIN_BATCH = 3
