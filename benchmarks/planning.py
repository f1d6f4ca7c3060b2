"""``python -m benchmarks.planning``: what a round's planning costs, by members and destinations.

Decides the sizes and what is compared: each round beside the bare making of as many entries one by
one, which tells how fast the machine is that day; a plan makes none of them. A round is planned as
a fleet's usual one is: the accounts are columns, as the repository reads them; there is a memory of
full length, and the documents of the rounds before, of which nearly everybody has acknowledged the
newest; in each round some members have said goodbye and others come. Half of the destinations are
asked for more than they have. Every demand wavers, so that every share moves. Garbage collection
waits until a round is planned, as it does in any timing of Python. Beside the wall's clock stands
the processor's, which others on the machine disturb less.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from sys import intern
from typing import Final

import numpy as np

from balancer.core.columns import Ints, zeros
from balancer.core.foresight import HISTORY_ROUNDS
from balancer.core.memory import BUSIEST, Memory, Trails
from balancer.core.model import Destination, MemberRecord, RoundKind, Snapshot
from balancer.core.planner import plan
from balancer.core.usage_columns import UsageColumns, UsageTable
from worker_sdk.wire.distribution import Document, Entry, Member

ROUND_MS: Final = 60_000
START_MS: Final = 1_800_000_000_000 // ROUND_MS * ROUND_MS
PLAN_AT_MS: Final = 38_000
REPORT_AGE_MS: Final = 20_000
DOCUMENTS: Final = 4
SEED: Final = 1
CHANGED_PART: Final = 0.015
"""So much of the fleet leaves in a round, and as many come."""

UNREAD_PART: Final = 0.01
"""So many have not acknowledged the newest document yet."""

DEMAND_PERMITS: Final = 100
SIZES: Final = ((100, 1), (1_000, 1), (10_000, 1), (1_000, 10), (1_000, 100))
LARGEST: Final = (1_000, 1_000)


class Fleet:
    """Members that report, come and leave; ``serial`` counts those that ever came."""

    def __init__(self, members: int, destinations: int) -> None:
        self.rng = np.random.default_rng(SEED)
        self.chance = random.Random(SEED)
        # Odd destinations have enough, even ones a fifth less than is asked for.
        self.destinations = tuple(
            Destination(
                f"destination-{number}", members * DEMAND_PERMITS * (8 + number % 2 * 4) // 10
            )
            for number in range(destinations)
        )
        self.serials = list(range(members))
        self.usual = {
            known.name: self.rng.integers(1, 2 * DEMAND_PERMITS, members)
            for known in self.destinations
        }
        self.left: list[MemberRecord] = []

    def members(self) -> list[Member]:
        """Return the names of those live, made anew; equal strings are the same, as those read."""
        return [(intern(f"host-{serial}"), intern(f"i{serial:015x}")) for serial in self.serials]

    def change(self, now_ms: int, epoch: int) -> None:
        """Let some say goodbye and others come in their places."""
        count = max(1, int(len(self.serials) * CHANGED_PART))
        names = self.members()
        self.left = self.left[-3 * count :]
        for place in self.chance.sample(range(len(self.serials)), count):
            seen_ms = now_ms - REPORT_AGE_MS
            self.left.append(MemberRecord(*names[place], None, seen_ms, seen_ms, seen_ms, epoch, 0))
            self.serials[place] = max(self.serials) + 1

    def demands(self, name: str) -> Ints:
        """Return what each asks of a destination now: about as much as usually."""
        noise = self.rng.integers(-20, 21, len(self.serials))
        return np.asarray(self.usual[name] * (100 + noise) // 100)

    def accounts(self, members: Sequence[Member], now_ms: int, epoch: int) -> UsageTable:
        """Return everybody's accounts of the last round."""
        count = len(members)
        ones = zeros(count) + 1
        seen_ms = ones * (now_ms - REPORT_AGE_MS)
        parts = {}
        for known in self.destinations:
            asked = self.demands(known.name)
            granted = ones * DEMAND_PERMITS
            used = np.minimum(asked, granted)
            numbers = (
                *(seen_ms - ROUND_MS, seen_ms, ones * epoch, granted, used, asked - used),
                *(zeros(count), used * 100, seen_ms),
            )
            parts[known.name] = UsageColumns(known.name, members, np.stack(numbers))
        return UsageTable(parts)

    def memory(self) -> Memory:
        """Return what a planner remembers that has planned these members for long."""
        members = self.members()
        busiest = np.arange(min(len(members), BUSIEST // len(self.destinations)))
        trails = {}
        for known in self.destinations:
            past = Trails().follow(members)
            for number in range(HISTORY_ROUNDS):
                asked = self.demands(known.name)
                past = past.note(asked, zeros(len(asked)), asked, known.policy.peak_decay_permille)
                if number == 0 and len(busiest) < len(members):
                    past = replace(past, history=past.history.only(busiest))
            trails[known.name] = past
        return Memory(trails)

    def snapshot(self, documents: Sequence[Document], now_ms: int) -> Snapshot:
        """Return what a round knows, with new accounts for everybody."""
        newest = documents[0].epoch if documents else 0
        members = self.members()
        seen_ms = now_ms - REPORT_AGE_MS
        unread = set(self.chance.sample(range(len(members)), int(len(members) * UNREAD_PART)))
        records = [
            MemberRecord(
                *(host, instance, None, seen_ms, seen_ms, None),
                max(0, newest - (number in unread)),
                seen_ms,
            )
            for number, (host, instance) in enumerate(members)
        ]
        return Snapshot(
            shard=0,
            kind=RoundKind.REGULAR,
            round_ms=ROUND_MS,
            ttl_ms=3 * ROUND_MS,
            destinations=self.destinations,
            members=(*records, *self.left),
            usage=self.accounts(members, now_ms, newest),
            documents=tuple(documents),
            current_epoch=newest,
            epoch_floor=newest,
            pointed_epochs=tuple(document.epoch for document in documents[:2]),
        )


def rounds_ms(members: int, destinations: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return how long each of the last rounds took to plan: by the wall, and of the processor."""
    fleet = Fleet(members, destinations)
    memory = fleet.memory()
    documents: list[Document] = []
    wall_ms, processor_ms = [], []
    for number in range(rounds):
        now_ms = START_MS + number * ROUND_MS + PLAN_AT_MS
        fleet.change(now_ms, documents[0].epoch if documents else 0)
        given = fleet.snapshot(documents, now_ms)
        gc.collect()
        gc.disable()
        began, began_processor = time.perf_counter(), time.process_time()
        outcome = plan(given, memory, now_ms)
        wall_ms.append((time.perf_counter() - began) * 1000)
        processor_ms.append((time.process_time() - began_processor) * 1000)
        gc.enable()
        if outcome.document is None or outcome.broken:
            raise RuntimeError(outcome.sentence)
        memory = outcome.memory
        documents = [outcome.document, *documents][:DOCUMENTS]
    return wall_ms[rounds // 3 :], processor_ms[rounds // 3 :]


def entries_ms(count: int) -> float:
    """Return how long the bare making of so many entries takes the processor."""
    gc.disable()
    began = time.process_time()
    made = [Entry("host", "instance", ((number, number + 1),), number) for number in range(count)]
    took_ms = (time.process_time() - began) * 1000
    gc.enable()
    del made
    return took_ms


def main(*, quick: bool = False, largest: bool = False) -> None:
    """Measure and print the table."""
    print(
        f"seed {SEED}; medians of the rounds after the first third; load {os.getloadavg()[0]:.1f}"
    )
    titles = ("members", "destinations", "entries", "ms", "processor", "us/entry", "floor x", "MiB")
    print(*(f"{title:>12}" for title in titles))
    sizes = SIZES[:2] if quick else (LARGEST,) if largest else SIZES
    for members, destinations in sizes:
        count = members * destinations
        rounds = 6 if count > 50_000 else 30
        wall_ms, processor_ms = map(median, rounds_ms(members, destinations, rounds))
        floor_ms = median(entries_ms(count) for _ in range(5))
        peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        row = (f"{members}", f"{destinations}", f"{count}", f"{wall_ms:.1f}", f"{processor_ms:.1f}")
        more = (
            f"{processor_ms * 1000 / count:.2f}",
            f"{processor_ms / floor_ms:.1f}",
            f"{peak_mib}",
        )
        print(*(f"{value:>12}" for value in (*row, *more)), flush=True)


if __name__ == "__main__":
    main(quick="--quick" in sys.argv, largest="--largest" in sys.argv)
