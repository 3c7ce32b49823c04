"""
Property tests have no deadline: on a shared machine, the time of an example means nothing.

In CI the examples are the same in each run, so that a change is judged by what it changes; elsewhere they are new.
Processes that tests start can be interrupted, even if the tests run in the background: a shell makes such a process
ignore SIGINT, and its children inherit this.
"""

import os
import shutil
import signal
import tempfile

import hypothesis
import pytest

hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
hypothesis.settings.load_profile("steady")

signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Give the session its own result cache, which its processes share: a test can use what another one computed."""
    if not hasattr(config, "workerinput"):
        os.environ["CONFORMANCE_CACHE"] = tempfile.mkdtemp(prefix="conformance-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the result cache of the session."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop("CONFORMANCE_CACHE"), ignore_errors=True)
