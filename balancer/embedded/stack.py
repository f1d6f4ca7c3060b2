"""The whole local stack: which parts, where, and that nothing of it outlives its owner.

Decides the directory, the order of starting and what clients must be told. The end is the
guardian's: a small process that learns by the closing of a pipe that the owner has stopped or
died, ends what is left and removes the directory. Knows no client library and no balancer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from balancer.embedded import guardian
from balancer.embedded.errors import DirectoryError, EmbeddedError
from balancer.embedded.kafka import KAFKA_BUCKET, KafkaPart, KafkaServer
from balancer.embedded.part import ServerPart
from balancer.embedded.postgres import PostgresPart
from balancer.embedded.programs import may_reach, unprivileged_user
from balancer.embedded.s3 import S3Part

PARTS = ("kafka", "postgres", "s3")
GUARDIAN_SECONDS = 20.0

_OTHER_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - only as parents of mkdtemp
_T = TypeVar("_T")

_open_stacks: weakref.WeakSet[EmbeddedStack] = weakref.WeakSet()


def report_on_stderr(line: str) -> None:
    """Writes one line about the stack to standard error."""
    sys.stderr.write(line + "\n")


class EmbeddedStack:
    """Kafka, PostgreSQL and S3 on loopback, from installed packages, for as long as it is open.

    Example:
        >>> with EmbeddedStack() as stack:  # doctest: +SKIP
        ...     settings = stack.environment()
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        parts: Collection[str] = PARTS,
        report: Callable[[str], None] = report_on_stderr,
        durable_kafka: bool = False,
        kafka_type: Callable[[Path], KafkaServer] | None = None,
    ) -> None:
        """Says what the stack consists of; ``start()`` or ``with`` brings it up.

        Args:
            data_dir: None for a temporary directory, removed at the end. A directory given is
                created if need be and kept with its data, for the next stack that is given it.
            parts: Which of ``kafka``, ``postgres`` and ``s3`` to run.
            report: Takes one line a part, once it is up.
            durable_kafka: Keep Kafka's data on the stack's S3, so that it survives a restart.
            kafka_type: Runs another Kafka than the embedded one; takes the stack's directory.

        Raises:
            EmbeddedError: The parts asked for do not fit together.
        """
        unknown = set(parts) - set(PARTS)
        if unknown or not parts:
            raise EmbeddedError(f"parts must be some of {', '.join(PARTS)}; got {sorted(parts)}")
        if durable_kafka and not {"kafka", "s3"} <= set(parts):
            raise EmbeddedError("durable_kafka=True needs the parts 'kafka' and 's3'")
        if not sys.platform.startswith("linux"):
            raise EmbeddedError("the embedded stack runs on Linux only")
        self._asked = tuple(part for part in PARTS if part in parts)
        self._given = data_dir
        self._report = report
        self._durable_kafka = durable_kafka
        self._kafka_type = kafka_type
        self._parts: dict[str, ServerPart] = {}
        self._kafka: KafkaServer | None = None
        self._postgres: PostgresPart | None = None
        self._s3: S3Part | None = None
        self._directory: Path | None = None
        self._lock: int | None = None
        self._lifeline: int | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._owner: int | None = os.getpid()

    @property
    def kafka(self) -> KafkaServer:
        """The Kafka part; EmbeddedError if the stack has none or is not started."""
        return _present(self._kafka, "kafka")

    @property
    def postgres(self) -> PostgresPart:
        """The PostgreSQL part; EmbeddedError if the stack has none or is not started."""
        return _present(self._postgres, "postgres")

    @property
    def s3(self) -> S3Part:
        """The S3 part; EmbeddedError if the stack has none or is not started."""
        return _present(self._s3, "s3")

    @property
    def parts(self) -> dict[str, ServerPart]:
        """The parts by name; empty before the start."""
        return dict(self._parts)

    @property
    def directory(self) -> Path:
        """Where the stack keeps its files; EmbeddedError unless it is started."""
        return _present(self._directory, "directory")

    def start(self) -> None:
        """Brings up every part; on any failure nothing is left behind.

        Raises:
            DirectoryError: The directory given cannot be made or written.
            EmbeddedError: A part could not be started; the message shows the end of its log.
        """
        if self._directory is not None:
            raise EmbeddedError("the stack is started already")
        try:
            self._directory = self._open_directory()
            self._start_guardian(self._directory)
            self._make_parts(self._directory)
            self._start_parts()
        except BaseException:
            self.stop()
            raise
        for part in self._parts.values():
            self._report(part.describe())

    def stop(self) -> None:
        """Ends every part and removes the directory unless it was given. May be called twice."""
        if self._owner != os.getpid():
            return  # a forked copy
        failures = []
        for part in self._parts.values():
            try:
                part.stop()
            except EmbeddedError as failure:
                failures.append(failure)
        self._parts = {}
        self._kafka = self._postgres = self._s3 = None
        self._dismiss_guardian()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        directory, self._directory = self._directory, None
        if directory is not None and self._given is None:
            shutil.rmtree(directory, ignore_errors=True)  # the guardian has, if it could
        if failures:
            raise failures[0]

    def environment(self) -> dict[str, str]:
        """Returns the environment variables that point a balancer and its workers here.

        They contain passwords. Variables of parts that the stack does not have are left out.
        """
        variables: dict[str, str] = {}
        if self._kafka is not None:
            variables["PERMIT_KAFKA_BOOTSTRAP_SERVERS"] = self._kafka.bootstrap_servers
        if self._postgres is not None:
            variables["PERMIT_POSTGRES_DSN"] = self._postgres.dsn
        if self._s3 is not None:
            variables["PERMIT_S3_BUCKET"] = self._s3.bucket
            variables["PERMIT_S3_ENDPOINT_URL"] = self._s3.endpoint_url
            variables["AWS_ACCESS_KEY_ID"] = self._s3.access_key
            variables["AWS_SECRET_ACCESS_KEY"] = self._s3.secret_key
            variables["AWS_REGION"] = self._s3.region
            variables["AWS_DEFAULT_REGION"] = self._s3.region
        return variables

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _made_directory(self) -> Path:
        if self._given is None:
            return Path(tempfile.mkdtemp(prefix="permit-stack-", dir=_temporary_root()))
        self._given.mkdir(parents=True, exist_ok=True)
        return self._given

    def _open_directory(self) -> Path:
        try:
            directory = self._made_directory().resolve()
            # PostgreSQL's user passes through; the parts' folders are closed.
            directory.chmod(0o711)
            self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            where = self._given or fault.filename
            raise DirectoryError(f"{where} cannot be used: {fault.strerror}") from fault
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as fault:
            raise EmbeddedError(f"another stack uses the directory {directory}") from fault
        return directory

    def _start_guardian(self, directory: Path) -> None:
        reading, self._lifeline = os.pipe()  # neither end is inherited by what is started later
        _open_stacks.add(self)
        fate = "remove" if self._given is None else "keep"
        program = [sys.executable, "-I", "-S", guardian.__file__, str(directory), fate]
        try:
            self._guardian = subprocess.Popen(
                program,
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError as fault:
            raise EmbeddedError(f"cannot run {sys.executable} as the stack's guardian") from fault
        finally:
            os.close(reading)
        with _present(self._guardian.stdout, "guardian's output") as output:
            if output.readline() != b"ready\n":
                raise EmbeddedError(f"{sys.executable} does not run as the stack's guardian")

    def _make_parts(self, directory: Path) -> None:
        if "s3" in self._asked:
            self._s3 = S3Part(directory, [KAFKA_BUCKET] if self._durable_kafka else [])
        if "postgres" in self._asked:
            self._postgres = PostgresPart(directory)
        if "kafka" in self._asked:
            storage = self._s3 if self._durable_kafka else None
            self._kafka = (self._kafka_type or partial(KafkaPart, storage=storage))(directory)
        found = {"kafka": self._kafka, "postgres": self._postgres, "s3": self._s3}
        self._parts = {name: part for name, part in found.items() if part is not None}

    def _start_parts(self) -> None:
        first = [part for name, part in self._parts.items() if name != "kafka"]
        with ThreadPoolExecutor(max_workers=len(PARTS)) as pool:
            for started in [pool.submit(part.start) for part in first]:
                started.result()
        if self._kafka is not None:
            self._kafka.start()

    def _dismiss_guardian(self) -> None:
        self._let_go()
        if self._guardian is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guardian.wait(GUARDIAN_SECONDS)
        if self._guardian.poll() is None:
            self._guardian.kill()
            self._guardian.wait()
        self._guardian = None

    def _let_go(self) -> None:
        _open_stacks.discard(self)
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    def _leave_to_parent(self) -> None:
        """Called in a forked child: the stack is the parent's, and so is ending it."""
        self._owner = None
        self._let_go()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _present(value: _T | None, name: str) -> _T:
    if value is None:
        raise EmbeddedError(f"the embedded stack has no {name}, or is not started")
    return value


def _temporary_root() -> Path | None:
    """Returns a folder for temporary files that PostgreSQL's user may enter; None for the usual."""
    user = unprivileged_user() if os.geteuid() == 0 else None
    usual = Path(tempfile.gettempdir())
    if user is None or may_reach(usual / "x", user):
        return None
    return next((root for root in _OTHER_TEMPORARY if may_reach(root / "x", user)), None)


def _after_fork_in_child() -> None:
    for stack in list(_open_stacks):
        stack._leave_to_parent()  # noqa: SLF001 - its own module


os.register_at_fork(after_in_child=_after_fork_in_child)
