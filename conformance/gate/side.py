"""One side of a comparison: what was observed of every case x subject, in which environment."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from conformance.engine.runlog import Record, RunLogError, read_log

LOG = "run.jsonl"
CONFORMING = ("pass", "dialect")
AND = " & "
"""Between the ways of a cause that is several."""

INVARIANT = "invariant"
"""The class of a fail that breaks a relation between replies."""

Key = tuple[str, str]
"""Case id, and the subject's name without its environment."""


@dataclass(frozen=True)
class Observed:
    """
    What one cell showed.

    ways: the variations (`decision=name`) that explain a fail, the preferred one first, or the relations between
    replies that are broken (`invariant=name`). looked: whether such relations were asked for, as of some cells only.
    declared: decisions that are declared otherwise than canonical. klass: of a fail. error: the type of an exception.
    text: what happened, in one line. bits, problem, judge: digests of the output bits, of what was asked, of the
    judging code. condition: under which the first way shows, "only in float16", where the joint diagnosis of the
    subject says so. known: why the gate accepts it, if it does by a known deviation; since: the version conditions of
    that. tensors: the file that holds its
    arrays. where: its circumstances, if they are not those of the subject's other cells.
    """

    verdict: str
    budget: float | None = None
    ways: tuple[str, ...] = ()
    declared: Mapping[str, str] = field(default_factory=dict)
    klass: str = ""
    error: str = ""
    text: str = ""
    bits: str = ""
    problem: str = ""
    judge: str = ""
    uncalibrated: bool = False
    looked: bool = False
    condition: str = ""
    known: str = ""
    since: Mapping[str, str] = field(default_factory=dict)
    rerun: str = ""
    tensors: Path | None = None
    where: "Circumstances | None" = None

    @property
    def conforms(self) -> bool:
        """Whether it is as declared, as far as can be judged."""
        return self.verdict in CONFORMING or (self.verdict == "inconclusive" and self.uncalibrated)


@dataclass(frozen=True)
class Circumstances:
    """Where a subject was judged: versions of distributions, and what output bits depend on beside them."""

    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    adapter: str = ""


@dataclass(frozen=True)
class Side:
    """
    A run, or what a baseline remembers of one.

    cases: id -> digest of its problem, or "". asked: subjects that were to be judged. missing: why not everything was,
    in sentences. sources: id -> `file:line` of the case. not_offered: subjects that could not be judged, and what they
    lack.
    """

    name: str
    cases: Mapping[str, str]
    asked: Mapping[str, Circumstances]
    cells: Mapping[Key, Observed]
    missing: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    not_offered: Mapping[str, str] = field(default_factory=dict)

    def circumstances(self, subject: str, cell: Observed | None) -> Circumstances | None:
        """Where a cell was judged."""
        return cell.where if cell is not None and cell.where is not None else self.asked.get(subject)


class AmbiguousRunError(ValueError):
    """A run that judged one subject in several environments: it is not clear which is meant."""


def read_side(folder: Path) -> Side:
    """
    Read a run folder.

    Raises:
        RunLogError: its log is no run log of this schema. OSError: it cannot be read. AmbiguousRunError: see there.
    """
    log = read_log(folder / LOG)
    command = _remedy(folder, log.records[0])
    cut = () if log.complete else (f"{folder / LOG}: the run was cut before its end: {command}",)
    try:
        return side_of(str(folder), log.records, folder, cut)
    except (KeyError, TypeError, AttributeError) as error:
        raise RunLogError(
            f"{folder / LOG}: a record lacks what this version expects ({error!r}); run it again"
        ) from error


def _remedy(folder: Path, header: Record) -> str:
    command = " ".join(header.get("command", ())) or "conformance run ..."
    given = f" --out {folder}" if "--out" not in command else ""
    return f"go on with `{command}{given} --resume`, or run it again"


def side_of(
    name: str, records: tuple[Record, ...], folder: Path, missing: tuple[str, ...] = (), *, plain: bool = True
) -> Side:
    """
    The side that the records of a run log tell; `plain` says that subjects are named without their environment.

    Raises:
        AmbiguousRunError: two subjects have one plain name.
    """
    header = records[0]
    names = _plain_names(header["subjects"], name) if plain else {subject: subject for subject in header["subjects"]}
    cells = [record for record in records if record["type"] == "cell"]
    joint = _joint(records)
    footer = records[-1] if records[-1]["type"] == "footer" else {}
    gate, judge = footer.get("gate", {}), header.get("judge", "")
    return Side(
        name=name,
        cases={case: short(about.get("digest", "")) for case, about in header["cases"].items()},
        asked=_circumstances(header, records, names),
        cells={(record["case"], names[record["subject"]]): observed(record, folder, judge, joint) for record in cells},
        missing=(*missing, *(f"{name}: {text}" for text in gate.get("incomplete", ()))),
        sources={case: about.get("source", "") for case, about in header["cases"].items()},
        not_offered={each["adapter"]: ", ".join(each["missing"]) for each in header.get("not_offered", ())},
    )


