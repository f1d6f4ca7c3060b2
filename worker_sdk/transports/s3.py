"""Shares from an S3 bucket, through boto3.

Decides which files to read, and that only whole and right ones count. Knows nothing of permits.

A shard's documents are read from the oldest not held to the newest and only as far as they can be
read: a newer one that is held acknowledges the older ones, so none may be passed over.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from worker_sdk.errors import ConfigurationError, TransportError, WireError
from worker_sdk.transports.base import Deadline, Identity, Reading, names_of, shards_wanted
from worker_sdk.transports.dates import Dates, mono_ms
from worker_sdk.wire.distribution import OwnShare, read_own_shares
from worker_sdk.wire.fellows import instances_in_document
from worker_sdk.wire.limits import LAYOUT_MAX_BYTES, POINTER_MAX_BYTES
from worker_sdk.wire.pointer import (
    LAYOUT_KEY,
    PointedDocument,
    decode_layout,
    decode_pointer,
    pointer_key,
    sha256_hex,
)

TOTAL_SECONDS: Final = 15.0
CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 3.0
ATTEMPTS: Final = 2
HIDDEN_SECONDS: Final = 120.0
"""So long "forbidden" may stand for "not there yet"; after that it is told as what it says."""

_WRONG_KEYS: Final = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken")
HINTS: Final = dict.fromkeys(
    _WRONG_KEYS,
    "; check the keys (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, or as boto3 finds them)",
)
"""What to look at, by what the store answers."""

_CHUNK_BYTES: Final = 64 * 1024
_ABSENT: Final = frozenset({"NoSuchKey", "404"})
_FORBIDDEN: Final = frozenset({"AccessDenied", "403", "Forbidden"})
_UNCHANGED: Final = frozenset({"304", "NotModified"})


class _AbsentError(TransportError):
    """There is no such file, or none that may be seen."""


class _UnchangedError(TransportError):
    """The file is the one known."""


def parse_s3_url(url: str) -> tuple[str, str]:
    """Return (bucket, prefix) of ``s3://bucket/prefix``; the prefix may be empty.

    Raises:
        ConfigurationError: where it is none.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            f"distribution: {url!r} is no S3 address; an example: s3://permits/prod"
        )
    return parts.netloc, parts.path.strip("/")


def make_client(endpoint_url: str | None, region: str | None) -> Any:
    """Return a boto3 client of a session of its own, with bounded waits.

    Raises:
        ConfigurationError: where boto3 is missing or refuses the settings.
    """
    try:
        session = importlib.import_module("boto3.session").Session()
        config = importlib.import_module("botocore.config").Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            s3={"addressing_style": "path"},
            # Stores other than Amazon's refuse the checksums that newer versions add by default.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            max_pool_connections=1,
        )
    except ImportError as error:
        raise ConfigurationError(
            "distribution: the package boto3 is missing; install permit-balancer[s3]"
        ) from error
    region = region or session.region_name or "us-east-1"
    try:
        return session.client("s3", endpoint_url=endpoint_url, region_name=region, config=config)
    except ValueError as error:
        raise ConfigurationError(
            f"s3_endpoint_url: {error}; an example: http://127.0.0.1:9000"
        ) from error


