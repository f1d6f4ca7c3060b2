"""The options of ``destinations set`` that name values of a policy.

Decides how percentages, weights and words on the command line become values, and tells a wrong one
in a line: the option, what is good, and an example. What the values do is the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeVar

import click

from balancer.errors import PolicyError
from worker_sdk.wire.shares import POINTS
from worker_sdk.wire.terms import PERMILLE

_F = TypeVar("_F", bound=Callable[..., Any])

NUMBER_MAX_CHARS: Final = 30
SWITCHES: Final = (("enforce", "trial"), ("expect_recurring", "no_expect_recurring"))
"""Fields that are true or false: the options that say so, the first with the field's name."""

STRATEGIES: Final = ("max_min", "equal", "surplus")


@dataclass(frozen=True, slots=True)
class PercentOption:
    """An option in percent of a value in points or thousandths.

    Attributes:
        option: its name.
        field: of the policy.
        per_percent: units of the field in one percent.
        least: smallest percentage that is good; a unit where it is None.
        most: largest percentage that is good.
        example: a value as people would write it.
        words: for the help.
    """

    option: str
    field: str
    per_percent: int
    least: int | None
    most: int
    example: str
    words: str

    @property
    def parameter(self) -> str:
        """Its name among a command's arguments."""
        return self.option.removeprefix("--").replace("-", "_")

    def value(self, text: str) -> int:
        """Return the field's value.

        Raises:
            PolicyError: naming the option, its bounds and an example.
        """
        step = Decimal(1) / self.per_percent
        least = step if self.least is None else Decimal(self.least)
        number = _decimal(text)
        if number is None or not least <= number <= self.most or number % step:
            raise PolicyError(
                f"{self.option} is {text[:NUMBER_MAX_CHARS]!r}; it must be from {least:f} to "
                f"{self.most} in steps of {step:f}, for example {self.option} {self.example}"
            )
        return int(number * self.per_percent)


PERCENT_OPTIONS: Final = (
    PercentOption(
        option="--minimum-percent",
        field="minimum_points",
        per_percent=POINTS // 100,
        least=0,
        most=100,
        example="0.05",
        words="The least share of a live worker.  [0]",
    ),
    PercentOption(
        option="--maximum-percent",
        field="maximum_points",
        per_percent=POINTS // 100,
        least=None,
        most=100,
        example="25",
        words="The largest share of a worker.  [100]",
    ),
    PercentOption(
        option="--head-room-percent",
        field="head_room_permille",
        per_percent=PERMILLE // 100,
        least=0,
        most=1000,
        example="10",
        words="Spare capacity goes first to so much above each one's demand.  [10]",
    ),
    PercentOption(
        option="--newcomer-reserve-percent",
        field="newcomer_reserve_points",
        per_percent=POINTS // 100,
        least=0,
        most=50,
        example="1",
        words="Part that no regular round plans, so that newcomers start at once.  [1]",
    ),
    PercentOption(
        option="--lend-percent",
        field="lend_points",
        per_percent=POINTS // 100,
        least=0,
        most=100,
        example="50",
        words="Part that is lent within the window to workers that run out.  [0]",
    ),
    PercentOption(
        option="--peak-decay-percent",
        field="peak_decay_permille",
        per_percent=PERMILLE // 100,
        least=0,
        most=100,
        example="90",
        words="What remains of a recent peak of demand after a round.  [90]",
    ),
    PercentOption(
        option="--safe-percent",
        field="safe_permille",
        per_percent=PERMILLE // 100,
        least=0,
        most=100,
        example="90",
        words="The part of a share that may be spent without a document, at most.  [90]",
    ),
)


def _decimal(text: str) -> Decimal | None:
    if len(text) > NUMBER_MAX_CHARS:
        return None
    try:
        number = Decimal(text.strip().removesuffix("%").strip())
    except InvalidOperation:
        return None
    # A finite number of few digits: the remainder of an enormous one cannot be taken.
    return number if number.is_finite() and abs(number) < 10**9 else None


