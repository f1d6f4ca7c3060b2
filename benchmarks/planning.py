"""``python -m benchmarks.planning``: what a round's planning costs, by members and destinations.

Decides the sizes and what is compared: each round beside the bare making of as many entries, which
no planner can go below. Demands change at random each round, so that every share moves; members
have acknowledged the newest document. Garbage collection waits until a round is planned, as it does
in any timing of Python.
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Sequence
from statistics import median
from typing import Final

from balancer.core.memory import Memory
from balancer.core.model import Destination, MemberRecord, RoundKind, Snapshot, Usage
from balancer.core.planner import plan
from worker_sdk.wire.distribution import Document, Entry

ROUND_MS: Final = 60_000
START_MS: Final = 1_800_000_000_000 // ROUND_MS * ROUND_MS
PLAN_AT_MS: Final = 38_000
DOCUMENTS: Final = 5
SEED: Final = 1

SIZES: Final = ((100, 1), (1_000, 1), (10_000, 1), (1_000, 10), (1_000, 100))
LARGEST: Final = (1_000, 1_000)


def snapshot(
    members: int, destinations: int, documents: Sequence[Document], now_ms: int, rng: random.Random
) -> Snapshot:
    """Return what a round knows, with new demands for everybody."""
    newest = documents[0].epoch if documents else 0
    names = [f"destination-{number}" for number in range(destinations)]
    hosts = [(f"host-{number}", f"i{number:08x}") for number in range(members)]
    seen_ms = now_ms - 20_000
    return Snapshot(
        shard=0,
        kind=RoundKind.REGULAR,
        round_ms=ROUND_MS,
        ttl_ms=3 * ROUND_MS,
        destinations=tuple(Destination(name, 100 * members) for name in names),
        members=tuple(
            MemberRecord(*host, None, seen_ms, seen_ms, None, newest, seen_ms) for host in hosts
        ),
        usage=tuple(
            Usage(
                *host,
                name,
                seen_ms - ROUND_MS,
                seen_ms,
                newest,
                used + 1,
                used,
                denied,
                0,
                0,
                seen_ms,
            )
            for name in names
            for host in hosts
            for used, denied in [(rng.randrange(200), rng.randrange(50))]
        ),
        documents=tuple(documents),
        current_epoch=newest,
        epoch_floor=newest,
        pointed_epochs=tuple(document.epoch for document in documents[:2]),
    )


def rounds_ms(members: int, destinations: int, rounds: int) -> list[float]:
    """Return how long each of the last rounds took to plan."""
    rng = random.Random(SEED)
    memory = Memory()
    documents: list[Document] = []
    took_ms = []
    for number in range(rounds):
        now_ms = START_MS + number * ROUND_MS + PLAN_AT_MS
        given = snapshot(members, destinations, documents, now_ms, rng)
        gc.collect()
        gc.disable()
        began = time.perf_counter()
        outcome = plan(given, memory, now_ms)
        took_ms.append((time.perf_counter() - began) * 1000)
        gc.enable()
        if outcome.document is None or outcome.broken:
            raise RuntimeError(outcome.sentence)
        memory = outcome.memory
        documents = [outcome.document, *documents][:DOCUMENTS]
    return took_ms[rounds // 3 :]


def entries_ms(count: int) -> float:
    """Return how long the bare making of so many entries takes."""
    gc.disable()
    began = time.perf_counter()
    made = [Entry("host", "instance", ((number, number + 1),), number) for number in range(count)]
    took_ms = (time.perf_counter() - began) * 1000
    gc.enable()
    del made
    return took_ms


def main(*, quick: bool = False, largest: bool = False) -> None:
    """Measure and print the table."""
    print(f"seed {SEED}; median of the rounds after the first third")
    titles = ("members", "destinations", "entries", "ms", "us/entry", "floor x")
    widths = (9, 13, 9, 9, 9, 8)
    print(*(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True)))
    sizes = SIZES[:2] if quick else (*SIZES, LARGEST) if largest else SIZES
    for members, destinations in sizes:
        count = members * destinations
        rounds = 9 if count > 50_000 else 100 if count >= 10_000 else 120
        took_ms = median(rounds_ms(members, destinations, rounds if count < 500_000 else 4))
        floor_ms = median(entries_ms(count) for _ in range(5))
        print(
            f"{members:>9} {destinations:>13} {count:>9} {took_ms:>9.1f} "
            f"{took_ms * 1000 / count:>9.2f} {took_ms / floor_ms:>8.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main(quick="--quick" in sys.argv, largest="--largest" in sys.argv)
