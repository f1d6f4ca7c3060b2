"""The worst stretch of a window's length that is not aligned: the formula, held against engines.

Every tenth of a second each member spends what its engine lets it, from an instant of its own on in
each window. The formula is written here from the words of the documentation, apart from the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from worker_sdk.core.engine import Engine
from worker_sdk.wire.distribution import OwnShare, Pacing, Terms
from worker_sdk.wire.shares import POINTS, interval_permits

NAME = "orders-db"
WINDOW_MS = 10_000
STEP_MS = 100
STEPS = WINDOW_MS // STEP_MS
FIRST_WINDOW = 180_000_000
WINDOWS = 3
MEMBERS = 3


@dataclass(frozen=True, slots=True)
class Fleet:
    """What was spent; ``spent[member][step]`` counts from the first window on."""

    pacing: Pacing
    guard_ms: int
    capacity: int
    permits: list[list[int]]  # member, window
    spent: list[list[int]]

    def stretch(self, member: int, start: int) -> int:
        return sum(self.spent[member][start : start + STEPS])

    def most(self, member: int, start: int) -> int:
        """The formula: what is left of the window begun in, and what the next has released."""
        window, into = divmod(start, STEPS)
        left = 0
        if into * STEP_MS < WINDOW_MS - self.guard_ms:
            before = sum(self.spent[member][window * STEPS : start])
            left = self.permits[member][window] - before
        return left + self.released(self.permits[member][window + 1], into * STEP_MS)

    def released(self, permits: int, into_ms: int) -> int:
        """What a window gives in its first ``into_ms``, the last one not included."""
        open_ms = WINDOW_MS - 2 * self.guard_ms
        since_ms = into_ms - self.guard_ms
        if since_ms <= 0:
            return 0
        if self.pacing is Pacing.WINDOW:
            return permits
        burst = -(-permits // 10)
        return min(permits, burst + (permits - burst) * since_ms // (open_ms * 9 // 10))


cuts = st.lists(st.integers(0, POINTS), min_size=MEMBERS - 1, max_size=MEMBERS - 1).map(sorted)
idle_steps = st.lists(
    st.lists(st.sampled_from([0, 0, 1, 50, 90, 96, 98, 99]), min_size=WINDOWS, max_size=WINDOWS),
    min_size=MEMBERS,
    max_size=MEMBERS,
)
fleets: dict[str, st.SearchStrategy[Any]] = {
    "pacing": st.sampled_from(Pacing),
    "guard_ms": st.sampled_from([0, 250, 1000]),
    "capacity": st.sampled_from([0, 1, 7, 100, 1_003, 100_000]),
    "layouts": st.lists(cuts, min_size=WINDOWS, max_size=WINDOWS),
}


def run(
    pacing: Pacing,
    guard_ms: int,
    capacity: int,
    layouts: list[list[int]],
    idle: list[list[int]],
) -> Fleet:
    """Let engines spend through three windows, each with its own shares."""
    bounds = [[0, *layout, POINTS] for layout in layouts]
    permits = [
        [
            interval_permits(capacity, bound[member], bound[member + 1], FIRST_WINDOW + number)
            for number, bound in enumerate(bounds)
        ]
        for member in range(MEMBERS)
    ]
    start_ms = FIRST_WINDOW * WINDOW_MS
    spent = []
    for member in range(MEMBERS):
        engine = Engine("host", f"i{member}", [NAME])
        shares = [
            own_share(pacing, guard_ms, capacity, number, (bound[member], bound[member + 1]))
            for number, bound in enumerate(bounds)
        ]
        engine.offer(shares, start_ms)
        ledger = engine.account(NAME).ledger
        spent.append(
            [
                ledger.take_up_to(max(1, capacity), start_ms + step * STEP_MS)
                if step % STEPS >= idle[member][step // STEPS]
                else 0
                for step in range(WINDOWS * STEPS)
            ]
        )
    return Fleet(pacing, guard_ms, capacity, permits, spent)


def own_share(
    pacing: Pacing, guard_ms: int, capacity: int, number: int, interval: tuple[int, int]
) -> OwnShare:
    window = FIRST_WINDOW + number
    terms = Terms(
        NAME, capacity, WINDOW_MS // 1000, window, window + 1, guard_ms=guard_ms, pacing=pacing
    )
    intervals = (interval,) if interval[0] < interval[1] else ()
    return OwnShare(0, number + 1, 0, 2 * FIRST_WINDOW * WINDOW_MS, terms, intervals, 0)


@given(idle=idle_steps, **fleets)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_no_stretch_passes_the_formula(
    pacing: Pacing, guard_ms: int, capacity: int, layouts: list[list[int]], idle: list[list[int]]
) -> None:
    fleet = run(pacing, guard_ms, capacity, layouts, idle)
    for start in range((WINDOWS - 1) * STEPS):
        spent = [fleet.stretch(member, start) for member in range(MEMBERS)]
        most = [fleet.most(member, start) for member in range(MEMBERS)]
        assert all(s <= m for s, m in zip(spent, most, strict=True)), (start, spent, most)
        assert sum(spent) <= 2 * capacity


@given(**fleets)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_who_spends_as_permits_are_released_passes_no_windows_share_by_more_than_one(
    pacing: Pacing, guard_ms: int, capacity: int, layouts: list[list[int]]
) -> None:
    """All together pass the capacity by what moved between members, and by one a member."""
    fleet = run(pacing, guard_ms, capacity, layouts, [[0] * WINDOWS] * MEMBERS)
    for start in range((WINDOWS - 1) * STEPS):
        window = start // STEPS
        for member in range(MEMBERS):
            larger = max(fleet.permits[member][window : window + 2])
            assert fleet.stretch(member, start) <= larger + 1


def test_the_formula_is_reached() -> None:
    """Who waits for the end of a window spends two windows' permits within one window's length."""
    for pacing in Pacing:
        fleet = run(pacing, 250, 1000, [[400, 800]] * WINDOWS, [[97, 0, 0]] * MEMBERS)
        start = 97
        total = sum(fleet.stretch(member, start) for member in range(MEMBERS))
        assert total == sum(fleet.most(member, start) for member in range(MEMBERS)) == 2 * 1000
        soon = sum(sum(fleet.spent[member][start : start + 10]) for member in range(MEMBERS))
        assert (soon == 2 * 1000) == (pacing is Pacing.WINDOW)
