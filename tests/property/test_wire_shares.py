"""Share arithmetic: exact whole permits, in integers, whatever the cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire_values import capacities, intervals, windows
from worker_sdk.wire.limits import PERMITS_MAX
from worker_sdk.wire.shares import (
    GOLDEN_STEP_POINTS,
    POINTS,
    Interval,
    interval_permits,
    most_permits,
    points_for_permits,
    rotation_points,
    safe_permits,
    share_permits,
    share_points,
    window_at,
    window_start_ms,
)

partitions = st.lists(st.integers(1, POINTS - 1), max_size=40, unique=True).map(
    lambda cuts: list(zip([0, *sorted(cuts)], [*sorted(cuts), POINTS], strict=True))
)


@given(partitions, capacities, windows)
def test_any_partition_gives_exactly_the_capacity_in_every_window(
    parts: list[Interval], capacity: int, window: int
) -> None:
    permits = [interval_permits(capacity, start, end, window) for start, end in parts]
    assert sum(permits) == capacity
    assert min(permits) >= 0


@given(partitions, capacities, windows, st.integers(1, 7))
def test_any_deal_of_a_partition_among_members_gives_exactly_the_capacity(
    parts: list[Interval], capacity: int, window: int, members: int
) -> None:
    dealt = [parts[number::members] for number in range(members)]
    assert sum(share_permits(capacity, own, window) for own in dealt) == capacity
    assert sum(share_points(own) for own in dealt) == POINTS


@given(intervals(), capacities, windows)
def test_an_interval_gives_its_floor_or_one_more(
    own: tuple[Interval, ...], capacity: int, window: int
) -> None:
    for start, end in own:
        floor = capacity * (end - start) // POINTS
        assert floor <= interval_permits(capacity, start, end, window) <= floor + 1
        assert interval_permits(capacity, start, end, window) >= safe_permits(capacity, end - start)
    assert (
        share_permits(capacity, own, window) <= most_permits(capacity, own) <= capacity + len(own)
    )


@given(st.integers(0, 10**6), st.integers(1, PERMITS_MAX), st.integers(0, POINTS), windows)
def test_points_for_permits_suffice_in_every_window_wherever_they_lie(
    permits: int, capacity: int, place: int, window: int
) -> None:
    points = points_for_permits(permits, capacity)
    if points > POINTS:
        assert permits > capacity
        return
    start = place % (POINTS - points + 1)
    assert interval_permits(capacity, start, start + points, window) >= permits


@given(st.integers(1, 10**6), st.integers(1, PERMITS_MAX), st.integers(0, POINTS))
def test_one_point_fewer_fails_in_some_window(permits: int, capacity: int, place: int) -> None:
    points = points_for_permits(permits, capacity) - 1
    if not 0 < points <= POINTS:
        return
    start = place % (POINTS - points + 1)
    # The window in which a whole permit falls exactly on the start: the worst one for it.
    window = (-capacity * start * pow(GOLDEN_STEP_POINTS, -1, POINTS)) % POINTS
    assert interval_permits(capacity, start, start + points, window) < permits


@given(st.integers(0, 10**6), st.integers(0, POINTS))
def test_no_points_are_asked_for_no_permits(capacity: int, permits: int) -> None:
    assert points_for_permits(0, capacity) == 0
    if permits:
        with pytest.raises(ValueError, match="closed"):
            points_for_permits(permits, 0)


@given(st.integers(0, 10**9))
def test_the_odd_permit_visits_every_point_once_in_a_billion_windows(window: int) -> None:
    rotation = rotation_points(window)
    assert 0 <= rotation < POINTS
    assert rotation * pow(GOLDEN_STEP_POINTS, -1, POINTS) % POINTS == window % POINTS


@pytest.mark.parametrize(("capacity", "members"), [(1, 5), (50, 100), (12, 5), (7, 50)])
def test_a_small_capacity_reaches_every_equal_member_within_a_bounded_wait(
    capacity: int, members: int
) -> None:
    cuts = [POINTS * number // members for number in range(members + 1)]
    waits = [0] * members
    longest = 0
    for window in range(29_000_000, 29_000_000 + 40 * members):
        for member in range(members):
            got = interval_permits(capacity, cuts[member], cuts[member + 1], window)
            waits[member] = 0 if got else waits[member] + 1
        longest = max(longest, *waits)
    # Three gap lengths of the golden rotation: never worse than 2.62 times the mean gap, and one.
    assert longest <= 2.62 * members / capacity + 1


@given(st.integers(0, 4_102_444_800_000), st.integers(1, 86_400))
def test_an_instant_lies_in_its_window(unix_ms: int, window_seconds: int) -> None:
    window = window_at(unix_ms, window_seconds)
    start = window_start_ms(window, window_seconds)
    assert start <= unix_ms < window_start_ms(window + 1, window_seconds)
