"""What a member that gets nothing, or reports at the wrong pace, is told to look at.

Decides from what was read when that is no beginning any more but most likely a wrong setting, which
one it may be, and what the balancer's round is, as far as documents show it. Asks nobody, reads no
clock; how often a warning is repeated is the member's matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from worker_sdk.core.engine import Engine
from worker_sdk.runtime.options import Options
from worker_sdk.transports.base import Reading
from worker_sdk.wire.distribution import OwnShare

PERIODS_OF_PATIENCE: Final = 3
"""A newcomer has its first share in seconds, at the latest with the round after the next."""

NAMES_SHOWN: Final = 3
PACED_MAX: Final = 8
"""So many destinations are looked at for the round's length; all have the same."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A warning: what it is counted as, and its words."""

    cause: str
    words: str


class Lookout:
    """What is noted of a member's looks at the distribution.

    Args:
        options: where the member looks, and what it reports.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._patience_ms = round(options.flush_seconds * 1000) * PERIODS_OF_PATIENCE
        self._lacking_since_ms: dict[str, int] = {}
        self._is_listed = False
        self._is_heard_of = False
        self._round = Round()
        self._paced_names = frozenset(options.destinations[:PACED_MAX])
        self._told: tuple[int, bool] | None = None
        self._is_told_round = False

    def note(
        self,
        engine: Engine,
        reading: Reading,
        mono_ms: int,
    ) -> list[Advice]:
        """Take what a look brought, after the engine has; return what there is to say.

        Args:
            engine: of the member.
            reading: what was read.
            mono_ms: monotonic instant.
        """
        if reading.instances is not None:
            self._is_listed = engine.instance in reading.instances
            self._is_heard_of = True  # a balancer answers so of hosts that it knows alone
        lacking = {name: self._why(engine, name) for name in engine.destinations}
        self._lacking_since_ms = {
            name: self._lacking_since_ms.get(name, mono_ms)
            for name, why in lacking.items()
            if why is not None
        }
        late: dict[str, list[str]] = {}
        for name, since_ms in self._lacking_since_ms.items():
            why = lacking[name]
            if why is not None and mono_ms - since_ms >= self._patience_ms:
                late.setdefault(why, []).append(name)
        advice = [self._missing(why, names, engine) for why, names in late.items()]
        return advice + self._paced(reading)

    # -- shares that do not come

    def _why(self, engine: Engine, name: str) -> str | None:
        """Return in which way a destination's share is missing; None if it is not."""
        newest = engine.account(name).ledger.newest
        if newest is None:
            return "unnamed" if engine.epochs() else "nothing"
        terms = newest.terms
        if newest.intervals or not terms.enforce or not terms.capacity or self._is_listed:
            return None  # idle among busy ones, or closed: it is known, and that is how it is
        return "unlisted"

    def _missing(self, why: str, names: list[str], engine: Engine) -> Advice:
        shown = ", ".join(repr(name) for name in names[:NAMES_SHOWN])
        if len(names) > NAMES_SHOWN:
            shown += f" and {len(names) - NAMES_SHOWN} more"
        place = self._options.place
        host = engine.host
        head = f"no share of {shown} after {self._patience_ms // 1000} s: "
        reports = f"do the reports arrive ({self._options.reports_to}, as the balancer reads them)?"
        exists = (
            "is there such a destination, with a capacity above 0 "
            "(permit-balancer destinations list)?"
        )
        if why == "nothing" and place.startswith("http"):
            asks = (
                f"knows the host {host!r} and has no share for it; {exists}"
                if self._is_heard_of
                else f"has never heard of the host {host!r}; {reports}"
            )
            return Advice(f"share:{why}", f"{head}{place} {asks}")
        if why == "nothing":
            found = f"{place} has nothing for the host {host!r}; is that where the balancer is? "
            return Advice(f"share:{why}", f"{head}{found}{reports} {exists}")
        if why == "unnamed":
            found = f"{place} names other destinations for the host {host!r}; "
            return Advice(f"share:{why}", f"{head}{found}{exists} {reports}")
        found = f"{place} does not list instance {engine.instance} of the host {host!r}; "
        return Advice(f"share:{why}", f"{head}{found}{reports}")

    # -- the round's length

    def _paced(self, reading: Reading) -> list[Advice]:
        # A document of the bucket has shares of every destination there is.
        own = [share for share in reading.shares if share.terms.destination in self._paced_names]
        for share in sorted(own, key=lambda share: share.epoch):
            self._round.note(share)
        found = self._round.seconds
        if reading.round_seconds is not None:
            found = (reading.round_seconds, True)
            self._is_told_round = True
        elif self._is_told_round:
            return []  # what is told counts more than what documents show
        if found is None or found == self._told:
            return []
        seconds, is_exact = found
        flush_seconds = self._options.flush_seconds
        is_right = flush_seconds == seconds if is_exact else flush_seconds <= seconds
        self._told = found
        if is_right:
            return []
        takes = f"{'' if is_exact else 'at most '}{seconds} s"
        harm = (
            "it counts as silent between its reports and gets little or nothing"
            if flush_seconds > seconds
            else "its demand is measured over less than a round"
        )
        return [
            Advice(
                "round",
                f"flush_seconds is {flush_seconds:g}, but a round of the balancer takes {takes}: "
                f"{harm}; set it to the balancer's PERMIT_ROUND_SECONDS",
            )
        ]


class Round:
    """The length of the balancer's round, as far as documents show it.

    A regular document takes over where the one before it ends, and covers one round; where windows
    are longer than that, one window. The first after an outage may cover more, so two must agree.

    Attributes:
        seconds: its length, and whether it is exactly that or at most; None if not known yet.
    """

    __slots__ = ("_last", "_spans", "seconds")

    def __init__(self) -> None:
        self.seconds: tuple[int, bool] | None = None
        self._last: dict[str, tuple[int, int]] = {}
        self._spans: dict[str, int] = {}

    def note(self, share: OwnShare) -> None:
        """Take a document's terms; those of a destination come by rising epochs."""
        terms = share.terms
        name = terms.destination
        epoch, until_window = self._last.get(name, (0, -1))
        if share.epoch <= epoch:
            return
        self._last[name] = (share.epoch, terms.until_window)
        if terms.until_window == until_window:
            return  # an early one repeats the windows of the newest
        windows = terms.until_window - terms.from_window
        if terms.from_window != until_window:
            self._spans.pop(name, None)
            return
        if self._spans.get(name) == windows:
            self.seconds = _sharper(self.seconds, (windows * terms.window_seconds, windows > 1))
        self._spans[name] = windows


def _sharper(known: tuple[int, bool] | None, found: tuple[int, bool]) -> tuple[int, bool]:
    """Return what says more: a length rather than a bound, a low bound rather than a high one."""
    if known is None or found[1] or (not known[1] and found[0] < known[0]):
        return found
    return known
