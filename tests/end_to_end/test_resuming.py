"""An interrupted run is diagnosed as a whole after it is resumed."""

import json
from pathlib import Path
from typing import Any

import pytest

from ..running import conformance, records

FAKES = Path(__file__).parents[1] / "fakes"
Record = dict[str, Any]


def judged(folder: Path, *more: str) -> list[Record]:
    """Run a subject that inverts masks on mask cases, and on shape cases, which it gets right; return the log."""
    asked = ["-a", str(FAKES / "varied.py") + "[inverted_mask]", "-k", "masks/attention_2d/*", "-k", "shapes/cross_*"]
    done = conformance("run", *asked, "--out", str(folder), *more)
    assert done.returncode == 1, done.stderr
    return records(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    folder = tmp_path_factory.mktemp("run") / "out"
    return folder, judged(folder)


@pytest.mark.parametrize("kept", [1, 5, 9])
def test_a_resumed_run_is_diagnosed_as_if_it_had_not_been_cut(whole: tuple[Path, list[Record]], kept: int) -> None:
    folder, records = whole
    (before,) = (record for record in records if record["type"] == "diagnosis")
    assert before["causes"][0]["decisions"] == {"polarity[attn_mask]": "ignore"}
    _cut(folder, records, kept)
    resumed = judged(folder, "--resume")
    (after,) = (record for record in resumed if record["type"] == "diagnosis")
    assert sum(record["type"] == "cell" for record in resumed) == sum(record["type"] == "cell" for record in records)
    assert _told(after) == _told(before)


def _told(diagnosis: Record) -> list[Record]:
    return [{name: cause[name] for name in ("decisions", "when", "cells")} for cause in diagnosis["causes"]]


def _cut(folder: Path, records: list[Record], kept: int) -> None:
    """Cut the log as if the run was killed after this many verdicts, failures and passes in turn."""
    cells = [record for record in records if record["type"] == "cell"]
    alike = {verdict: [each for each in cells if each["verdict"] == verdict] for verdict in ("pass", "fail")}
    mixed = sorted(cells, key=lambda record: alike[record["verdict"]].index(record))
    kinds = {kind: [record for record in records if record["type"] == kind] for kind in ("header", "case", "worker")}
    lines = [*kinds["header"], *kinds["case"], kinds["worker"][0], *mixed[:kept]]
    assert kept == 1 or {record["verdict"] for record in mixed[:kept]} >= {"pass", "fail"}
    (folder / "run.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
