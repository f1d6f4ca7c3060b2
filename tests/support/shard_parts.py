"""What a shard without servers is made of: its pointer, its record, its leader and its puts."""

from __future__ import annotations

from dataclasses import dataclass, field

from balancer.core.memory import Memory
from worker_sdk.wire.distribution import Document


@dataclass(frozen=True, slots=True)
class Pointer:
    """What the pointer names, the oldest epoch that may count, and until when which ones do."""

    epochs: tuple[int, ...] = ()
    unexpired_from: int = 0
    counting: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Lease:
    """The shard's record in the database."""

    epoch: int = 0
    valid_until_ms: int = 0
    memory: Memory = field(default_factory=Memory)


@dataclass(slots=True)
class Leader:
    """One process that plans: what it has read of the store, and what it must wait for."""

    published_epoch: int
    cached: dict[int, Document] = field(default_factory=dict)
    expired: set[int] = field(default_factory=set)
    unexpired_from: int = 0
    unreadable: set[int] = field(default_factory=set)
    wait_until_ms: int = 0


@dataclass(slots=True)
class Put:
    """A document on its way: its file is put first, the pointer then or later."""

    file_tick: int
    pointer_tick: int
    tag: int
    leader: Leader
    document: Document
    keep: tuple[int, ...]
    unexpired_from: int
    counting: tuple[tuple[int, int], ...]
    bounds: dict[tuple[str, int], int]
    has_file: bool = False
