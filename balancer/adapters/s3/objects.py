"""A bucket as plain calls that wait: get, conditional put, list, delete.

Decides how long a call may take and what an S3 error means. Knows no document.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from balancer.errors import BalancerError, ConflictError, UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECT_SECONDS: Final = 3
READ_SECONDS: Final = 5
ATTEMPTS: Final = 2
CONFLICTS: Final = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
MISSING: Final = frozenset({"NoSuchKey", "404", "NotFound"})
REFUSED: Final = frozenset(
    {
        "403",
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "NoSuchBucket",
        "InvalidBucketName",
    }
)


@dataclass(frozen=True, slots=True)
class S3Config:
    """Where the bucket is. Credentials come from where boto3 finds them."""

    bucket: str
    prefix: str = ""
    endpoint_url: str | None = None
    region: str | None = None


class Bucket:
    """One prefix of a bucket; every call is bounded by seconds times attempts."""

    def __init__(self, config: S3Config) -> None:
        self._bucket = config.bucket
        self._prefix = f"{config.prefix.strip('/')}/" if config.prefix.strip("/") else ""
        # A session of its own: the default one is not safe to make in several threads.
        self._client: S3Client = boto3.session.Session().client(
            "s3",
            endpoint_url=config.endpoint_url,
            region_name=config.region,
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                max_pool_connections=16,
            ),
        )

    def check(self) -> None:
        """Check that the bucket is there and may be listed.

        Raises:
            BalancerError: it is not; names the setting.
            UnavailableError: S3 does not answer.
        """
        with self._translated("be listed"):
            self._client.list_objects_v2(Bucket=self._bucket, Prefix=self._prefix, MaxKeys=1)

    def get(self, key: str, most_bytes: int) -> tuple[bytes, str] | None:
        """Return (content, tag), None where there is no such object.

        Raises:
            BalancerError: where the object is larger than ``most_bytes``, or reading is refused.
        """
        try:
            with self._translated(f"give {key}"):
                answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + key)
                if answer["ContentLength"] > most_bytes:
                    raise BalancerError(f"the object {key} is over {most_bytes} bytes")
                return answer["Body"].read(), answer["ETag"]
        except _MissingError:
            return None

    def put(self, key: str, body: bytes, *, tag: str | None) -> str:
        """Put an object that must not exist (no ``tag``) or must be the one tagged; return its tag.

        Raises:
            ConflictError: where that is not so.
            UnavailableError: where the outcome is not known.
        """
        try:
            return self._put(key, body, tag)
        except _MissingError:
            raise ConflictError(f"S3 did not take {key}: it was deleted meanwhile") from None

    def _put(self, key: str, body: bytes, tag: str | None) -> str:
        with self._translated(f"take {key}"):
            name = self._prefix + key
            if tag is None:
                return self._client.put_object(
                    Bucket=self._bucket, Key=name, Body=body, IfNoneMatch="*"
                )["ETag"]
            return self._client.put_object(Bucket=self._bucket, Key=name, Body=body, IfMatch=tag)[
                "ETag"
            ]

    def list(self, start: str) -> list[tuple[str, int]]:
        """Return (key, Unix milliseconds of its last change) of every object below ``start``."""
        found = []
        with self._translated(f"list {start}"):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + start
            )
            for page in pages:
                for item in page.get("Contents", []):
                    key = item["Key"].removeprefix(self._prefix)
                    found.append((key, int(item["LastModified"].timestamp() * 1000)))
        return found

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        with self._translated(f"delete {key}"):
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in MISSING:
                raise _MissingError from error
            if code in CONFLICTS:
                raise ConflictError(f"S3 did not {what}: somebody else changed it") from error
            if code in REFUSED:
                raise BalancerError(
                    f"S3 refused to {what} ({code}); check PERMIT_S3_BUCKET={self._bucket}, "
                    "PERMIT_S3_ENDPOINT_URL and the AWS_* credentials"
                ) from error
            raise UnavailableError(f"S3 could not {what}: {error}") from error
        except (BotoCoreError, OSError) as error:
            raise UnavailableError(f"S3 could not {what}: {error}") from error


class _MissingError(BalancerError):
    """There is no such object."""
