"""
Property tests on a shared machine: what they find counts, not how long an example took.

In CI the examples are the same each time, so that a change is judged by what it changes; elsewhere they are new. What
tests start can be interrupted, also where they run in the background: a shell lets such a process ignore SIGINT, and
so do its children.
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
    """Give the session a result cache of its own, which its processes share: what one test computes others know."""
    if not hasattr(config, "workerinput"):
        os.environ["CONFORMANCE_CACHE"] = tempfile.mkdtemp(prefix="conformance-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop("CONFORMANCE_CACHE"), ignore_errors=True)
