"""What the planner remembers of members from round to round, and its stored form.

Decides how peaks decay, the low-water mark, and how much is kept of the past. Safety never rests
on it: what is still promised is read from documents. What the past lets expect is for `foresight`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count, filterfalse
from operator import itemgetter
from typing import Any, Final

import numpy as np

from balancer.core.columns import Ints, ints, picked, zeros
from balancer.core.foresight import History
from balancer.core.packed import packed, unpacked
from balancer.core.rows import Rows
from worker_sdk.wire.distribution import PERMILLE, Member
from worker_sdk.wire.limits import PERMITS_MAX

RECENT_ROUNDS: Final = 3
"""The low-water mark is the least of so many demands."""

BUSIEST: Final = 10_000
"""So many pairs of member and destination, those with the highest peaks, keep a longer history."""

_host_of = itemgetter(0)

_STORED: Final = ("peak", "served_window", "enough", "rounds")

INACTIVE_ROUNDS: Final = 10
"""A member that is no longer live is remembered for so many rounds.

Where reports were held up for longer than they count, everybody is back at once; and a member that
comes under the name of one that ended mostly goes on with its work. Planning from nothing would
split evenly."""


@dataclass(frozen=True, slots=True)
class Inactive:
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
        inactive: what is known of members that were live lately.
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
    inactive: Mapping[Member, Inactive] = field(default_factory=dict)
    round_number: int = 0

    def follow(self, members: Iterable[Member]) -> Trails:
        """Return the trails of exactly these members: `followed` without the rows."""
        return self.followed(Rows.of(list(dict.fromkeys(members))))[0]

    def followed(self, live: Rows) -> tuple[Trails, Ints]:
        """Return the trails of exactly the live, and of each of their rows which it was there.

        Known ones come first, in their order here. New ones follow in the order given, with what
        was remembered of them or of one of the same host that is not live, if anything.
        """
        members, place = live.members, live.find(self.members)
        stays = place >= 0
        is_new = np.ones(len(members), dtype=np.bool_)
        is_new[place[stays]] = False
        if stays.all() and not is_new.any():
            return self, place
        kept = tuple(compress(self.members, stays.tolist()))
        new_places = np.flatnonzero(is_new)
        new = [members[number] for number in new_places.tolist()]
        chosen = np.concatenate((np.flatnonzero(stays), zeros(len(new)) - 1))
        inactive = {**self.inactive, **self._set_aside(np.flatnonzero(~stays))}
        followed = Trails(
            members=(*kept, *new),
            peak=picked(self.peak, chosen),
            served_window=picked(self.served_window, chosen),
            enough=picked(self.enough, chosen),
            denied=picked(self.denied, chosen),
            rounds=picked(self.rounds, chosen),
            recent=tuple(picked(column, chosen) for column in self.recent),
            history=self.history.picked(chosen),
            inactive=inactive,
            round_number=self.round_number,
        )
        for row, predecessor in list(followed._predecessors(new, len(kept))):
            followed._restore(row, inactive.pop(predecessor))
        followed._take_over_peaks()
        return followed, np.concatenate((place[stays], new_places))

    def _take_over_peaks(self) -> None:
        """Give the peak of a member that is live no longer to a live one of the same host.

        A member that was killed counts as live until its last report is old; by then the one that
        came in its place is here already.
        """
        peaks: dict[str, int] = {}
        for member, known in self.inactive.items():
            if known.since_round == self.round_number:
                peaks[member[0]] = max(peaks.get(member[0], 0), known.peak)
        if peaks.keys().isdisjoint(map(_host_of, self.members)):
            return
        for row in [row for row, (host, _) in enumerate(self.members) if host in peaks]:
            peak = peaks.pop(self.members[row][0], 0)
            self.peak[row] = max(int(self.peak[row]), peak)

    def _predecessors(self, new: Sequence[Member], row: int) -> Iterator[tuple[int, Member]]:
        """Yield (row, inactive member that it goes on for) of new members; each is used once."""
        own = [
            (number, member) for number, member in enumerate(new, row) if member in self.inactive
        ]
        yield from own
        taken = {member for _, member in own}
        by_host: dict[str, list[Member]] = {}
        for member in self.inactive:
            if member not in taken:
                by_host.setdefault(member[0], []).append(member)
        for number, member in enumerate(new, row):
            if member not in taken and by_host.get(member[0]):
                yield number, by_host[member[0]].pop()

    def _set_aside(self, rows: Ints) -> dict[Member, Inactive]:
        columns = (self.peak, self.served_window, self.enough, self.rounds, *self.recent)
        table = np.stack([column[rows] for column in columns]).T.tolist()
        return {
            self.members[row]: Inactive(
                peak, served, enough, rounds, tuple(recent), self.round_number
            )
            for row, (peak, served, enough, rounds, *recent) in zip(
                rows.tolist(), table, strict=True
            )
        }

    def _restore(self, row: int, known: Inactive) -> None:
        """Fill a row of columns that nobody else has seen yet."""
        self.peak[row] = known.peak
        self.served_window[row] = known.served_window
        self.enough[row] = known.enough
        self.rounds[row] = known.rounds
        for column, demand in zip(self.recent[::-1], known.recent[::-1], strict=False):
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
            inactive={
                member: known
                for member, known in self.inactive.items()
                if self.round_number - known.since_round < INACTIVE_ROUNDS
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
        return {
            name: replace(known, history=known.history.of_all(known.last()))
            for name, known in trails.items()
        }
    peaks = np.concatenate([known.peak for known in trails.values()])
    least = int(np.partition(peaks, count - BUSIEST)[count - BUSIEST])
    return {
        name: replace(
            known, history=known.history.only(np.flatnonzero(known.peak > least), known.last())
        )
        for name, known in trails.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """What a shard's planner carries from round to round, beyond documents and accounts.

    Its stored form is a JSON value: the members, each once, and for each destination their numbers
    in these and the columns of its `Trails`, `packed`. Two are equal if they are stored alike.
    """

    trails: Mapping[str, Trails] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return the stored form."""
        numbers: dict[Member, int] = {}
        columns = {name: _stored(known, numbers) for name, known in self.trails.items()}
        return {"members": list(map(list, numbers)), "columns": columns}

    @classmethod
    def from_json(cls, data: object) -> Memory:
        """Return the memory of a stored form; whatever has not a known form is forgotten."""
        if not isinstance(data, Mapping):
            return cls()
        if isinstance(data.get("trails"), Mapping):  # as earlier versions stored it
            return cls({name: _from_rows(rows) for name, rows in data["trails"].items()})
        columns, pairs = data.get("columns"), data.get("members")
        if not isinstance(columns, Mapping) or not isinstance(pairs, list):
            return cls()
        members = [(pair[0], pair[1]) if _is_member(pair) else None for pair in pairs]
        return cls({name: _restored(known, members) for name, known in columns.items()})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(tuple(self.trails))


