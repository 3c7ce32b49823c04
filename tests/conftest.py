"""Property tests on a shared machine: what they find counts, not how long an example took."""

import hypothesis

hypothesis.settings.register_profile(
    "steady", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("steady")
