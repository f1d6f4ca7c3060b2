"""Who else reports under a host's name, as far as what a worker reads says it.

Decides nothing; it finds the instances that are listed beside the reader's own. Knows nothing of
shares.
"""

from __future__ import annotations

from worker_sdk.wire.compression import gunzip_bytes
from worker_sdk.wire.entries import entry_items
from worker_sdk.wire.limits import ANSWER_MAX_BYTES, DOCUMENT_MAX_BYTES, POINTER_DOCUMENTS_MAX
from worker_sdk.wire.strict import as_list, as_name, as_object, check_name, dump_json, parse_json


def instances_in_document(body: bytes, host: str) -> frozenset[str]:
    """Return the instances of a host that have a line in a document's file.

    Raises:
        WireError: where the bytes are no gzip file, or a line of the host's is none.
    """
    prefix = dump_json([check_name(host, "host")])[:-1] + b","
    lines = gunzip_bytes(body, DOCUMENT_MAX_BYTES).splitlines()
    own = (as_name(entry_items(line)[1], "instance") for line in lines if line.startswith(prefix))
    return frozenset(own)


def instances_in_answer(body: bytes) -> frozenset[str]:
    """Return the instances in the newest document of each destination of a host's answer.

    Raises:
        WireError: where the bytes are no such answer.
    """
    if len(body) > ANSWER_MAX_BYTES:
        return frozenset()
    value = as_object(parse_json(body), "an answer")
    found: set[str] = set()
    for rows in as_object(value.get("destinations"), "destinations").values():
        for row in as_list(rows, "a destination's documents", most=POINTER_DOCUMENTS_MAX)[:1]:
            found |= set(as_object(as_object(row, "a document").get("instances"), "instances"))
    return frozenset(found)