def _stored(trails: Trails, numbers: dict[Member, int]) -> dict[str, object]:
    """Return the columns, the inactive last; the next round tells anew who is live.

    Args:
        trails: to store.
        numbers: of the members; those that are not in it are added.
    """
    inactive = trails.inactive.values()
    recent = [
        np.concatenate(
            (
                column,
                ints(known.recent[-age] if len(known.recent) >= age else 0 for known in inactive),
            )
        )
        for age, column in zip(range(len(trails.recent), 0, -1), trails.recent, strict=True)
    ]
    columns = {
        name: np.concatenate(
            (getattr(trails, name), ints(getattr(known, name) for known in inactive))
        )
        for name in _STORED
    }
    members = (*trails.members, *trails.inactive)
    numbers.update(zip(filterfalse(numbers.__contains__, members), count(len(numbers))))
    history, live = trails.history, len(trails.members)
    if history.of_row is None:
        place = np.arange(len(members))
        history = history.picked(np.where(place < live, place, -1))
    return {
        "members": packed(ints(map(numbers.__getitem__, members))),
        **{name: packed(column) for name, column in columns.items()},
        "recent": [packed(column) for column in recent],
        "history": packed(history.columns.ravel()),
        "history_rows": None if history.of_row is None else packed(history.of_row),
    }


def _restored(stored: object, members: Sequence[Member | None]) -> Trails:
    """Return the trails of their stored form; nothing where it is none."""
    try:
        return _unpacked(stored, members)
    except (KeyError, TypeError, ValueError, IndexError):
        return Trails()


def _unpacked(stored: Any, members: Sequence[Member | None]) -> Trails:
    numbers = unpacked(stored["members"])
    known = [members[number] for number in numbers.tolist()]
    count = len(known)
    if None in known or len(set(known)) < count:
        raise ValueError("a member has no name, or two rows")
    peak, served_window, enough, rounds = (unpacked(stored[name]) for name in _STORED)
    recent = tuple(map(unpacked, stored["recent"][-RECENT_ROUNDS:]))
    if any(len(column) != count for column in (peak, served_window, enough, rounds, *recent)):
        raise ValueError("a column has another length")
    of_row = stored["history_rows"]
    rows = np.arange(count) if of_row is None else unpacked(of_row)
    table = unpacked(stored["history"]).reshape(-1, max(1, len(rows)))
    if any(
        column.min(initial=0) < 0
        for column in (numbers, peak, served_window, rounds, *recent, table)
    ):
        raise ValueError("a number is negative")
    if rows.min(initial=0) < 0 or rows.max(initial=-1) >= count:
        raise ValueError("a row of the history is none")
    return Trails(
        members=tuple(member for member in known if member is not None),
        peak=peak,
        served_window=served_window,
        enough=enough,
        denied=zeros(count),  # not stored: a pool is heard one round later then
        rounds=rounds,
        recent=recent,
        history=History.of_table(table, None if of_row is None else rows),
    )


def _is_member(pair: object) -> bool:
    match pair:
        case [str(), str()]:
            return True
        case _:
            return False


def _is_row(row: object) -> bool:
    match row:
        case [str(), str(), int(peak), int(served), int(enough), int(rounds), list(demands)]:
            numbers = [peak, served, abs(enough), rounds, *demands]
            return all(type(number) is int and 0 <= number <= PERMITS_MAX for number in numbers)
        case _:
            return False


def _from_rows(stored: object) -> Trails:
    """Return the trails of rows: host, instance, the columns' numbers, and a list of demands."""
    rows = {
        (row[0], row[1]): row[2:]
        for row in (stored if isinstance(stored, list) else [])
        if _is_row(row)
    }
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
        denied=zeros(len(rows)),
        rounds=ints(columns[3]),
        recent=recent,
        history=History.of_rows(demands),
    )
