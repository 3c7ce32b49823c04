"""The memory that a run keeps for each further cell is bounded: records are read from the log again, not kept."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.engine.cell_records import Ledger
from conformance.engine.logged_cell import LoggedCell
from conformance.engine.run_folder import load_run
from conformance.engine.runlog import LOG, RunLog

SUBJECT = "numpy.sdpa"
# Numbers of cells in the two runs that are compared.
FEW, MANY = 250, 1000

# Interned before the measurement, like the cases of a session: the table of interned strings may grow at any time.
NAMES = [sys.intern(f"growth/{number}") for number in range(MANY)]

# Minimum number of bytes that a record adds to the log: far more than may be kept in memory.
TEXT = 4096

# Maximum number of bytes of a further cell in the ledger. Measured: 209 for the cell with its slots (120), two floats
# (48), the position in the log (32), its share of the list (8), and the name of its case, which is not shared with a
# case of a session here. An empty dict would add 64, a record more than 1,000.
KEPT_BY_LEDGER = 350

# The same for a loaded run. Measured: 373 for the same cell, its key in a dict, and the position of its case in the
# log. A dict with the names of a record would add at least 184.
KEPT_BY_RUN = 480


def header(cells: int) -> dict[str, object]:
    subjects = {SUBJECT: {"operators": ["sdpa"]}}
    about = {"run": "growth", "started": "2026-01-01T00:00:00Z"}
    return {"type": "header", **about, "case_records": cells, "subjects": subjects, "environments": {}}


def case(number: int) -> dict[str, object]:
    about = {"suite": "growth", "operator": "sdpa", "dtype": "float32", "yaml": f"seed: {number}\n{'x' * TEXT}"}
    return {"type": "case", "case": NAMES[number], **about, "digest": f"sha256:{number:064}"}


def cell(name: str, number: int) -> LoggedCell:
    return LoggedCell(
        case=name,
        subject=SUBJECT,
        verdict="fail",
        fail_class="wrong_values",
        budget=1.5 + number,
        reason=f"{number} {'x' * TEXT}",
        seconds={"judge": 0.25 + number},
    )


def written(folder: Path, cells: int) -> Ledger:
    folder.mkdir()
    log = RunLog.create(folder / LOG)
    log.append(header(cells))
    for number in range(cells):
        log.append(case(number))
    ledger = Ledger(log, folder, rerun=lambda key: f"rerun {key}")
    for number, name in enumerate(NAMES[:cells]):
        ledger.write_cell(cell(name, number))
    return ledger


def kept(make: Callable[[], object]) -> int:
    """Return the bytes that a call leaves allocated while its result is alive."""
    gc.collect()
    tracemalloc.start(1)
    try:
        result = make()
        gc.collect()
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result is not None
    return size


def per_further_cell(make: Callable[[int], object]) -> float:
    make(FEW)  # create memos, compiled patterns and other things that are made once before the measurement
    return (kept(lambda: make(MANY)) - kept(lambda: make(FEW))) / (MANY - FEW)


@pytest.fixture
def folders(tmp_path: Path) -> Callable[[], Path]:
    numbers = iter(range(1000))
    return lambda: tmp_path / f"run{next(numbers)}"


def test_a_further_cell_of_the_ledger(folders: Callable[[], Path]) -> None:
    def make(cells: int) -> Ledger:
        ledger = written(folders(), cells)
        ledger.log.close()
        return ledger

    assert per_further_cell(make) < KEPT_BY_LEDGER


def test_a_further_cell_of_a_loaded_run(folders: Callable[[], Path]) -> None:
    places = {cells: folders() for cells in (FEW, MANY)}
    for cells, folder in places.items():
        written(folder, cells).log.close()
    assert per_further_cell(lambda cells: load_run(places[cells])) < KEPT_BY_RUN


def test_records_that_are_kept_would_be_found(folders: Callable[[], Path]) -> None:
    def make(cells: int) -> tuple[object, ...]:
        ledger = written(folders(), cells)
        records = tuple(ledger.read(ledger.cells))
        ledger.log.close()
        return records

    assert per_further_cell(make) > TEXT > 4 * KEPT_BY_RUN


def test_what_is_kept_leads_to_the_whole_record(folders: Callable[[], Path]) -> None:
    ledger = written(folders(), 7)
    expected = [f"{number} {'x' * TEXT}" for number in range(7)]
    assert [cell.reason for cell in ledger.read(ledger.cells)] == expected
    ledger.log.close()
    run = load_run(ledger.folder)
    assert [run.cells[key].reason for key in run.judged] == expected
