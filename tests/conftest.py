"""What every test may ask for: the real servers of ``tests/support/servers.py``."""

pytest_plugins = ["tests.support.servers"]
