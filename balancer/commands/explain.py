"""``permit-balancer explain``: why a host got its share of a destination.

Decides how a reason is told in words. The reason itself is the planner's, as stored with the round.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from balancer.commands.common import config_option, json_option, percent, print_json

if TYPE_CHECKING:
    from balancer.core.model import Destination, Reason
    from balancer.settings import Settings

RULES: Final = {
    "asked": "it got what it asked for, and a part of what was left over",
    "foreseen": "it got what its past foretells, and a part of what was left over",
    "level": "the demand of all is above the capacity, so nobody gets more than the level",
    "expected": "capacity was spare, and by recurrence it is expected to need more",
    "head-room": "capacity was spare, and the policy puts so much above everybody's demand",
    "repeated": "capacity was spare, and it needed more at this distance twice before",
    "peak": "capacity was spare, and it needed more not long ago",
    "kept": "capacity was spare, so it keeps what it had",
    "minimum": "the policy gives no member less",
    "maximum": "the policy gives no member more",
    "reserved": "this much is kept for what it may still spend by earlier documents",
    "silent": "it was not heard of for 1.4 rounds, so nothing is promised to it anew",
    "even": "the strategy is equal: every live member gets the same",
    "used": "the strategy is surplus: it keeps what it uses",
    "surplus": "the strategy is surplus: what others leave goes to those at their limit",
    "held": "the capacity was lowered below what earlier documents promise",
}


@click.command()
@click.option("--destination", required=True, help="Its name.")
@click.option("--host", required=True, help="The host's name; all its members are told.")
@config_option
@json_option
def explain(*, destination: str, host: str, config_file: Path | None, as_json: bool) -> None:
    """Say why a host got its share: what it asked, used and was refused, and which rule decided.

    Needs PERMIT_POSTGRES_DSN. Tells the last round in which the destination was planned.
    """
    from balancer.settings import load_settings  # noqa: PLC0415

    found, known = asyncio.run(_read(load_settings(config_file), destination, host))
    if known is None:
        raise click.ClickException(f"there is no destination {destination!r}")
    if not found:
        raise click.ClickException(
            f"no regular round has planned {destination!r} for the host {host!r}: it has not "
            "reported, has left, or is new and has its first share from an early round"
        )
    if as_json:
        reasons = [{"epoch": epoch, **asdict(reason)} for epoch, reason in found]
        print_json({"destination": destination, "host": host, "reasons": reasons})
        return
    for epoch, reason in found:
        for line in told(epoch, reason, known):
            click.echo(line)


async def _read(
    settings: Settings, destination: str, host: str
) -> tuple[list[tuple[int, Reason]], Destination | None]:
    from balancer.compose import opened_repository  # noqa: PLC0415

    async with opened_repository(settings) as repository:
        known = {entry.name: entry for entry in await repository.list_destinations()}
        found = list(await repository.load_reasons(destination, host))
        return found, known.get(destination)


def told(epoch: int, reason: Reason, destination: Destination) -> list[str]:
    """Return a reason in words, a line a fact."""
    permits = destination.capacity * reason.share_points // 1_000_000_000
    window = f"{destination.window_seconds} s"
    rule = RULES.get(reason.rule, "see the documentation")
    level = "" if reason.level_permits is None else f" (the level: {reason.level_permits} permits)"
    lines = [
        f"{reason.host} (instance {reason.instance}), {reason.destination}, epoch {epoch}:",
        (
            f"  got       {percent(reason.share_points)}, {permits} of "
            f"{destination.capacity} permits in {window}"
        ),
        f"  because   {reason.rule}: {rule}{level}",
        f"  asked     {reason.asked_permits} permits in {window}, by its last report",
        (
            f"  used      {reason.used_permits}, was refused {reason.denied_permits}, "
            f"waited {reason.starved_ms / 1000:.1f} s without any"
        ),
        f"  peak      {reason.peak_permits} not long ago",
        f"  expected  {reason.expected_permits} by recurrence",
        f"  wanted    {reason.wanted_permits}: planned by that, at a weight of {reason.weight}",
        f"  reserved  {percent(reason.reserved_points)} for what earlier documents promise",
        f"  safe      {percent(reason.safe_points)} without a document that covers the window",
    ]
    if reason.shadow_points is not None:
        shadow = destination.policy.shadow
        name = "the shadow strategy" if shadow is None else f"the strategy {shadow.value}"
        lines.append(f"  shadow    {percent(reason.shadow_points)} by {name}, not published")
    return lines
