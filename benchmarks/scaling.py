"""``python -m benchmarks.scaling``: how the cost of a round grows with hosts and destinations.

Decides the sizes. For each it plans rounds as `benchmarks.planning` does, and then does with the
document what replicas do: pack it, read it and render it for HTTP. Times are of the processor, so
that a busy machine disturbs them less; the least of a few counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from balancer.app.rendering import index_document
from balancer.commands.process import prepare_process
from balancer.core.entry_columns import EntryColumns
from balancer.core.planner import plan
from benchmarks.planning import DOCUMENTS, PLAN_AT_MS, ROUND_MS, SEED, START_MS, Fleet
from worker_sdk.wire.distribution import Document, decode_document, encode_document

ROUNDS: Final = 6
HOSTS: Final = (500, 1_000, 2_000, 4_000)
DESTINATIONS: Final = (5, 10, 20, 40)
HOSTS_OF_DESTINATIONS: Final = 1_000
DESTINATIONS_OF_HOSTS: Final = 10

_T = TypeVar("_T")


def timed_ms(work: Callable[[], _T]) -> tuple[float, _T]:
    """Return what it took and what came of it."""
    began = time.process_time()
    made = work()
    return (time.process_time() - began) * 1000, made


def planned_ms(hosts: int, destinations: int) -> tuple[float, Document]:
    """Return what a round's planning takes, and its document."""
    fleet = Fleet(hosts, destinations)
    memory = fleet.memory()
    documents: list[Document] = []
    took_ms = []
    for number in range(ROUNDS):
        now_ms = START_MS + number * ROUND_MS + PLAN_AT_MS
        fleet.change(now_ms, documents[0].epoch if documents else 0)
        given = fleet.snapshot(documents, now_ms)
        took, outcome = timed_ms(partial(plan, given, memory, now_ms))
        took_ms.append(took)
        if outcome.document is None or outcome.broken:
            raise RuntimeError(outcome.sentence)
        memory = outcome.memory
        documents = [outcome.document, *documents][:DOCUMENTS]
    return min(took_ms[ROUNDS // 2 :]), documents[0]


def row(hosts: int, destinations: int) -> str:
    """Measure one size; return its line of the table."""
    tuples = hosts * destinations
    plan_ms, document = planned_ms(hosts, destinations)
    pack_ms, body = min((timed_ms(lambda: encode_document(document)) for _ in range(3)), key=_took)
    read = partial(decode_document, body, gather=EntryColumns.of)
    read_ms, _ = min((timed_ms(read) for _ in range(3)), key=_took)
    render_ms, _ = min((timed_ms(lambda: index_document(document)) for _ in range(3)), key=_took)
    total_us = (plan_ms + pack_ms + read_ms + render_ms) * 1000 / tuples
    return (
        f"{hosts:>7} {destinations:>13} {tuples:>8} {plan_ms:>8.0f} {pack_ms:>8.0f} "
        f"{read_ms:>8.0f} {render_ms:>10.0f} {total_us:>9.1f} {len(body) / 1000:>8.0f}"
    )


def _took(pair: tuple[float, object]) -> float:
    return pair[0]


def main(*, quick: bool = False) -> None:
    """Print the table; only its first rows if it is to be quick."""
    prepare_process()
    print(f"seed {SEED}; least of a few, processor time")
    titles = (
        "  hosts  destinations   tuples  plan ms  pack ms  read ms  render ms  us/tuple  file kB"
    )
    print(titles)
    for hosts in HOSTS[: 2 if quick else None]:
        print(row(hosts, DESTINATIONS_OF_HOSTS), flush=True)
    for destinations in DESTINATIONS[: 2 if quick else None]:
        print(row(HOSTS_OF_DESTINATIONS, destinations), flush=True)


if __name__ == "__main__":
    main()
