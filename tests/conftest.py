"""
Property tests on a shared machine: what they find counts, not how long an example took.

In CI the examples are the same each time, so that a change is judged by what it changes; elsewhere they are new. What
tests start can be interrupted, also where they run in the background: a shell lets such a process ignore SIGINT, and
so do its children.
"""

import os
import signal

import hypothesis

hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
hypothesis.settings.load_profile("steady")

signal.signal(signal.SIGINT, signal.default_int_handler)
