"""Accounts and members as they are read from rows."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from itertools import pairwise

from balancer.adapters.postgres.rows import to_member, to_usages
from balancer.core.model import MemberRecord, Usage

NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 10**12)
MANY = 2_000


def row(name: str, *members: tuple[str, str]) -> tuple[str, str, str, bytes]:
    hosts, instances = ("\n".join(names) for names in zip(*members, strict=True))
    return name, hosts, instances, struct.pack(">9q", *NUMBERS) * len(members)


def test_accounts_of_a_destination_stand_in_one_row() -> None:
    odd = ("\u2028\u0085 b", 'q"\\')  # only a line feed parts two names
    usages = to_usages([row("db", ("é", "i"), odd), row("other", ("é", "i"))])
    assert list(usages) == [
        Usage("é", "i", "db", *NUMBERS),
        Usage(*odd, "db", *NUMBERS),
        Usage("é", "i", "other", *NUMBERS),
    ]
    assert usages.parts["db"].members[0] is usages.parts["other"].members[0]


def test_names_of_members_that_came_and_went_are_not_kept() -> None:
    def come_and_go(round_number: int) -> int:
        members = [
            (f"host-{round_number}-{n}", f"instance-{n}-{round_number}") for n in range(MANY)
        ]
        assert len(to_usages([row("db", *members)])) == MANY
        records = [to_member((*member, None, 0, 0, None, 0, 0, "{}")) for member in members]
        assert records[0] == MemberRecord(*members[0], None, 0, 0)
        del members, records
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        kept_bytes = list(map(come_and_go, range(6)))
    finally:
        tracemalloc.stop()
    # A table of names may grow now and then; names that are kept take twice this in each round.
    growth_bytes = sorted(after - before for before, after in pairwise(kept_bytes))
    assert growth_bytes[len(growth_bytes) // 2] < MANY * 50
