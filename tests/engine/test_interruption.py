"""However a run ends, its workers end with it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@contextlib.contextmanager
def hanging_run(temporary: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Start a coordinator whose only worker hangs in a call; yield it and the process id of the worker."""
    command = [sys.executable, str(HERE / "interrupted.py"), str(ROOT / "tests" / "fakes" / "liar.py")]
    environ = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as run:
        assert run.stdout is not None
        worker = int(run.stdout.readline())
        time.sleep(0.2)
        yield run, worker


def wait_for_end(worker: int) -> bool:
    for _ in range(100):
        with contextlib.suppress(OSError):
            if "State:\tZ" not in Path(f"/proc/{worker}/status").read_text(encoding="ascii"):
                time.sleep(0.05)
                continue
        return True
    return False


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    with hanging_run(tmp_path) as (run, worker):
        run.send_signal(signal.SIGINT)
        _out, err = run.communicate(timeout=10)
        assert "KeyboardInterrupt" in err
        assert wait_for_end(worker)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a worker notices when it next reads")
def test_a_killed_run_leaves_no_worker(tmp_path: Path) -> None:
    with hanging_run(tmp_path) as (run, worker):
        run.kill()
        run.communicate(timeout=10)
        assert wait_for_end(worker)


def test_the_wait_for_an_end_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    assert not wait_for_end(os.getpid())
