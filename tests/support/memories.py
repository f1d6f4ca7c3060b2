"""Memories of a planner for tests that only carry them about."""

from __future__ import annotations

from balancer.core.columns import ints
from balancer.core.memory import Memory, Trails


def memory_of(demand: int, destination: str = "db") -> Memory:
    """A memory with one member that once wanted ``demand`` permits."""
    trails = Trails().follow([("h", "i")]).note(ints([demand]), ints([0]), ints([0]), 900)
    return Memory({destination: trails})
