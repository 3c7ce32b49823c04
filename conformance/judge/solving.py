"""
Reads the number off a failing reply: the fill, factor, epsilon, limit or shift under which the oracle gives that reply.

The reply is a smooth function of the number, so a few steps of Gauss and Newton find it from the nearest guess. A
number that is told is the one with the fewest digits under which the reply lies within its bound.
"""

import math
from collections.abc import Iterator

import numpy as np

from conformance.deviations.catalogue import compose, in_order
from conformance.deviations.deviation import Deviation
from conformance.deviations.measured import MEASURED, Measured
from conformance.judge.explanation import Way
from conformance.judge.suspect import Suspect
from conformance.oracle.evaluate import evaluate_deviations
from conformance.spec.problem import Array

STEPS = 12
"""At most so many steps from each guess."""
BEST = 2
"""So many of the guesses are refined: those under which the reply is nearest."""
HALVINGS = 6
"""How often a step that leads away is halved."""
DIGITS = 6
"""A number is told with so many digits at most."""
STEP = 1e-6
"""The part of a number by which it is moved to see what that changes."""
CLOSE = 1e-10
"""A step of a smaller part of the number is the last."""
FAR = 1e100
"""Errors of so many tolerances are told apart no further: their squares are numbers."""


def solved(suspect: Suspect) -> Iterator[Way]:
    """The decisions that explain a failing reply when they are taken by some number, with the plainest such number."""
    for kind in MEASURED:
        if kind.concerns(suspect.problem) and (way := solve(kind, suspect)) is not None:
            yield way


def solve(kind: Measured, suspect: Suspect) -> Way | None:
    """The decision with the plainest number under which the reply lies within its bound; None where none does."""
    fit = _Fit(kind, suspect)
    if not fit.matters():
        return None
    ranked = sorted((fit.error(guess), place, guess) for place, guess in enumerate(kind.guesses))
    for error, _, guess in ranked:
        if error < fit.still and fit.explains(guess):
            return kind.decision, kind.name(guess)
    if kind.whole:
        return None
    nearer = [guess for error, _, guess in ranked if error < fit.still][:BEST]
    for guess in [*nearer, *([kind.neutral] if math.isfinite(kind.neutral) else [])]:
        number = fit.refined(guess)
        for digits in range(1, DIGITS + 1):
            plain = float(f"{number:.{digits}g}")
            if fit.explains(plain):
                return kind.decision, kind.name(plain)
    return None


class _Fit:
    """One kind of number, fitted to one reply."""

    def __init__(self, kind: Measured, suspect: Suspect) -> None:
        self._kind, self._suspect = kind, suspect
        self._rest = {name: way for name, way in suspect.declared.dialect.items() if name != kind.decision}
        self._others = compose(self._rest)
        self._actual = {name: each.float64() for name, each in suspect.actual.items()}
        floor = {name: np.max(each.tolerance, initial=0.0) or 1.0 for name, each in suspect.declared.bounds.items()}
        self._tolerance = {
            name: np.where(each.tolerance > 0, each.tolerance, floor[name])
            for name, each in suspect.declared.bounds.items()
        }
        self.still = self._size(self._residual(self._others))

    def matters(self) -> bool:
        """Whether the reply could come near: it has the shape and the dtype that are expected."""
        declared = self._suspect.declared.reply
        return all(
            name in self._actual
            and self._actual[name].shape == each.values.shape
            and self._suspect.actual[name].dtype == each.dtype
            for name, each in declared.items()
        )

    def explains(self, number: float) -> bool:
        """Whether the reply lies within its bound under this number, as it is written."""
        return self._suspect.explained_by({**self._rest, self._kind.decision: self._kind.name(number)})

    def error(self, number: float) -> float:
        """How far off the reply is under this number, in tolerances: the root mean square."""
        return self._size(self._at(number))

    def refined(self, number: float) -> float:
        """The number near a guess under which the reply is nearest."""
        here = self._at(number)
        for _ in range(STEPS):
            step = self._step(number, here)
            for _ in range(HALVINGS):
                there = self._at(number + step)
                if self._size(there) < self._size(here):
                    break
                step /= 2
            else:
                return number
            number, here = number + step, there
            if abs(step) < CLOSE * abs(number):
                break
        return number

    def _step(self, number: float, here: Array | None) -> float:
        """By how much the number is off, to first order."""
        moved = STEP * (abs(number) or 1.0)
        there = self._at(number + moved)
        if here is None or there is None:
            return 0.0
        slope = (there - here) / moved
        square = float(slope @ slope)
        step = -float(slope @ here) / square if square > 0.0 else 0.0
        most = 2.0 * (abs(number) or 1.0)
        return float(np.clip(step, -most, most))

    def _at(self, number: float) -> Array | None:
        return self._residual(in_order((self._kind.deviation(number), *self._others)))

    def _residual(self, deviations: tuple[Deviation, ...]) -> Array | None:
        """What the reply is off, in tolerances; None where numbers stand in other places."""
        answer = evaluate_deviations(self._suspect.problem, deviations, self._suspect.profile.score)
        parts = []
        for name, tolerance in self._tolerance.items():
            expected, actual = answer.reply[name].values, self._actual[name]
            if expected.shape != actual.shape or not np.array_equal(np.isfinite(expected), np.isfinite(actual)):
                return None
            with np.errstate(invalid="ignore"):
                off = np.where(np.isfinite(actual), expected - actual, 0.0) / tolerance
            parts.append(np.clip(off, -FAR, FAR).ravel())
        return np.concatenate(parts)

    @staticmethod
    def _size(residual: Array | None) -> float:
        return float("inf") if residual is None else float(np.sqrt(np.mean(residual**2)))