def _plain_names(subjects: Mapping[str, Record], side: str) -> dict[str, str]:
    """Names without environments, so that `x@cpu:base` here and `x@cpu:candidate` there are one subject."""
    plain = {}
    for name, about in subjects.items():
        environment = about.get("environment", "default")
        bare = name.removesuffix(f":{environment}")
        plain[name] = bare.removesuffix("@cpu") if bare != name else name
    if len(set(plain.values())) < len(plain):
        twice = next(name for name in plain.values() if list(plain.values()).count(name) > 1)
        raise AmbiguousRunError(
            f"{side}: {twice} was judged in several environments; run each into a folder of its own"
        )
    return plain


def _circumstances(header: Record, records: tuple[Record, ...], names: Mapping[str, str]) -> dict[str, Circumstances]:
    place = header.get("platform", {})
    found = {}
    for name, about in header["subjects"].items():
        ready = [
            record
            for record in records
            if record["type"] == "worker" and record["status"] == "ready" and name in record["subjects"]
        ]
        worker = ready[-1] if ready else {}
        evidence = worker.get("evidence", {})
        machine = {
            "platform": f"{place.get('system')}-{place.get('machine')}",
            "cpu_features": " ".join(place.get("cpu_features", ())),
            "device": evidence.get("device", about.get("device", "")),
            "threads": evidence.get("threads"),
        }
        versions = {**evidence.get("versions", {}), **worker.get("versions", {})}
        python = {"python": worker["python"]} if worker.get("python") else {}
        found[names[name]] = Circumstances({**versions, **python}, machine, about.get("digest", ""))
    return found


def observed(
    record: Mapping[str, Any], folder: Path, judge: str, joint: Mapping[Key, tuple[str, str]] = MappingProxyType({})
) -> Observed:
    """What a cell's record says; `joint` has the way and the condition that explain it among the subject's others."""
    way, condition = joint.get((record.get("case", ""), record.get("subject", "")), ("", ""))
    error = record.get("error", {})
    digests = record.get("digests", {})
    tensors = record.get("tensors")
    return Observed(
        verdict=record["verdict"],
        budget=_number(record.get("budget")),
        ways=tuple(dict.fromkeys((way, *_ways(record)) if way else _ways(record))),
        declared={each["decision"]: each["name"] for each in record.get("declared", {}).get("dialect", ())},
        klass=record.get("class", ""),
        error=error.get("type", ""),
        text=_line(error.get("message") or record.get("reason", "")),
        bits=short(digests.get("outputs", "")),
        problem=short(digests.get("problem", "")),
        judge=short(digests.get("judge", judge)),
        uncalibrated=bool(record.get("uncalibrated")),
        looked="invariants" in record,
        condition=condition,
        known=record.get("known", {}).get("reason", ""),
        since=record.get("known", {}).get("versions", {}),
        rerun=record.get("rerun", ""),
        tensors=folder / tensors if tensors else None,
    )


def _joint(records: tuple[Record, ...]) -> dict[Key, tuple[str, str]]:
    """What the joint diagnosis of each subject says of its cells: `decision=name & decision=name`, and when."""
    found = {}
    for record in records:
        for cause in record["causes"] if record["type"] == "diagnosis" else ():
            taken = [f"{decision}={name}" for decision, name in cause.get("decisions", {}).items()]
            way = AND.join(taken) or f"arithmetic={cause.get('arithmetic', '')}"
            for case in cause["cells"]:
                found[case, record["subject"]] = (way, cause.get("condition", ""))
    return found


def _ways(record: Mapping[str, Any]) -> tuple[str, ...]:
    if record.get("class") == INVARIANT:
        broken = [each["name"] for each in record.get("invariants", ()) if each["found"] == "broken"]
        return tuple(f"{INVARIANT}={name}" for name in broken)
    if explanation := record.get("explanation"):
        return (f"{explanation['decision']}={explanation['name']}", *record.get("ties", ()))
    return ()


def short(digest: str) -> str:
    """Enough of a digest to tell two apart."""
    return digest.removeprefix("sha256:")[:16]


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _line(text: str) -> str:
    """A text in one line, without colours and what changes from run to run (addresses): frameworks wrap exceptions."""
    line = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())
    return re.sub(r"0x[0-9a-fA-F]+", "0x…", line)[:300]
