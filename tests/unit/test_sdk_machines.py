"""Whether a host's name is used by one machine: what counts, and what a client says of it."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Mapping

import pytest

from tests.support.http_face import Served
from tests.support.real_clients import await_condition
from tests.support.service_doubles import T0
from worker_sdk import PermitClient
from worker_sdk.core.machines import Machines, machine_of, make_instance
from worker_sdk.errors import WireError
from worker_sdk.runtime.surroundings import machine
from worker_sdk.testing import ManualClock
from worker_sdk.transports.base import Identity, Reading
from worker_sdk.transports.http import READS_ALONE, HttpSource
from worker_sdk.transports.memory import MemorySink
from worker_sdk.wire.answers import encode_host_answer
from worker_sdk.wire.distribution import (
    DestinationShares,
    Document,
    Entry,
    Terms,
    encode_document,
    read_own_shares,
)
from worker_sdk.wire.fellows import instances_in_answer, instances_in_document
from worker_sdk.wire.strict import dump_json

PERIOD_MS = 60_000
OWN = make_instance("a1b2", "0000000000000001")
CHILD = make_instance("a1b2", "0000000000000002")
OTHER = make_instance("c3d4", "0000000000000003")
THIRD = make_instance("e5f6", "0000000000000004")


def machines() -> Machines:
    return Machines(OWN, PERIOD_MS)


def test_several_processes_of_one_machine_are_one_machine() -> None:
    seen = machines()
    assert not any(seen.note({OWN, CHILD}, minute * PERIOD_MS) for minute in range(20))
    assert seen.count == 1


def test_another_machine_counts_once_it_has_stayed() -> None:
    seen = machines()
    news = [seen.note({OWN, CHILD, OTHER}, minute * PERIOD_MS) for minute in range(8)]
    assert news == [False] * 5 + [True] + [False] * 2
    assert seen.count == 2
    assert not seen.note({OWN}, 8 * PERIOD_MS)
    assert seen.count == 1


def test_what_a_machine_left_behind_as_it_started_again_does_not_count() -> None:
    seen = machines()
    assert not any(
        seen.note({OWN, OTHER} if minute < 4 else {OWN, CHILD}, minute * PERIOD_MS)
        for minute in range(20)
    )


def test_ids_that_do_not_tell_their_machine_take_no_part() -> None:
    seen = machines()
    ids = {OWN, "0123456789abcdef", "worker-1", make_instance("0000", "0" * 16)}
    assert not any(seen.note(ids, minute * PERIOD_MS) for minute in range(20))
    unknown = Machines(make_instance("0000", "0" * 16), PERIOD_MS)
    assert not any(unknown.note({OTHER, THIRD}, minute * PERIOD_MS) for minute in range(20))


def test_the_ids_of_a_machines_processes_begin_alike() -> None:
    assert machine() == machine()
    assert machine_of(make_instance(machine(), "0" * 16)) == machine()


def document(*names: tuple[str, str]) -> Document:
    entries = tuple(Entry(host, instance, (), 0) for host, instance in sorted(names))
    terms = Terms("db", 100, 60, 30_000_000, 30_000_001)
    return Document(0, 1, T0, T0 + 180_000, (DestinationShares(terms, (), entries),))


def test_a_hosts_instances_are_found_in_the_file_and_in_the_answer() -> None:
    host = 'a"b'
    published = document((host, OWN), (host, OTHER), (host + "c", THIRD), ("a", THIRD))
    assert instances_in_document(encode_document(published), host) == {OWN, OTHER}
    answer = encode_host_answer(host, 1, [published], None)
    assert answer is not None
    assert instances_in_answer(answer) == {OWN, OTHER}


@pytest.mark.parametrize(
    ("more", "is_one"), [(-1, False), (0, True), (1, True), (12, True), (13, False)]
)
def test_a_newer_balancers_line_is_one_for_shares_and_fellows_alike(
    more: int, is_one: bool
) -> None:
    host = "web-1"
    lines = gzip.decompress(encode_document(document((host, OWN)))).splitlines()
    row = json.loads(lines[-1])
    row = row[:more] if more < 0 else row + ["said later"] * more
    body = gzip.compress(b"\n".join([*lines[:-1], dump_json(row), b""]))
    if is_one:
        assert instances_in_document(body, host) == {OWN}
        assert read_own_shares(body, host, OWN) == read_own_shares(
            gzip.compress(b"\n".join([*lines, b""])), host, OWN
        )
        return
    with pytest.raises(WireError):
        instances_in_document(body, host)
    with pytest.raises(WireError):
        read_own_shares(body, host, OWN)


class Crowd:
    """A source that lists another machine's instance beside the client's own."""

    can_wait = False

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        return Reading((), (), frozenset({self._identity.instance, OTHER}))

    def interrupt(self) -> None:
        """Do nothing."""


def test_a_client_tells_of_another_machine_in_its_state_and_log(
    permit_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    client = PermitClient(
        destinations=["db"], kafka=MemorySink, distribution=Crowd, host="web", clock=permit_clock
    )
    with caplog.at_level(logging.WARNING, "worker_sdk"), client:
        await_condition(lambda: client.state.reads > 0, "the first look")
        assert client.state.machines == 1
        permit_clock.advance(301)
        await_condition(lambda: client.state.machines == 2, "another machine")
    assert "2 machines seem to use the name 'web'" in caplog.text


async def test_the_balancer_is_asked_for_all_of_the_host_now_and_then(served: Served) -> None:
    first = document(("web", OWN), ("web", OTHER), ("other", THIRD))
    served.view.publish(0, [first])
    source = HttpSource(Identity("web", OWN, ("db",)), served.url)
    readings = [await asyncio.to_thread(source.read, {}, 0.0) for _ in range(2 * READS_ALONE + 2)]
    found = [reading.instances for reading in readings]
    once = [None] * READS_ALONE + [frozenset({OWN, OTHER})]
    assert found == once * 2
    # The shares are told once each time, and an unchanged answer to oneself says nothing new.
    assert [len(reading.shares) for reading in readings] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 1]
