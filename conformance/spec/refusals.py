"""
Calls that must be refused: a valid one of which one array, or the choice of arguments, is made not to fit the others.

The valid call is the case without its mistake, its twin; what is done to it stands in `engine.mistaken`.
"""

from dataclasses import dataclass
from typing import Literal

Name = Literal[
    "value_positions",
    "key_items",
    "key_width",
    "query_width",
    "mask_keys",
    "mask_queries",
    "mask_items",
    "num_heads",
    "two_masks",
    "lone_flag",
]


@dataclass(frozen=True)
class Refusal:
    """
    One mistake of a call.

    sentence: what an implementation does that returns numbers, after "it". remedy: what its user can do. masks: how
    many masks it needs. items: it takes an item away, of at least three, since one would be broadcast.
    """

    sentence: str
    remedy: str
    masks: int = 0
    items: bool = False


REFUSALS: dict[Name, Refusal] = {
    "value_positions": Refusal(
        "takes a value of fewer positions than the key without a word", "compare the lengths of key and value"
    ),
    "key_items": Refusal(
        "takes key and value of fewer items than the query without a word", "compare the batch sizes", items=True
    ),
    "key_width": Refusal("takes a key that is too wide without a word", "compare the widths of query and key"),
    "query_width": Refusal(
        "takes a query that is wider than its projection without a word", "compare the width of the query"
    ),
    "mask_keys": Refusal(
        "takes a mask over more keys than there are without a word", "compare the mask with the keys", masks=1
    ),
    "mask_queries": Refusal(
        "takes a mask over more queries than there are without a word", "compare the mask with the queries", masks=1
    ),
    "mask_items": Refusal(
        "takes a mask of fewer items than there are without a word",
        "compare the mask with the batch",
        masks=1,
        items=True,
    ),
    "num_heads": Refusal(
        "takes a number of heads that does not divide the width without a word", "divide the width by num_heads"
    ),
    "two_masks": Refusal(
        "takes two arguments that are documented to exclude each other without a word",
        "combine the masks in one argument",
        masks=2,
    ),
    "lone_flag": Refusal(
        "takes a flag without the mask that it speaks of without a word", "hand over the mask as well", masks=1
    ),
}

# Of so many items one can be taken away, and what is left is not broadcast.
MIN_BATCH = 3
