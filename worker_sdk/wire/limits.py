"""Every limit of the wire contract, with the relations between them asserted.

Knows no format; the modules beside it apply these numbers.
"""

from __future__ import annotations

from typing import Final

WIRE_VERSION: Final = 1

NAME_MAX_BYTES: Final = 255
"""Host, instance, destination and group names: 1 to 255 bytes of UTF-8."""

PERMITS_MAX: Final = 10**12
"""The largest capacity, and the largest count of permits in one tuple."""

EPOCH_MAX: Final = 10**11 - 1
"""Epochs have at most 11 digits; a file name pads them to 12."""

INSTANT_MIN_MS: Final = 946_684_800_000
"""2000-01-01T00:00:00Z. A smaller number is in the wrong unit or from a broken clock."""

INSTANT_MAX_MS: Final = 4_102_444_800_000
"""2100-01-01T00:00:00Z. A larger number is in the wrong unit (micro- or nanoseconds)."""

SPAN_MAX_MS: Final = 7 * 86_400_000
"""One tuple accounts for at most a week."""

WINDOW_SECONDS_MAX: Final = 86_400
SHARDS_MAX: Final = 4_096

BATCH_COMPRESSED_MAX_BYTES: Final = 900_000
"""Below the common broker limit of 1,000,000 bytes a message, record overhead included."""

BATCH_MAX_BYTES: Final = 16 * 1024 * 1024
BATCH_TUPLES_MAX: Final = 20_000
BATCH_EPOCHS_MAX: Final = SHARDS_MAX
BATCH_ITEMS_MAX: Final = 500_000
"""Commas, brackets and braces in a batch: bounds the memory that its JSON takes when parsed."""

JSON_ITEMS_MAX: Final = 2_000_000
"""The same for any other JSON text."""

GZIP_MEMBERS_MAX: Final = 10_000
"""Joined gzip members in one body; an empty one passes no other limit."""

DOCUMENT_COMPRESSED_MAX_BYTES: Final = 64 * 1024 * 1024
DOCUMENT_MAX_BYTES: Final = 512 * 1024 * 1024
DOCUMENT_DESTINATIONS_MAX: Final = 100_000
DESTINATION_MEMBERS_MAX: Final = 200_000
ENTRY_INTERVALS_MAX: Final = 64
DESTINATION_HOLDS_MAX: Final = 400_000
DESTINATION_LINE_MAX_BYTES: Final = 32 * 1024 * 1024
MEMBER_LINE_MAX_BYTES: Final = 16 * 1024
POINTER_MAX_BYTES: Final = 256 * 1024
POINTER_DOCUMENTS_MAX: Final = 512
LAYOUT_MAX_BYTES: Final = 4_096
ANSWER_MAX_BYTES: Final = 32 * 1024 * 1024
"""One host's distribution over HTTP."""
ANSWER_DESTINATIONS_MAX: Final = BATCH_TUPLES_MAX
ANSWER_INSTANCES_MAX: Final = DESTINATION_MEMBERS_MAX

assert BATCH_COMPRESSED_MAX_BYTES < BATCH_MAX_BYTES
assert DOCUMENT_COMPRESSED_MAX_BYTES < DOCUMENT_MAX_BYTES
assert BATCH_TUPLES_MAX * 13 + BATCH_EPOCHS_MAX < BATCH_ITEMS_MAX  # 10 a tuple, 3 an account
assert DESTINATION_HOLDS_MAX * 4 < JSON_ITEMS_MAX
assert DESTINATION_HOLDS_MAX * 40 < DESTINATION_LINE_MAX_BYTES  # a hold has up to 38 digits
assert 2 * NAME_MAX_BYTES * 6 + ENTRY_INTERVALS_MAX * 24 < MEMBER_LINE_MAX_BYTES  # \uXXXX for each
assert INSTANT_MIN_MS < INSTANT_MAX_MS
