"""Property tests give the same result each time, and leave nothing behind."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "steady",
    derandomize=True,
    database=None,
    deadline=None,  # a busy machine is no failure
    max_examples=40,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("steady")
