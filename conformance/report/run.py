"""
Reading a run folder.

The log is the truth and is believed only where it is whole: a line that is cut, a cell that stands twice, a schema,
record type or verdict that is not known is refused, with file and line. Only the footer may be absent: then the run
was cut, loads as incomplete, and nothing calls it green.
"""

from collections.abc import Iterator
from pathlib import Path

from conformance.report.fields import Fields, RunLogError, strict_json
from conformance.report.records import (
    VERDICTS,
    Case,
    Cause,
    Cell,
    Deviation,
    Diagnosis,
    Explanation,
    Failure,
    Footer,
    Gate,
    Header,
    Key,
    Known,
    NotOffered,
    Output,
    Run,
    Subject,
    Tie,
    Worker,
)

SCHEMA = 1
LOG = "run.jsonl"


def load_run(folder: Path) -> Run:
    """Read the log of `folder`, or raise RunLogError saying where it is wrong."""
    path = folder / LOG
    if not path.is_file():
        raise RunLogError(f"{path}: no run log here; a run folder is what `conformance run` writes")
    records = _records(path)
    first = next(records, None)
    if first is None:
        raise RunLogError(f"{path}: the run log is empty")
    if (kind := first.text("type")) != "header":
        raise RunLogError(f"{first.where}: the first record must be a header, found {kind!r}")
    return _assemble(folder, _header(first), records)


def _assemble(folder: Path, header: Header, records: Iterator[Fields]) -> Run:
    workers: list[Worker] = []
    cells: dict[Key, Cell] = {}
    diagnoses: dict[str, Diagnosis] = {}
    footer: Footer | None = None
    for record in records:
        if footer is not None:
            raise RunLogError(f"{record.where}: a record after the footer")
        kind = record.choice("type", ("worker", "cell", "diagnosis", "footer"))
        if kind == "worker":
            workers.append(_worker(record))
        elif kind == "footer":
            footer = _footer(record)
        elif kind == "diagnosis":
            diagnosis = _diagnosis(record)
            diagnoses[diagnosis.subject] = diagnosis
        else:
            _add(cells, _cell(record), header, record.where)
    return Run(folder, header, tuple(workers), cells, footer, diagnoses)


def _add(cells: dict[Key, Cell], cell: Cell, header: Header, where: str) -> None:
    if cell.key in cells:
        raise RunLogError(f"{where}: a second verdict for {cell.case} on {cell.subject}")
    if cell.case not in header.cases:
        raise RunLogError(f"{where}: the header does not name the case {cell.case!r}")
    if cell.subject not in header.subjects:
        raise RunLogError(f"{where}: the header does not name the subject {cell.subject!r}")
    cells[cell.key] = cell


def _records(path: Path) -> Iterator[Fields]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            yield _record(line, f"{path}:{number}")


def _record(line: bytes, where: str) -> Fields:
    if not line.endswith(b"\n"):
        raise RunLogError(f"{where}: the line is cut off; the run stopped while writing it (resume the run)")
    try:
        fields = Fields.of(strict_json(line), where)
    except RunLogError:
        raise
    except ValueError as error:
        raise RunLogError(f"{where}: not JSON: {error}") from None
    if (schema := fields.integer("schema")) != SCHEMA:
        raise RunLogError(f"{where}: schema {schema} is not known here; this version reads schema {SCHEMA}")
    return fields


def _header(record: Fields) -> Header:
    return Header(
        run=record.text("run"),
        started=record.text("started"),
        cases={name: _case(name, part) for name, part in record.named_parts("cases").items()},
        subjects={name: _subject(name, part) for name, part in record.named_parts("subjects").items()},
        command=record.texts("command"),
        device=record.text("device", ""),
        versions=_words(record, "versions"),
        platform=record.mapping("platform"),
        not_offered=tuple(_not_offered(part) for part in record.parts("not_offered")),
    )


def _case(name: str, part: Fields) -> Case:
    return Case(
        name=name,
        suite=part.text("suite"),
        operator=part.text("operator"),
        dtype=part.text("dtype"),
        tags=part.texts("tags"),
        summary=part.text("summary", ""),
        yaml=part.text("yaml", ""),
        source=part.text("source", ""),
        digest=part.text("digest", ""),
        features=part.texts("features"),
    )


def _subject(name: str, part: Fields) -> Subject:
    return Subject(
        name=name,
        adapter=part.text("adapter"),
        variant=part.text("variant", ""),
        device=part.text("device", ""),
        environment=part.text("environment", ""),
        operators=part.texts("operators"),
        framework=part.text("framework", ""),
        counted=part.flag("counted", default=True),
        offered=part.flag("offered", default=True),
        digest=part.text("digest", ""),
    )


