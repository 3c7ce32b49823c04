"""The names of deviations: what each does in words, what helps, and how usual it is, from `names.toml`."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

# Kind of mistake -> what it costs before anything is measured, in bits. `diagnosis.cost` adds what a condition costs.
#
# usual: plain code does it if its author did not think of the case.
# common: people ship it every day.
# framework: a released framework does it, or did (conformance/gate/known.yaml has the links).
# kernel: only code that works on tiles or blocks can do it.
# The numbers are chosen by argument, never fitted to a set of bugs.
BITS = {"usual": 1.0, "common": 3.0, "framework": 5.0, "kernel": 8.0, "rare": 12.0}
USUAL_BITS, COMMON_BITS, FRAMEWORK_BITS, KERNEL_BITS, RARE_BITS = BITS.values()

# Numbers with a plain name, of either sign.
PLAIN = frozenset({0.0, 1.0, 2.0, 0.5, 10.0, 100.0, *(10.0**n for n in range(-12, 10)), 65504.0})
# What a plain number costs, any other, and the length of a tile or block.
PLAIN_BITS, NUMBER_BITS, BLOCK_BITS = 4.0, 10.0, 3.0

_SLOT = re.compile(r"(?P<family>\w+)\[(?P<slot>[^\]]+)\]")
_NUMBER = re.compile(r"(?<![\d.])-?\d+(?:\.\d+)?(?:e-?\d+)?")


@dataclass(frozen=True)
class Words:
    """A line of `names.toml`; number: what stands for N in its name, or None."""

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
    """The line of a name, with its argument and number put in; None where there is none."""
    found = line_of(decision, name)
    if found is None:
        return None
    line, number = found
    kind, *said = LINES[line]
    said = [text.replace("SLOT", slot_of(decision)[1] or "SLOT") for text in said]
    if number is None:
        return Words(kind, said[0], "".join(said[1:]))
    said = [re.sub(r"\bN\b", number, text) for text in said]
    return Words(kind, said[0], "".join(said[1:]), float(number))


def line_of(decision: str, name: str) -> tuple[str, str | None] | None:
    """Which line of `names.toml` a name has, and what stands for N in it; None where it has none."""
    numbers = [(f"{name[: each.start()]}N{name[each.end() :]}", each[0]) for each in _NUMBER.finditer(name)]
    for way, number in ((name, None), *reversed(numbers), ("*", None)):
        if (line := f"{slot_of(decision)[0]}={way}") in LINES:
            return line, number
    return None


def rank(decision: str, name: str) -> tuple[int, float]:
    """The place of a name among all, numbers of one line in their order."""
    line, number = line_of(decision, name) or ("", None)
    return _ORDER.get(line, len(_ORDER)), float(number or 0.0)


def prior(decision: str, name: str) -> float:
    """What the kind of mistake costs, without the number in it; what has no name is rare."""
    found = words(decision, name)
    return RARE_BITS if found is None else BITS[found.kind]


def bits_of(decision: str, name: str) -> float:
    """What taking a decision in this way costs: its prior, and the numbers in its name."""
    found = words(decision, name)
    if found is not None and found.number is not None and found.kind == "common":
        return COMMON_BITS + (PLAIN_BITS if _is_plain(found.number) else NUMBER_BITS)
    cost = prior(decision, name)
    return cost + (BLOCK_BITS * len(re.findall(r"\d+", name)) if cost > FRAMEWORK_BITS else 0.0)


def _is_plain(number: float) -> bool:
    return any(abs(abs(number) - plain) <= 1e-9 * plain for plain in PLAIN)


_FILE: dict[str, Any] = tomllib.loads((files(__package__) / "names.toml").read_text(encoding="utf-8"))

# What canonical is called, for sentences; decisions that are absent are called canonical.
CANONICAL_NAMES: dict[str, str] = _FILE["canonical"]

# What canonical does, after "it", by the family of the decision.
USUAL: dict[str, str] = _FILE["usual"]

TOPICS: dict[str, str] = _FILE["topics"]
# How to begin a sentence about two ways of one decision, and `decision=name` -> a short name that follows.
SHORT: dict[str, str] = _FILE["short"]

# Deviations of an argument for a kind of mask that are canonical by nature -> why: no case can tell them apart.
INVISIBLE: dict[str, str] = _FILE["invisible"]

# Dtypes -> what can be coarser in each: name, sentence, remedy, fields of the profile.
ARITHMETIC_LINES: list[tuple[list[str], list[tuple[str, str, str, list[str]]]]] = _FILE["arithmetic"]["groups"]

# `decision=name`, with N for a number -> kind, sentence and, where something helps, remedy.
LINES: dict[str, list[str]] = _FILE["names"]

_ORDER = {line: place for place, line in enumerate(LINES)}
