"""Names that sources, records, slots and identities have in a store, and the order of a history.

Owns the file-name grammar of both generations. It knows the text of no record and opens no file. Format: section 5 of the snapshot
formats.
"""

from __future__ import annotations

import re

from forage._codec import utf16_key
from forage.errors import InvalidSnapshotError
from forage.snapshots.javascript import js_trim, js_utf8
from forage.snapshots.model import Snapshot, sha256_hex
from forage.snapshots.reference import Lookup, snapshot_digest

__all__ = [
    "ENVELOPE_RECORD",
    "MAX_HISTORY_FILES",
    "MAX_INDEX_ENTRY_BYTES",
    "MAX_NAME_BYTES",
    "RELEASED_RECORD",
    "envelope_record_name",
    "first_slot",
    "iso_time_of",
    "newest_first",
    "parse_index_entry",
    "record_name",
    "refuse_ambiguous_time",
    "released_record_name",
    "source_directory",
]

MAX_HISTORY_FILES = 10_000
MAX_INDEX_ENTRY_BYTES = 512
MAX_NAME_BYTES = 255

ENVELOPE_RECORD = re.compile(r"[0-9A-Za-z._-]+-[a-f0-9]{64}\.json")
"""Names of records since 0.4 (use fullmatch): time, snapshot digest."""
RELEASED_RECORD = re.compile(r"[0-9A-Za-z._-]+-[a-f0-9]{12}\.json")
"""Names of records of 0.3 (use fullmatch): time, first digits of the body hash."""

_ISO_RECORD = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2})-([0-9]{2})-([0-9]{2}(?:\.[0-9]{1,9})?Z)-[a-f0-9]{64}\.json")
_NOT_IN_SOURCE = re.compile(r"[^A-Za-z0-9._-]+")
_NOT_IN_TIME = re.compile(r"[^0-9A-Za-z._-]")
_NAME_CUT = 80


def source_directory(source_id: str) -> str:
    """The directory of a source. Case-insensitive file systems are served by the digest at its end."""
    # The cut comes after the strip: a hyphen may end up last.
    readable = _NOT_IN_SOURCE.sub("-", source_id).strip("-")[:_NAME_CUT] or "source"
    return f"{readable}-{sha256_hex(js_utf8(source_id))[:8]}"


def _time_part(fetched_at: str) -> str:
    # Each UTF-16 unit becomes one hyphen.
    return _NOT_IN_TIME.sub(lambda match: "-" if match[0] <= "\uffff" else "--", fetched_at)


def envelope_record_name(fetched_at: str, digest: str) -> str:
    """The file of the record with this time and snapshot digest."""
    return f"{_time_part(fetched_at)[:_NAME_CUT] or 'snapshot'}-{digest}.json"


def record_name(snapshot: Snapshot) -> str:
    """The file of a snapshot's record. Raises InvalidSnapshotError when the snapshot is not durable."""
    return envelope_record_name(snapshot.fetched_at, snapshot_digest(snapshot))


def released_record_name(fetched_at: str, body_hash: str) -> str | None:
    """The file that the 0.3 generation would have used; None when no file can have that name (over 255 bytes)."""
    name = f"{_time_part(fetched_at)}-{re.sub('[^a-f0-9]', '', body_hash)[:12] or 'snapshot'}.json"
    return name if len(name) <= MAX_NAME_BYTES else None


def iso_time_of(name: str) -> str | None:
    """The time that an ISO-shaped envelope record name stands for; None for any other name."""
    match = _ISO_RECORD.fullmatch(name)
    return None if match is None else ":".join(match.groups())


def refuse_ambiguous_time(name: str, fetched_at: str) -> None:
    """Raise InvalidSnapshotError for a time that is not ISO-8601 but whose record name looks as if it were.

    The newest record is found by names alone; two times must never share one.
    """
    if iso_time_of(name) not in {None, fetched_at}:
        raise InvalidSnapshotError("fetched_at: looks like ISO-8601 but does not use its separators")


def first_slot(name: str, ceiling: int) -> int:
    """Where the search for a capacity slot of this record begins."""
    return int(sha256_hex(name.encode())[:12], 16) % ceiling


def parse_index_entry(text: str) -> str | None:
    """The record name that an identity entry holds; None when it holds something else."""
    name = js_trim(text)
    return name if ENVELOPE_RECORD.fullmatch(name) else None


def newest_first(item: Snapshot | Lookup) -> tuple[bytes, str, str]:
    """Sort key of a history (use ``reverse=True``): time, body hash, digest, as texts of UTF-16 units; so ``00Z`` is above ``00.5Z``."""
    digest = item.snapshot_digest or "" if isinstance(item, Lookup) else snapshot_digest(item, released_identity=True)
    return utf16_key(item.fetched_at), item.body_hash, digest