def _not_offered(part: Fields) -> NotOffered:
    return NotOffered(part.text("adapter"), part.texts("missing"), part.text("extra", ""))


def _worker(record: Fields) -> Worker:
    return Worker(
        name=record.text("worker"),
        subjects=record.texts("subjects"),
        status=record.choice("status", ("ready", "failed")),
        environment=record.text("environment", ""),
        device=record.text("device", ""),
        python=record.text("python", ""),
        versions=_words(record, "versions"),
        evidence=record.mapping("evidence"),
        start_seconds=record.number("start_seconds"),
        reason=record.text("reason", ""),
        stderr=record.text("stderr", ""),
    )


def _cell(record: Fields) -> Cell:
    return Cell(
        case=record.text("case"),
        subject=record.text("subject"),
        verdict=record.choice("verdict", VERDICTS),
        fail_class=record.text("class", ""),
        budget=record.number("budget"),
        reason=record.text("reason", ""),
        outputs=tuple(_output(part) for part in record.parts("outputs")),
        explanation=_explanation(record.part("explanation")),
        ties=record.texts("ties"),
        dialect=tuple(_deviation(part) for part in record.part("declared").parts("dialect")),
        known=_known(record.part("known")),
        error=_failure(record.part("error")),
        uncalibrated=record.flag("uncalibrated", default=False),
        seconds=_numbers(record.part("seconds")),
        tensors=record.text("tensors", ""),
        rerun=record.text("rerun", ""),
        record=record.values,
    )


def _output(part: Fields) -> Output:
    return Output(
        name=part.text("output"),
        verdict=part.choice("verdict", VERDICTS),
        fail_class=part.text("class", ""),
        budget=part.number("budget"),
        max_error=part.number("max_error"),
        bound=part.number("bound"),
        at=part.integers("at"),
        message=part.text("message", ""),
    )


def _explanation(part: Fields) -> Explanation | None:
    if not part.values:
        return None
    return Explanation(
        decision=part.text("decision"),
        name=part.text("name"),
        sentence=part.text("sentence"),
        remedy=part.text("remedy", ""),
        budget=part.number("budget"),
    )


def _diagnosis(record: Fields) -> Diagnosis:
    return Diagnosis(
        subject=record.text("subject"),
        causes=tuple(_cause(part) for part in record.parts("causes")),
        unexplained=record.texts("unexplained"),
    )


def _cause(part: Fields) -> Cause:
    return Cause(
        sentence=part.text("sentence"),
        cells=part.texts("cells"),
        remedy=part.text("remedy", ""),
        condition=part.text("condition", ""),
        decisions=_words(part, "decisions"),
        ties=tuple(_tie(tie) for tie in part.parts("ties")),
    )


def _tie(part: Fields) -> Tie:
    return Tie(
        sentence=part.text("sentence"),
        remedy=part.text("remedy", ""),
        condition=part.text("condition", ""),
        separated_by=part.text("separated_by", ""),
    )


def _deviation(part: Fields) -> Deviation:
    return Deviation(part.text("decision"), part.text("name"), part.text("source", ""))


def _known(part: Fields) -> Known | None:
    if not part.values:
        return None
    return Known(part.text("reason"), part.text("link", ""), part.text("entry", ""))


def _failure(part: Fields) -> Failure | None:
    if not part.values:
        return None
    return Failure(part.text("type", "error"), part.text("message", ""), part.text("traceback", ""))


def _footer(record: Fields) -> Footer:
    return Footer(
        finished=record.text("finished", ""),
        exit_code=record.integer("exit_code"),
        complete=record.flag("complete"),
        gate=_gate(record.part("gate")),
        timing=_numbers(record.part("timing")),
    )


def _gate(part: Fields) -> Gate:
    known = part.part("known")
    return Gate(
        conforms=part.flag("conforms"),
        rejected=frozenset(_key(item, part.where) for item in part.items("rejected")),
        live=known.integer("live", 0),
        dead=known.texts("dead"),
        too_wide=known.texts("too_wide"),
        not_reached=known.texts("not_reached"),
        incomplete=part.texts("incomplete"),
        problems=part.texts("problems"),
    )


def _key(item: object, where: str) -> Key:
    match item:
        case [str(case), str(subject)]:
            return (case, subject)
    raise RunLogError(f"{where}.rejected: expected pairs of case and subject, found {item!r}")


def _words(record: Fields, name: str) -> dict[str, str]:
    return {key: str(value) for key, value in record.mapping(name).items()}


def _numbers(part: Fields) -> dict[str, float]:
    numbers = {name: part.number(name) for name in part.values}
    return {name: number for name, number in numbers.items() if number is not None}
