"""What a permit in use holds, and that it is let go whatever happens.

Decides nothing about how permits are got. A signal's handler may raise anywhere: Ctrl-C, or a time
limit of celery's. So what is held has its mark from before it is taken until after it is let go,
and to let go of what was not taken, or is let go already, does nothing.
"""

from __future__ import annotations

import weakref
from typing import Generic, TypeVar

from worker_sdk.core.waiters import Delivery
from worker_sdk.runtime.gate import Gate
from worker_sdk.runtime.life import Lives
from worker_sdk.runtime.member import Member

T = TypeVar("T")


class Held(weakref.ref[T], Generic[T]):
    """What the object that it refers to holds; let go at the latest when that is collected.

    The exception may come before the first step of an ``__exit__``. A ``__del__``, which runs each
    time, would swallow those that come within it; this is called only where something is left.

    Attributes:
        delivery: the mark.
        name: of the destination.
        lives: of the client.
        member: whose permits.
        gate: through which it came in.
    """

    __slots__ = ("delivery", "gate", "lives", "member", "name")

    delivery: Delivery
    name: str
    lives: Lives
    member: Member
    gate: Gate

    def begin(self, name: str, lives: Lives, member: Member, gate: Gate) -> None:
        """Make the mark by which permits and room may be taken from now on."""
        self.name, self.lives, self.member, self.gate = name, lives, member, gate
        self.delivery = Delivery()


def let_go(held: Held[T]) -> None:
    """End the delivery and make room."""
    if not hasattr(held, "delivery"):
        return
    try:
        # After a fork the delivery, and the lock that may be held in it, are the parent's.
        if held.member is held.lives.last:
            held.member.end_delivery(held.name, held.delivery)
    finally:
        held.gate.leave(held.delivery)
