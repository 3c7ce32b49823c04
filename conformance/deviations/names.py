"""The names of deviations from `names.toml`: what each does, what helps, and how common it is."""

import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

# Kind of mistake -> its prior cost in bits. `diagnosis.explanation` adds the cost of a condition.
#
# usual: straightforward code does it if its author did not consider the case.
# common: people ship it every day.
# framework: a released framework does it, or did (conformance/gate/known.yaml has the links).
# kernel: only code that works on tiles or blocks can do it.
# The numbers are chosen by reasoning and not fitted to a set of bugs.
BITS = {"usual": 1.0, "common": 3.0, "framework": 5.0, "kernel": 8.0, "rare": 12.0}
USUAL_BITS, COMMON_BITS, FRAMEWORK_BITS, KERNEL_BITS, RARE_BITS = BITS.values()

# Round numbers, of either sign.
PLAIN = frozenset({0.0, 1.0, 2.0, 0.5, 10.0, 100.0, *(10.0**n for n in range(-12, 10)), 65504.0})
# Cost in bits of a round number, of any other number, and of the length of a tile or block.
PLAIN_BITS, NUMBER_BITS, BLOCK_BITS = 4.0, 10.0, 3.0
# Number of significant digits of any other number. float64 can show more, which cost EXACT_BITS in all: a reply that
# needs them also determines them.
DIGITS = 6
EXACT_BITS = 2.0

_SLOT = re.compile(r"(?P<family>\w+)\[(?P<slot>[^\]]+)\]")
_NUMBER = re.compile(r"(?<![\d.])-?\d+(?:\.\d+)?(?:e-?\d+)?")


@dataclass(frozen=True)
class Words:
    """A line of `names.toml`; number: the number that replaces N in its name, or None."""

    kind: str
    sentence: str
    remedy: str = ""
    number: float | None = None


def slot_of(decision: str) -> tuple[str, str | None]:
    """Split `polarity[attn_mask]` into its family and its argument; other decisions have no argument."""
    match = _SLOT.fullmatch(decision)
    return (match["family"], match["slot"]) if match else (decision, None)


@cache
def words(decision: str, name: str) -> Words | None:
    """Return the line of a name with its argument and number filled in; None if there is none."""
    match = line_of(decision, name)
    if match is None:
        return None
    line, number = match
    kind, *texts = LINES[line]
    texts = [text.replace("SLOT", slot_of(decision)[1] or "SLOT") for text in texts]
    if number is None:
        return Words(kind, texts[0], "".join(texts[1:]))
    texts = [re.sub(r"\b1 keys\b", "1 key", re.sub(r"\bN\b", number, text)) for text in texts]
    return Words(kind, texts[0], "".join(texts[1:]), float(number))


def line_of(decision: str, name: str) -> tuple[str, str | None] | None:
    """Find the line of `names.toml` for a name, and the number that replaces N in it; None if there is none."""
    numbers = [(f"{name[: each.start()]}N{name[each.end() :]}", each[0]) for each in _NUMBER.finditer(name)]
    for pattern, number in ((name, None), *reversed(numbers), ("*", None)):
        if (line := f"{slot_of(decision)[0]}={pattern}") in LINES:
            return line, number
    return None


def rank(decision: str, name: str) -> tuple[int, float]:
    """Return a sort key for a name: the position of its line, then the number in it."""
    line, number = line_of(decision, name) or ("", None)
    return _ORDER.get(line, len(_ORDER)), float(number or 0.0)


def prior(decision: str, name: str) -> float:
    """Return the prior cost in bits of the kind of mistake, without its number; unnamed deviations count as rare."""
    line = words(decision, name)
    return RARE_BITS if line is None else BITS[line.kind]


def bits_of(decision: str, name: str) -> float:
    """Return the cost in bits of a deviation: its prior, plus the cost of the numbers in its name."""
    line = words(decision, name)
    if line is not None and line.number is not None and line.kind == "common":
        return COMMON_BITS + (PLAIN_BITS if _is_plain(line.number) else NUMBER_BITS + _more_digits(line.number))
    cost = prior(decision, name)
    return cost + (BLOCK_BITS * len(re.findall(r"\d+", name)) if cost > FRAMEWORK_BITS else 0.0)


def _more_digits(number: float) -> float:
    """Return the cost in bits of significant digits beyond DIGITS."""
    digits = Decimal(repr(number)).normalize().as_tuple().digits
    return EXACT_BITS if len(digits) > DIGITS else 0.0


def _is_plain(number: float) -> bool:
    return any(abs(abs(number) - plain) <= 1e-9 * plain for plain in PLAIN)


_FILE: dict[str, Any] = tomllib.loads((files(__package__) / "names.toml").read_text(encoding="utf-8"))

# Short names of the canonical choices, for sentences; absent decisions are called canonical.
CANONICAL_NAMES: dict[str, str] = _FILE["canonical"]

# What the canonical choice does, after "it", by the family of the decision.
USUAL: dict[str, str] = _FILE["usual"]

TOPICS: dict[str, str] = _FILE["topics"]
# How to begin a sentence that compares two choices of one decision, and `decision=name` -> a short name to follow.
SHORT: dict[str, str] = _FILE["short"]

# Deviations of an argument that never differ from canonical for a kind of mask, so no case can distinguish them -> why.
INVISIBLE: dict[str, str] = _FILE["invisible"]

# Dtypes -> what can be computed in them although it is declared finer: name, sentence, remedy, fields of the profile.
ARITHMETIC_LINES: list[tuple[list[str], list[tuple[str, str, str, list[str]]]]] = _FILE["arithmetic"]["groups"]

# `decision=name`, with N for a number -> kind, sentence and, if something helps, remedy.
LINES: dict[str, list[str]] = _FILE["names"]

_ORDER = {line: index for index, line in enumerate(LINES)}
