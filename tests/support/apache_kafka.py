"""Apache Kafka itself as a part of the test stack: one KRaft node on loopback, run on Java.

Decides where its jars are kept (a cache folder that Maven fills once, renewed when ``pom.xml``
changes) and the settings that make one node fit for tests. It has the face of the embedded Kafka,
so that a test does not know which of the two it talks to.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import uuid
from pathlib import Path
from typing import ClassVar

from balancer.embedded import EmbeddedError, KafkaServer
from balancer.embedded.ports import LOOPBACK

OLDEST_JAVA = 17
MAVEN_SECONDS = 600.0
FORMAT_SECONDS = 60.0
POM = Path(__file__).with_name("pom.xml")
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

_NODE_ID = "1"
_NODE_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": _NODE_ID,
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "controlled.shutdown.enable": "false",
    # A killed broker's place is free for its successor after this time.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "message.max.bytes": "1048588",
    "num.network.threads": "2",
    "num.io.threads": "4",
}


class ApacheKafka(KafkaServer):
    """An Apache Kafka broker and controller in one process; its data survives a restart."""

    port_count: ClassVar[int] = 2
    start_seconds: ClassVar[float] = 90.0
    stop_signal: ClassVar[int] = signal.SIGTERM

    def __init__(self, directory: Path) -> None:
        """Takes the stack's directory.

        Raises:
            EmbeddedError: Java or Maven is missing, or the jars cannot be had.
        """
        super().__init__(directory)
        self._java = find_java()
        self._jars = fetch_jars()

    def version(self) -> str:
        """Returns the version that the jars have."""
        found = next(self._jars.glob("kafka_2.13-*.jar"), None)
        number = "?" if found is None else found.stem.removeprefix("kafka_2.13-")
        return f"Apache Kafka {number} (KRaft)"

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def _settings_file(self) -> Path:
        return self.home / "server.properties"

    def _prepare(self) -> None:
        broker, controller = (f"{LOOPBACK}:{port}" for port in self.ports)
        settings = {
            **_NODE_SETTINGS,
            "listeners": f"PLAINTEXT://{broker},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{broker}",
            "controller.quorum.voters": f"{_NODE_ID}@{controller}",
            "log.dirs": str(self._data),
        }
        lines = (f"{key}={value}\n" for key, value in settings.items())
        self._settings_file.write_text("".join(lines))
        if not (self._data / "meta.properties").exists():
            self._format()

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        arguments = ["format", "-t", cluster, "-c", str(self._settings_file)]
        with self.log_file.open("ab") as log:
            process = self._spawn(self._run("kafka.tools.StorageTool", arguments), log.fileno())
            try:
                status = process.wait(FORMAT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
        if status != 0:
            raise EmbeddedError(f"Kafka's storage cannot be formatted:\n{self.log_tail()}")

    def _command(self) -> list[str]:
        return self._run("kafka.Kafka", [str(self._settings_file)])

    def _run(self, main_class: str, arguments: list[str]) -> list[str]:
        options = ["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += [
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            f"-Djava.io.tmpdir={self.home}/tmp",
        ]
        options += ["-XX:-UsePerfData", "-cp", f"{self._jars}/*"]
        return [self._java, *options, main_class, *arguments]


def find_java() -> str:
    """Returns the Java to run Kafka on.

    Raises:
        EmbeddedError: There is none of version 17 or newer.
    """
    java = shutil.which("java")
    if java is None:
        raise EmbeddedError(f"Apache Kafka needs java {OLDEST_JAVA} or newer; none is on the PATH")
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', answer.stderr)
    if found is None or int(found.group(1)) < OLDEST_JAVA:
        said = answer.stderr.strip().partition("\n")[0]
        raise EmbeddedError(f"Apache Kafka needs java {OLDEST_JAVA} or newer; {java} says: {said}")
    return java


def cache_folder() -> Path:
    """Returns where the jars are kept: $PERMIT_CACHE_DIR, else ``.cache`` in the project."""
    root = Path(__file__).resolve().parents[2]
    return Path(os.environ.get("PERMIT_CACHE_DIR") or root / ".cache").resolve() / "kafka"


def fetch_jars() -> Path:
    """Returns the folder with Kafka's jars, which Maven fills at the first call.

    Raises:
        EmbeddedError: Maven is missing or failed; the message shows what it said.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    jars = folder / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    with (folder / "lock").open("w") as lock:  # two test runs may begin at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.exists():
            _copy_jars(folder, jars)
    return jars


def _copy_jars(folder: Path, jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise EmbeddedError("Apache Kafka's jars are fetched by Maven; no mvn is on the PATH")
    unfinished = folder / "unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [maven, "-q", "-B", "-f", str(POM), COPY]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=MAVEN_SECONDS,
    )
    if done.returncode != 0 or not list(unfinished.glob("kafka_2.13-*.jar")):
        raise EmbeddedError(f"Maven could not fetch Apache Kafka:\n{done.stdout[-2000:]}")
    unfinished.rename(jars)
