"""Which time is believed when the machine's clock was set."""

from __future__ import annotations

import logging

import pytest

from balancer.app.clocks import APART_MS, STEP_MS, SharedClock, SteadyClock

START_MS = 1_800_000_000_000
MINUTES_10 = 600_000


class Machine:
    passes_ms = 0  # by each look at a clock

    def __init__(self) -> None:
        self.true_ms = START_MS
        self.wrong_by_ms = 0

    def now_ms(self) -> int:
        self.true_ms += self.passes_ms
        return self.true_ms + self.wrong_by_ms

    def monotonic_ms(self) -> int:
        self.true_ms += self.passes_ms
        return self.true_ms - START_MS


@pytest.mark.parametrize("step_ms", [MINUTES_10, -MINUTES_10, STEP_MS + 1])
def test_a_step_is_not_followed_and_time_goes_on(step_ms: int) -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    machine.wrong_by_ms = step_ms
    assert clock.now_ms() == START_MS
    machine.true_ms += 3_000
    assert (clock.now_ms(), clock.monotonic_ms()) == (START_MS + 3_000, 3_000)


@pytest.mark.parametrize("step_ms", [MINUTES_10, -MINUTES_10])
def test_a_wrong_step_is_told_once_and_forgotten_when_it_is_mended(
    step_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    machine.wrong_by_ms = step_ms
    for _ in range(3):
        machine.true_ms += 1_000
        clock.compare(machine.true_ms, 2)
        assert clock.now_ms() == machine.true_ms
    assert [entry.levelno for entry in caplog.records] == [logging.ERROR]
    assert f"{step_ms // 1000:+d} s" in caplog.text
    machine.wrong_by_ms = 0
    clock.compare(machine.true_ms, 2)
    assert clock.now_ms() == machine.true_ms
    assert len(caplog.records) == 1


@pytest.mark.parametrize("step_ms", [4_900, -4_900])
def test_a_small_step_is_followed_only_if_it_comes_nearer_to_the_shared_clock(
    step_ms: int,
) -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    machine.wrong_by_ms = step_ms
    clock.compare(machine.true_ms, 2)
    assert clock.now_ms() == machine.true_ms
    clock.compare(machine.now_ms(), 2)
    assert clock.now_ms() == machine.now_ms()


def test_an_answer_that_took_long_says_nothing() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    machine.wrong_by_ms = 20_000
    clock.compare(machine.true_ms + 20_000, 25_000)
    assert clock.now_ms() == machine.true_ms


def test_a_clock_that_was_wrong_and_is_set_right_is_followed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    machine = Machine()
    machine.wrong_by_ms = MINUTES_10
    clock = SteadyClock(machine)
    clock.compare(machine.true_ms, 2)
    assert clock.now_ms() == machine.true_ms + MINUTES_10  # it may be the other that is wrong
    assert "NTP" in caplog.text
    machine.wrong_by_ms = 0
    assert clock.now_ms() == machine.true_ms + MINUTES_10
    clock.compare(machine.true_ms, 2)
    assert clock.now_ms() == machine.true_ms
    assert "was set by -600.0 s" in caplog.text


@pytest.mark.parametrize("passes_ms", [1, STEP_MS + 500])  # a tick; a process that had to wait
def test_time_that_passes_between_two_looks_is_no_step(
    passes_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    machine.passes_ms = passes_ms
    for _ in range(5):
        assert abs(clock.now_ms() - machine.true_ms) <= passes_ms
        clock.compare(machine.true_ms, 3 * passes_ms)
    machine.passes_ms = 0
    assert abs(clock.now_ms() - machine.true_ms) <= passes_ms
    assert caplog.records == []


def test_a_slow_answer_is_no_reason_to_follow_a_step() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    machine.wrong_by_ms = -3_000
    clock.compare(machine.true_ms - 4_000, 4_500)  # told 4 s ago
    assert clock.now_ms() == machine.true_ms


def test_a_shared_clock_that_steps_moves_nobody() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    clock.compare(machine.true_ms + MINUTES_10, 2)
    assert clock.now_ms() == machine.true_ms


def test_small_differences_are_followed_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    for _ in range(10):  # slewed, in the end by more than a step
        machine.wrong_by_ms += STEP_MS
        assert clock.now_ms() == machine.now_ms()
    machine.wrong_by_ms = 0
    clock = SteadyClock(machine)
    clock.compare(machine.true_ms - APART_MS - 700, 700)  # the answer was slow
    assert caplog.records == []


def test_how_far_it_is_ahead_is_told_as_far_as_it_is_certain() -> None:
    machine = Machine()
    clock = SteadyClock(machine)
    assert clock.compare(machine.true_ms - 700, 500) == 200
    assert clock.compare(machine.true_ms - 300, 500) == 0
    assert clock.compare(machine.true_ms + 700, 500) == -700


@pytest.mark.parametrize("wrong_by_ms", [MINUTES_10, -MINUTES_10])
def test_the_shared_time_is_what_was_told_whatever_the_machine_shows(wrong_by_ms: int) -> None:
    machine = Machine()
    machine.wrong_by_ms = wrong_by_ms
    clock = SharedClock(machine)
    assert (clock.now_ms(), clock.is_told) == (machine.now_ms(), False)  # nothing else is known
    clock.compare(machine.true_ms, 2)
    assert abs(clock.now_ms() - machine.true_ms) <= 2
    assert clock.is_told
    machine.true_ms += 3_000
    machine.wrong_by_ms = 0
    assert abs(clock.now_ms() - machine.true_ms) <= 2


def test_an_answer_moves_the_shared_time_only_as_far_as_it_was_certainly_wrong() -> None:
    machine = Machine()
    clock = SharedClock(machine)
    clock.compare(machine.true_ms - 400, 500)  # it may have been told 500 ms ago
    assert clock.now_ms() == machine.true_ms
    clock.compare(machine.true_ms - 400, 300)
    assert clock.now_ms() == machine.true_ms - 100
    clock.compare(machine.true_ms + 50, 30_000)
    assert clock.now_ms() == machine.true_ms + 50
