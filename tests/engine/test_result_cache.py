"""The result cache: entries can be read in later runs, and a fault of the file costs only time."""

import multiprocessing
import sqlite3
from pathlib import Path

import numpy as np

from conformance.engine.result_cache import FILE, ResultCache


def test_what_was_put_is_there_in_the_next_run(tmp_path: Path) -> None:
    with ResultCache(tmp_path) as cache:
        cache.put("key", b"value" * 1000)
        assert cache.get("key") == b"value" * 1000
    with ResultCache(tmp_path) as cache:
        assert cache.get("key") == b"value" * 1000
        assert cache.get("another") is None
        assert not cache.fault


def test_a_damaged_entry_is_a_miss(tmp_path: Path) -> None:
    with ResultCache(tmp_path) as cache:
        cache.put("key", b"value")
        cache.put("sound", b"sound")
    file = sqlite3.connect(tmp_path / FILE)
    (stored,) = file.execute("SELECT value FROM entries WHERE key = 'key'").fetchone()
    with file:
        file.execute("UPDATE entries SET value = ? WHERE key = 'key'", (stored[:-1] + bytes([stored[-1] ^ 1]),))
    file.close()
    with ResultCache(tmp_path) as cache:
        assert cache.get("key") is None
        assert cache.get("sound") == b"sound"


def test_a_file_that_is_no_database_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"not a database at all, but long enough to be read as one" * 100)
    with ResultCache(tmp_path) as cache:
        cache.put("key", b"value")
    with ResultCache(tmp_path) as cache:
        assert cache.get("key") == b"value"
    assert (tmp_path / FILE).with_suffix(".damaged").is_file()


def test_where_nothing_can_be_written_the_run_goes_on_and_the_fault_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = ResultCache(tmp_path / "file")
    cache.put("key", b"value")
    assert cache.get("key") is None
    cache.close()
    assert "is not used any more" in cache.fault


def test_beyond_its_limit_what_was_not_used_for_longest_goes(tmp_path: Path) -> None:
    limit = 400_000
    blob = bytes(range(256)) * 40  # zlib packs its 10,240 bytes into about 400
    with ResultCache(tmp_path, limit) as cache:
        for number in range(20):
            cache.put(f"old{number}", blob + number.to_bytes(2, "little"))
    file = sqlite3.connect(tmp_path / FILE)
    with file:
        file.execute("UPDATE entries SET used = 1")
    file.close()
    incompressible = np.random.default_rng(7)
    with ResultCache(tmp_path, limit) as cache:
        for number in range(30):
            cache.put(f"new{number}", incompressible.bytes(20_000))
    with ResultCache(tmp_path, limit) as cache:
        assert not any(cache.get(f"old{number}") for number in range(20))
        assert cache.get("new29") is not None
    assert (tmp_path / FILE).stat().st_size <= limit


def _put_many(folder: Path, name: str) -> None:
    with ResultCache(folder) as cache:
        for number in range(600):
            cache.put(f"{name}{number}", f"{name} {number}".encode())


def test_several_processes_may_write_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_put_many, args=(tmp_path, name)) for name in ("a", "b", "c")]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    with ResultCache(tmp_path) as cache:
        for name in ("a", "b", "c"):
            assert cache.get(f"{name}599") == f"{name} 599".encode()
