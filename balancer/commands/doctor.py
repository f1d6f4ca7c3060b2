"""``permit-balancer doctor``: look at every dependency and say the remedy of what is wrong.

Decides what counts as a failure and what only as a note. Changes nothing that stays: it writes one
record to the topic of rejected reports and one small object, which it deletes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from balancer.commands.common import config_option, json_option, print_json, settings_of
from balancer.errors import BalancerError, SettingsError

if TYPE_CHECKING:
    from balancer.settings import Settings


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    state: Literal["ok", "note", "failed"]
    words: str
    remedy: str | None = None


@click.command()
@config_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, *, config_file: Path | None, as_json: bool) -> None:
    """Check Kafka, its topics and their clock, PostgreSQL, its schema, S3 and conditional puts.

    One line a check, with the remedy. Exit code 1 if one fails; a note is no failure.
    """
    # They say each refused connection on standard error; the finding says it once.
    for name in ("aiokafka", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    findings = asyncio.run(_findings(settings_of(config_file), as_json=as_json))
    if as_json:
        print_json({"checks": [asdict(finding) for finding in findings]})
    if any(finding.state == "failed" for finding in findings):
        ctx.exit(1)


async def _findings(settings: Settings, *, as_json: bool) -> list[Finding]:
    findings = []
    async for finding in _checks(settings):
        findings.append(finding)
        if not as_json:
            click.echo(f"{finding.state:7} {finding.check}: {finding.words}")
            if finding.remedy:
                click.echo(f"        {finding.remedy}")
    return findings


async def _checks(settings: Settings) -> AsyncIterator[Finding]:
    told: dict[str, str] = {}
    for check in (_settings, _kafka, _topics, _clock, _postgres, _s3, _conditional_put):
        name = check.__name__.removeprefix("_").replace("_", " ")
        try:
            yield await check(settings)
        except BalancerError as error:
            words = str(error)
            before = told.setdefault(words, name)
            if before != name:
                yield Finding(name, "failed", f"as {before} says")
                continue
            remedy = None if isinstance(error, SettingsError) else REMEDIES.get(name)
            yield Finding(name, "failed", words, remedy)


REMEDIES = {
    "kafka": "check PERMIT_KAFKA_BOOTSTRAP_SERVERS and PERMIT_KAFKA_SECURITY_PROTOCOL",
    "topics": "check that PERMIT_KAFKA_SASL_USERNAME may list topics",
    "clock": "the topic of rejected reports must be there and writable",
    "postgres": "for a fault of the schema: permit-balancer migrate",
    "s3": "check PERMIT_S3_BUCKET, PERMIT_S3_ENDPOINT_URL and the AWS_* credentials",
    "conditional put": "the AWS_* credentials must allow to put and to delete objects",
}


WRITABLE = (
    "let PERMIT_POSTGRES_DSN name the primary (not a standby), with default_transaction_read_only "
    "off, and a role that may read and write rows"
)


async def _settings(settings: Settings) -> Finding:
    settings.check_relations()
    settings.need("kafka_bootstrap_servers", "postgres_dsn", "s3_bucket")
    return Finding("settings", "ok", "complete and in themselves right")


async def _kafka(settings: Settings) -> Finding:
    from balancer.adapters.kafka.probe import list_topics  # noqa: PLC0415
    from balancer.compose import kafka_config  # noqa: PLC0415

    found = await list_topics(kafka_config(settings))
    return Finding("kafka", "ok", f"answers, topics: {len(found)}")


async def _topics(settings: Settings) -> Finding:
    from balancer.adapters.kafka.probe import list_topics  # noqa: PLC0415
    from balancer.compose import kafka_config  # noqa: PLC0415

    config = kafka_config(settings)
    wanted = (config.usage_topic, config.rejected_topic)
    missing = sorted(set(wanted) - await list_topics(config))
    if not missing:
        return Finding("topics", "ok", " and ".join(wanted))
    words = f"missing: {', '.join(missing)}"
    if settings.kafka_create_topics:
        return Finding("topics", "note", words, "permit-balancer serve creates them")
    remedy = (
        f"create them with {settings.kafka_partitions} partitions, retention.ms="
        f"{settings.kafka_retention_seconds * 1000}, message.timestamp.type=LogAppendTime"
    )
    return Finding("topics", "failed", words, remedy)


async def _clock(settings: Settings) -> Finding:
    from balancer.adapters.kafka.probe import list_topics  # noqa: PLC0415
    from balancer.adapters.kafka.topics import has_log_append_time  # noqa: PLC0415
    from balancer.compose import kafka_config  # noqa: PLC0415

    config = kafka_config(settings)
    if config.rejected_topic not in await list_topics(config):
        return Finding("clock", "note", "no topic to look at yet", "run serve, then this again")
    if await has_log_append_time(config):
        return Finding("clock", "ok", "records carry the broker's time (LogAppendTime)")
    return Finding(
        "clock",
        "note",
        "records carry the producer's time, so reports live from their arrival",
        f"set message.timestamp.type=LogAppendTime on {config.usage_topic} and "
        f"{config.rejected_topic} (the Kafka of serve --embedded cannot, and that is good enough "
        "to try things out)",
    )


async def _postgres(settings: Settings) -> Finding:
    from balancer.compose import opened_repository  # noqa: PLC0415

    async with opened_repository(settings) as repository:
        found = await repository.list_destinations()
        try:
            # Each changes nothing, and is refused where nothing may be changed.
            await repository.note_changes(())
            await repository.release_leases("doctor", ())
            await repository.remove_expired(now_ms=0, ttl_ms=1, keep_ms=1, limit=0)
        except BalancerError as error:
            words = " ".join(str(error).removeprefix("PostgreSQL ").split())
            return Finding("postgres", "failed", f"answers but refuses to write: {words}", WRITABLE)
    words = f"answers, takes writes, the schema is right, destinations: {len(found)}"
    return Finding("postgres", "ok", words)


async def _s3(settings: Settings) -> Finding:
    from balancer.compose import opened_store  # noqa: PLC0415

    async with opened_store(settings) as store:
        await store.check()
        try:
            shards, _ = await store.open_layout(settings.shards, create=False)
        except BalancerError as error:
            return Finding("s3", "note", str(error))
    words = f"answers, the bucket {settings.s3_bucket} is laid out for {shards} shards"
    if shards != settings.shards:
        return Finding("s3", "note", words, f"PERMIT_SHARDS={settings.shards} has no effect")
    return Finding("s3", "ok", words)


async def _conditional_put(settings: Settings) -> Finding:
    from balancer.compose import opened_store  # noqa: PLC0415

    async with opened_store(settings) as store:
        await store.check()  # some stores make a bucket of whatever is put
        faults = await store.check_conditional_put(secrets.token_hex(8))
    if faults:
        return Finding(
            "conditional put",
            "failed",
            "; ".join(faults),
            "use a store that heeds If-Match and If-None-Match on PutObject",
        )
    return Finding("conditional put", "ok", "is really conditional")