class S3Source:
    """A share source on a bucket.

    Args:
        identity: whose shares.
        url: ``s3://bucket/prefix``.
        endpoint_url: of a store other than Amazon's.
        region: if it is not in the environment.
        client: for tests; a boto3 client, or what looks like one.

    Raises:
        ConfigurationError: as `parse_s3_url` and `make_client`.
    """

    can_wait = False

    def __init__(
        self,
        identity: Identity,
        url: str,
        *,
        endpoint_url: str | None = None,
        region: str | None = None,
        client: Callable[[], Any] | None = None,
    ) -> None:
        self._identity = identity
        self._bucket, prefix = parse_s3_url(url)
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = make_client(endpoint_url, region) if client is None else client()
        self._errors = importlib.import_module("botocore.exceptions")
        self._shards: tuple[int, ...] | None = None
        self._known_keys: set[str] = set()
        self._hidden_since: float | None = None
        self._etags: dict[int, str] = {}
        self._dates = Dates()
        self._instances: dict[int, frozenset[str]] = {}

    def read(self, held: Mapping[int, int], wait_seconds: float) -> Reading:
        """Return the shares of documents not held yet."""
        deadline = Deadline(TOTAL_SECONDS)
        shards = self._layout(deadline)
        shares: list[OwnShare] = []
        failures: list[str] = []
        for shard in shards:
            try:
                self._read_shard(shard, held.get(shard, 0), deadline, shares)
            except _UnchangedError:
                continue
            except (TransportError, WireError) as error:
                self._etags.pop(shard, None)
                failures.append(_cause(error))
        instances = frozenset[str]().union(*self._instances.values())
        return Reading(tuple(shares), tuple(failures), instances, self._dates.take())

    def interrupt(self) -> None:
        """Do nothing: every wait here is short."""

    def _layout(self, deadline: Deadline) -> tuple[int, ...]:
        if self._shards is None:
            try:
                body, _ = self._get(LAYOUT_KEY, LAYOUT_MAX_BYTES, deadline)
            except _AbsentError:
                return ()
            try:
                count = decode_layout(body)
            except WireError as error:
                raise TransportError(f"layout: {error}") from error
            self._known_keys.add(LAYOUT_KEY)
            self._shards = shards_wanted(self._identity.destinations, count)
        return self._shards

    def _read_shard(
        self, shard: int, held_epoch: int, deadline: Deadline, shares: list[OwnShare]
    ) -> None:
        try:
            body, etag = self._get(
                pointer_key(shard), POINTER_MAX_BYTES, deadline, self._etags.get(shard)
            )
        except _AbsentError:
            return
        self._known_keys.add(pointer_key(shard))
        newest = b""
        for pointed in reversed(decode_pointer(body, shard).documents):
            if pointed.epoch > held_epoch:
                newest = self._read_document(shard, pointed, deadline, shares)
        if newest:
            self._instances[shard] = instances_in_document(newest, self._identity.host)
        self._etags[shard] = etag

    def _read_document(
        self, shard: int, pointed: PointedDocument, deadline: Deadline, shares: list[OwnShare]
    ) -> bytes:
        try:
            body, _ = self._get(pointed.key, pointed.size_bytes, deadline)
        except _AbsentError as error:
            raise TransportError("a document that the pointer names is missing") from error
        if len(body) != pointed.size_bytes or sha256_hex(body) != pointed.sha256:
            raise TransportError("a document is not the one that the pointer names")
        own = read_own_shares(body, self._identity.host, self._identity.instance)
        if any((share.shard, share.epoch) != (shard, pointed.epoch) for share in own):
            raise TransportError("a document is of another shard or epoch")
        shares.extend(own)
        return body

    def _get(
        self, key: str, limit_bytes: int, deadline: Deadline, etag: str | None = None
    ) -> tuple[bytes, str]:
        deadline.check("reading the distribution")
        condition = {} if etag is None else {"IfNoneMatch": etag}
        asked_mono_ms = mono_ms()
        try:
            answer = self._client.get_object(
                Bucket=self._bucket, Key=self._prefix + key, **condition
            )
            self._note_date(asked_mono_ms, answer)
            body = _read_body(answer["Body"], limit_bytes, deadline)
        except self._errors.ClientError as error:
            self._note_date(asked_mono_ms, error.response)
            raise self._translated(error, key) from error
        except (self._errors.BotoCoreError, self._errors.HTTPClientError, OSError) as error:
            raise TransportError(f"S3: {error}") from error
        self._hidden_since = None
        return body, str(answer.get("ETag", ""))

    def _note_date(self, asked_mono_ms: int, answer: Mapping[str, Any]) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        self._dates.note(asked_mono_ms, headers.get("date"), headers.get("age"))

    def _translated(self, error: Any, key: str) -> TransportError:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _UNCHANGED or code in _ABSENT:
            self._hidden_since = None
            return _UnchangedError(code) if code in _UNCHANGED else _AbsentError(code)
        if code in _FORBIDDEN:
            if key not in self._known_keys and self._may_be_hidden():
                return _AbsentError(code)
            return TransportError(f"S3 answers {code}; check the rights on s3://{self._bucket}")
        hint = HINTS.get(code, "")
        if code == "NoSuchBucket":
            hint = f"; there is no s3://{self._bucket}: check the address and s3_endpoint_url"
        if code in {"InvalidArgument", "NotImplemented", "BadRequest", "InvalidRequest", "400"}:
            hint = (
                "; request_checksum_calculation and response_checksum_validation are "
                "when_required here: does the store ask for more?"
            )
        return TransportError(f"S3 answers {code}{hint}")

    def _may_be_hidden(self) -> bool:
        """Say whether "forbidden" may mean that a file is not there yet.

        A store that does not allow listing answers so; but where nothing else can be read either,
        only for a time.
        """
        now = time.monotonic()
        if self._hidden_since is None:
            self._hidden_since = now
        return now - self._hidden_since < HIDDEN_SECONDS


def _read_body(body: Any, limit_bytes: int, deadline: Deadline) -> bytes:
    chunks: list[bytes] = []
    size_bytes = 0
    try:
        while chunk := body.read(_CHUNK_BYTES):
            size_bytes += len(chunk)
            if size_bytes > limit_bytes:
                raise TransportError(f"a file is over {limit_bytes} bytes")
            chunks.append(chunk)
            deadline.check("reading a file")
    finally:
        body.close()
    return b"".join(chunks)


def _cause(error: Exception) -> str:
    return error.reason.value if isinstance(error, WireError) else names_of(error)
