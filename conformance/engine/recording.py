"""A reply as a verdict, and as a record of the run log."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from conformance.engine.cells import Cell, call_digest, outputs_digest
from conformance.engine.job import Outcome
from conformance.engine.judging import Judge, Judged, declared_record, judge_digest
from conformance.engine.whereabouts import misplaced
from conformance.judge.verdict import NOT_REFUSED
from conformance.spec import refusals

Record = dict[str, Any]


def judged_outcome(judge: Judge, cell: Cell, outcome: Outcome, versions: Mapping[str, str], doubt: str = "") -> Judged:
    """
    The verdict on what came back.

    versions: of the distributions in the worker that answered. doubt: why a refusal says nothing about the mistake.
    """
    elsewhere = misplaced(cell.subject.device, outcome.evidence) if outcome.status == "reply" else ""
    if elsewhere:
        outcome = replace(outcome, status="error", reason=elsewhere)
    shared = (cell.case.id, cell.subject.name, versions, cell.call.facts, cell.route.problem)
    if cell.case.mistake is not None:
        return Judged(*shared, **refusal(cell.case.mistake, outcome, doubt))
    if outcome.status == "reply" and outcome.declaration is not None:
        return judge.judge(cell, outcome.declaration, outcome.outputs, versions)
    return Judged(*shared, outcome.status, outcome.reason)


UNCLEAR = ("MemoryError", "RecursionError", "SystemError", "NotImplementedError")
"""They refuse nothing: memory or stack ran out, the interpreter failed, the framework lacks the operation."""


def is_refused(cell: Cell, outcome: Outcome) -> bool:
    """Whether a call with a mistake was refused."""
    return cell.case.mistake is not None and _left_framework(outcome)


def _left_framework(outcome: Outcome) -> bool:
    """Whether an exception that refuses something left the framework call."""
    error = outcome.error or {}
    return outcome.status == "error" and error.get("stage") == "framework" and error.get("type") not in UNCLEAR


def refusal(mistake: refusals.Name, outcome: Outcome, doubt: str) -> dict[str, Any]:
    """
    Verdict, message and class of a call that must be refused.

    doubt: why the exception may be about something else than the mistake.
    """
    if outcome.status == "reply":
        shapes = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in outcome.outputs.items())
        message = f"{refusals.REFUSALS[mistake].sentence}: it returned {shapes}, where an error was due"
        return {"verdict": "fail", "message": message, "klass": NOT_REFUSED}
    if not _left_framework(outcome):
        return {"verdict": outcome.status, "message": outcome.reason}
    if doubt:
        return {"verdict": "inconclusive", "message": f"refused, but {doubt}"}
    return {"verdict": "pass", "message": f"refused, as it must be: {outcome.reason}"}


def outcome_record(cell: Cell, outcome: Outcome, problem: str) -> Record:
    """
    What a record says whatever the verdict: route, declaration, evidence, exception, digests.

    problem: the digest of the case's problem. Of a call that the adapter declined there is only the route.
    """
    if outcome.status == "unsupported":
        return {"route": cell.route.record()}
    record: Record = {"route": cell.route.record(), "digests": _digests(cell, outcome, problem)}
    if cell.dropped:
        record["dropped_outputs"] = list(cell.dropped)
    if outcome.declaration is not None:
        record["declared"] = declared_record(cell, outcome.declaration)
    if outcome.evidence:
        record["evidence"] = dict(outcome.evidence)
    if cell.case.mistake is not None:
        record["mistake"] = cell.case.mistake
    if outcome.error is not None:
        record["error"] = dict(outcome.error)
    return record


def _digests(cell: Cell, outcome: Outcome, problem: str) -> dict[str, str]:
    digests = {
        "problem": problem,
        "call": call_digest(cell.call),
        "adapter": cell.subject.adapter.digest,
        "judge": judge_digest(),
    }
    return digests | ({"outputs": outputs_digest(outcome.outputs)} if outcome.outputs else {})
