"""Every fault in random order, for as long as is asked for.

``CHAOS_SECONDS`` (120 unless given) and ``CHAOS_SEED`` (from the time unless given; it is printed)
decide a run; ``make soak`` asks for ten minutes.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable

import pytest

from tests.chaos.fleet import SERVED_SECONDS, VALID_SECONDS, WINDOW_SECONDS, Fleet
from tests.support.fault_proxy import Fault

SECONDS = float(os.environ.get("CHAOS_SECONDS", "120"))
SEED = int(os.environ.get("CHAOS_SEED", str(int(time.time()))))
FAULT_SECONDS = 3 * VALID_SECONDS
RECOVERED_SECONDS = 2 * SERVED_SECONDS

Undo = Callable[[], None]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def link(fleet: Fleet, rng: random.Random) -> tuple[str, Undo]:
    part = rng.choice(sorted(fleet.links))
    of_s3 = [Fault.ERROR, Fault.FORBID, Fault.SKEWED, Fault.STALL, Fault.TRUNCATE, Fault.HOLD]
    of_all = [Fault.SLOW, Fault.DEAD, Fault.REFUSE]
    fault = rng.choice(of_all + of_s3 if part == "s3" else of_all)
    fleet.play(fault, part)
    return f"the link to {part} {fault.value}", lambda: fleet.play(Fault.NONE, part)


def server(fleet: Fleet, rng: random.Random) -> tuple[str, Undo]:
    part = rng.choice(sorted(fleet.stack.parts))
    how = rng.choice(["killed", "paused"])
    running = fleet.stack.parts[part]
    (running.kill if how == "killed" else running.pause)()

    def undo() -> None:
        running.resume()
        running.start()

    return f"{part} is {how}", undo


def balancer(fleet: Fleet, rng: random.Random) -> tuple[str, Undo]:
    number = rng.randrange(len(fleet.balancers))
    process = fleet.balancers[number].process
    process.send_signal(signal.SIGSTOP)
    return f"balancer {number} sleeps", lambda: process.send_signal(signal.SIGCONT)


def worker(fleet: Fleet, rng: random.Random) -> tuple[str, Undo]:
    host = rng.choice(sorted(fleet.workers))
    process = fleet.workers[host].process
    if rng.random() < 0.5:
        process.send_signal(signal.SIGSTOP)
        return f"worker {host} sleeps", lambda: process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait(10)
    return f"worker {host} is killed", lambda: fleet.start_worker(host)


def disk(fleet: Fleet, rng: random.Random) -> tuple[str, Undo]:
    part = rng.choice(sorted(fleet.disks))
    fleet.disks[part].fill()
    return f"the disk of {part} is full", lambda: fleet.make_room(part)


@pytest.mark.long
@pytest.mark.timeout(2 * SECONDS + 600)
def test_any_faults_in_any_order_and_two_at_once_are_survived(fleet: Fleet) -> None:
    rng = random.Random(SEED)
    say(f"CHAOS_SEED={SEED} CHAOS_SECONDS={SECONDS:g}")
    every_kind = [link, server, balancer, worker, *([disk] if fleet.disks else [])]
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        undone: list[Undo] = []
        # A full disk is undone last: a server of it that is paused would write nothing.
        kinds = rng.sample(every_kind, rng.choice([1, 1, 2]))
        try:
            for kind in sorted(kinds, key=lambda kind: kind is not disk):
                told, undo = kind(fleet, rng)
                undone.append(undo)
                say(f"{time.monotonic() - end + SECONDS:7.1f} s: {told}")
                time.sleep(rng.uniform(0, WINDOW_SECONDS))
            time.sleep(rng.uniform(WINDOW_SECONDS, FAULT_SECONDS))
        finally:
            for full in fleet.disks.values():
                full.make_room()
            for undo in reversed(undone):
                undo()
        took = fleet.await_service(RECOVERED_SECONDS)
        say(f"{time.monotonic() - end + SECONDS:7.1f} s: served again after {took:.1f} s")
        fleet.check_never_over()
