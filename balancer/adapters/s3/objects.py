"""A bucket as plain calls that wait: get, conditional put, list, delete.

Decides how long a call may take and what an S3 error means. Knows no document.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)

from balancer.errors import BalancerError, ConflictError, SettingsError, UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECT_SECONDS: Final = 3
READ_SECONDS: Final = 5
ATTEMPTS: Final = 2
POOL_CONNECTIONS: Final = 16

_CONFLICTS: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_MISSING: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_FORBIDDEN: Final = frozenset({"AccessDenied", "Forbidden", "403"})
_UNCHANGED: Final = frozenset({"NotModified", "304"})
_WRONG_SETTINGS: Final = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket", "InvalidBucketName"}
)
_WRONG_CHECKSUM: Final = frozenset({"InvalidArgument", "NotImplemented", "InvalidRequest", "400"})


@dataclass(frozen=True, slots=True)
class S3Config:
    """Where the bucket is. Credentials come from where boto3 finds them."""

    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """An object as read; ``tag`` names this state of it."""

    body: bytes
    tag: str


class _MissingError(BalancerError):
    """There is no such object."""


class _ForbiddenError(BalancerError):
    """The object may not be read; a store that hides its listing says so of a missing one too."""


class _UnchangedError(BalancerError):
    """The object is the one whose tag was given."""


class Bucket:
    """One prefix of a bucket; every call is bounded by seconds times attempts."""

    def __init__(self, config: S3Config) -> None:
        self._bucket = config.bucket
        self._prefix = f"{config.prefix.strip('/')}/" if config.prefix.strip("/") else ""
        self._known_keys: set[str] = set()
        try:
            # A session of its own: the default one is not safe to make in several threads.
            session = boto3.session.Session()
            self._client: S3Client = session.client(
                "s3",
                endpoint_url=config.endpoint_url,
                region_name=config.region or session.region_name or "us-east-1",
                config=Config(
                    connect_timeout=CONNECT_SECONDS,
                    read_timeout=READ_SECONDS,
                    retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
                    s3={"addressing_style": "path"},
                    # Stores other than Amazon's refuse the checksums that are sent by default.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    max_pool_connections=POOL_CONNECTIONS,
                ),
            )
        except (ValueError, BotoCoreError) as error:
            raise SettingsError(
                f"PERMIT_S3_ENDPOINT_URL: {error}; "
                "for example PERMIT_S3_ENDPOINT_URL=http://127.0.0.1:9000"
            ) from error

    def check(self) -> None:
        """Check that the bucket is there and may be listed.

        Raises:
            BalancerError: it is not; names the setting.
            UnavailableError: S3 does not answer.
        """
        try:
            with self._translated("list the bucket"):
                self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)
        except (_ForbiddenError, _MissingError) as error:
            raise self._refused("list the bucket", "AccessDenied") from error

    def get(
        self, key: str, most_bytes: int, *, tag: str | None = None, may_hide: bool = False
    ) -> Content | None:
        """Return an object, None where there is none or it is still the one tagged.

        Args:
            key: relative to the prefix.
            most_bytes: the most it may have.
            tag: of the state that is known already.
            may_hide: take "forbidden" for "not there yet", unless it was read or put before.

        Raises:
            BalancerError: where it is larger, or reading it is refused.
            UnavailableError: where S3 does not answer.
        """
        condition = {} if tag is None else {"IfNoneMatch": tag}
        try:
            with self._translated(f"give {key}"):
                answer = self._client.get_object(
                    Bucket=self._bucket,
                    Key=self._prefix + key,
                    **condition,  # type: ignore[arg-type]  # a dictionary of one known key
                )
                with closing(answer["Body"]) as stream:
                    body = stream.read(most_bytes + 1)
                if len(body) > most_bytes:
                    raise BalancerError(f"S3: the object {key} is over {most_bytes} bytes")
                if len(body) != answer["ContentLength"]:
                    raise UnavailableError(f"S3 broke off while giving {key}")
        except (_MissingError, _UnchangedError):
            return None
        except _ForbiddenError as error:
            if may_hide and key not in self._known_keys:
                return None
            raise self._refused(f"give {key}", "AccessDenied") from error
        if may_hide:
            self._known_keys.add(key)
        return Content(body, answer["ETag"])

    def put(self, key: str, body: bytes, *, tag: str | None, may_hide: bool = False) -> str:
        """Put an object that must not exist (no ``tag``) or must be the one tagged; return its tag.

        Args:
            key: relative to the prefix.
            body: what it is to have.
            tag: of the state to replace; None where there must be none.
            may_hide: it is one that is read as such, and that is known to be there from here on.

        Raises:
            ConflictError: where that is not so.
            UnavailableError: where the outcome is not known.
        """
        name = self._prefix + key
        try:
            with self._translated(f"take {key}"):
                if tag is None:
                    answer = self._client.put_object(
                        Bucket=self._bucket, Key=name, Body=body, IfNoneMatch="*"
                    )
                else:
                    answer = self._client.put_object(
                        Bucket=self._bucket, Key=name, Body=body, IfMatch=tag
                    )
        except _MissingError as error:
            raise ConflictError(f"S3 did not take {key}: it is there no longer") from error
        except _ForbiddenError as error:
            raise self._refused(f"take {key}", "AccessDenied") from error
        if may_hide:
            self._known_keys.add(key)
        return answer["ETag"]

    def list(self, start: str, *, after: str | None = None) -> list[tuple[str, int]]:
        """Return (key, Unix milliseconds of its last change) of the objects below ``start``.

        Args:
            start: what keys begin with, relative to the prefix.
            after: leave out keys up to this one.
        """
        found = []
        place = {"Bucket": self._bucket, "Prefix": self._prefix + start}
        if after is not None:
            place["StartAfter"] = self._prefix + after
        try:
            with self._translated(f"list {start}"):
                pages = self._client.get_paginator("list_objects_v2").paginate(**place)  # type: ignore[arg-type]  # as above
                for page in pages:
                    for item in page.get("Contents", []):
                        key = item["Key"].removeprefix(self._prefix)
                        found.append((key, int(item["LastModified"].timestamp() * 1000)))
        except (_ForbiddenError, _MissingError) as error:
            raise self._refused(f"list {start}", "AccessDenied") from error
        return found

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        try:
            with self._translated(f"delete {key}"):
                self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)
        except _MissingError:
            return
        except _ForbiddenError as error:
            raise self._refused(f"delete {key}", "AccessDenied") from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _refused(self, what: str, code: str) -> BalancerError:
        return BalancerError(
            f"S3 refused to {what} ({code}); check PERMIT_S3_BUCKET={self._bucket}, "
            "PERMIT_S3_ENDPOINT_URL and the AWS_* credentials and their rights"
        )

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _MISSING:
                raise _MissingError(code) from error
            if code in _UNCHANGED:
                raise _UnchangedError(code) from error
            if code in _FORBIDDEN:
                raise _ForbiddenError(code) from error
            if code in _CONFLICTS:
                raise ConflictError(f"S3 did not {what}: somebody else changed it") from error
            if code in _WRONG_SETTINGS:
                raise self._refused(what, code) from error
            hint = (
                "; request_checksum_calculation and response_checksum_validation are "
                "when_required here: does the store ask for more?"
                if code in _WRONG_CHECKSUM
                else ""
            )
            raise UnavailableError(f"S3 could not {what}: {error}{hint}") from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise SettingsError(
                "AWS_ACCESS_KEY_ID: no credentials for S3 were found; "
                "for example AWS_ACCESS_KEY_ID=key and AWS_SECRET_ACCESS_KEY=secret"
            ) from error
        except (BotoCoreError, OSError) as error:
            raise UnavailableError(f"S3 could not {what}: {error}") from error
