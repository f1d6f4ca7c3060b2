"""What the planner remembers of members from round to round, and its stored form.

Decides how peaks decay, the low-water mark, and how much is kept of the past. Safety never rests
on it: what is still promised is read from documents. What the past lets expect is for `foresight`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from balancer.core.columns import Ints, ints, picked, zeros
from balancer.core.foresight import History
from worker_sdk.wire.distribution import PERMILLE, Member
from worker_sdk.wire.limits import PERMITS_MAX

RECENT_ROUNDS: Final = 3
"""The low-water mark is the least of so many demands."""

BUSIEST: Final = 10_000
"""So many (member, destination) pairs keep the longer history."""


RESTING_ROUNDS: Final = 10
"""Who is not live any more is remembered for so many rounds.

Where reports were held up for longer than they count, everybody is back at once; and who comes
under the name of one that ended mostly goes on with its work. Planning from nothing would split
evenly."""


@dataclass(frozen=True, slots=True)
class Rest:
    """What is remembered of a member that is not live; the columns of `Trails` as numbers."""

    peak: int
    served_window: int
    enough: int
    rounds: int
    recent: tuple[int, ...]
    since_round: int


@dataclass(frozen=True, slots=True, eq=False)
class Trails:
    """Members' past with one destination, as columns; nothing in it ever changes.

    Attributes:
        members: whose row is which.
        peak: recent peak of demand, in permits a window.
        served_window: the last window that gave a whole permit.
        enough: as `balancer.core.demand.enough_after` says.
        denied: what each was denied by its last account noted.
        rounds: rounds noted of each, counted to `RECENT_ROUNDS`.
        recent: demands of the last rounds, oldest first; 0 before a member came.
        history: the longer past of the busiest.
        resting: those lately live.
        round_number: rounds noted in all.
    """

    members: tuple[Member, ...] = ()
    peak: Ints = field(default_factory=lambda: zeros(0))
    served_window: Ints = field(default_factory=lambda: zeros(0))
    enough: Ints = field(default_factory=lambda: zeros(0))
    denied: Ints = field(default_factory=lambda: zeros(0))
    rounds: Ints = field(default_factory=lambda: zeros(0))
    recent: tuple[Ints, ...] = ()
    history: History = field(default_factory=History)
    resting: Mapping[Member, Rest] = field(default_factory=dict)
    round_number: int = 0

    def follow(self, members: Iterable[Member]) -> Trails:
        """Return the trails of exactly ``members``: known ones first, in their order here.

        New ones follow in the order given, with what was remembered of them or of one of the same
        host that is not live, if anything.
        """
        wanted = members if isinstance(members, dict) else dict.fromkeys(members)
        if len(wanted) == len(self.members) and all(map(wanted.__contains__, self.members)):
            return self
        rows = [row for row, member in enumerate(self.members) if member in wanted]
        known = {self.members[row] for row in rows}
        new = [member for member in wanted if member not in known]
        chosen = ints([*rows, *[-1] * len(new)])
        resting = {**self.resting, **self._rests(wanted)}
        followed = Trails(
            members=(*(self.members[row] for row in rows), *new),
            peak=picked(self.peak, chosen),
            served_window=picked(self.served_window, chosen),
            enough=picked(self.enough, chosen),
            denied=picked(self.denied, chosen),
            rounds=picked(self.rounds, chosen),
            recent=tuple(picked(column, chosen) for column in self.recent),
            history=self.history.picked(chosen),
            resting=resting,
            round_number=self.round_number,
        )
        for row, rested in list(followed._remembered(new, len(rows))):
            followed._wake(row, resting.pop(rested))
        followed._take_over_peaks()
        return followed

    def _take_over_peaks(self) -> None:
        """Let one of the same host know the peak of a member that just came to rest.

        Who was killed is live until its last report is old; whoever came in its place is here.
        """
        peaks: dict[str, int] = {}
        for member, rest in self.resting.items():
            if rest.since_round == self.round_number:
                peaks[member[0]] = max(peaks.get(member[0], 0), rest.peak)
        if peaks:
            for row, member in enumerate(self.members):
                if member[0] in peaks:
                    self.peak[row] = max(int(self.peak[row]), peaks.pop(member[0]))

    def _remembered(self, new: Sequence[Member], row: int) -> Iterator[tuple[int, Member]]:
        """Yield (row, whose rest it takes) of new members; each rest is taken once."""
        own = [(number, member) for number, member in enumerate(new, row) if member in self.resting]
        yield from own
        taken = {member for _, member in own}
        by_host: dict[str, list[Member]] = {}
        for member in self.resting:
            if member not in taken:
                by_host.setdefault(member[0], []).append(member)
        for number, member in enumerate(new, row):
            if member not in taken and by_host.get(member[0]):
                yield number, by_host[member[0]].pop()

    def _rests(self, wanted: Container[Member]) -> dict[Member, Rest]:
        return {
            member: Rest(
                peak=int(self.peak[row]),
                served_window=int(self.served_window[row]),
                enough=int(self.enough[row]),
                rounds=int(self.rounds[row]),
                recent=tuple(int(column[row]) for column in self.recent),
                since_round=self.round_number,
            )
            for row, member in enumerate(self.members)
            if member not in wanted
        }

    def _wake(self, row: int, rest: Rest) -> None:
        """Fill a row of columns that nobody else has seen yet."""
        self.peak[row] = rest.peak
        self.served_window[row] = rest.served_window
        self.enough[row] = rest.enough
        self.rounds[row] = rest.rounds
        for column, demand in zip(self.recent[::-1], rest.recent[::-1], strict=False):
            column[row] = demand

    def note(self, demands: Ints, denied: Ints, enough: Ints, decay_permille: int) -> Trails:
        """Take one round's demands: a peak rises at once and decays by a factor a round."""
        return replace(
            self,
            peak=np.maximum(demands, self.peak * decay_permille // PERMILLE),
            enough=enough,
            denied=denied,
            rounds=np.minimum(self.rounds + 1, RECENT_ROUNDS),
            recent=(*self.recent, demands)[-RECENT_ROUNDS:],
            history=self.history.noted(demands),
            resting={
                member: rest
                for member, rest in self.resting.items()
                if self.round_number - rest.since_round < RESTING_ROUNDS
            },
            round_number=self.round_number + 1,
        )

    def last(self) -> Ints:
        """Return the demands of the last round; 0 where there was none."""
        return self.recent[-1] if self.recent else zeros(len(self.members))

    def low_water(self) -> Ints:
        """Return the least demands of the last three rounds; 0 before there were three."""
        if len(self.recent) < RECENT_ROUNDS:
            return zeros(len(self.members))
        least = np.minimum(np.minimum(self.recent[0], self.recent[1]), self.recent[2])
        return np.where(self.rounds >= RECENT_ROUNDS, least, 0)


def bounded(trails: Mapping[str, Trails]) -> dict[str, Trails]:
    """Return the trails with the longer history of the `BUSIEST` alone."""
    count = sum(len(known.members) for known in trails.values())
    if count <= BUSIEST:
        return dict(trails)
    peaks = np.concatenate([known.peak for known in trails.values()])
    least = int(np.partition(peaks, count - BUSIEST)[count - BUSIEST])
    return {
        name: replace(known, history=known.history.only(np.flatnonzero(known.peak > least)))
        for name, known in trails.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What a shard's planner carries from round to round, beyond documents and accounts.

    Its stored form is a JSON value: for each destination a row a member, ``[host, instance, peak,
    served window, enough, rounds, [demand, …]]``. Two are equal if they are stored alike.
    """

    trails: Mapping[str, Trails] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the stored form."""
        return {"trails": {name: _rows(known) for name, known in self.trails.items()}}

    @classmethod
    def from_json(cls, data: object) -> Memory:
        """Return the memory of a stored form; whatever has not the known form is forgotten."""
        destinations = data.get("trails") if isinstance(data, Mapping) else None
        trails: dict[str, Trails] = {}
        if isinstance(destinations, Mapping):
            for name, rows in destinations.items():
                known = [row for row in rows if _is_row(row)] if isinstance(rows, list) else []
                trails[name] = _from_rows({(row[0], row[1]): row[2:] for row in known})
        return cls(trails)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(tuple(self.trails))


def _rows(trails: Trails) -> list[list[object]]:
    """Return a row a member; those at rest among them: who is live is seen anew each round."""
    columns = (trails.peak, trails.served_window, trails.enough, trails.rounds)
    numbers = zip(*(column.tolist() for column in columns), strict=True)
    return [
        [*member, *row, demands]
        for member, row, demands in zip(trails.members, numbers, _demands(trails), strict=True)
    ] + [
        [*member, rest.peak, rest.served_window, rest.enough, rest.rounds, list(rest.recent)]
        for member, rest in trails.resting.items()
    ]


def _demands(trails: Trails) -> list[list[int]]:
    """Return each row's known demands, oldest first, without the nothings before the first."""
    rows = [list(column) for column in zip(*(c.tolist() for c in trails.recent), strict=True)]
    for row, demands in zip(*trails.history.rows(len(trails.members)), strict=True):
        rows[row] = demands
    for demands in rows:
        while demands and not demands[0]:
            del demands[0]
    return rows if rows else [[] for _ in trails.members]


def _is_row(row: object) -> bool:
    match row:
        case [str(), str(), int(peak), int(served), int(enough), int(rounds), list(demands)]:
            numbers = [peak, served, abs(enough), rounds, *demands]
            return all(type(number) is int and 0 <= number <= PERMITS_MAX for number in numbers)
        case _:
            return False


def _from_rows(rows: Mapping[Member, Sequence[object]]) -> Trails:
    columns = list(zip(*rows.values(), strict=True)) or [()] * 5
    demands: list[list[int]] = [list(row) for row in columns[4]]
    recent = tuple(
        ints(row[-age] if len(row) >= age else 0 for row in demands)
        for age in range(RECENT_ROUNDS, 0, -1)
    )
    return Trails(
        members=tuple(rows),
        peak=ints(columns[0]),
        served_window=ints(columns[1]),
        enough=ints(columns[2]),
        denied=zeros(len(rows)),  # not stored: a pool is heard one round later then
        rounds=ints(columns[3]),
        recent=recent,
        history=History.of_rows(demands),
    )
