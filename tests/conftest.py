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

CACHE = pytest.StashKey[str]()

signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """
    Give the session a result cache, which its processes share: what one test computes others know.

    CI gives it the folder of its run of all frameworks, for a cache knows by what code a reply was computed.
    """
    if "CONFORMANCE_CACHE" not in os.environ:
        os.environ["CONFORMANCE_CACHE"] = config.stash[CACHE] = tempfile.mkdtemp(prefix="conformance-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder, unless it was given."""
    if CACHE in config.stash:
        shutil.rmtree(config.stash[CACHE], ignore_errors=True)
        del os.environ["CONFORMANCE_CACHE"]
