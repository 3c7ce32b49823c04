"""
Old names of suites, cases, patterns, mistakes and deviations, which files and commands of users may still have.

An old name is replaced where a text enters: from then on there are only new names. It never replaces a part of a word,
nor a part of a path such as cases/degenerate/dead_row.yaml.
"""

import re
from functools import lru_cache
from typing import Any

# Old text -> new text: beginnings of case ids, and `field=value` as in case ids and `decision=name`.
_NEW = {
    "degenerate/dead_row": "degenerate/fully_masked_row",
    "degenerate/dead_item": "degenerate/fully_masked_batch",
    "gradients/masks/dead_row": "gradients/masks/fully_masked_row",
    "combined/pairs/one_head_of_one_item": "combined/pairs/one_head_of_one_batch",
    "degenerate/dead_item/every_item": "degenerate/fully_masked_batch/every_batch",
    "degenerate/hidden_queries/per_item": "degenerate/hidden_queries/per_batch",
    "masks/additive/minus_infinity_per_item": "masks/additive/minus_infinity_per_batch",
    "masks/attention_3d/per_item": "masks/attention_3d/per_batch",
    "masks/attention_3d/per_item_and_head_keys_only": "masks/attention_3d/per_batch_and_head_keys_only",
    "masks/attention_3d/per_item_block": "masks/attention_3d/per_batch_block",
    "masks/attention_3d/per_item_keys_only": "masks/attention_3d/per_batch_keys_only",
    "masks/attention_3d/per_item_unequal_sizes": "masks/attention_3d/per_batch_unequal_sizes",
    "shapes/lengths/one_item": "shapes/lengths/one_batch",
    "shapes/lengths/one_item_causal_end": "shapes/lengths/one_batch_causal_end",
    "shapes/lengths/one_item_per_head": "shapes/lengths/one_batch_per_head",
    "pattern=all_dead": "pattern=all_masked",
    "mistake=key_items": "mistake=key_batch",
    "mistake=mask_items": "mistake=mask_batch",
    "pattern=one_dead_row": "pattern=one_fully_masked_row",
    "pattern=one_dead_item": "pattern=one_fully_masked_batch",
    "softmax_axis=items": "softmax_axis=batch",
    "softmax_axis=items_and_heads": "softmax_axis=batch_and_heads",
    "returned_weights=uniform_in_dead_rows": "returned_weights=uniform_in_fully_masked_rows",
    "returned_weights=nan_in_dead_rows": "returned_weights=nan_in_fully_masked_rows",
    # After the name of a mask argument in brackets, or after a number.
    "=first_item": "=first_batch",
    "=items_tiled": "=batch_tiled",
    "=items_as_heads": "=batch_as_heads",
    "=items_as_queries": "=batch_as_queries",
    "_but_dead_rows": "_but_fully_masked_rows",
}
_OLD = {new: old for old, new in _NEW.items()}

# Every old text contains one of these, and most other texts none.
_MARKS = ("dead", "item")
_MARKS_IN_BYTES = tuple(mark.encode() for mark in _MARKS)


def _finding(texts: dict[str, str]) -> re.Pattern[str]:
    longest = sorted(texts, key=len, reverse=True)
    starts = ((r"(?<![\w/])" if text[0].isalpha() else "") + re.escape(text) for text in longest)
    return re.compile(rf"(?:{'|'.join(starts)})(?!\w)")


_FIND_OLD, _FIND_NEW = _finding(_NEW), _finding(_OLD)


def current(text: str) -> str:
    """Return a text with new names for old ones: in case ids, and in `field=value` and `decision=name`."""
    if not any(mark in text for mark in _MARKS):
        return text
    return _FIND_OLD.sub(lambda found: _NEW[found[0]], text)


@lru_cache(maxsize=1 << 14)
def former(text: str) -> str:
    """Return a text with old names for new ones; the text itself if it has none that was renamed."""
    return _FIND_NEW.sub(lambda found: _OLD[found[0]], text)


def may_be_in(line: bytes) -> bool:
    """Whether a line of JSON may have an old name; much faster than a search for a pattern."""
    return any(mark in line for mark in _MARKS_IN_BYTES)


def current_value(field: str, value: Any) -> Any:
    """Return the new name of a value of a field or decision; other values as they are."""
    return current(f"{field}={value}")[len(current(field)) + 1 :] if isinstance(value, str) else value


def current_record(data: Any) -> Any:
    """
    Return JSON values with new names: in texts, under fields and decisions, and in records of a decision.

    Raises:
        ValueError: they are nested too deeply.
    """
    try:
        return _current(data)
    except RecursionError:
        raise ValueError("the JSON values are nested too deeply") from None


def _current(data: Any) -> Any:
    if isinstance(data, str):
        return current(data)
    if isinstance(data, list):
        return [_current(each) for each in data]
    if not isinstance(data, dict):
        return data
    named = str(data.get("decision", "name"))
    return {
        current(key): current_value(named if key == "name" else key, value)
        if isinstance(value, str)
        else _current(value)
        for key, value in data.items()
    }
