"""What a run asks of its workers, and what comes back."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from conformance.bridge.contract import Call, Declaration
from conformance.bridge.messages import Answer
from conformance.bridge.tensor import Tensor
from conformance.engine.worker_plan import WorkerPlan, settings

Status = Literal["reply", "unsupported", "error", "crash", "timeout", "not_run"]


@dataclass(frozen=True, eq=False)
class Job:
    """
    One call for one worker.

    cell: case id and subject name. limit: maximum size of the reply in bytes. signature: what a framework compiles for;
    its first call in a process has a time limit of its own. fresh: the call runs alone in a new process.
    """

    number: int
    cell: tuple[str, str]
    call: Call
    requirements: tuple[str, ...] = ()
    limit: int = 1 << 30
    signature: str = ""
    fresh: bool = False


@dataclass(frozen=True, eq=False)
class Outcome:
    """
    What became of a job.

    status: reply, unsupported, error (the adapter or the framework raised), crash (the process died), timeout, or
    not_run (its worker was given up). reason: one sentence, for everything but a reply. error: type, message,
    traceback and, of an exception, the stage (declare, adapter, framework); of a crash or a timeout the end of stderr
    stands for the traceback. seconds: wall ("call") and cpu of the operator function. cached: the call was made in an
    earlier run.
    """

    status: Status
    declaration: Declaration | None = None
    outputs: Mapping[str, Tensor] = field(default_factory=dict)
    reason: str = ""
    error: Mapping[str, str] | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    cached: bool = False

    @classmethod
    def of(cls, answer: Answer) -> "Outcome":
        """What a worker answered."""
        said = answer.error and f"{answer.error['type']}: {answer.error['message']}"
        return cls(
            status=answer.status,  # type: ignore[arg-type]  # ANSWERS are the first three of Status
            declaration=answer.declaration,
            outputs=answer.outputs,
            reason=said or answer.reason,
            error=answer.error,
            evidence=answer.evidence,
            seconds=answer.seconds,
        )


@dataclass(frozen=True)
class Limits:
    """
    Time limits in seconds, and how many failures are accepted.

    start: from the start of a process to its readiness. first: the first call of a signature in a process. call: any
    other. close: from the end of its work to its exit. deaths: how often the processes of one plan may die in a row
    without an answer in between. starts: how often a process may die before it is ready. window: number of requests
    that are sent ahead.
    """

    start: float = 180.0
    first: float = 60.0
    call: float = 60.0
    close: float = 10.0
    deaths: int = 5
    starts: int = 2
    window: int = 4


@dataclass(frozen=True)
class Started:
    """
    A worker that is ready, or that was given up (status failed, with a reason and the end of its stderr).

    hello: the greeting of a ready worker: digest, python, versions, device, evidence, cpu, peak. seconds: wall time
    from its start. cached: the greeting is from an earlier run, and no process was started so far.
    """

    plan: WorkerPlan
    status: Literal["ready", "failed"]
    hello: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    reason: str = ""
    stderr: str = ""
    cached: bool = False

    def record(self) -> dict[str, Any]:
        """For the run log (docs/run-log.md), without type and schema."""
        plan, hello = self.plan, self.hello
        record = {
            "worker": plan.name,
            "subjects": list(plan.subjects),
            "status": self.status,
            "environment": plan.environment,
            "device": plan.device,
            "python": hello.get("python", ""),
            "versions": hello.get("versions", {}),
            "evidence": hello.get("evidence", {}),
            "settings": settings(plan),
            "start_seconds": round(self.seconds, 3),
            "stderr": self.stderr,
        }
        record |= {"cached": True} if self.cached else {}
        return record | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True)
class Usage:
    """What one process used: CPU seconds (in all, before it was ready, in calls) and peak memory in bytes."""

    worker: str
    cpu: float
    start_cpu: float
    call_cpu: float
    peak: int
    ending: str


@dataclass(frozen=True)
class Report:
    """The result of a plan: its processes, and the reason if it was given up."""

    plan: WorkerPlan
    usage: tuple[Usage, ...]
    failure: str = ""


class StopRun(Exception):  # noqa: N818 - asked for with -x, not an error
    """A rejected cell ends the run."""
