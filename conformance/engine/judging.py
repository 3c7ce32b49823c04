"""Judging what came back: the verdict of one cell, work that subjects share, and the record for the run log."""

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bridge.contract import Declaration, Facts
from conformance.bridge.messages import declaration_record
from conformance.bridge.profile import Profile
from conformance.bridge.tensor import Tensor
from conformance.deviations.deviation import Dialect
from conformance.engine.cells import Cell
from conformance.engine.machine import Machine
from conformance.judge.cell import Judgement, judge_against
from conformance.judge.diagnose import Likely
from conformance.judge.expectation import Expectation, expect
from conformance.oracle.bounds import UnderivedBound
from conformance.spec.problem import Array, Problem


@dataclass(frozen=True, eq=False)
class Judged:
    """
    A verdict with what led to it, for the gate and the run log.

    message: the reason in words, or what an exception said. klass: of a fail that is not about numbers. arrays:
    expected, actual and tolerance by output, of cells that did not simply pass.
    """

    case: str
    subject: str
    versions: Mapping[str, str]
    facts: Facts
    problem: Problem
    verdict: str
    message: str = ""
    declared: Expectation | None = None
    profile: Profile | None = None
    actual: Mapping[str, Tensor] = field(default_factory=dict)
    judgement: Judgement | None = None
    klass: str = ""
    platform: str = field(default_factory=lambda: f"{platform.system()}-{platform.machine()}")
    machine: Machine = field(default_factory=Machine)

    @property
    def arrays(self) -> dict[str, Array]:
        """`NAME.expected`, `NAME.actual`, `NAME.tolerance` of every output."""
        if self.declared is None or self.verdict == "pass":
            return {}
        found = {}
        for name, tensor in self.actual.items():
            found[f"{name}.expected"] = self.declared.reply[name].values
            found[f"{name}.actual"] = tensor.float64()
            found[f"{name}.tolerance"] = self.declared.bounds[name].tolerance
        return found


class Judge:
    """
    Judges replies, and remembers expectations: most subjects are asked the same and declare the same.

    One expectation serves every cell with the same problem, the same dialect and profile, and the same element types of
    masks (a mask of -inf rounds otherwise than a boolean one).
    """

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self._expectations: dict[tuple[Any, ...], Expectation] = {}
        self._likely: dict[str, Likely] = {}

    def expectation(self, case: str, problem: Problem, dialect: Dialect, profile: Profile) -> Expectation:
        """
        The expected reply to a case under a dialect.

        Raises:
            UnderivedBound: the dialect may be diagnosed, but not declared.
        """
        by_slot = any("[" in decision for decision in dialect)
        masks = tuple((group.slot if by_slot else "", group.element, group.kinds) for group in problem.groups)
        key = (case, masks, problem.outputs, tuple(sorted(dialect.items())), profile)
        if key not in self._expectations:
            self._expectations[key] = expect(problem, dialect, profile)
        return self._expectations[key]

    def declared(self, cell: Cell, declaration: Declaration) -> Expectation:
        """
        What is expected of a call under what the subject declares for it.

        Raises:
            UnderivedBound, KeyError: the declaration cannot be judged.
        """
        dialect = {**cell.route.dialect, **{each.decision: each.name for each in declaration.dialect}}
        return self.expectation(cell.case.id, cell.route.problem, dialect, declaration.profile)

    def judge(
        self, cell: Cell, declaration: Declaration, actual: Mapping[str, Tensor], versions: Mapping[str, str]
    ) -> Judged:
        """Judge one reply under what the subject declared for that call."""
        problem, profile = cell.route.problem, declaration.profile
        shared = (cell.case.id, cell.subject.name, versions, cell.call.facts, problem)
        try:
            declared = self.declared(cell, declaration)
        except (UnderivedBound, KeyError) as error:
            return Judged(*shared, "error", f"the declaration cannot be judged: {error}")
        canonical = declared if not declared.dialect else self.expectation(cell.case.id, problem, {}, profile)
        likely = self._likely.setdefault(cell.subject.name, Likely())
        found = judge_against(problem, declared, canonical, profile, actual, cell.subject.device, likely)
        return Judged(*shared, found.verdict, found.reason, declared, profile, actual, found)


def judgement_record(judged: Judged) -> dict[str, Any]:
    """What a judgement adds to the record of a cell; keys that do not apply are absent."""
    found = judged.judgement
    if found is None:
        return {"class": judged.klass} if judged.klass else {}
    record: dict[str, Any] = {
        "budget": found.budget,
        "outputs": [
            {
                "output": each.output,
                "verdict": each.verdict,
                "budget": each.budget,
                "message": each.message,
                "dtype": judged.actual[each.output].dtype,
                **each.numbers,
            }
            for each in found.outputs
        ],
        "differs_from_canonical": found.differs,
    }
    if found.klass is not None:
        record["class"] = found.klass
    if found.explanation is not None:
        record["explanation"] = found.explanation.record()
        record["ties"] = [f"{tie.decision}={tie.name}" for tie in found.ties]
    if not found.searched:
        record["searched"] = False
    if found.uncalibrated:
        record["uncalibrated"] = True
    return record


def declared_record(cell: Cell, declaration: Declaration) -> dict[str, Any]:
    """What was declared for a call: the adapter's dialect, the documented reading of verbatim masks, the profile."""
    record = declaration_record(declaration)
    where = f"SLOTS of {cell.subject.adapter.path.name}"
    record["dialect"] += [
        {"decision": decision, "name": name, "source": where} for decision, name in cell.route.dialect.items()
    ]
    return record


@cache
def judge_digest() -> str:
    """sha256 of the code that decides what is right: a change of it changes every verdict's meaning."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("spec", "reference", "deviations", "oracle", "judge"):
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"sha256:{digest.hexdigest()}"


def packed(arrays: Mapping[str, Array]) -> bytes:
    """The tensors of a cell as a compressed archive (npz); nothing of none."""
    if not arrays:
        return b""
    archive = BytesIO()
    np.savez_compressed(archive, **arrays)  # type: ignore[arg-type]  # names of arrays, none is allow_pickle
    return archive.getvalue()
