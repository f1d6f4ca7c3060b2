"""What every test may ask for: the real servers of ``tests/support/servers.py``.

Property tests draw the same examples in every run and have no deadline: a loaded machine must not
make them fail.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

pytest_plugins = [
    "tests.support.servers",
    "tests.support.http_face",
    "tests.support.report_line",
    "worker_sdk.testing.plugin",
    "pytester",
]
