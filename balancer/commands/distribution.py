"""``permit-balancer distribution show``: the shares that are published, read from the store.

Decides what a person sees of a document, and which of several is said to be in force now. Needs no
running balancer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from balancer.app.instants import time_of_day
from balancer.commands.common import (
    config_option,
    json_option,
    percent,
    print_json,
    print_table,
    settings_of,
)

if TYPE_CHECKING:
    from balancer.app.view import DistributionView
    from balancer.settings import Settings

HOLDERS_SHOWN: Final = 50


@click.group()
def distribution() -> None:
    """Show the shares that are published (needs PERMIT_S3_BUCKET)."""


@distribution.command(short_help="Show shares: of a host, of a destination, or by shard.")
@click.option("--host", help="One host's shares, as GET /distribution/<host> gives them.")
@click.option("--destination", help="One destination's shares, every member.")
@config_option
@json_option
def show(
    *, host: str | None, destination: str | None, config_file: Path | None, as_json: bool
) -> None:
    """Show published shares: of a host, of a destination, or a line for each shard."""
    if host is not None and destination is not None:
        raise click.UsageError("--host and --destination exclude one another")
    settings = settings_of(config_file)
    if destination is not None:
        _show_destination(asyncio.run(_read_destination(settings, destination)), as_json=as_json)
        return
    view = asyncio.run(_read(settings))
    if host is not None:
        answer = view.answer(host)
        if answer is None:
            raise click.ClickException(f"the host {host!r} has no share")
        _show_host(json.loads(answer.body), as_json=as_json)
    else:
        _show_shards(view, as_json=as_json)


async def _read(settings: Settings) -> DistributionView:
    from balancer.app.view import DistributionView  # noqa: PLC0415
    from balancer.compose import opened_store  # noqa: PLC0415

    async with opened_store(settings) as store:
        await store.check()
        shards, _ = await store.open_layout(settings.shards, create=False)
        view = DistributionView(shards)
        for shard in range(shards):
            current = await store.current(shard, tag=None)
            await view.show(shard, () if current is None else current.documents)
        return view


async def _read_destination(settings: Settings, name: str) -> dict[str, Any]:
    """Return what is published of a destination, and whom points are held for.

    Raises:
        ClickException: where no document names it.
    """
    from balancer.app.cycle import pointed_documents  # noqa: PLC0415
    from balancer.app.holds import holders_as_json  # noqa: PLC0415
    from balancer.app.view import destination_answer  # noqa: PLC0415
    from balancer.compose import opened_store  # noqa: PLC0415
    from worker_sdk.wire.pointer import shard_of  # noqa: PLC0415

    async with opened_store(settings) as store:
        await store.check()
        shards, _ = await store.open_layout(settings.shards, create=False)
        shard = shard_of(name, shards)
        # Promises are made by older documents than those in force.
        stored = await store.load(shard, now_ms=time.time_ns() // 1_000_000)
    found = destination_answer(name, shard, pointed_documents(stored))
    if found is None:
        raise click.ClickException(f"no document names the destination {name!r}")
    value: dict[str, Any] = json.loads(found.body)
    holders = {
        document.epoch: holders_as_json(document.epoch, line, stored.documents)
        for document in stored.documents
        for line in document.destinations
        if line.terms.destination == name
    }
    told = standings(value["documents"], time.time())
    for document, standing in zip(value["documents"], told, strict=True):
        document["held_for"] = holders[document["epoch"]]
        document["standing"] = standing
    return value


def standings(documents: Sequence[Mapping[str, Any]], now_seconds: float) -> list[str]:
    """Return what each of a destination's documents is now, newest first as they are given.

    ``in force``; ``replaced`` by a newer one for the same windows; ``later``, as its windows are
    still to come; or ``over``, though its safe shares may still be spent.
    """
    told = []
    has_newer = False
    for document in documents:
        window = int(now_seconds // document["window_seconds"])
        if window >= document["until_window"]:
            told.append("over")
        elif window < document["from_window"]:
            told.append("later")
        else:
            told.append("replaced" if has_newer else "in force")
            has_newer = True
    return told


def _show_host(value: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    rows = [
        [
            name,
            document["epoch"],
            standing,
            _when(document),
            f"{document['percent']:.3f} %",
            document["permits"],
            document["capacity"],
            len(document["instances"]),
        ]
        for name, documents in value["destinations"].items()
        for document, standing in zip(documents, standings(documents, time.time()), strict=True)
    ]
    head = ["destination", "epoch", "now", "covers (UTC)", "share", "permits", "of", "instances"]
    print_table(head, rows)


def _show_destination(value: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    for document in value["documents"]:
        click.echo(
            f"{value['destination']}: epoch {document['epoch']}, {document['standing']}, "
            f"covers {_when(document)} UTC, "
            f"{document['capacity']} permits in {document['window_seconds']} s, "
            f"{_held(document['held'])}"
        )
        rows = [
            [
                member["host"],
                member["instance"],
                f"{member['percent']:.3f} %",
                member["permits"],
                percent(member["safe"]),
            ]
            for member in document["members"]
        ]
        print_table(["host", "instance", "share", "permits", "safe"], rows)
        if document["held_for"]:
            _show_held(document["held_for"])


def _held(held: Mapping[str, Any]) -> str:
    if not held["count"]:
        return "nothing held back"
    return (
        f"{held['percent']:.3f} % ({held['permits']} permits) held back for safety in "
        f"{held['count']} hold{'s' if held['count'] > 1 else ''}, "
        f"until {time_of_day(held['until_ms'])} UTC at the latest"
    )


def _show_held(holders: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        [
            holder["host"] or "not told by the documents",
            holder["instance"] or "",
            percent(holder["points"]),
            time_of_day(holder["until_ms"]),
        ]
        for holder in holders[:HOLDERS_SHOWN]
    ]
    print_table(["held for", "instance", "points", "until (UTC)"], rows)
    if len(holders) > HOLDERS_SHOWN:
        click.echo(f"and {len(holders) - HOLDERS_SHOWN} more; --json tells all")


def _when(document: Mapping[str, Any]) -> str:
    """Return the windows that a document covers as times of day, since nobody reads their index."""
    window_ms = document["window_seconds"] * 1000
    edges_ms = (document[name] * window_ms for name in ("from_window", "until_window"))
    return " to ".join(map(time_of_day, edges_ms))


def _show_shards(view: DistributionView, *, as_json: bool) -> None:
    rows = [
        {
            "shard": shard,
            "epoch": documents[0].epoch if documents else None,
            "documents": len(documents),
            "destinations": len(documents[0].destinations) if documents else 0,
            "entries": sum(len(line.entries) for line in documents[0].destinations)
            if documents
            else 0,
        }
        for shard in range(view.shards)
        for documents in [view.documents_of(shard)]
    ]
    if as_json:
        print_json({"shards": rows})
        return
    print_table(
        ["shard", "epoch", "documents", "destinations", "entries"],
        [[("-" if cell is None else cell) for cell in row.values()] for row in rows],
    )
