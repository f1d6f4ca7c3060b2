"""The document store on a real S3."""

from __future__ import annotations

import pytest

from balancer.adapters.s3.objects import S3Config
from balancer.adapters.s3.store import S3DocumentStore
from balancer.embedded import S3Part
from balancer.errors import BalancerError, ConflictError
from tests.unit.test_view import T0, document


@pytest.fixture
def config(s3: S3Part, s3_prefix: str, aws_environment: None) -> S3Config:
    return S3Config(s3.bucket, s3_prefix, s3.endpoint_url, s3.region)


async def test_a_document_is_read_back_as_published(config: S3Config) -> None:
    store = S3DocumentStore(config)
    assert await store.open_layout(4) == (4, True)
    assert await store.open_layout(8) == (4, False)
    first = document(1, "a", "b")
    tag = await store.publish(first, keep=(), tag=None)
    await store.publish(document(2, "a"), keep=(1,), tag=tag)
    found = await S3DocumentStore(config).load(0, now_ms=T0)
    assert found.documents == (document(2, "a"), first)
    assert found.pointed_epochs == (2, 1)
    assert found.largest_epoch == 2
    assert found.unreadable_epochs == ()
    expired = await store.load(0, now_ms=T0 + 180_000)
    assert expired.documents == ()
    assert expired.largest_epoch == 2


async def test_who_comes_late_does_not_publish(config: S3Config) -> None:
    early, late = S3DocumentStore(config), S3DocumentStore(config)
    tag = await early.publish(document(1, "a"), keep=(), tag=None)
    await early.publish(document(2, "a"), keep=(), tag=tag)
    with pytest.raises(ConflictError):
        await late.publish(document(3, "b"), keep=(), tag=tag)
    with pytest.raises(ConflictError):
        await late.publish(document(2, "b"), keep=(), tag=tag)
    found = await early.load(0, now_ms=T0)
    assert found.pointed_epochs == (2,)
    assert found.largest_epoch == 3


async def test_a_missing_bucket_is_told_with_the_setting(s3: S3Part, aws_environment: None) -> None:
    store = S3DocumentStore(S3Config("no-such-bucket", "", s3.endpoint_url, s3.region))
    with pytest.raises(BalancerError, match="PERMIT_S3_BUCKET"):
        await store.check()


async def test_old_files_are_removed_but_for_those_in_use(config: S3Config) -> None:
    store = S3DocumentStore(config)
    tag = await store.publish(document(1, "a"), keep=(), tag=None)
    await store.publish(document(2, "a"), keep=(1,), tag=tag)
    far_future_ms = 4_000_000_000_000
    assert await store.remove_older(0, before_ms=0, keep=()) == 0
    assert await store.remove_older(0, before_ms=far_future_ms, keep=(2,)) == 1
    assert (await store.load(0, now_ms=T0)).documents == (document(2, "a"),)
