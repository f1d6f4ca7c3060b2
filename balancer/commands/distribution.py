"""``permit-balancer distribution show``: the shares that are published, read from the store.

Decides what a person sees of a document. Needs no running balancer.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balancer.commands.common import config_option, json_option, print_json, print_table

if TYPE_CHECKING:
    from balancer.app.view import DistributionView
    from balancer.settings import Settings


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
    from balancer.settings import load_settings  # noqa: PLC0415

    if host is not None and destination is not None:
        raise click.UsageError("--host and --destination exclude one another")
    view = asyncio.run(_read(load_settings(config_file), destination))
    if host is not None:
        answer = view.answer(host)
        if answer is None:
            raise click.ClickException(f"the host {host!r} has no share")
        _show_host(json.loads(answer.body), as_json=as_json)
    elif destination is not None:
        found = view.destination_answer(destination)
        if found is None:
            raise click.ClickException(f"no document names the destination {destination!r}")
        _show_destination(json.loads(found.body), as_json=as_json)
    else:
        _show_shards(view, as_json=as_json)


async def _read(settings: Settings, destination: str | None) -> DistributionView:
    from balancer.app.view import DistributionView  # noqa: PLC0415
    from balancer.compose import opened_store  # noqa: PLC0415
    from worker_sdk.wire.pointer import shard_of  # noqa: PLC0415

    async with opened_store(settings) as store:
        await store.check()
        shards, _ = await store.open_layout(settings.shards, create=False)
        view = DistributionView(shards)
        wanted = range(shards) if destination is None else [shard_of(destination, shards)]
        for shard in wanted:
            current = await store.current(shard, tag=None)
            await view.show(shard, () if current is None else current.documents)
        return view


def _show_host(value: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    rows = [
        [
            name,
            document["epoch"],
            _when(document),
            f"{document['percent']:.3f} %",
            document["permits"],
            document["capacity"],
            len(document["instances"]),
        ]
        for name, documents in value["destinations"].items()
        for document in documents
    ]
    head = ["destination", "epoch", "in force (UTC)", "share", "permits", "of", "instances"]
    print_table(head, rows)


def _show_destination(value: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(value)
        return
    for document in value["documents"]:
        held = sum(end - start for start, end, _ in document["holds"])
        click.echo(
            f"{value['destination']}: epoch {document['epoch']}, in force {_when(document)} UTC, "
            f"{document['capacity']} permits in {document['window_seconds']} s, "
            f"{held / 10_000_000:.3f} % held back"
        )
        rows = [
            [
                member["host"],
                member["instance"],
                f"{member['percent']:.3f} %",
                member["permits"],
                f"{member['safe'] / 10_000_000:.3f} %",
            ]
            for member in document["members"]
        ]
        print_table(["host", "instance", "share", "permits", "safe"], rows)


def _when(document: Mapping[str, Any]) -> str:
    """Return the windows that a document covers as times of day, since nobody reads their index."""
    edges = (
        document[name] * document["window_seconds"] for name in ("from_window", "until_window")
    )
    return " to ".join(time.strftime("%H:%M:%S", time.gmtime(edge)) for edge in edges)


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
