"""What every document store must do: the one on a real S3 and the one in memory, by one suite."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.embedded import S3Part
from balancer.errors import BalancerError, ConflictError
from balancer.ports import DocumentStore
from tests.support.fakes_store import MemoryDocumentStore, Objects
from tests.support.real_clients import s3_client
from tests.unit.test_view import T0, document
from worker_sdk.wire.distribution import Document, OnExpiry
from worker_sdk.wire.pointer import document_key, pointer_key

VALID_MS = 180_000
FAR_FUTURE_MS = 4_000_000_000_000

MakeStore: TypeAlias = Callable[[], DocumentStore]


@pytest.fixture
def config(s3: S3Part, aws_environment: None) -> S3Config:
    return S3Config(s3.bucket, f"test-{secrets.token_hex(8)}", s3.endpoint_url, s3.region)


@pytest.fixture(params=["memory", "s3"])
def make_store(request: pytest.FixtureRequest) -> Iterator[MakeStore]:
    """Make stores that share their objects, as several processes do."""
    if request.param == "memory":
        objects = Objects()
        yield lambda: MemoryDocumentStore(objects)
        return
    config: S3Config = request.getfixturevalue("config")
    made: list[S3DocumentStore] = []

    def make() -> DocumentStore:
        made.append(S3DocumentStore(config))
        return made[-1]

    yield make
    for store in made:
        store.close()


async def test_the_layout_is_fixed_by_whoever_comes_first(make_store: MakeStore) -> None:
    with pytest.raises(BalancerError, match="layout"):
        await make_store().open_layout(4, create=False)
    assert await make_store().open_layout(4) == (4, True)
    assert await make_store().open_layout(8) == (4, False)
    assert await make_store().open_layout(8, create=False) == (4, False)


async def test_nothing_is_there_before_the_first_publication(make_store: MakeStore) -> None:
    found = await make_store().load(0, now_ms=T0)
    assert (found.documents, found.pointed_epochs, found.tag) == ((), (), None)
    assert (found.largest_epoch, found.unreadable_epochs) == (0, ())
    current = await make_store().current(0, tag=None)
    assert current is not None
    assert (current.documents, current.tag) == ((), None)


async def test_documents_are_read_back_as_published_newest_first(make_store: MakeStore) -> None:
    store = make_store()
    first, second = document(1, "a", "b"), document(2, "a")
    tag = await store.publish(first, keep=(), tag=None)
    new_tag = await store.publish(second, keep=(1,), tag=tag)
    assert new_tag != tag
    for reader in (store, make_store()):
        found = await reader.load(0, now_ms=T0)
        assert found.documents == (second, first)
        assert found.pointed_epochs == (2, 1)
        assert (found.tag, found.largest_epoch) == (new_tag, 2)
        current = await reader.current(0, tag=None)
        assert current is not None
        assert current.documents == (second, first)
        assert await reader.current(0, tag=current.tag) is None


async def test_shards_do_not_mix(make_store: MakeStore) -> None:
    store = make_store()
    await store.publish(document(1, "a"), keep=(), tag=None)
    other = replace(document(7, "b"), shard=10)
    await store.publish(other, keep=(), tag=None)
    assert (await store.load(1, now_ms=T0)).largest_epoch == 0
    assert (await store.load(10, now_ms=T0)).documents == (other,)


async def test_an_expired_document_is_left_out_but_its_epoch_is_known(
    make_store: MakeStore,
) -> None:
    store = make_store()
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    later = replace(document(2, "a"), valid_until_ms=T0 + 2 * VALID_MS)
    await store.publish(later, keep=(), tag=tag)
    assert len((await store.load(0, now_ms=T0 + VALID_MS - 1)).documents) == 2
    for reader in (store, make_store()):
        found = await reader.load(0, now_ms=T0 + VALID_MS)
        assert found.documents == (later,)
        ended = await reader.load(0, now_ms=T0 + 2 * VALID_MS)
        assert (ended.documents, ended.largest_epoch) == ((), 2)


async def test_a_document_counts_as_long_as_its_rule_for_expiry_gives(
    make_store: MakeStore,
) -> None:
    store = make_store()
    plain = document(1, "a")
    (line,) = plain.destinations
    terms = replace(line.terms, on_expiry=OnExpiry(500, 60_000))
    lasting: Document = replace(plain, destinations=(replace(line, terms=terms),))
    await store.publish(lasting, keep=(), tag=None)
    assert (await store.load(0, now_ms=T0 + VALID_MS + 59_999)).documents == (lasting,)
    assert (await store.load(0, now_ms=T0 + VALID_MS + 60_000)).documents == ()


async def test_who_comes_late_does_not_publish(make_store: MakeStore) -> None:
    early, late = make_store(), make_store()
    tag = await early.publish(document(1, "a"), keep=(), tag=None)
    await early.publish(document(2, "a"), keep=(), tag=tag)
    with pytest.raises(ConflictError):
        await late.publish(document(3, "b"), keep=(), tag=tag)
    with pytest.raises(ConflictError):
        await late.publish(document(4, "b"), keep=(), tag=None)
    found = await early.load(0, now_ms=T0)
    assert found.pointed_epochs == (2,)
    assert found.largest_epoch == 4
    assert {entry.epoch for entry in found.documents} == {1, 2, 3, 4}


async def test_a_document_is_never_replaced(make_store: MakeStore) -> None:
    store = make_store()
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    with pytest.raises(ConflictError):
        await make_store().publish(document(1, "b"), keep=(), tag=tag)
    assert (await make_store().load(0, now_ms=T0)).documents == (document(1, "a"),)


async def test_of_many_at_once_exactly_one_publishes(make_store: MakeStore) -> None:
    stores = [make_store() for _ in range(4)]
    outcomes = await asyncio.gather(
        *(
            store.publish(document(epoch, "a"), keep=(), tag=None)
            for epoch, store in enumerate(stores, 1)
        ),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, str) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 3


async def test_old_files_are_removed_but_for_those_to_keep(make_store: MakeStore) -> None:
    store = make_store()
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    later = replace(document(2, "a"), valid_until_ms=T0 + 2 * VALID_MS)
    await store.publish(later, keep=(), tag=tag)
    assert await store.remove_older(0, before_ms=0, keep=()) == 0
    assert await store.remove_older(0, before_ms=FAR_FUTURE_MS, keep=(2,)) == 1
    found = await make_store().load(0, now_ms=T0 + VALID_MS)
    assert found.documents == (later,)
    assert found.unreadable_epochs == ()


async def test_a_lost_file_that_still_counts_is_missed_by_whoever_reads_anew(
    make_store: MakeStore,
) -> None:
    """The pointer need not name it for readers: it covers no window that is not past."""
    store = make_store()
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    later = replace(document(2, "a"), valid_until_ms=T0 + 2 * VALID_MS)
    await store.publish(later, keep=(), tag=tag)
    assert await store.remove_older(0, before_ms=FAR_FUTURE_MS, keep=(2,)) == 1
    found = await make_store().load(0, now_ms=T0)
    assert found.pointed_epochs == (2,)
    assert found.unreadable_epochs == (1,)


async def test_a_look_at_what_is_published_hides_no_file_that_still_counts(
    make_store: MakeStore,
) -> None:
    store = make_store()
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    tag = await store.publish(document(2, "a"), keep=(), tag=tag)
    await store.load(0, now_ms=T0)
    await store.current(0, tag=None)  # as where a replica that answers no worker is asked why
    await store.publish(document(3, "a"), keep=(2,), tag=tag)
    assert await store.remove_older(0, before_ms=FAR_FUTURE_MS, keep=(2, 3)) == 1
    assert (await make_store().load(0, now_ms=T0)).unreadable_epochs == (1,)


# ---------------------------------------------------------------- S3 alone


async def test_a_look_that_takes_longer_than_a_round_does_not_undo_it(
    config: S3Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = S3DocumentStore(config)
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    begun, may_go_on = asyncio.Event(), asyncio.Event()
    read = S3DocumentStore._document

    async def read_slowly(self: S3DocumentStore, *which: Any) -> Document | None:
        if asyncio.current_task() is look:
            begun.set()
            await may_go_on.wait()
        return await read(self, *which)

    monkeypatch.setattr(S3DocumentStore, "_document", read_slowly)
    look = asyncio.create_task(store.current(0, tag=None))
    async with asyncio.timeout(20):
        await begun.wait()
        tag = await store.publish(document(2, "a"), keep=(1,), tag=tag)
        await store.load(0, now_ms=T0)
        may_go_on.set()
        await look
    await store.publish(document(3, "a"), keep=(2,), tag=tag)
    assert (await store.load(0, now_ms=T0)).pointed_epochs == (3, 2)


async def test_a_torn_file_is_told_as_unreadable(s3: S3Part, config: S3Config) -> None:
    store = S3DocumentStore(config)
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    await store.publish(document(2, "a"), keep=(1,), tag=tag)
    key = f"{config.prefix}/{document_key(0, 2)}"
    client = s3_client(s3)
    whole = client.get_object(Bucket=config.bucket, Key=key)["Body"].read()
    client.put_object(Bucket=config.bucket, Key=key, Body=whole[:-5])
    reader = S3DocumentStore(config)
    found = await reader.load(0, now_ms=T0)
    assert found.unreadable_epochs == (2,)
    assert found.documents == (document(1, "a"),)
    with pytest.raises(BalancerError):
        await reader.current(0, tag=None)
    client.delete_object(Bucket=config.bucket, Key=key)
    assert (await S3DocumentStore(config).load(0, now_ms=T0)).unreadable_epochs == (2,)
    assert (await store.load(0, now_ms=T0)).documents == (document(2, "a"), document(1, "a"))


async def test_a_broken_pointer_is_mended_by_the_next_publication(
    s3: S3Part, config: S3Config
) -> None:
    store = S3DocumentStore(config)
    await store.publish(document(1, "a"), keep=(), tag=None)
    key = f"{config.prefix}/{pointer_key(0)}"
    s3_client(s3).put_object(Bucket=config.bucket, Key=key, Body=b"{")
    found = await store.load(0, now_ms=T0)
    assert (found.pointed_epochs, found.documents) == ((), (document(1, "a"),))
    await store.publish(document(2, "a"), keep=(1,), tag=found.tag)
    assert (await store.load(0, now_ms=T0)).pointed_epochs == (2, 1)


async def test_a_new_reader_passes_over_what_had_expired_when_the_pointer_was_put(
    s3: S3Part, config: S3Config
) -> None:
    store = S3DocumentStore(config)
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    await store.load(0, now_ms=T0 + VALID_MS)
    later = replace(document(2, "a"), valid_until_ms=T0 + 2 * VALID_MS)
    tag = await store.publish(later, keep=(), tag=tag)
    await store.load(0, now_ms=T0 + VALID_MS)
    await store.publish(replace(later, epoch=3), keep=(2,), tag=tag)
    key = f"{config.prefix}/{document_key(0, 1)}"
    s3_client(s3).put_object(Bucket=config.bucket, Key=key, Body=b"not read any more")
    found = await S3DocumentStore(config).load(0, now_ms=T0 + VALID_MS)
    assert found.unreadable_epochs == ()
    assert [entry.epoch for entry in found.documents] == [3, 2]


async def test_a_missing_bucket_is_told_with_the_setting(s3: S3Part, aws_environment: None) -> None:
    store = S3DocumentStore(S3Config("no-such-bucket", "", s3.endpoint_url, s3.region))
    with pytest.raises(BalancerError, match="PERMIT_S3_BUCKET=no-such-bucket"):
        await store.check()


async def test_wrong_credentials_are_told(
    config: S3Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(BalancerError, match="AWS_"):
        await S3DocumentStore(config).check()


async def test_conditional_puts_are_found_to_be_conditional(config: S3Config) -> None:
    store = S3DocumentStore(config)
    assert await store.check_conditional_put("x") == []
    assert await store.check_conditional_put("x") == []  # nothing stays
