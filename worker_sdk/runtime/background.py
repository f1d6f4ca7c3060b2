"""The work behind a client: flushes, reads, and the waking of waiters.

Decides when to try again and what a failure means (it is counted, warned of at most once a minute
for each cause, and nothing else). Knows nothing of drivers. One daemon thread owns an event loop,
on which reports leave and waiters are served; a second one reads, as reading blocks. Neither raises
into the host program, and nothing here is needed for `try_acquire`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final

from worker_sdk.errors import PermitError
from worker_sdk.runtime.loops import GuestLoop
from worker_sdk.runtime.member import Member
from worker_sdk.runtime.timetable import Timetable, make_timetable
from worker_sdk.transports.base import ReportSink, SendError, ShareSource, names_of
from worker_sdk.wire.usage import UsageBatch

NEWCOMER_SECONDS: Final = 0.5
"""A newcomer looks this often until it has an entry, for its first periods."""

NEWCOMER_PERIODS: Final = 3
SEND_SECONDS: Final = 10.0
WAIT_SECONDS: Final = 25.0
PACER_SECONDS: Final = 1.0
LOAN_SECONDS: Final = 1.0
"""Where points are lent, a member looks this often whether it has run out."""

LOAN_LOOKS: Final = 12
"""For so many looks at documents, half a second apart, it waits for what comes of saying so."""

CLOSE_MARGIN_SECONDS: Final = 0.2


class Background:
    """The two threads of one member.

    Args:
        member: whom they serve.
        sink: where reports go.
        source: where shares come from.
        flush_seconds: period of reports.
    """

    def __init__(
        self, member: Member, sink: ReportSink, source: ShareSource, flush_seconds: float
    ) -> None:
        self._member = member
        self._sink = sink
        self._source = source
        self._timetable: Timetable = make_timetable(flush_seconds, member.instance)
        self._send_seconds = min(SEND_SECONDS, max(1.0, flush_seconds / 3))
        self._soon_seconds = max(NEWCOMER_SECONDS, flush_seconds / 30)
        self._loop = GuestLoop()
        self._pacer_call: asyncio.Event = asyncio.Event()
        self._flusher: asyncio.Task[None] | None = None
        self._finishing: asyncio.Task[bool] | None = None
        self._is_sending = False
        self._stopping = threading.Event()
        self._read_call = threading.Event()
        self._started_mono = time.monotonic()
        self._loan_looks = 0
        self._loop_thread = threading.Thread(
            target=self._run_loop, name="permit-worker", daemon=True
        )
        self._read_thread = threading.Thread(
            target=self._read_forever, name="permit-reader", daemon=True
        )

    def start(self) -> None:
        """Start both threads.

        Raises:
            RuntimeError: if the system gives no thread (any more); neither runs then.
        """
        self._member.on_waiting = self.call_pacer
        try:
            self._loop_thread.start()
            self._read_thread.start()
        except RuntimeError:
            self._stopping.set()
            if self._loop_thread.is_alive():
                self._loop.call_soon_threadsafe(self._loop.stop)
            else:
                self._loop.close()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether the loop's thread runs."""
        return self._loop_thread.is_alive()

    def call_pacer(self) -> None:
        """Have the waiters looked at, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(self._pacer_call.set)

    def close(self, timeout_seconds: float) -> bool:
        """End the work within the time; say whether the goodbye was delivered."""
        deadline = time.monotonic() + timeout_seconds
        self._stopping.set()
        self._read_call.set()
        self._source.interrupt()
        if not self._loop_thread.is_alive():
            self._member.goodbye()
            return False
        seconds = max(0.05, timeout_seconds - CLOSE_MARGIN_SECONDS)
        if threading.current_thread() is self._loop_thread:
            # A finaliser that the collector ran here: waiting would be for itself.
            finish = self._loop.create_task(self._finish(seconds))
            finish.add_done_callback(lambda _: self._loop.stop())
            return False
        return self._finish_by(deadline, seconds)

    def await_close(self, timeout_seconds: float) -> None:
        """See a `close` to its end that was interrupted, wherever it was (a second Ctrl-C)."""
        if self._loop_thread.is_alive():
            seconds = max(0.05, timeout_seconds - CLOSE_MARGIN_SECONDS)
            self._finish_by(time.monotonic() + timeout_seconds, seconds)

    def _finish_by(self, deadline: float, seconds: float) -> bool:
        delivered = False
        finishing = asyncio.run_coroutine_threadsafe(self._finish_once(seconds), self._loop)
        with contextlib.suppress(Exception):
            delivered = finishing.result(timeout=max(0.0, deadline - time.monotonic()))
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop_thread.join(timeout=max(0.05, deadline - time.monotonic()))
        return delivered

    # -- the loop's thread

    def _run_loop(self) -> None:
        loop = self._loop
        pacer = loop.create_task(self._pace_forever())
        self._flusher = loop.create_task(self._flush_forever())
        try:
            loop.run_forever()
            tasks = {pacer, self._flusher, *asyncio.all_tasks(loop)}
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks, timeout=CLOSE_MARGIN_SECONDS))
        except Exception as error:
            self._trouble("loop", error)
        finally:
            loop.close()

    async def _pace_forever(self) -> None:
        while True:
            next_ms: int | None = None
            try:
                self._member.mind_clock()
                next_ms = self._member.pump()
            except Exception as error:
                self._trouble("pacer", error)
                next_ms = 1000
            # Not longer than a second: the wall clock may step.
            seconds = PACER_SECONDS if next_ms is None else min(next_ms / 1000, PACER_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._pacer_call.wait()
            self._pacer_call.clear()

    async def _flush_forever(self) -> None:
        await self._persist(self._greet, give_up_after=None)
        wall_seconds = self._member.clock.wall_ms() / 1000
        pause = self._timetable.first_report_seconds(wall_seconds)
        while True:
            await self._rest(pause)
            # A failed flush is tried again, but the next one's turn is kept.
            await self._persist(self._flush, give_up_after=self._timetable.period_seconds / 2)
            wall_seconds = self._member.clock.wall_ms() / 1000
            pause = self._timetable.until_report_seconds(wall_seconds)

    async def _rest(self, seconds: float) -> None:
        """Wait for the next turn; report meanwhile where points are lent and this one runs out."""
        ends_mono = time.monotonic() + seconds
        while (left_seconds := ends_mono - time.monotonic()) > 0:
            if not self._member.may_borrow():
                await asyncio.sleep(min(left_seconds, self._timetable.period_seconds / LOAN_LOOKS))
                continue
            await asyncio.sleep(min(left_seconds, LOAN_SECONDS))
            batch = self._member.run_out()
            if batch is not None:
                await self._borrow(batch)

    async def _borrow(self, batch: UsageBatch) -> None:
        # Undelivered it is not kept: the next report in turn says all of it.
        try:
            await self._sink.send(batch, self._send_seconds)
        except SendError as error:
            self._member.failed("loan", error.cause)
        except Exception as error:
            self._member.failed("loan", names_of(error))
        else:
            self._loan_looks = LOAN_LOOKS
            self._read_call.set()

    async def _persist(
        self, attempt: Callable[[], Awaitable[bool]], give_up_after: float | None
    ) -> None:
        started = time.monotonic()
        pause = NEWCOMER_SECONDS
        failures = 0
        while not await attempt():
            if give_up_after is not None and time.monotonic() - started > give_up_after:
                return
            failures += 1
            await asyncio.sleep(self._timetable.retry_seconds(pause, failures))
            pause = min(pause * 2, max(1.0, self._timetable.period_seconds / 12))

    async def _greet(self) -> bool:
        return await self._send(self._member.hello(), self._send_seconds)

    async def _flush(self) -> bool:
        batch = self._member.drain()
        return batch is None or await self._send(batch, self._send_seconds)

    async def _send(self, batch: UsageBatch, seconds: float) -> bool:
        self._is_sending = True
        try:
            await self._sink.send(batch, seconds)
        except SendError as error:
            self._member.undelivered(batch, error.undelivered, error.cause)
            self._complain("reports", error)
            return False
        except asyncio.CancelledError:
            self._member.undelivered(batch, batch, "closing")
            raise
        except Exception as error:
            self._member.undelivered(batch, batch, names_of(error))
            self._complain("reports", error)
            return False
        finally:
            self._is_sending = False
        self._member.delivered(batch)
        return True

    async def _finish_once(self, seconds: float) -> bool:
        if self._finishing is None:
            self._finishing = asyncio.create_task(self._finish(seconds))
        return await asyncio.shield(self._finishing)

    async def _finish(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        flusher = self._flusher
        if flusher is not None:
            if self._is_sending:
                await asyncio.wait({flusher}, timeout=self._grace_seconds(seconds))
            flusher.cancel()
            await asyncio.wait({flusher}, timeout=max(0.0, deadline - time.monotonic()) / 2)
        batch = self._member.goodbye()
        delivered = False
        remaining = deadline - time.monotonic()
        if remaining > 0:
            delivered = await self._send(batch, remaining)
        await self._sink.close(max(0.0, min(1.0, deadline - time.monotonic())))
        return delivered

    @staticmethod
    def _grace_seconds(seconds: float) -> float:
        # A flush under way may end by itself, but most of the time belongs to the goodbye.
        return min(0.25, seconds / 4)

    # -- the reader's thread

    def _read_forever(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            waits = self._source.can_wait
            failed = False
            try:
                reading = self._source.read(
                    self._member.held_epochs(), self._hold_seconds() if waits else 0.0
                )
                failed = bool(reading.failures)
                if self._stopping.is_set():
                    return
                if self._member.take_reading(reading):
                    self.call_pacer()
                if failed:
                    self._member.warn(
                        f"distribution:{reading.failures[0]}",
                        "distribution: not all could be read: %s",
                        reading.failures,
                    )
            except Exception as error:
                if self._stopping.is_set():
                    return
                failed = True
                self._member.failed("read", names_of(error))
                self._complain("distribution", error)
            failures = failures + 1 if failed else 0
            took_seconds = time.monotonic() - started
            self._read_call.wait(self._until_read_seconds(failures, waits, took_seconds))
            if not self._stopping.is_set():
                self._read_call.clear()

    def _hold_seconds(self) -> float:
        return min(WAIT_SECONDS, max(1.0, self._timetable.period_seconds))

    def _until_read_seconds(self, failures: int, waits: bool, took_seconds: float) -> float:
        newcomer_seconds = self._timetable.period_seconds * NEWCOMER_PERIODS
        if failures:
            return self._timetable.retry_seconds(self._soon_seconds, failures)
        if waits:
            # The other side says when to look; this only keeps one that does not wait from being
            # asked without pause.
            return max(0.0, NEWCOMER_SECONDS - took_seconds)
        if self._loan_looks:
            self._loan_looks -= 1
            return NEWCOMER_SECONDS
        if self._member.lacks_entry():
            is_new = time.monotonic() - self._started_mono < newcomer_seconds
            return NEWCOMER_SECONDS if is_new else self._soon_seconds
        turn_seconds = self._timetable.until_read_seconds(self._member.clock.wall_ms() / 1000)
        covered_seconds = self._member.covered_for_ms() / 1000
        # If the documents end before the next turn, theirs was missed: look again soon.
        return turn_seconds if turn_seconds < covered_seconds else self._soon_seconds

    # -- trouble

    def _complain(self, what: str, error: Exception) -> None:
        text = str(error) if isinstance(error, PermitError) else repr(error)
        cause = f"{what}:{names_of(error)}"
        self._member.warn(cause, "%s: %s; permits go on by what is known", what, text[:300])

    def _trouble(self, what: str, error: Exception) -> None:
        self._member.failed(what, names_of(error))
        self._complain(what, error)
