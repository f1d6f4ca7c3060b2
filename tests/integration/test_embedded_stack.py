"""The stack as a whole: what it says, that two do not meet, and that nothing outlives its owner."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from balancer.embedded import EmbeddedError, EmbeddedStack, MissingProgramError, guardian, postgres
from tests.support.real_clients import await_condition, query, s3_client

ROOT = Path(__file__).resolve().parents[2]
OWNER = """
import sys, time
from balancer.embedded import EmbeddedStack
stack = EmbeddedStack(parts=sys.argv[1].split(","), report=lambda line: print(line, flush=True))
stack.start()
print(stack.directory, flush=True)
sys.stdin.read()
"""


def start_owner(
    parts: str, python: str = sys.executable, user: str | None = None, path: str = ""
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, "-c", OWNER, parts],
        cwd=ROOT if user is None else "/",
        env={**os.environ, "PYTHONPATH": path or str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
    )


def read_lines(owner: subprocess.Popen[str], count: int) -> list[str]:
    assert owner.stdout is not None
    return [owner.stdout.readline().strip() for _ in range(count)]


def sockets_outside(directory: Path) -> set[Path]:
    """Return the socket files that a stack's processes have open in folders not its own.

    By what the kernel says of these processes: others on the machine may have stacks, too.
    """
    inodes = set()
    for pid in guardian.processes_inside(str(directory)):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    paths = {Path(row[7]) for row in rows if len(row) > 7 and row[6] in inodes}
    return {path for path in paths if path.is_socket() and directory not in path.parents}


async def test_two_stacks_live_side_by_side_and_say_what_they_are() -> None:
    lines: list[str] = []
    with EmbeddedStack(report=lines.append) as one, EmbeddedStack(report=lines.append) as other:
        assert one.directory != other.directory
        ports = [
            port for stack in (one, other) for part in stack.parts.values() for port in part.ports
        ]
        assert len(ports) == len(set(ports))
        await query(one.postgres.dsn, "CREATE TABLE mine (n int)")
        assert await query(other.postgres.dsn, "SELECT to_regclass('mine')") is None
        s3_client(one.s3).put_object(Bucket=one.s3.bucket, Key="mine", Body=b"")
        assert "Contents" not in s3_client(other.s3).list_objects_v2(Bucket=other.s3.bucket)
        assert one.environment()["PERMIT_KAFKA_BOOTSTRAP_SERVERS"] == one.kafka.address
        secrets = [one.s3.secret_key, one.postgres.dsn]
        directories = [one.directory, other.directory]
    assert [line.partition(":")[0] for line in lines] == ["kafka", "postgres", "s3"] * 2
    assert all(" at 127.0.0.1:" in line for line in lines)
    assert not any(secret in line for line in lines for secret in secrets)
    assert not any(directory.exists() for directory in directories)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_an_owner_that_is_killed(signal_number: int) -> None:
    with start_owner("kafka,postgres,s3") as owner:
        directory = Path(read_lines(owner, 4)[-1])
        assert len(guardian.processes_inside(str(directory))) > 3
        sockets = sockets_outside(directory)
        assert sockets
        owner.send_signal(signal_number)
        owner.wait(20)
    await_condition(lambda: not directory.exists(), "the directory is removed")
    assert guardian.processes_inside(str(directory)) == []
    assert not [path for path in sockets if path.exists()]


def test_paused_and_crashed_parts_do_not_outlive_their_owner_either() -> None:
    with EmbeddedStack(parts=["kafka", "postgres"], report=lambda _: None) as stack:
        directory = stack.directory
        stack.postgres.pause()
        stack.kafka.kill()
    assert not directory.exists()
    assert guardian.processes_inside(str(directory)) == []


def test_forked_child_leaves_the_stack_to_its_parent() -> None:
    with EmbeddedStack(parts=["kafka"], report=lambda _: None) as stack:
        child = os.fork()
        if child == 0:
            stack.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert stack.kafka.alive()
        directory = stack.directory
    assert not directory.exists()


def test_given_directory_keeps_its_data_for_the_next_stack_and_serves_one_at_a_time(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "kept"
    with EmbeddedStack(directory, parts=["s3"], report=lambda _: None) as stack:
        s3_client(stack.s3).put_object(Bucket=stack.s3.bucket, Key="kept", Body=b"1")
        with pytest.raises(EmbeddedError, match="another stack"):
            EmbeddedStack(directory, parts=["s3"]).start()
        assert stack.s3.alive()
    with EmbeddedStack(directory, parts=["s3"], report=lambda _: None) as stack:
        found = s3_client(stack.s3).get_object(Bucket=stack.s3.bucket, Key="kept")
        assert found["Body"].read() == b"1"


def test_server_that_cannot_start_is_an_error_with_its_log_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, str] = vars(postgres)["_SERVER_SETTINGS"]
    monkeypatch.setitem(settings, "max_connections", "none")
    stack = EmbeddedStack(parts=["postgres"])
    with pytest.raises(EmbeddedError, match='invalid value for parameter "max_connections"'):
        stack.start()
    with pytest.raises(EmbeddedError, match="not started"):
        _ = stack.directory


def test_missing_program_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("balancer.embedded.kafka.packaged_program", lambda *_: None)
    with pytest.raises(MissingProgramError, match=r"pip install 'permit-balancer\[embedded\]'"):
        EmbeddedStack(parts=["kafka"]).start()


@pytest.mark.parametrize("parts", [[], ["kafka", "redis"]])
def test_unknown_or_no_parts_are_refused(parts: list[str]) -> None:
    with pytest.raises(EmbeddedError, match="parts must be some of"):
        EmbeddedStack(parts=parts)


@pytest.mark.skipif(os.geteuid() != 0, reason="the session itself is unprivileged already")
def test_stack_runs_for_an_unprivileged_user() -> None:
    packages = Path(pytest.__file__).resolve().parents[1]
    path = f"{ROOT}:{packages}"
    python = interpreter_for("nobody", path)
    with start_owner("kafka,postgres,s3", python, user="nobody", path=path) as owner:
        *lines, directory = read_lines(owner, 4)
        assert [line.partition(":")[0] for line in lines] == ["kafka", "postgres", "s3"]
        assert Path(directory).owner() == "nobody"
        owner.kill()
        owner.wait(20)
    await_condition(lambda: not Path(directory).exists(), "the directory is removed")


def interpreter_for(user: str, path: str) -> str:
    """Finds a Python of our version that a user may run with our packages, or skips the test."""
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        try:
            done = subprocess.run(
                [candidate, "-c", "import balancer.embedded, boto3"],
                user=user,
                cwd="/",
                env={**os.environ, "PYTHONPATH": path},
                stderr=subprocess.DEVNULL,
                timeout=30,
                check=False,
            )
        except OSError:
            continue
        if done.returncode == 0:
            return candidate
    pytest.skip(f"no Python 3.{sys.version_info.minor} that {user} may run with these packages")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root must hand PostgreSQL to another user")
async def test_postgres_runs_from_a_copy_where_its_user_cannot_enter_the_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "balancer.embedded.postgres.may_reach", lambda path, _: "pginstall" not in str(path)
    )
    with EmbeddedStack(parts=["postgres"], report=lambda _: None) as stack:
        assert await query(stack.postgres.dsn, "SELECT 1") == 1
        assert (stack.directory / "postgres-program").exists()