def policy_options(command: _F) -> _F:
    """Add the options to a command."""
    options = [
        click.option("--strategy", type=click.Choice(STRATEGIES), help="How shares come about."),
        click.option(
            "--shadow",
            type=click.Choice((*STRATEGIES, "none")),
            help="A second strategy to plan beside it and not to publish.  [none]",
        ),
        click.option(
            "--weight",
            "weight",
            multiple=True,
            metavar="RULE",
            help="'host=web-*:3' or 'group=batch:1': what workers weigh when not all can have what "
            "they want. Repeat it; the first that fits counts. All given replace all known; '' "
            "clears them.",
        ),
        *(
            click.option(known.option, known.parameter, metavar="NUMBER", help=known.words)
            for known in PERCENT_OPTIONS
        ),
        click.option(
            "--expect-recurring",
            is_flag=True,
            help="Plan for demand that comes back by the clock.  [that is so]",
        ),
        click.option("--no-expect-recurring", is_flag=True, help="Do not plan for it."),
        click.option(
            "--valid-for-seconds",
            metavar="NUMBER|default",
            help="How long safe shares outlive a publication.  [default: three rounds]",
        ),
        click.option(
            "--on-expiry-permille", type=int, help="Thousandths of them that remain after that."
        ),
        click.option("--on-expiry-seconds", type=int, help="For how long those remain."),
        click.option(
            "--guard-ms", type=int, help="Nothing is granted so near a window's edge.  [250]"
        ),
        click.option(
            "--pacing", type=click.Choice(["even", "window"]), help="Release within a window."
        ),
        click.option("--enforce", is_flag=True, help="Hold workers to their shares.  [that is so]"),
        click.option("--trial", is_flag=True, help="Let workers pass, and only count."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def policy_parts(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a policy that the options name, by field.

    Raises:
        PolicyError: naming the option and what is wrong with it.
        UsageError: where options contradict one another.
    """
    from balancer.app.policies import values_to_parts  # noqa: PLC0415

    names = ("strategy", "guard_ms", "pacing")
    values = {name: options[name] for name in names if options[name] is not None}
    values |= _switched(options)
    for known in PERCENT_OPTIONS:
        if options[known.parameter] is not None:
            values[known.field] = known.value(options[known.parameter])
    if options["shadow"] is not None:
        values["shadow"] = None if options["shadow"] == "none" else options["shadow"]
    if options["weight"]:
        values["weights"] = _weights(options["weight"])
    if options["valid_for_seconds"] is not None:
        values["valid_for_seconds"] = _seconds(options["valid_for_seconds"])
    permille, seconds = options["on_expiry_permille"], options["on_expiry_seconds"]
    if (permille is None) != (seconds is None):
        raise click.UsageError("--on-expiry-permille and --on-expiry-seconds go together")
    if permille is not None:
        values["on_expiry"] = {"permille": permille, "for_ms": seconds * 1000}
    return values_to_parts(values)


def _switched(options: Mapping[str, Any]) -> dict[str, bool]:
    """Return what is switched on or off; of two that contradict one another none may win."""
    switched: dict[str, bool] = {}
    for on, off in SWITCHES:
        if options[on] and options[off]:
            named = [f"--{name.replace('_', '-')}" for name in (on, off)]
            raise click.UsageError(f"{' and '.join(named)} exclude one another")
        if options[on] or options[off]:
            switched[on] = bool(options[on])
    return switched


def _weights(texts: Sequence[str]) -> list[dict[str, Any]]:
    if list(texts) == [""]:
        return []
    return [_weight(text) for text in texts]


def _weight(text: str) -> dict[str, Any]:
    """Return a rule from ``host=PATTERN:WEIGHT``, ``group=NAME:WEIGHT`` or both with a comma."""
    named, colon, weight = text.rpartition(":")
    host, group = None, None
    if named.startswith("host="):
        host = named.removeprefix("host=")
        if ",group=" in host:
            host, _, group = host.rpartition(",group=")
    elif named.startswith("group="):
        group = named.removeprefix("group=")
    is_number = weight.isascii() and weight.isdigit() and len(weight) <= NUMBER_MAX_CHARS
    if not colon or not is_number or (host is None and group is None):
        raise PolicyError(
            f"--weight is {text[:100]!r}; write a host pattern or a group, a colon and a whole "
            "number from 1 to 1000, for example --weight 'host=web-*:3' or --weight 'group=batch:1'"
            "; an empty one alone clears all"
        )
    return {"weight": int(weight), "host": host, "group": group}


def _seconds(text: str) -> int | None:
    if text == "default":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= NUMBER_MAX_CHARS):
        raise PolicyError(
            f"--valid-for-seconds is {text[:NUMBER_MAX_CHARS]!r}; it must be a whole number of "
            "seconds from 1 to 604800, or default, for example --valid-for-seconds 900"
        )
    return int(text)


def policy_lines(policy: Mapping[str, Any]) -> list[str]:
    """Return a policy's values for people, a line each; percentages as the options take them."""
    percents = {known.field: known.per_percent for known in PERCENT_OPTIONS}
    nothing = {"valid_for_seconds": "default"}
    lines = []
    for field, setting in policy.items():
        words = field.removesuffix("_points").removesuffix("_permille").replace("_", " ")
        if setting is None or setting == []:
            told = nothing.get(field, "none")
        elif field in percents:
            told = f"{Decimal(setting) / percents[field]:f} %"
        elif field == "weights":
            told = ", ".join(_rule_told(rule) for rule in setting)
        else:
            told = _told(setting)
        lines.append(f"  {words:18} {told}")
    return lines


def _told(setting: object) -> str:
    match setting:
        case bool():
            return "yes" if setting else "no"
        case {"permille": int(permille), "for_ms": int(for_ms)}:
            return f"{Decimal(permille) / 10:f} % of the safe points for {for_ms / 1000:g} s"
        case _:
            return str(setting)


def _rule_told(rule: Mapping[str, Any]) -> str:
    named = ",".join(f"{name}={rule[name]}" for name in ("host", "group") if name in rule)
    return f"{named}:{rule['weight']}"
